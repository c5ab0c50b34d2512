"""Pool: which documents of a release's crawls may be selected, and why the others may not.

Exact copies are collapsed by content over all crawls, before any block is cut: random blocks would scatter
the copies and no set function would see them. A small share of the contents is held out of every arm, so
that every model is validated on the same unseen text.

What is withdrawn is decided here: a document that a request names, and all copies of its content. Near-duplicates are
collapsed too where that is asked for: what holds of the copies of one content then holds of all the contents of a group,
takedown and validation included.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
import pydantic

from datamask_pipeline import domains, duck, schema
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.evaluation.config import DecontaminationConfig
from datamask_pipeline.settings import Settings
from datamask_pipeline.stages.contaminated import find_hits, left_out
from datamask_pipeline.stages.near_duplicates import NearDuplicateConfig, near_duplicates
from datamask_pipeline.stages.takedown_matches import find_named, find_purged
from datamask_pipeline.stages.takedown_robots import RobotsSnapshot
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.tombstones import erased_contents, tombstones

if TYPE_CHECKING:
    import duckdb

STAGE: Final = "pool"
VERSION: Final = "3"
#: What a manifest's metadata names of the requests, by their entries.
REQUESTS: Final = ("takedown_unmatched", "takedown_purged")
#: One in so many contents is held out at most, to reach the fewest that are wanted.
_LARGEST_PART: Final = 5

#: In place of the questions' folder, whose files are an input.
_TAKEN_IN: Final = "as taken in"
#: Why a document may not be selected; the first that holds is recorded.
EXCLUSIONS: Final = (
    "takedown",
    "near_duplicate",
    "duplicate_content",
    "duplicate_id",
    "validation",
    "contaminated",
)


class PoolConfig(Settings):
    """How the candidates of a release are decided."""

    validation_share: float = pydantic.Field(
        0.02,
        ge=0.0,
        lt=1.0,
        description="Share of distinct contents held out of every arm, for validation bits per byte and for local "
        "questions; 0 holds out none.",
    )
    validation_documents: int = pydantic.Field(
        30,
        ge=0,
        description="Hold out at least so many contents where any are held out; a fifth of a small pool at most.",
    )
    takedown: tuple[str, ...] = pydantic.Field(
        (),
        description="What is withdrawn, with all copies of its content: ids, content hashes, `url:PREFIX`, `domain:NAME`, "
        "or `file:PATH` of a list of such entries, one a line.",
    )
    robots: RobotsSnapshot | None = pydantic.Field(
        None,
        description="Also withdraw what robots.txt files of a certain day forbid: {snapshot: PATH, date: 2026-11-01, "
        "user_agents: [CCBot]}.",
    )
    near_duplicates: NearDuplicateConfig | None = pydantic.Field(
        None,
        description="Also collapse texts that share nearly all words, by MinHash; {} takes the defaults below, null "
        "collapses exact copies alone. Near-copies by embedding are `copies.threshold`.",
    )
    decontaminate: DecontaminationConfig | None = pydantic.Field(
        None,
        description="Also leave out documents that share words with evaluation questions: {questions: DIR, ngram: 13}; null "
        "leaves none out.",
    )


def run(
    config: PoolConfig,
    *,
    store: Store,
    release: str,
    documents: Mapping[str, Ref],
    takedown: Ref | None = None,
    question_texts: Ref | None = None,
) -> Ref:
    """Decide the candidates of a release.

    Args:
        config: The rules.
        store: The record.
        release: The release's name.
        documents: The ingested documents of each crawl, in the release's order of crawls; of several copies
            the first by (crawl, shard, row) represents the content.
        takedown: What is asked to be withdrawn, as stage `takedown` took it in; ``None`` where nothing is.
        question_texts: The questions that documents are held against, as stage `decontaminate` took them in; or ``None``.

    Returns:
        One row per document of the crawls, one part per crawl.

    Raises:
        ConfigurationError: the release has no crawl, or none of its documents is eligible; or something is to be
            withdrawn, or held against questions, and was not taken in.
    """
    if question_texts is None and config.decontaminate is not None:
        raise ConfigurationError(
            "the questions of pool.decontaminate were not taken in; run stage 'decontaminate'"
        )
    if takedown is None and (config.takedown or config.robots):
        raise ConfigurationError(
            "what pool.takedown and pool.robots ask was not taken in; run stage 'takedown'"
        )
    if not documents:
        raise ConfigurationError(f"release {release!r} has no crawls; name at least one in its configuration")
    crawls = list(documents)  # their order decides who represents a content, so it is part of the settings
    settings = config.result_config() | {"crawls": crawls, "takedown": []}
    del settings["robots"]  # what is withdrawn is an input, not a setting
    if config.decontaminate is None:
        del settings["decontaminate"]
    else:  # so are the questions
        settings["decontaminate"] = {"questions": _TAKEN_IN, "ngram": config.decontaminate.ngram}
    inputs: dict[str, Ref | str] = {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    if takedown is not None:
        inputs["takedown"] = takedown
    if question_texts is not None:
        inputs["question_texts"] = question_texts
    if (purged := erased_contents(store)) is not None:
        inputs["purged"] = purged.digest
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    with duck.connect(store, builder.scratch()) as connection:
        find_named(connection, store, takedown, list(documents.values()))
        if purged is not None:
            find_purged(connection, store, purged, list(documents.values()))
        connection.execute("CREATE TEMP TABLE near (content_hash VARCHAR, group_hash VARCHAR)")
        if config.near_duplicates is not None:
            contents = _contents(connection, store, list(documents.values()))
            if pairs := list(near_duplicates(config.near_duplicates, contents)):
                found_near = pa.table(
                    dict(zip(("content_hash", "group_hash"), zip(*pairs, strict=True), strict=True))
                )
                connection.register("found_near", found_near)
                connection.execute("INSERT INTO near SELECT content_hash, group_hash FROM found_near")
        tasks = {}
        connection.execute("CREATE TEMP TABLE hits (content_hash VARCHAR, task VARCHAR, question BIGINT)")
        if config.decontaminate is not None and question_texts is not None:
            contents = _contents(connection, store, list(documents.values()))
            tasks = find_hits(
                connection, store.read_table(question_texts), contents, config.decontaminate.ngram
            )
        connection.execute(_candidates_sql(store, list(documents.values()), config))
        parts = [
            builder.write_part(
                f"{index:05d}",
                duck.stream(
                    connection,
                    f"SELECT * FROM candidates WHERE artefact_order = {index} ORDER BY position",
                    schema.CANDIDATES,
                    batch_rows=ROW_GROUP_ROWS,
                ),
                schema.CANDIDATES,
            )
            for index in range(len(crawls))
        ]
        told = {} if takedown is None else _withdrawal(connection, store, release)
        if config.decontaminate is not None:
            told["decontaminate"] = {
                "ngram": config.decontaminate.ngram,
                "tasks": left_out(connection, tasks),
            }
        tally = connection.execute(
            "SELECT coalesce(exclusion, 'kept'), count(*) FROM candidates GROUP BY 1 ORDER BY 1"
        ).fetchall()
    found = {str(reason): int(number) for reason, number in tally}
    counts = {"rows_in": sum(ref.rows for ref in documents.values()), "kept": found.get("kept", 0)}
    counts |= {f"dropped_{reason}": found.get(reason, 0) for reason in EXCLUSIONS}
    if not counts["kept"]:
        _refuse_empty(store, release, documents, counts)
    return builder.commit(parts, counts=counts, metadata={"crawls": crawls} | told)


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a log says of takedowns (how many entries name no document, and which comes first), and of questions."""
    if about := manifest["metadata"].get("decontaminate"):
        yield (
            f"{manifest['counts']['dropped_contaminated']} documents left out, with {about['ngram']} words in a row of a "
            "question; `datamask audit contamination` tells by task"
        )
    if unmatched := manifest["metadata"].get("takedown_unmatched"):
        yield (
            f"warning: {len(unmatched)} of {manifest['metadata']['takedown_entries']} entries of pool.takedown name no "
            f"document of {manifest['key']}, e.g. {unmatched[0]!r}"
        )


def _refuse_empty(
    store: Store, release: str, documents: Mapping[str, Ref], excluded: Mapping[str, int]
) -> NoReturn:
    """Say what became of every row of the crawls: no stage after this one has anything to do."""
    reasons: Counter[str] = Counter()
    for counts in (*(store.manifest(ref)["counts"] for ref in documents.values()), excluded):
        reasons.update({name: number for name, number in counts.items() if name.startswith("dropped_")})
    told = ", ".join(
        f"{number} {name.removeprefix('dropped_')}" for name, number in reasons.most_common() if number
    )
    raise ConfigurationError(
        f"no document of release {release!r} is eligible: {told or 'its crawls hold no row'}; lower ingest.min_chars or "
        "pool.validation_share, or give other documents; `datamask audit why` tells of one row"
    )


def _candidates_sql(store: Store, refs: list[Ref], config: PoolConfig) -> str:
    columns = "crawl, shard, row, id, content_hash, url, token_count"
    prefix = "CAST('0x' || group_hash[1:8] AS BIGINT)"  # uniform over 32 bits
    below_share = round(config.validation_share * 0x1_0000_0000)
    held_out_below = str(below_share)
    if below_share and config.validation_documents:
        held_out_below = f"""greatest({below_share}, (
            SELECT coalesce(smallest[least(len(smallest), contents // {_LARGEST_PART})] + 1, 0)
            FROM (SELECT min(prefix, {config.validation_documents}) AS smallest, count(*) AS contents
                  FROM (SELECT DISTINCT {prefix} AS prefix FROM documents))))"""
    firsts = list(itertools.accumulate((ref.rows for ref in refs), initial=0))[:-1]
    return f"""
        CREATE TEMP TABLE candidates AS
        WITH documents AS MATERIALIZED (
            SELECT d.*, coalesce(near.group_hash, d.content_hash) AS group_hash,
                {firsts}[artefact_order + 1] + artefact_row AS position
            FROM {duck.parts_sql(store, refs, columns)} AS d LEFT JOIN near USING (content_hash)
        ),
        withdrawn AS (
            SELECT DISTINCT group_hash FROM documents SEMI JOIN named USING (artefact_order, artefact_row)
        ),
        contaminated AS (SELECT DISTINCT group_hash FROM documents SEMI JOIN hits USING (content_hash)),
        copied AS (
            SELECT group_hash, min(position) AS position, count(*) AS num_copies
            FROM documents GROUP BY group_hash HAVING count(*) > 1
        ),
        copies AS (
            SELECT group_hash, copied.position AS representative, copied.num_copies,
                first_one.crawl AS representative_crawl, first_one.id AS representative_id
            FROM copied JOIN documents AS first_one USING (group_hash, position)
        ),
        repeated AS (
            SELECT id, min(position) AS first_with_id FROM documents GROUP BY id HAVING count(*) > 1
        ),
        ranked AS (
            SELECT documents.*,
                position <> coalesce(first_with_id, position) AS repeats_id,
                position <> coalesce(representative, position) AS is_copy,
                coalesce(copies.num_copies, 1) AS num_copies,
                coalesce(copies.representative_crawl, documents.crawl) AS representative_crawl,
                coalesce(copies.representative_id, documents.id) AS representative_id,
                group_hash IN (SELECT group_hash FROM withdrawn) AS is_withdrawn,
                group_hash IN (SELECT group_hash FROM contaminated) AS is_contaminated,
                {prefix} < {held_out_below} AS is_validation
            FROM documents LEFT JOIN copies USING (group_hash) LEFT JOIN repeated USING (id)
        ),
        judged AS (
            SELECT *,
                CASE WHEN is_withdrawn THEN 'takedown'
                     WHEN content_hash <> group_hash THEN 'near_duplicate'
                     WHEN is_copy THEN 'duplicate_content'
                     WHEN repeats_id THEN 'duplicate_id'
                     WHEN is_validation THEN 'validation'
                     WHEN is_contaminated THEN 'contaminated' END AS exclusion
            FROM ranked
        )
        SELECT position, crawl, shard, row, id, content_hash,
            {domains.domain_sql("url")} AS domain,
            token_count, num_copies, representative_crawl, representative_id,
            exclusion IS NULL AS eligible,
            coalesce(exclusion = 'validation', false) AS validation,
            exclusion, artefact_order, group_hash
        FROM judged
    """


def _withdrawal(connection: "duckdb.DuckDBPyConnection", store: Store, release: str) -> dict[str, Any]:
    """How many entries there are, and which of them name no document; a host of a robots snapshot is none.

    Those that named what was purged since are told apart.
    """
    entries = "SELECT entry FROM asked WHERE kind <> 'robots'"
    ((number,),) = connection.execute(f"SELECT count(*) FROM ({entries})").fetchall()
    hidden = f"kind IN ('{HIDDEN}', '{HIDDEN_URL}')"  # what they named was purged: nothing to warn of
    found = connection.execute(
        f"{entries} AND NOT {hidden} AND entry NOT IN (SELECT entry FROM named) ORDER BY entry"
    )
    nothing = [entry for (entry,) in found.fetchall()]
    reports = (each.reports.get(release, {}) for each in tombstones(store))
    purged = {one["asked"] for report in reports for one in report.get("entries", ()) if one["withdrawn"]}
    told: dict[str, Any] = {
        "takedown_entries": number,
        "takedown_unmatched": [entry for entry in nothing if entry not in purged],
    }
    if before := [entry for entry in nothing if entry in purged]:
        told["takedown_purged"] = before
    return told


def _contents(
    connection: "duckdb.DuckDBPyConnection", store: Store, refs: list[Ref]
) -> Iterator[tuple[str, str]]:
    """Content hash and text of each distinct content, in canonical order of its first copy."""
    order = "artefact_order, part_order, part_row"
    sql = f"""
        SELECT content_hash, text FROM {duck.parts_sql(store, refs, "content_hash, text")}
        QUALIFY row_number() OVER (PARTITION BY content_hash ORDER BY {order}) = 1 ORDER BY {order}
    """
    for batch in connection.sql(sql).to_arrow_reader(1_024):
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
