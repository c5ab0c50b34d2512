"""What Dagster checks and shows of a pretrained model."""

from assets.checks import Artefact, Shown, Verdict
from assets.metadata import Metadata, sparkline


def losses_are_finite(artefact: Artefact) -> Verdict:
    """The loss is a finite number at every logged step."""
    return artefact.has_no("steps without a loss", "NOT coalesce(isfinite(loss), false)")


def bits_per_byte_are_finite(artefact: Artefact) -> Verdict:
    """Validation on held-out text gave a positive number; a bound is what random bytes would cost."""
    bits = artefact.found["bits_per_byte"]
    return Verdict(bits is not None and 0 < bits < 16, {"bits per byte": str(bits)})


def budget_was_trained(artefact: Artefact) -> Verdict:
    """The model saw at least its token budget, and left a checkpoint."""
    found, budget = artefact.found, artefact.settings["token_budget"]
    return Verdict(
        found["tokens_seen"] >= budget and len(found["checkpoints"]) > 0,
        {"tokens seen": found["tokens_seen"], "budget": budget, "checkpoints": len(found["checkpoints"])},
    )


def _headline(artefact: Artefact) -> Metadata:
    return {"loss by step": sparkline(artefact.pipeline.store, artefact.ref, "loss")}


SHOWN = {
    "pretrained_model": Shown(
        blocking=(losses_are_finite, bits_per_byte_are_finite, budget_was_trained),
        numbers=("bits_per_byte", "parameters", "steps", "tokens_seen", "subset_tokens", "epochs"),
        headline=_headline,
        plots=("loss_curve.png",),
    )
}
