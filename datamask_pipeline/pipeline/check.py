"""Refuses before any work what a stage would refuse later. Knows the flow and the configuration; reads no rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from datamask_pipeline.errors import ConfigurationError, DataMaskError, UnknownNameError
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.stages import compare, ingest, materialise, pretrain, select
from datamask_pipeline.storage.ref import check_key


def check(config: PipelineConfig, crawls: Sequence[str], stages: Sequence[Stage]) -> None:
    """Check the settings of some stages: each by its own ``check``, and what two of them have to agree on.

    Raises:
        DataMaskError: what is wrong, and where in the configuration.
    """
    for crawl in crawls:
        check_key(ingest.STAGE, crawl)
    for stage in stages:
        for member, settings in config.settings(stage).items():
            with _named(f"{stage.scope} {member!r}" if member else ""):
                if hasattr(stage.module, "check"):
                    stage.module.check(settings)
    names = {stage.name for stage in stages}
    if select.STAGE in names:
        for arm in config.arms:
            for name in config.select_config(arm).scorers:
                if name not in config.score.scorers:
                    raise UnknownNameError(f"scorer of arm {arm!r}", name, config.score.scorers)
    if pretrain.STAGE in names and not config.pool.validation_share:
        raise ConfigurationError(
            "pool.validation_share is 0, but models are validated on documents that no arm sees; raise it, or stop at "
            f"{materialise.STAGE}"
        )
    if compare.STAGE in names and config.compare.baseline not in config.arms:
        raise UnknownNameError("arm to compare with", config.compare.baseline, config.arms)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say whose settings an error speaks of."""
    try:
        yield
    except DataMaskError as error:
        if where:
            error.args = (f"{where}: {error}",)
        raise
