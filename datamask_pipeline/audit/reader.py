"""Rows of one document out of current and older artefacts, by the flow's names of assets. Knows no story."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.document_rows import CheckedTables

Row = dict[str, Any]


class Reader:
    """What the record says of one document.

    Args:
        store: The record.
        document_id: The id as in the crawl.
    """

    def __init__(self, store: Store, document_id: str) -> None:
        self.store, self.document_id = store, document_id
        self.tables = CheckedTables(store)

    def keys(self, asset: str) -> list[str]:
        """Every key of an asset that has a current artefact."""
        return self.store.keys(artefact_of(asset))

    def ref(self, asset: str, key: str) -> Ref | None:
        """The current artefact."""
        return self.tables.current(artefact_of(asset), key)

    def manifest(self, ref: Ref) -> dict[str, Any]:
        """Its manifest."""
        return self.tables.manifest(ref.location)

    def rows(
        self,
        asset: str,
        key: str,
        *,
        crawl: str | None = None,
        columns: Sequence[str] | None = None,
        without: Sequence[str] = (),
    ) -> list[Row]:
        """The document's rows in a current artefact, of one crawl if that is given."""
        ref = self.ref(asset, key)
        found = [] if ref is None else self.at(ref.location, columns=columns, without=without)
        return [row for row in found if crawl is None or row["crawl"] == crawl]

    def at(
        self,
        location: str,
        document_id: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        without: Sequence[str] = (),
    ) -> list[Row]:
        """The rows of this document, or of another, in one version of an artefact."""
        return list(self.tables.rows(location, document_id or self.document_id, columns, without=without))

    def one(self, location: str | None, crawl: str, document_id: str | None = None) -> Row | None:
        """The document's first row of a crawl in one version of an artefact; ``None`` where there is none."""
        rows = [] if location is None else self.at(location, document_id)
        return next((row for row in rows if row["crawl"] == crawl), None)

    def artefact_row(self, location: str, record: Mapping[str, Any]) -> int:
        """The row over all parts of a row of one part, by its ``record``."""
        parts = self.tables.manifest(location)["parts"]
        before = itertools.takewhile(lambda part: f"{part['name']}.parquet" != record["part"], parts)
        return sum(int(part["rows"]) for part in before) + int(record["row"])

    def made_from(self, asset: str, key: str, source_asset: str, source: Ref) -> Ref | None:
        """The current artefact, unless it was made from something else than ``source``.

        A stage's result may depend on less than all of its input; what on, the flow says.
        """
        ref = self.ref(asset, key)
        if ref is None:
            return None
        stage, _ = FLOW.maker(asset)
        argument = next(argument for argument, read in stage.reads.items() if read == source_asset)
        used = self.manifest(ref)["basis"]["inputs"].get(argument)
        return ref if used == stage.identity(argument)(self.store, source) else None


def artefact_of(asset: str) -> str:
    """Under which name the record keeps an asset."""
    return FLOW.maker(asset)[1].artefact


def input_location(manifest: Mapping[str, Any], name: str) -> str | None:
    """Where the version lies that one was made from; ``None`` where it read no such input."""
    item = manifest["inputs"].get(name)
    return item["location"] if isinstance(item, Mapping) else None
