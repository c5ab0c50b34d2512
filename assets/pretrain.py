"""The asset of pretraining: one small language model per run."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets import partitions
from assets.checks import Artefact, Verdict, asset_checks, none_found, same_schema
from assets.launchpad import code_version, launchpad
from assets.metadata import Metadata, scalars
from assets.step import COMMON, COMPUTE_POOL, run_stage
from datamask_pipeline import schema
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.stages import pretrain
from datamask_pipeline.storage import Ref
from resources import PipelineResource

PLOT = "loss_curve.png"
#: What a run's name says already.
NAMED = frozenset({"architecture", "seed"})


def build(config: PipelineConfig) -> dg.Definitions:
    """The asset and its checks."""
    run_partitions = partitions.release_runs(config)
    runs = [config.pretrain_config(name) for name in config.run_names()]

    @dg.asset(
        deps=[
            partitions.of_the_runs_arm("fineweb_mask", config),
            partitions.of_the_release("tokenizer"),
            partitions.of_the_release("candidate_documents"),
            partitions.of_every_crawl("crawl_documents"),
        ],
        partitions_def=run_partitions,
        group_name="models",
        kinds={"pytorch", "huggingface"},
        tags={"stage": "pretrain"},
        code_version=code_version(pretrain.VERSION, *runs),
        config_schema=launchpad(*runs, fixed=NAMED),
        pool=COMPUTE_POOL,
        **COMMON,
    )
    def pretrained_model(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[None]:
        """A language model pretrained from scratch on one arm's subset: checkpoints and loss curve."""
        return run_stage(context, pipeline, "pretrain", headline=_headline, plots=(PLOT,))

    return dg.Definitions(
        assets=[pretrained_model],
        asset_checks=[
            asset_checks(
                "pretrained_model",
                pretrain.STAGE,
                run_partitions,
                blocking=[columns, losses_are_finite, bits_per_byte_are_finite, budget_was_trained],
            ),
        ],
    )


def columns(artefact: Artefact) -> Verdict:
    """The loss curve's columns and types are the record's."""
    return same_schema(artefact, schema.LOSS_CURVE)


def losses_are_finite(artefact: Artefact) -> Verdict:
    """The loss is a finite number at every logged step."""
    wrong = artefact.count("NOT coalesce(isfinite(loss), false)")
    return none_found(wrong, "steps without a loss")


def bits_per_byte_are_finite(artefact: Artefact) -> Verdict:
    """Validation on held-out text gave a positive number; a bound is what random bytes would cost."""
    bits = artefact.manifest["metadata"]["bits_per_byte"]
    return Verdict(bits is not None and 0 < bits < 16, {"bits per byte": str(bits)})


def budget_was_trained(artefact: Artefact) -> Verdict:
    """The model saw at least its token budget, and left a checkpoint."""
    found, budget = artefact.manifest["metadata"], artefact.manifest["basis"]["config"]["token_budget"]
    return Verdict(
        found["tokens_seen"] >= budget and len(found["checkpoints"]) > 0,
        {"tokens seen": found["tokens_seen"], "budget": budget, "checkpoints": len(found["checkpoints"])},
    )


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    names = ("bits_per_byte", "parameters", "steps", "tokens_seen", "subset_tokens", "epochs")
    return scalars(manifest["metadata"], *names)
