"""One document with all that the record says of it, for a page. Knows positions in a release; knows no HTML."""

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.audit.copies_of import KINSHIP, representative
from datamask_pipeline.audit.reader import Reader
from datamask_pipeline.errors import UnknownDocumentError, UnknownNameError
from datamask_pipeline.look.cut import cut_sql
from datamask_pipeline.look.measured import documents_sql
from datamask_pipeline.look.neighbours import Neighbours, nearest_chosen
from datamask_pipeline.look.rows import Rows
from datamask_pipeline.look.selected import Selected
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Store

if TYPE_CHECKING:
    import duckdb

#: Characters of a text that a page shows.
MOST_CHARACTERS: Final = 200_000
_MOST_FOUND: Final = 20

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Document:
    """A document.

    Attributes:
        columns: Every column of it but the text, as ingested.
        text: Its text, cut.
        num_characters: Characters of the whole text.
        scores: A row for each scorer.
        pool: Its row among the release's candidates; ``None`` without a release.
        near_copy: Its row among near-copies; ``None`` where these were not sought.
        arms: By arm, its row in the mask, and as ``cut`` what it was compared with; ``None`` where the arm did not judge it.
        representative: What stands for it: crawl, row, id, as ``by`` what this one is to it, as ``is_its_text`` whether that
            has its text, and as ``kept_by`` the arms that kept that; ``None`` where it stands for itself.
        neighbours: The chosen documents nearest to it, each with its place, cosine and the beginning of its text.
        compared: How many chosen ones were compared, and how many there are.
    """

    columns: Row
    text: str
    num_characters: int
    scores: list[Row]
    pool: Row | None = None
    near_copy: Row | None = None
    arms: dict[str, Row | None] = dataclasses.field(default_factory=dict)
    representative: Row | None = None
    neighbours: list[Row] = dataclasses.field(default_factory=list)
    compared: Neighbours | None = None


def document_page(
    store: Store, about: Selected | None, crawl: str, row: int, connection: "duckdb.DuckDBPyConnection"
) -> Document:
    """All of one document.

    Args:
        store: The record.
        about: The selection it is seen under; ``None``: only what its crawl says.
        crawl: Its crawl.
        row: Its row among the crawl's documents, counted from 0.
        connection: A database over the record.

    Raises:
        UnknownNameError: no such crawl.
        UnknownDocumentError: the crawl has no such row.
    """
    refs = about.documents if about is not None else _current(store)
    if crawl not in refs:
        raise UnknownNameError("crawl", crawl, refs)
    if row >= refs[crawl].rows:
        raise UnknownDocumentError(
            f"crawl {crawl!r} has {refs[crawl].rows} documents, counted from 0: no row {row}"
        )
    documents = Rows(store, refs)
    position = documents.firsts[crawl] + row
    columns = documents.read([position])[position]
    text = str(columns.pop("text") or "")
    found = Document(
        columns=columns,
        text=text[:MOST_CHARACTERS],
        num_characters=len(text),
        scores=_scores(store, about, crawl, columns["id"], connection),
    )
    if about is None:
        return found

    def row_of(ref: Any, names: str = "*", told: str = "*") -> Row | None:
        rows = _rows(
            connection,
            f"SELECT {told} FROM {duck.parts_sql(store, [ref], names)} WHERE position = {position}",
        )
        return rows[0] if rows else None

    def decision_of(arm: Selected) -> Row | None:
        cut = cut_sql(arm.manifest, duck.literal(pool["domain"] if pool else ""))
        return row_of(arm.selection, f"crawl, {mask}", f"{mask}, {cut} AS cut")

    pool = row_of(about.candidates)
    near = nearest_chosen(about, connection, position)
    texts = documents.read([place for _, place in near.nearest], ["id", "url", "text"])
    neighbours = []
    for cosine, place in near.nearest:
        of_crawl, of_row = documents.place(place)
        neighbours.append({"crawl": of_crawl, "row": of_row, "cosine": cosine} | texts[place])
    mask = "position, selected, reason, quality, quality_marginal, diversity_marginal, threshold, logit, probability"
    return dataclasses.replace(
        found,
        pool=pool,
        near_copy=row_of(about.near_copies) if about.near_copies is not None else None,
        arms={name: decision_of(arm) for name, arm in about.arms.items()},
        representative=None if pool is None else _representative(about, pool),
        neighbours=neighbours,
        compared=near,
    )


def _representative(about: Selected, pool: Row) -> Row | None:
    """What stands for the text of a document of the pool, as ``Document.representative``."""
    reader = Reader(about.store, pool["id"])
    try:
        near_copies = None if about.near_copies is None else about.near_copies.location
        by = representative(reader, about.candidates.location, near_copies, pool["crawl"], pool["id"])
        standing = by and reader.one(about.candidates.location, by["crawl"], by["id"])
        if by is None or standing is None:
            return None
        masks = {
            name: reader.one(arm.selection.location, by["crawl"], by["id"])
            for name, arm in about.arms.items()
        }
        return {
            "crawl": by["crawl"],
            "row": standing["record"]["row"],  # a pool has one part a crawl
            "id": by["id"],
            "by": KINSHIP[by["by"]],
            "is_its_text": by["by"] == "copy",
            "kept_by": [name for name, row in masks.items() if row is not None and row["selected"]],
        }
    finally:
        reader.tables.close()


def find_document(store: Store, name: str, connection: "duckdb.DuckDBPyConnection") -> list[tuple[str, int]]:
    """Crawl and row of every current document with that id or content hash, a few at most."""
    refs = _current(store)
    if not name or not any(ref.rows for ref in refs.values()):
        return []
    rows = Rows(store, refs)
    sql = documents_sql(store, list(refs.values()), "id, content_hash")
    found = connection.execute(
        f"SELECT position FROM {sql} WHERE id = ? OR content_hash = ? ORDER BY 1 LIMIT {_MOST_FOUND}",
        [name, name],
    ).fetchall()
    return [rows.place(position) for (position,) in found]


def _current(store: Store) -> dict[str, Any]:
    found = {key: store.current("ingest", key) for key in store.keys("ingest")}
    return {key: ref for key, ref in found.items() if ref is not None}


def _scores(
    store: Store, about: Selected | None, crawl: str, name: str, connection: "duckdb.DuckDBPyConnection"
) -> list[Row]:
    """What each scorer said: those that the selection was made from, or the current ones."""
    if about is not None:
        ref = dict(inputs_of(about.index_manifest)).get(f"scores/{crawl}")
    else:
        ref = store.current("score", crawl)
    if ref is None or not ref.rows:
        return []
    rows = duck.parts_sql(store, [ref], "id, scorer, score, reason, model, revision")
    return _rows(connection, f"SELECT * FROM {rows} WHERE id = ? ORDER BY scorer", [name])


def _rows(connection: "duckdb.DuckDBPyConnection", sql: str, values: list[Any] | None = None) -> list[Row]:
    cursor = connection.execute(sql, values or [])
    names = [description[0] for description in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
