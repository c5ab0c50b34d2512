"""What Dagster checks and shows of a pretrained model."""

from collections.abc import Mapping
from typing import Any

from assets.checks import Artefact, Shown, Verdict, none_found
from assets.metadata import Metadata, scalars
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Ref


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


SHOWN = {
    "pretrained_model": Shown(
        blocking=(losses_are_finite, bits_per_byte_are_finite, budget_was_trained),
        headline=_headline,
        plots=("loss_curve.png",),
    )
}
