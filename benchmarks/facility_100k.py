"""Facility location against lazy greedy on sparse similarities at 100 000 documents. Knows no other metric."""

from __future__ import annotations

from benchmarks.harness import Context, Opponents, Outcome, at_least, at_most, attainment, timed
from benchmarks.peers.facility import sparse_lazy_greedy
from datamask_pipeline.diversity.facility import FacilityLocation

TITLE = "Facility location, N = 100 000"
QUESTION = (
    "The same where the similarities no longer fit in memory: "
    "greedy keeps those that exceed what its first picks cover."
)
LONG = True


def run(context: Context) -> Outcome:
    """Once, on the first seed."""
    outcome, seed = Outcome(), context.seeds[0]
    embeddings, quality = context.block(context.size(100_000), seed)
    first = timed(embeddings, quality, diversity="Facility", seed=seed)
    constants = first.result.normalisation
    opponents = Opponents(
        embeddings_ND=embeddings,
        quality_N=quality,
        metric=FacilityLocation(),
        constants=constants,
        budget=int(first.result.mask.sum()),
    )
    greedy = opponents.run(sparse_lazy_greedy)
    ours = timed(embeddings, quality, diversity="Facility", seed=seed, normalisation_constants=constants)
    random = ours.result.objective.random
    outcome.rows = [ours.row("lists", seed), greedy.row("sparse lazy greedy", seed, random)]
    reached = attainment(ours.result.objective.value, random, greedy.objective)
    outcome.claims = [
        at_least("attainment of lazy greedy's", 0.98, reached, ".2%"),
        at_most("share of its processor time", 0.1, ours.cpu_seconds / greedy.cpu_seconds),
    ]
    outcome.notes.append(
        "Lazy greedy's first picks rest on a sample of references; the rest are exact greedy's, up to float32 rounding."
    )
    return outcome
