"""Says where models are asked longer prompts than they were trained on. Reads settings alone."""

from collections.abc import Iterator

from datamask_pipeline.pipeline.config import PipelineConfig


def beyond_training(config: PipelineConfig) -> Iterator[str]:
    """A line for each architecture whose sequences are shorter than the prompts that it is asked."""
    (arm, *_), (seed, *_) = config.arms, config.seeds
    for architecture in config.architectures:
        trained = config.pretrain_config(f"{arm}.{architecture}.seed{seed}").sequence_length
        if trained < config.evaluate.max_length:
            yield (
                f"models of {architecture} are trained on sequences of {trained} tokens and asked prompts of up to "
                f"{config.evaluate.max_length} (evaluate.max_length), whose further positions they have never seen; "
                f"evaluate.max_length: {trained} cuts prompts there instead"
            )
