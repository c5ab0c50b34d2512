"""Pool: which documents of a release's crawls may be selected, and why the others may not.

Exact copies are collapsed by content over all crawls, before any block is cut: random blocks would scatter
the copies and no set function would see them. A small share of the contents is held out of every arm, so
that every model is validated on the same unseen text.

What is withdrawn is decided here: a document that a request names, and all copies of its content. Near-duplicates are
collapsed too where that is asked for: what holds of the copies of one content then holds of all the contents of a group,
takedown and validation included.

A release that goes on from another carries its judgements over and judges the added crawls alone, beside what that one
knows: then a copy is told apart by the earlier content, and `num_copies` of a document counts up to its own crawl. Where
something is withdrawn, held against questions or collapsed by its words, every crawl is judged again.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import domains, duck, schema
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.evaluation.config import DecontaminationConfig
from datamask_pipeline.settings import Settings
from datamask_pipeline.stages import windows
from datamask_pipeline.stages.contaminated import find_hits, left_out
from datamask_pipeline.stages.going_on import goes_on
from datamask_pipeline.stages.ingest import REJECTED_STAGE
from datamask_pipeline.stages.near_duplicates import NearDuplicateConfig, near_duplicates
from datamask_pipeline.stages.suspects import PREFIX, find_suspects
from datamask_pipeline.stages.takedown_matches import find_named, find_purged
from datamask_pipeline.stages.takedown_robots import RobotsSnapshot
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.tombstones import erased_contents, tombstones

if TYPE_CHECKING:
    import duckdb

STAGE: Final = "pool"
VERSION: Final = "8"
#: What a manifest's metadata names of the requests, by their entries.
REQUESTS: Final = ("takedown_unmatched", "takedown_purged")
#: One in so many contents is held out at most, to reach the fewest that are wanted.
_LARGEST_PART: Final = 5

#: What candidates are made of.
_READ: Final = ["crawl", "shard", "row", "id", "content_hash", "url", "token_count"]
#: What is carried over of a content that was judged.
_JUDGED: Final = [
    "crawl",
    "id",
    "content_hash",
    "num_copies",
    "representative_crawl",
    "representative_id",
    "exclusion",
]
#: What documents are judged by. In one query with them it would hold more than can be spilled.
_TABLES: Final = {
    "withdrawn": "SELECT DISTINCT group_hash FROM documents SEMI JOIN named_rows USING (position)",
    "contaminated": """
        SELECT DISTINCT coalesce(near.group_hash, content_hash) AS group_hash FROM hits LEFT JOIN near USING (content_hash)
    """,
    "repeated": """
        SELECT id, CASE WHEN known_ids.id IS NULL THEN min(position) ELSE -1 END AS first_with_id
        FROM documents LEFT JOIN known_ids USING (id) GROUP BY id, known_ids.id
        HAVING count(*) > 1 OR known_ids.id IS NOT NULL
    """,
    # Whoever repeats an id is left out, and stands for nobody while another can.
    "copied": """
        SELECT group_hash, count(*) AS num_copies, bool_or(is_first) AS stands,
            coalesce(
                min(position) FILTER (is_first AND content_hash = group_hash), min(position) FILTER (is_first), min(position)
            ) AS position
        FROM (SELECT *, position = coalesce(first_with_id, position) AS is_first
              FROM documents LEFT JOIN repeated USING (id))
        GROUP BY group_hash HAVING count(*) > 1 OR group_hash IN (SELECT group_hash FROM known)
    """,
    "copies": """
        SELECT group_hash,
            CASE WHEN is_known THEN -1 ELSE position END AS representative,
            num_copies,
            CASE WHEN is_known THEN known_crawl ELSE first_one.crawl END AS representative_crawl,
            CASE WHEN is_known THEN known_id ELSE first_one.id END AS representative_id,
            first_one.content_hash AS representative_hash
        FROM (SELECT copied.group_hash, position, copied.num_copies + coalesce(known.num_copies, 0) AS num_copies,
                  coalesce(known.stands OR NOT copied.stands, false) AS is_known,
                  known.representative_crawl AS known_crawl, known.representative_id AS known_id
              FROM copied LEFT JOIN known USING (group_hash))
        JOIN documents AS first_one USING (group_hash, position)
    """,
    # By position, so that what is said of some thousand documents in a row is found without looking at all.
    "twins": """
        SELECT documents.position, representative, num_copies, representative_crawl, representative_id,
            representative_hash, first_with_id
        FROM documents LEFT JOIN copies USING (group_hash) LEFT JOIN repeated USING (id)
        WHERE num_copies IS NOT NULL OR first_with_id IS NOT NULL ORDER BY documents.position
    """,
}

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
        description="Also leave out documents that share words with evaluation questions or curated documents: "
        "{questions: DIR, curated: FILE, ngram: 13}; null leaves none out.",
    )


def compared(config: PoolConfig, recorded: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings by name, as a manifest states them and as they are now; what is withdrawn or held against is an input."""
    configured = config.result_config()
    for name in sorted(configured.keys() & recorded.keys() - {"takedown", "robots", "decontaminate"}):
        yield name, recorded[name], configured[name]
    if config.decontaminate is not None and "decontaminate" in recorded:
        yield "decontaminate.ngram", recorded["decontaminate"]["ngram"], config.decontaminate.ngram


def run(
    config: PoolConfig,
    *,
    store: Store,
    release: str,
    documents: Mapping[str, Ref],
    takedown: Ref | None = None,
    question_texts: Ref | None = None,
    held: Ref | None = None,
) -> Ref:
    """Decide the candidates of a release.

    Args:
        config: The rules.
        store: The record.
        release: The release's name.
        documents: The ingested documents of each crawl, in the release's order of crawls; of several copies
            the first by (crawl, shard, row) represents the content, of those that repeat no earlier document's id.
        takedown: What is asked to be withdrawn, as stage `takedown` took it in; ``None`` where nothing is.
        question_texts: The questions that documents are held against, as stage `decontaminate` took them in; or ``None``.
        held: The candidates of the release that this one goes on from, if it does.

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
    if held is not None:
        inputs["held"] = held
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    refs = list(documents.values())
    before = _before(config, store, held, settings, inputs)
    carried = [] if before is None else builder.carry_parts(before)
    with duck.connect(store, builder.scratch(), memory_limit=duck.STAGE_MEMORY) as connection:
        find_named(connection, store, takedown, refs)
        if purged is not None:
            find_purged(connection, store, refs)
        connection.execute("CREATE TEMP TABLE near (content_hash VARCHAR, group_hash VARCHAR)")
        if config.near_duplicates is not None:
            contents = _contents(connection, store, refs)
            if pairs := list(near_duplicates(config.near_duplicates, contents)):
                found_near = pa.table(
                    dict(zip(("content_hash", "group_hash"), zip(*pairs, strict=True), strict=True))
                )
                connection.register("found_near", found_near)
                connection.execute("INSERT INTO near SELECT content_hash, group_hash FROM found_near")
        tasks = {}
        connection.execute("CREATE TEMP TABLE hits (content_hash VARCHAR, task VARCHAR, question BIGINT)")
        if config.decontaminate is not None and question_texts is not None:
            contents = _contents(connection, store, refs)
            tasks = find_hits(
                connection, store.read_table(question_texts), contents, config.decontaminate.ngram
            )
        num_prefixes = _LARGEST_PART * config.validation_documents
        suspects, prefixes = find_suspects(
            connection, store, refs, builder.scratch(), num_prefixes, num_judged=len(carried)
        )
        _judge(connection, store, refs, suspects, before, len(carried))
        held_out_below = _held_out_below(
            config, prefixes, crawls, {} if held is None else store.manifest(held)["metadata"]
        )
        parts = []
        for index in range(len(carried), len(crawls)):
            rows = _candidates(connection, store, refs, index, held_out_below[index])
            regrouped = windows.regrouped(rows, schema.CANDIDATES, ROW_GROUP_ROWS)
            parts.append(builder.write_part(f"{index:05d}", regrouped, schema.CANDIDATES))
        files = ", ".join(duck.file_literal(store, builder.part_path(part["name"])) for part in parts)
        connection.execute(f"""
            CREATE TEMP VIEW candidates AS SELECT c.*, coalesce(near.group_hash, c.content_hash) AS group_hash
            FROM read_parquet([{files}]) AS c LEFT JOIN near USING (content_hash)
        """)
        told = {} if takedown is None else _withdrawal(connection, store, release)
        if config.decontaminate is not None:
            told["decontaminate"] = {
                "ngram": config.decontaminate.ngram,
                "tasks": left_out(connection, tasks),
            }
        tally = connection.execute(
            "SELECT coalesce(exclusion, 'kept'), count(*) FROM candidates GROUP BY 1 ORDER BY 1"
        ).fetchall()
    found = Counter({str(reason): int(number) for reason, number in tally})
    if before is not None:
        counted = store.manifest(before)["counts"]
        found.update({name.removeprefix("dropped_"): counted[name] for name in counted if name != "rows_in"})
    counts = {"rows_in": sum(ref.rows for ref in documents.values()), "kept": found.get("kept", 0)}
    counts |= {f"dropped_{reason}": found.get(reason, 0) for reason in EXCLUSIONS}
    if not counts["kept"]:
        _refuse_empty(store, release, documents, counts)
    metadata = {"crawls": crawls, "held_out_below": held_out_below} | told
    return builder.commit([*carried, *parts], counts=counts, metadata=metadata, carried=before)


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a log says of takedowns (how many entries name no document, and which comes first), and of questions."""
    if about := manifest["metadata"].get("decontaminate"):
        yield (
            f"{manifest['counts']['dropped_contaminated']} documents left out, with {about['ngram']} words in a row of a "
            "question or curated document; `datamask audit contamination` tells by task "
            "once `datamask run --until questions` has run"
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
        f"no document of release {release!r} is eligible: {told or 'its crawls hold no row'}{_example(store, documents)}; "
        "lower ingest.min_chars or pool.validation_share, or give other documents; `datamask audit why` tells of one row"
    )


def _example(store: Store, crawls: Iterable[str]) -> str:
    """A row that became no document; empty where there is none."""
    for crawl in crawls:
        ref = store.current(REJECTED_STAGE, crawl)
        for batch in () if ref is None else store.iter_batches(ref, ["shard", "row", "reason", "detail"]):
            if batch.num_rows:
                row = batch.slice(0, 1).to_pylist()[0]
                return f"; e.g. crawl {crawl}, file {row['shard']}, row {row['row']}: {row['reason']}, {row['detail']}"
    return ""


def _before(
    config: PoolConfig,
    store: Store,
    held: Ref | None,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Ref | str],
) -> Ref | None:
    """The earlier candidates, where what was judged there stands; ``None`` where every crawl is judged again."""
    asked = config.near_duplicates, config.decontaminate, inputs.get("takedown"), inputs.get("purged")
    stands = goes_on(store, held, version=VERSION, settings=settings, inputs=inputs)
    return held if stands and not any(asked) else None


def _judge(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    refs: list[Ref],
    suspects: NDArray[np.int64],
    before: Ref | None,
    num_judged: int,
) -> None:
    """Tables of what stands more than once, is withdrawn or contaminated among the crawls that are not judged yet: few rows,
    whatever the number of documents.
    """
    firsts = list(itertools.accumulate((ref.rows for ref in refs), initial=0))
    connection.execute(f"""
        CREATE TEMP TABLE named_rows AS
        SELECT DISTINCT {firsts}[artefact_order + 1] + artefact_row AS position FROM named;
        CREATE TEMP TABLE documents
            (crawl VARCHAR, id VARCHAR, content_hash VARCHAR, position BIGINT, group_hash VARCHAR);
        CREATE TEMP TABLE known
            (group_hash VARCHAR, num_copies BIGINT, representative_crawl VARCHAR, representative_id VARCHAR, stands BOOLEAN);
        CREATE TEMP TABLE known_ids (id VARCHAR);
    """)
    named = connection.execute("SELECT position FROM named_rows").fetchnumpy()["position"]
    rows, first = np.union1d(suspects, named), firsts[num_judged]
    added, held = rows[rows >= first] - first, suspects[suspects < first]
    for table in windows.rows_at(store, refs[num_judged:], ["crawl", "id", "content_hash"], added):
        connection.register("taken", table)
        connection.execute(f"""
            INSERT INTO documents SELECT crawl, id, content_hash, {first} + row, coalesce(group_hash, content_hash)
            FROM taken LEFT JOIN near USING (content_hash)
        """)
    if before is not None:
        connection.execute("""
            CREATE TEMP TABLE judged (crawl VARCHAR, id VARCHAR, group_hash VARCHAR, num_copies BIGINT,
                representative_crawl VARCHAR, representative_id VARCHAR, exclusion VARCHAR)
        """)
        for table in windows.rows_at(store, [before], _JUDGED, held):
            connection.register("taken", table.rename_columns({"content_hash": "group_hash"}))
            connection.execute("INSERT INTO judged BY NAME SELECT * EXCLUDE (row) FROM taken")
        connection.execute("""
            INSERT INTO known
            SELECT group_hash, max(num_copies), arg_max(representative_crawl, stands),
                arg_max(representative_id, stands), bool_or(stands)
            FROM (SELECT *, crawl = representative_crawl AND id = representative_id
                      AND exclusion IS DISTINCT FROM 'duplicate_id' AS stands FROM judged)
            SEMI JOIN documents USING (group_hash) GROUP BY group_hash;
            INSERT INTO known_ids SELECT DISTINCT id FROM judged SEMI JOIN documents USING (id);
        """)
    for name, sql in _TABLES.items():
        connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
    for name in ("documents", "copied", "copies", "repeated"):
        connection.execute(f"DROP TABLE {name}")


def _held_out_below(
    config: PoolConfig, prefixes: NDArray[np.int64], crawls: list[str], earlier: Mapping[str, Any]
) -> list[int]:
    """Of each crawl: contents whose hash begins with a lower number are held out.

    What the release held out that this one goes on from stays so: nobody may train on what a model was validated on.

    Args:
        config: The rules.
        prefixes: The smallest with which a content's hash begins, ascending; all of them in a small pool.
        crawls: The release's.
        earlier: What the manifest of that release's candidates tells, if there is one.
    """
    below_share = round(config.validation_share * 0x1_0000_0000)
    fewest = min(config.validation_documents, len(prefixes) // _LARGEST_PART)
    below = max(below_share, int(prefixes[fewest - 1]) + 1) if below_share and fewest else below_share
    before = dict(zip(earlier.get("crawls", ()), earlier.get("held_out_below", ()), strict=False))
    return [before.get(crawl, below) for crawl in crawls]


def _candidates(
    connection: "duckdb.DuckDBPyConnection", store: Store, refs: list[Ref], index: int, held_out_below: int
) -> Iterator[pa.Table]:
    """What is said of each document of one crawl, in order, some thousand at a time."""
    first = sum(ref.rows for ref in refs[:index])
    for batch in store.iter_batches(refs[index], _READ, batch_rows=windows.ROWS):
        positions = pa.array(range(first, first + batch.num_rows))
        sql = _candidates_sql(held_out_below, first, batch.num_rows)
        first += batch.num_rows
        connection.register("taken", pa.Table.from_batches([batch]).append_column("position", positions))
        yield connection.sql(sql).to_arrow_table().select(schema.CANDIDATES.names).cast(schema.CANDIDATES)


def _candidates_sql(held_out_below: int, first: int, number: int) -> str:
    return f"""
        WITH here AS (SELECT * FROM twins WHERE position BETWEEN {first} AND {first + number - 1}),
        documents AS (
            SELECT taken.*, coalesce(near.group_hash, taken.content_hash) AS group_hash
            FROM taken LEFT JOIN near USING (content_hash)
        ),
        ranked AS (
            SELECT documents.*,
                position <> coalesce(first_with_id, position) AS repeats_id,
                position <> coalesce(representative, position) AS is_copy,
                coalesce(here.num_copies, 1) AS num_copies,
                coalesce(here.representative_crawl, documents.crawl) AS representative_crawl,
                coalesce(here.representative_id, documents.id) AS representative_id,
                content_hash <> coalesce(representative_hash, content_hash) AS is_near_duplicate,
                group_hash IN (SELECT group_hash FROM withdrawn) AS is_withdrawn,
                group_hash IN (SELECT group_hash FROM contaminated) AS is_contaminated,
                {PREFIX} < {held_out_below} AS is_validation
            FROM documents LEFT JOIN here USING (position)
        ),
        judged AS (
            SELECT *,
                CASE WHEN is_withdrawn THEN 'takedown'
                     WHEN is_near_duplicate THEN 'near_duplicate'
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
            exclusion
        FROM judged ORDER BY position
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
