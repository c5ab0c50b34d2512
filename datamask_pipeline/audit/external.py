"""Audits somebody else's subset against a crawl, a release or a folder of documents. Changes nothing.

Rows are matched out of core by DuckDB; of the subset's texts nothing is kept but their hashes.
"""

import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from datamask_pipeline import duck
from datamask_pipeline.audit.external_objective import compare_masks
from datamask_pipeline.audit.external_out import check_out, write_verdicts
from datamask_pipeline.audit.external_sql import MATCH, STANDING
from datamask_pipeline.errors import ConfigurationError, InputError, UnknownNameError
from datamask_pipeline.publish.licences import FREE, MAY_BECOME, OTHER, spelt
from datamask_pipeline.sources.subset_rows import Files, find_files, read_batches, write_rows
from datamask_pipeline.stages.near_duplicates import NearDuplicateConfig, near_duplicates
from datamask_pipeline.storage import Ref, Store, require

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[str, int, int | None], None]
#: Examples of each fault that are told.
EXAMPLES: Final = 5
#: Distinct texts among which near-duplicates are sought unasked.
MINHASH_TEXTS: Final = 50_000
_COMMIT: Final = re.compile(r"\b[0-9a-f]{40}\b")
_POOL: Final = (
    "position, crawl, id, content_hash, eligible, exclusion, representative_crawl, representative_id"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExternalOptions:
    """What is asked of a subset.

    Attributes:
        revision: Commit of a data set of the hub.
        endpoint: Another server that speaks the hub's protocol.
        columns: What the files call ``id``, ``text`` and ``licence``, where they do not use the usual names.
        source_licence: Licence of what the subset was taken from, as the hub spells it.
        minhash: Whether near-duplicates among the subset's texts are sought, with some 7 kB of memory for each distinct
            text; ``None``: among `MINHASH_TEXTS` at most.
        arm: Under whose objective the subset is held against others, where it is held against a release.
        out: File for what was found of every row, Parquet or JSON Lines by its ending.
        memory_limit: Memory of DuckDB before it spills to disk.
    """

    revision: str | None = None
    endpoint: str | None = None
    columns: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    source_licence: str | None = None
    minhash: bool | None = None
    arm: str | None = None
    out: Path | None = None
    memory_limit: str = "2GB"


def audit_external(
    store: Store, target: str, against: str, options: ExternalOptions, progress: Progress
) -> dict[str, Any]:
    """Everything that can be said of a subset, as JSON values.

    Args:
        store: The record.
        target: A file, a folder, or ``owner/name`` on the hub.
        against: A release or crawl of the record, or a folder of documents.
        options: What is asked.
        progress: Told of the rows read and of the learner's steps.

    Returns:
        ``rows`` (read) = ``found_by_id`` + ``found_by_content`` + ``not_found`` + ``unreadable``; ``within``; ``licence``;
        ``revision``; ``scores``; ``examples`` of each fault. Against a release also ``objective`` and ``pool``, in which
        ``rows`` + all of ``rows_not_eligible`` = rows found.

    Raises:
        InputError: the subset cannot be read, or no row of it has an id or a text.
        UnknownNameError: there is nothing of that name to hold it against, or the release has no mask of that arm.
        ConfigurationError: an option does not fit.
        StorageError: the file of all rows cannot be written.
    """
    kind = _kind_of(store, against)
    if options.arm is not None and kind != "release":
        raise ConfigurationError(
            f"--arm compares within a release, and {against!r} is a {kind}; name a release by --against"
        )
    if options.arm is not None:  # told before anything is read
        arms = [key.partition("/")[2] for key in store.keys("select") if key.startswith(f"{against}/")]
        if options.arm not in arms:
            raise UnknownNameError(f"arm with a mask in release {against!r}", options.arm, arms, "--arm")
    if options.out is not None:
        check_out(options.out)
    columns = dict(options.columns)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        files = find_files(target, options.revision, options.endpoint)
        with duck.connect(store, scratch, memory_limit=options.memory_limit) as connection:
            _read(connection, files, columns, scratch / "theirs.parquet", "theirs", progress)
            if kind == "folder":
                ours = find_files(against, None)
                _read(connection, ours, {}, scratch / "source.parquet", "documents", progress)
                source = (
                    "(SELECT row AS position, NULL AS crawl, id, content_hash FROM documents WHERE readable)"
                )
            else:
                ref = require(store, "pool" if kind == "release" else "ingest", against)
                named = _POOL if kind == "release" else "artefact_row AS position, crawl, id, content_hash"
                source = f"(SELECT {named} FROM {duck.parts_sql(store, [ref])})"
            connection.execute(f"CREATE TEMP TABLE source AS SELECT * FROM {source}")
            connection.execute(MATCH)
            report = {
                "target": target,
                "against": {"kind": kind, "name": against},
                "files": len(files.paths),
                **_found(connection),
                "within": _within(connection),
                "crawls": _by_crawl(connection),
                "licence": _licence(connection, files, options.source_licence),
                "revision": _revision(files),
                "examples": _examples(connection, files),
            }
            distinct = report["within"]["texts"] - report["within"]["exact_copies"]
            if distinct <= MINHASH_TEXTS if options.minhash is None else options.minhash:
                report["within"]["near_duplicates"] = _near_duplicates(connection, files, columns, progress)
            if kind != "folder":
                report["scores"] = _scores(connection, store, kind, against)
            if kind == "release":
                _find_standing(connection, store, against)
                positions = _positions(connection)
                report["pool"] = _pool(connection)
                if options.arm is not None:
                    report["objective"] = compare_masks(
                        store, against, options.arm, positions, scratch, progress
                    )
            if options.out is not None:
                write_verdicts(connection, files.names, options.out)
    return report


def _kind_of(store: Store, against: str) -> str:
    releases, crawls = store.keys("pool"), store.keys("ingest")
    if against in releases:
        return "release"
    if against in crawls:
        return "crawl"
    if Path(against).exists():
        return "folder"
    raise UnknownNameError(
        "release, crawl or folder",
        against,
        [*releases, *crawls],
        "--against",
        remedy="or give the path of a folder",
    )


def _read(
    connection: "duckdb.DuckDBPyConnection",
    files: Files,
    columns: dict[str, str | None],
    target: Path,
    table: str,
    progress: Progress,
) -> None:
    """Ids and hashes of the files' rows, as a view.

    Raises:
        InputError: as ``read_batches``, or nothing names a row: none has an id or a text.
    """
    write_rows(
        read_batches(files, columns), target, lambda rows: progress(f"rows of {table} read", rows, None)
    )
    connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({duck.path_literal(str(target))})")
    ((rows, named),) = connection.execute(
        f"SELECT count(*), count(coalesce(id, content_hash)) FROM {table}"
    ).fetchall()
    if rows and not named:
        raise InputError(
            f"none of {rows} rows has an id or a text that can be read, so that none can be found",
            file=files.names[0]
            if len(files.names) == 1
            else f"{files.names[0]} and {len(files.names) - 1} more",
            remedy="name the columns by --id-column or --text-column",
        )


def _found(connection: "duckdb.DuckDBPyConnection") -> dict[str, Any]:
    ((rows, by_id, by_content, unreadable, altered, unchecked),) = connection.execute("""
        SELECT count(*), count(*) FILTER (how = 'id'), count(*) FILTER (how = 'content'), count(*) FILTER (NOT readable),
            count(*) FILTER (altered), count(*) FILTER (how = 'id' AND content_hash IS NULL)
        FROM found JOIN theirs USING (row)
    """).fetchall()
    why = connection.execute("""
        SELECT why_not, count(*) FROM found JOIN theirs USING (row) WHERE how IS NULL AND readable GROUP BY 1 ORDER BY 1
    """).fetchall()
    return {
        "rows": rows,
        "found_by_id": by_id,
        "found_by_content": by_content,
        "not_found": sum(number for _, number in why),
        "unreadable": unreadable,
        "why_not_found": dict(why),
        "altered": altered,
        "found_by_id_without_text": unchecked,
    }


def _within(connection: "duckdb.DuckDBPyConnection") -> dict[str, Any]:
    names = ("ids", "repeated_ids", "texts", "exact_copies")
    ((*counts,),) = connection.execute("""
        SELECT count(id), count(id) - count(DISTINCT id), count(content_hash),
            count(content_hash) - count(DISTINCT content_hash)
        FROM theirs
    """).fetchall()
    return dict(zip(names, counts, strict=True))


def _by_crawl(connection: "duckdb.DuckDBPyConnection") -> dict[str, int]:
    rows = connection.execute("""
        SELECT crawl, count(*) FROM found JOIN source USING (position) WHERE crawl IS NOT NULL GROUP BY 1 ORDER BY 1
    """).fetchall()
    return dict(rows)


def _licence(connection: "duckdb.DuckDBPyConnection", files: Files, source: str | None) -> dict[str, Any]:
    """What the card and the rows state, and what the source's licence says of it."""
    card = files.card.get("license")
    stated = [spelt(str(each)) for each in (card if isinstance(card, list) else [card]) if each]
    rows = connection.execute("""
        SELECT coalesce(licence, ''), count(*) FROM theirs WHERE readable GROUP BY 1 ORDER BY 2 DESC, 1
    """).fetchall()
    of_rows = {name: number for name, number in rows if name}
    findings = [f"the card cannot be read: {files.card['unreadable']}"] if "unreadable" in files.card else []
    if not stated and not of_rows:
        findings.append("no licence is stated")
    elif of_rows and (missing := sum(number for name, number in rows if not name)):
        findings.append(f"{missing} rows state no licence, where others do")
    findings += _against_card(stated, of_rows)
    if source is not None:
        known = spelt(source)
        if known not in MAY_BECOME and known not in FREE:
            raise ConfigurationError(
                f"--source-license: {source!r} is not among {', '.join(sorted({*MAY_BECOME, *FREE}))}"
            )
        for name in dict.fromkeys([*stated, *map(spelt, of_rows)]):
            if known in MAY_BECOME and name != OTHER and name not in MAY_BECOME[known]:
                findings.append(f"what is under {known} may not be released under {name}")
    return {"card": stated, "rows": of_rows, "source": source, "findings": findings}


def _against_card(stated: list[str], of_rows: Mapping[str, int]) -> Iterator[str]:
    """What the licences of rows say of the card's: each that permits none of them, and each that nobody here knows."""
    known = {*MAY_BECOME, *FREE}
    for name in stated:
        if name not in {OTHER, *known}:
            yield f"the card's licence {name!r} is not known here"
    to_check = [name for name in stated if name in known]
    numbers: dict[str, int] = {}
    for name, number in of_rows.items():
        numbers[spelt(name)] = numbers.get(spelt(name), 0) + number
    for name, number in numbers.items():
        if name not in known:
            yield f"{number} rows state the licence {name!r}, which is not known here"
        elif (
            name in MAY_BECOME
            and to_check
            and not MAY_BECOME[name].intersection(stated)
            and OTHER not in stated
        ):
            stands = " or ".join(to_check)
            yield f"{number} rows are under {name}, which may not be released under {stands}, as the card says"


def _revision(files: Files) -> dict[str, Any]:
    """The commit that was read, and those that the card names: nothing tells which of them is the source's."""
    named = sorted(set(_COMMIT.findall(files.card_text + str(files.card))))
    findings = [] if named else ["the card names no revision of what it was taken from"]
    return {"of_subset": files.revision, "of_source": named, "findings": findings}


def _examples(connection: "duckdb.DuckDBPyConnection", files: Files) -> dict[str, list[dict[str, Any]]]:
    """Where a few rows of each fault stand, the first ones."""
    faults = {
        "altered": "SELECT row FROM found WHERE altered",
        "not_found": "SELECT row FROM found JOIN theirs USING (row) WHERE how IS NULL AND readable",
        "unreadable": "SELECT row FROM theirs WHERE NOT readable",
        "exact_copies": """SELECT row FROM theirs WHERE content_hash IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY content_hash ORDER BY row) > 1""",
        "repeated_ids": """SELECT row FROM theirs WHERE id IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY id ORDER BY row) > 1""",
    }
    found = {}
    for name, sql in faults.items():
        rows = connection.execute(f"""
            SELECT file, file_row, id FROM theirs WHERE row IN ({sql}) ORDER BY row LIMIT {EXAMPLES}
        """).fetchall()
        found[name] = [{"file": files.names[file], "row": row, "id": each} for file, row, each in rows]
    return found


def _near_duplicates(
    connection: "duckdb.DuckDBPyConnection", files: Files, columns: dict[str, str | None], progress: Progress
) -> dict[str, Any]:
    """Distinct texts that share nearly all words with an earlier one; the texts are read once more."""
    first = connection.execute("""
        SELECT row, content_hash FROM theirs WHERE content_hash IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY content_hash ORDER BY row) = 1 ORDER BY row
    """).fetchnumpy()
    rows, hashes = first["row"].tolist(), first["content_hash"].tolist()

    def contents() -> Iterator[tuple[str, str]]:
        start = place = 0
        for batch in read_batches(files, columns):
            while place < len(rows) and rows[place] < start + len(batch.texts):
                text = batch.texts[rows[place] - start]
                assert text is not None, "it had one when it was hashed"
                yield hashes[place], text.decode()
                place += 1
            start += len(batch.texts)
            progress("rows compared by their words", start, None)

    config = NearDuplicateConfig()
    number = sum(1 for _ in near_duplicates(config, contents()))
    return {"texts": len(rows), "near_duplicates": number, "jaccard": config.threshold}


def _scores(
    connection: "duckdb.DuckDBPyConnection", store: Store, kind: str, against: str
) -> list[dict[str, Any]]:
    """Of each scorer of the record: what it says of the documents found and of all; ranks run from 0 to 1."""
    crawls = (
        [against]
        if kind == "crawl"
        else store.manifest(require(store, "pool", against))["metadata"]["crawls"]
    )
    refs: dict[str, Ref] = {
        crawl: ref for crawl in crawls if (ref := store.current("score", crawl)) is not None
    }
    if not refs:
        return []
    listed = " UNION ALL ".join(
        f"SELECT {duck.literal(crawl)} AS crawl, id, scorer, score FROM {duck.parts_sql(store, [ref], 'id, scorer, score')}"
        for crawl, ref in refs.items()
    )
    cursor = connection.execute(f"""
        WITH ranked AS (
            SELECT crawl, id, scorer, score,
                (rank() OVER (PARTITION BY scorer ORDER BY score) - 1 + (count(*) OVER (PARTITION BY scorer, score) - 1) / 2)
                / greatest(count(*) OVER (PARTITION BY scorer) - 1, 1) AS place
            FROM ({listed}) WHERE score IS NOT NULL
        ),
        theirs_found AS (SELECT DISTINCT crawl, id FROM found JOIN source USING (position))
        SELECT scorer, count(f.id) AS documents, avg(score) FILTER (f.id IS NOT NULL) AS mean, avg(score) AS mean_of_all,
            avg(place) FILTER (f.id IS NOT NULL) AS mean_rank
        FROM ranked LEFT JOIN theirs_found AS f USING (crawl, id) GROUP BY 1 ORDER BY 1
    """)
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _find_standing(connection: "duckdb.DuckDBPyConnection", store: Store, release: str) -> None:
    """Table ``standing``: of each row found the document that represents it, and why that could not be selected."""
    near = "SELECT NULL::VARCHAR AS crawl, NULL::VARCHAR AS id, NULL::VARCHAR AS to_crawl, NULL::VARCHAR AS to_id LIMIT 0"
    if (ref := store.current("copies", release)) is not None:
        columns = "crawl, id, near_copy_of_crawl AS to_crawl, near_copy_of AS to_id"
        near = f"SELECT crawl, id, to_crawl, to_id FROM {duck.parts_sql(store, [ref], columns)} WHERE to_id IS NOT NULL"
    connection.execute(STANDING.format(near=near))


def _positions(connection: "duckdb.DuckDBPyConnection") -> "np.ndarray[Any, Any]":
    """Places of the eligible documents that the rows found are, or are copies of."""
    found = connection.execute(
        "SELECT DISTINCT position FROM standing WHERE exclusion IS NULL ORDER BY 1"
    ).fetchnumpy()
    positions: np.ndarray[Any, Any] = found["position"]
    return positions


def _pool(connection: "duckdb.DuckDBPyConnection") -> dict[str, Any]:
    """How many documents that could be selected the rows stand for; the rows of these and of others, each counted once."""
    ((rows, documents),) = connection.execute(
        "SELECT count(*), count(DISTINCT position) FROM standing WHERE exclusion IS NULL"
    ).fetchall()
    others = connection.execute(
        "SELECT exclusion, count(*) FROM standing WHERE exclusion IS NOT NULL GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return {"eligible_documents": documents, "rows": rows, "rows_not_eligible": dict(others)}
