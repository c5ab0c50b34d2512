"""What a subset holds, in numbers: size, tokens, dates, languages, registrable domains. Names no document."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from datamask_pipeline import domains, duck
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.whole import check_tables
from datamask_pipeline.token_totals import TOTALS_SQL

Content = dict[str, Any]

#: When a document was fetched; null where its date is none, as `epoch` and `infinity`, which DuckDB takes for dates.
DATE_SQL: Final = (
    "CASE WHEN regexp_matches(date, '^\\s*[0-9]{4}[-/ ][^(]*$') THEN try_cast(date AS TIMESTAMP)::DATE END"
)


def content_of(store: Store, subset: Ref) -> Content:
    """Read the rows of a subset, after its files were held against their digests.

    Returns:
        JSON values: ``documents``, ``bytes`` (of UTF-8), ``tokens`` (of those stated), ``without_tokens`` (documents),
        ``first`` and ``last`` date, ``undated`` documents, ``languages`` (bytes by language, the empty name: not stated) and
        ``domains`` (documents and bytes by registrable domain, the empty name: no URL with a host).

    Raises:
        IntegrityError: a file of it was altered.
    """
    check_tables(store, subset)
    rows = duck.parts_sql(store, [subset], "text, url, date, language, token_count")
    with tempfile.TemporaryDirectory() as folder, duck.connect(store, Path(folder)) as connection:
        ((documents, size, tokens, without, first, last, undated),) = connection.execute(f"""
            SELECT count(*), coalesce(sum(strlen(text)), 0)::BIGINT,
                {TOTALS_SQL},
                min({DATE_SQL})::VARCHAR, max({DATE_SQL})::VARCHAR, count(*) FILTER (({DATE_SQL}) IS NULL)
            FROM {rows}
        """).fetchall()
        languages = connection.execute(f"""
            SELECT coalesce(language, ''), sum(strlen(text))::BIGINT FROM {rows} GROUP BY 1 ORDER BY 2 DESC, 1
        """).fetchall()
        hosts = connection.execute(f"""
            SELECT {domains.host_sql("url")} AS host, count(*), sum(strlen(text))::BIGINT FROM {rows} GROUP BY 1 ORDER BY 1
        """)
        of: dict[str, list[int]] = {}
        while batch := hosts.fetchmany(10_000):
            for host, number, own in batch:
                about = of.setdefault(domains.registrable_domain(host) if host else "", [0, 0])
                about[0] += number
                about[1] += own
    return {
        "documents": documents,
        "bytes": size,
        "tokens": tokens,
        "without_tokens": without,
        "first": first,
        "last": last,
        "undated": undated,
        "languages": dict(languages),
        "domains": of,
    }


def tokens_of(store: Store, subset: Mapping[str, Any]) -> tuple[int | None, int]:
    """Tokens of a subset as the source states them, and how many of its documents have no count.

    Args:
        store: The record.
        subset: The subset's manifest; of a purged one as its tombstone keeps it, whose rows are gone.

    Returns:
        The sum over those stated, ``None`` where a tombstone keeps none; and the number of the others.
    """
    said: int | None = subset["metadata"].get("tokens")
    if said is not None:
        return said, subset["metadata"].get("without_token_count", 0)
    if "held" in subset:
        content = subset.get("content", {})
        return content.get("tokens"), content.get("without_tokens", 0)
    tokens = without = 0
    for batch in store.iter_batches(ref_of(subset), ["token_count"]):
        tokens += pc.sum(batch["token_count"], min_count=0).as_py()
        without += batch["token_count"].null_count
    return tokens, without
