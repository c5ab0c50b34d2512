"""Where the documents of a release went: from the crawls' rows to each arm's subset, stage by stage and rule by rule.

Each arm's funnel follows the versions that its mask was made from. Documents and tokens are counted in the tables and held
against the manifests' counters; a funnel that does not balance is refused. Changes nothing.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.printable import cell
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.selection.reasons import PASSED_OVER
from datamask_pipeline.storage import Ref, Store, require
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.releases import refusal_without
from datamask_pipeline.storage.whole import check_tables
from datamask_pipeline.token_totals import TOTALS_SQL, in_words

if TYPE_CHECKING:
    import duckdb

#: Examples of each rule, each id once; that many ids are looked at, as an id may stand many times.
EXAMPLES: Final = 3
_LOOKED_AT: Final = 64
#: No part has so many rows: places in the canonical order are made of a part's number and a row's.
_PART_ROWS: Final = 1 << 40
Level = dict[str, Any]


def funnel(store: Store, release: str, left_out: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The funnel of every arm of a release.

    Args:
        store: The record.
        release: The release.
        left_out: Masks by key that are not told of, each with a line that says why, as `left_over` finds them.

    Returns:
        ``release``, ``left_out`` (those lines, of this release) and ``arms``: of each, ``arm``, ``subset_is_older``,
        ``stale`` (what its mask was made from that is another by now, one line each) and ``levels`` from ``ingest`` of
        each crawl to ``materialise``. A level has ``stage``, ``key``, ``documents_in``, ``documents``, ``tokens_in``,
        ``tokens`` (what it kept) and ``dropped``: of each rule the documents, tokens and a few ids. Tokens are the source's,
        of the documents that have a count; ``without_tokens_in`` and ``without_tokens`` are those that have none. Of
        rejected rows neither is known: null.

    Raises:
        UnknownNameError: the record has no such release.
        ConfigurationError: it has no mask yet.
        IntegrityError: a level does not balance, a manifest counts otherwise than its table, or that was altered.
    """
    keys = [key for key in store.keys("select") if key.split("/")[0] == release]
    if not keys:
        known = {key.split("/")[0] for key in store.keys("select")}
        remedy = "`datamask run --until select` makes the masks of one"
        raise refusal_without(store, release, "mask", known, "select", remedy)
    left = {key: line for key, line in (left_out or {}).items() if key in keys}
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        arms = [_arm(store, connection, require(store, "select", key)) for key in keys if key not in left]
    return {"release": release, "left_out": [*left.values()], "arms": arms}


def funnel_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line a level and a rule; what several arms share stands once."""
    shown: list[Level] = []
    for arm in found["arms"]:
        for level in arm["levels"]:
            if level in shown:
                continue
            shown.append(level)
            reached = _amount(level["documents_in"], level["tokens_in"], level["without_tokens_in"])
            yield f"{cell(level['stage'], 12)}{cell(level['key'], 40)}{reached}"
            for drop in level["dropped"]:
                examples = ", ".join(name or "''" for name in drop["examples"])
                amount = _amount(drop["documents"], drop["tokens"], drop["without_tokens"])
                yield f"  {cell('- ' + drop['rule'], 50)}{amount}" + (
                    f"  e.g. {examples}" if examples else ""
                )
            kept = _amount(level["documents"], level["tokens"], level["without_tokens"])
            yield f"  {cell('= kept', 50)}{kept}"
        if arm["subset_is_older"]:
            yield f"  {arm['arm']}: the record has no current subset of this mask: run stage materialise"
        for line in arm["stale"]:
            yield f"  STALE: {arm['arm']}: {line}"
    yield from found["left_out"]


def _amount(documents: int, tokens: int | None, without: int | None) -> str:
    if tokens is None:
        return f"{documents:>14,} documents"
    number, _, rest = in_words(tokens, without or 0).partition(" ")
    return f"{documents:>14,} documents{number:>18} {rest}"


def made_of(store: Store, selection: Ref) -> tuple[Ref, Ref | None]:
    """The candidates that a mask was made from, and the near-copies, where they were collapsed."""
    inputs = dict(inputs_of(store.manifest(selection)))
    index = inputs.get("index")  # records of version 0.1 have none: the mask read the candidates
    of_index = dict(inputs_of(store.manifest(index))) if index is not None else inputs
    return of_index["candidates"], of_index.get("copies")


def decisions_sql(store: Store, candidates: Ref, copies: Ref | None, selection: Ref) -> str:
    """Every document of a release's crawls under one arm: at which stage it was left out, and why; in canonical order of
    ``place``. ``left_at`` is null where the arm's subset has it.
    """
    documents = (
        "crawl, shard, row, id, content_hash, domain, token_count, eligible, exclusion, representative_id"
    )
    judged = (
        "crawl, id, selected, quality, probability, quality_marginal, diversity_marginal, threshold, reason"
    )
    near = "SELECT NULL::VARCHAR AS crawl, NULL::VARCHAR AS id, NULL::VARCHAR AS near_copy_of LIMIT 0"
    if copies is not None:
        near = f"SELECT crawl, id, near_copy_of FROM {duck.parts_sql(store, [copies], 'crawl, id, near_copy_of')}"
    return f"""
        SELECT c.crawl, c.shard, c.row, c.id, c.content_hash, c.domain, c.token_count,
            c.part_order * {_PART_ROWS} + c.part_row AS place,
            CASE WHEN NOT c.eligible THEN 'pool' WHEN n.near_copy_of IS NOT NULL THEN 'copies'
                WHEN s.id IS NULL OR NOT s.selected THEN 'select' END AS left_at,
            CASE WHEN NOT c.eligible THEN c.exclusion WHEN n.near_copy_of IS NOT NULL THEN 'near_copy'
                WHEN s.id IS NULL THEN 'no_score' ELSE s.reason END AS reason,
            coalesce(n.near_copy_of, c.representative_id) AS representative_id, s.selected, s.quality, s.probability,
            s.quality_marginal, s.diversity_marginal, s.threshold
        FROM {duck.parts_sql(store, [candidates], documents)} AS c
        LEFT JOIN ({near}) AS n ON c.eligible AND n.crawl = c.crawl AND n.id = c.id
        LEFT JOIN (SELECT {judged} FROM {duck.parts_sql(store, [selection], judged)}) AS s
        ON c.eligible AND s.crawl = c.crawl AND s.id = c.id
    """


def rejected_sql(store: Store, candidates: Ref) -> str | None:
    """The rows of a release's crawls that became no document, as far as they go with the columns of ``decisions_sql``; none
    where there are no such rows.
    """
    selects = []
    for number, ref in enumerate(_documents_of(store, candidates).values()):
        rejected = rejected_beside(store, ref)
        if rejected is not None and rejected.rows:
            rows = duck.parts_sql(store, [rejected], "crawl, shard, row, id, reason")
            place = f"{number * _PART_ROWS} + artefact_row AS place"
            selects.append(f"SELECT crawl, shard, row, id, {place}, 'ingest' AS left_at, reason FROM {rows}")
    return " UNION ALL ".join(selects) or None


def _documents_of(store: Store, candidates: Ref) -> dict[str, Ref]:
    """What a pool read of each crawl, in the release's order."""
    manifest = store.manifest(candidates)
    read = dict(inputs_of(manifest))
    return {crawl: read[f"documents/{crawl}"] for crawl in manifest["basis"]["config"]["crawls"]}


def _arm(store: Store, connection: "duckdb.DuckDBPyConnection", selection: Ref) -> dict[str, Any]:
    candidates, copies = made_of(store, selection)
    check_tables(store, *filter(None, (candidates, copies, selection)))
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE chain AS
        SELECT crawl, id, token_count, place, left_at, reason AS rule
        FROM ({decisions_sql(store, candidates, copies, selection)})
    """)
    of_crawls = _documents_of(store, candidates).items()
    levels = [_ingest(store, connection, crawl, ref) for crawl, ref in of_crawls]
    later = [_level(connection, "pool", candidates.key)]
    if copies is not None:
        later.append(_level(connection, "copies", copies.key))
    later.append(_level(connection, "select", selection.key))
    for level, ref in zip(later, filter(None, (candidates, copies, selection)), strict=True):
        _check_counts(level, store.manifest(ref)["counts"])
    subset = store.current("materialise", selection.key)
    if subset is not None and _read(store, subset, "selection") != selection.content_digest:
        subset = None
    if subset is not None:
        kept, said = later[-1], store.manifest(subset)["metadata"]
        amount = (kept["tokens"], kept["without_tokens"])
        if said["tokens"] is not None:  # an earlier version kept no sum where one document has no count
            amount = (said["tokens"], said.get("without_token_count", 0))
        reached = (kept["documents"], kept["tokens"], kept["without_tokens"])
        later.append(_made("materialise", selection.key, reached, [], (subset.rows, *amount)))
    _check_chain(levels, later)
    return {
        "arm": selection.key.partition("/")[2],
        "subset_is_older": subset is None,
        "stale": stale(store, selection),
        "levels": [*levels, *later],
    }


def _read(store: Store, ref: Ref, name: str) -> str | None:
    """The content digest of one input."""
    found: str | None = store.manifest(ref)["basis"]["inputs"].get(name)
    return found


def _level(connection: "duckdb.DuckDBPyConnection", stage: str, key: str) -> Level:
    """What one stage left out of what reached it."""
    order = ["pool", "copies", "select"]
    earlier = ", ".join(map(duck.literal, order[: order.index(stage)])) or "''"
    reached = f"FROM chain WHERE (left_at IS NULL OR left_at NOT IN ({earlier}))"
    (amount_in,) = connection.execute(f"SELECT count(*), {TOTALS_SQL} {reached}").fetchall()
    (amount,) = connection.execute(
        f"SELECT count(*), {TOTALS_SQL} {reached} AND left_at IS DISTINCT FROM '{stage}'"
    ).fetchall()
    rows = connection.execute(f"""
        SELECT rule, count(*), {TOTALS_SQL}, {examples_sql("id", "place")}
        FROM chain WHERE left_at = '{stage}' GROUP BY rule ORDER BY 2 DESC, 1
    """).fetchall()
    dropped = [_drop(rule, of_rule, examples) for rule, *of_rule, examples in rows]
    return _made(stage, key, amount_in, dropped, amount)


def examples_sql(name: str, place: str) -> str:
    """An aggregate: the first few different names, in order of their places."""
    first = f"arg_min({name}, {place}, {_LOOKED_AT})"
    return f"[name FOR name, number IN {first} IF list_position({first}, name) = number][:{EXAMPLES}]"


def _drop(rule: str, amount: Sequence[int | None], examples: list[str]) -> dict[str, Any]:
    documents, tokens, without = amount
    return {
        "rule": rule,
        "documents": documents,
        "tokens": tokens,
        "without_tokens": without,
        "examples": examples,
    }


def _ingest(store: Store, connection: "duckdb.DuckDBPyConnection", crawl: str, ref: Ref) -> Level:
    """The rows of one crawl: what became no document, by the counters of its manifest."""
    counts = store.manifest(ref)["counts"]
    rejected = rejected_beside(store, ref)
    examples: dict[str, list[str]] = {}
    if rejected is not None and rejected.rows:
        sql = duck.parts_sql(store, [rejected], "id, shard, row, reason")
        name = "coalesce(id, shard || ' row ' || row)"
        examples = dict(
            connection.execute(f"""
                SELECT reason, {examples_sql(name, "(part_order, part_row)")} FROM {sql} GROUP BY 1
            """).fetchall()
        )
    (amount,) = connection.execute(f"SELECT {TOTALS_SQL} FROM chain WHERE crawl = ?", [crawl]).fetchall()
    rules = {
        name.removeprefix("dropped_"): number
        for name, number in counts.items()
        if name.startswith("dropped_")
    }
    dropped = [
        _drop(rule, (number, None, None), examples.get(rule, []))
        for rule, number in sorted(rules.items(), key=lambda item: (-item[1], item[0]))
        if number
    ]
    return _made("ingest", crawl, (counts["rows_in"], None, None), dropped, (counts["kept"], *amount))


def rejected_beside(store: Store, documents: Ref) -> Ref | None:
    """The rejected rows that the same run of ingestion wrote beside a crawl's documents."""
    basis = store.manifest(documents)["basis"]
    for manifest in store.all_manifests(f"rejected/{documents.key}"):
        if all(manifest["basis"][name] == basis[name] for name in ("version", "config", "inputs")):
            return ref_of(manifest)
    return None


def _made(
    stage: str,
    key: str,
    reached: Sequence[int | None],
    dropped: list[dict[str, Any]],
    kept: Sequence[int],
) -> Level:
    """One level, balanced.

    Args:
        stage: Its stage.
        key: The stage's key.
        reached: Documents that came in, their tokens, and how many of them have no count; null: not known.
        dropped: What each rule left out.
        kept: What was kept, as ``reached``.

    Raises:
        IntegrityError: documents, or tokens that are known, were lost or invented.
    """
    for name, came, stayed in zip(("documents", "tokens", "without_tokens"), reached, kept, strict=True):
        if came is not None and came != stayed + (lost := sum(drop[name] for drop in dropped)):
            raise IntegrityError(
                f"the funnel of {key} does not balance at {stage}: {came} {name.replace('_', ' ')} in, {stayed} kept, "
                f"{lost} dropped; `datamask audit prove` names what is wrong"
            )
    return {
        "stage": stage,
        "key": key,
        "documents_in": reached[0],
        "tokens_in": reached[1],
        "without_tokens_in": reached[2],
        "dropped": dropped,
        "documents": kept[0],
        "tokens": kept[1],
        "without_tokens": kept[2],
    }


def _check_counts(level: Level, counts: Mapping[str, int]) -> None:
    """The manifest counts what its table holds."""
    found = {drop["rule"]: drop["documents"] for drop in level["dropped"]}
    if level["stage"] == "select":
        without, before = found.pop("no_score", 0), found.pop(PASSED_OVER, 0)
        found = {"no_score": without, "passed_over": before, "not_selected": sum(found.values())}
    said = {
        name.removeprefix("dropped_"): number
        for name, number in counts.items()
        if name.startswith("dropped_")
    }
    same = {name: number for name, number in said.items() if number} == {
        name: number for name, number in found.items() if number
    }
    if not same or (counts["rows_in"], counts["kept"]) != (level["documents_in"], level["documents"]):
        raise IntegrityError(
            f"the manifest of {level['stage']} of {level['key']} counts {dict(counts)}, and its table holds "
            f"{level['documents_in']} in, {level['documents']} kept, {found}; `datamask audit prove` names what is wrong"
        )


def _check_chain(crawls: list[Level], later: list[Level]) -> None:
    """What one level kept reaches the next."""
    names = ("documents", "tokens", "without_tokens")
    kept = [sum(level[name] for level in crawls) for name in names]
    for level in later:
        if [level[f"{name}_in"] for name in names] != kept:
            raise IntegrityError(
                f"{kept[0]} documents were kept before {level['stage']} of {level['key']}, which had "
                f"{level['documents_in']}; run that stage again"
            )
        kept = [level[name] for name in names]
