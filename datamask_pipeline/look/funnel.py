"""How many documents each stage kept and dropped on the way to a selection, from the manifests' counters. Reads no row."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping

from datamask_pipeline.look.selected import Selected


@dataclasses.dataclass(frozen=True)
class Step:
    """What one stage did.

    Attributes:
        stage: The stage.
        what: What remained, in words.
        kept: Documents that remained.
        dropped: Documents that did not, by reason; reasons with none are left out.
    """

    stage: str
    what: str
    kept: int
    dropped: dict[str, int]


def funnel(about: Selected) -> Iterator[Step]:
    """The stages from the source's rows to the chosen documents."""
    ingested: Counter[str] = Counter()
    for ref in about.documents.values():
        ingested.update(about.store.manifest(ref)["counts"])
    yield Step("source", "rows of the source", ingested["rows_in"], {})
    yield Step("ingest", "documents", ingested["kept"], _dropped(ingested))
    pool = about.candidates_manifest["counts"]
    yield Step("pool", "eligible documents", pool["kept"], _dropped(pool))
    index = about.index_manifest["counts"]
    if about.near_copies is not None:
        near = {name: number for name, number in _dropped(index).items() if name != "not eligible"}
        yield Step("copies", "documents that are no near-copies", index["kept"], near)
    selection = about.manifest["counts"]
    yield Step("select", "chosen documents", selection["kept"], _dropped(selection))


def _dropped(counts: Mapping[str, int]) -> dict[str, int]:
    return {
        name.removeprefix("dropped_").replace("_", " "): int(number)
        for name, number in sorted(counts.items())
        if name.startswith("dropped_") and number
    }
