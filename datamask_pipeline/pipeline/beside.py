"""What a report shows beside its comparison: measured of the same arms, and no input of it. Reads manifests."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.publish.behind import made_from
from datamask_pipeline.report.ngram import ngram_figures, no_power
from datamask_pipeline.stages.materialise import documents_digest
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import ref_of


def shown_beside(store: Store, comparison: Mapping[str, Any]) -> Iterator[Ref]:
    """All of it.

    Args:
        store: The record.
        comparison: The comparison's manifest.
    """
    yield from redundancy_of(store, comparison).values()
    yield from ngram_of(store, comparison).values()


def redundancy_of(store: Store, comparison: Mapping[str, Any]) -> dict[str, Ref]:
    """What was measured of the compared selections without training, by arm; an older record may have it of none."""
    found = {}
    for arm, location in compared(comparison, "selections").items():
        mask = store.manifest_at(location)["content_digest"]
        measured = made_from(store, "redundancy", f"{comparison['key']}/{arm}", "selection", mask)
        if measured is not None:
            found[arm] = measured
    return found


def ngram_of(store: Store, comparison: Mapping[str, Any]) -> dict[str, Ref]:
    """What n-gram models of the compared subsets say, by arm; an older record may have it of none."""
    found, locations = {}, compared(comparison, "subsets")
    for arm in (row["arm"] for row in comparison["metadata"]["arms"]):
        subset = documents_digest(store, ref_of(store.manifest_at(locations[arm])))
        measured = made_from(store, "ngram", f"{comparison['key']}/{arm}", "subset", subset)
        if measured is not None:
            found[arm] = measured
    return found


def ngram_figures_of(store: Store, comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of these, by arm."""
    measured = ngram_of(store, comparison)
    rows = {arm: store.read_table(ref).to_pylist() for arm, ref in measured.items()}
    tokens = {arm: store.manifest(ref)["metadata"]["tokens"] for arm, ref in measured.items()}
    return ngram_figures(rows, tokens, comparison["metadata"]["baseline"])


def weak_models(comparison: Mapping[str, Any], ngram: Mapping[str, Any]) -> list[str]:
    """A line where an arm's models predict held-out documents no better than these of the same arm."""
    return no_power((comparison["metadata"].get("gold") or {}).get("arms", {}), ngram)


def compared(comparison: Mapping[str, Any], of: str) -> dict[str, str]:
    """Where the artefacts lie that a comparison was made from, by arm or run: its ``subsets``, for one."""
    return {
        name.partition("/")[2]: ref["location"]
        for name, ref in comparison["inputs"].items()
        if name.startswith(f"{of}/")
    }
