"""What left a document out of a release: entries that withdrew it, or questions whose words it has. Knows no arm."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from datamask_pipeline.audit.copies_of import grouped_with
from datamask_pipeline.audit.reader import Reader, Row, input_location
from datamask_pipeline.stages.takedown_matches import entries_naming, named_by_purge
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.tombstones import hashed, removed_by, tombstones

#: So many documents of one text are looked at: what names any of them withdraws them all.
_MOST_COPIES: Final = 1_000


def left_out_by(reader: Reader, pool: Mapping[str, Any], candidate: Row) -> list[Row]:
    """What withdrew or contaminated a document, or one of its copies and near-duplicates.

    Args:
        reader: Of the record.
        pool: Manifest of the candidates.
        candidate: The document's row there.

    Returns:
        Of a withdrawn document each ``entry``, as `datamask audit takedown` spells it; of a contaminated one each ``task``
        and ``question``, its row, and as ``of`` the ``crawl`` and ``id`` of a near-duplicate that has the question's words
        (null: the document itself has them); none of any other.

    Raises:
        IntegrityError: what was read is not what was written.
    """
    if candidate["exclusion"] not in ("takedown", "contaminated"):
        return []
    inputs = [f"documents/{candidate['crawl']}", "takedown", "question_texts"]
    for location in filter(None, (input_location(pool, name) for name in inputs)):
        if (by := removed_by(reader.store, location)) is not None:
            return [{"entry": f"what was purged by {by.title}"}]
    if candidate["exclusion"] == "contaminated":
        return [*_questions(reader, pool, candidate)]
    documents = [*_of_its_group(reader, pool, candidate, ["id", "content_hash", "url"])]
    requests, entries = input_location(pool, "takedown"), []
    if requests is not None:
        entries = entries_naming(reader.store, ref_of(reader.tables.manifest(requests)), documents)
    contents = {row["content_hash"] for row in documents}
    purges = [
        named_by_purge(each)
        for each in tombstones(reader.store)
        if not entries and any(hashed(each.salt, content) in each.contents for content in contents)
    ]
    return [{"entry": entry} for entry in (*entries, *purges[:1])]


def _questions(reader: Reader, pool: Mapping[str, Any], candidate: Row) -> Iterator[Row]:
    from datamask_pipeline.evaluation.overlap import QuestionNgrams

    location = input_location(pool, "question_texts")
    assert location is not None
    rows = reader.store.read_table(ref_of(reader.tables.manifest(location))).to_pylist()
    ngram = pool["basis"]["config"]["decontaminate"]["ngram"]
    questions = QuestionNgrams((((row["task"], row["question"]), row["text"]) for row in rows), ngram)
    found: dict[tuple[str, int], Row | None] = {}
    seen = set[str]()
    for row in _of_its_group(reader, pool, candidate, ["crawl", "id", "content_hash", "text"]):
        own = row["content_hash"] == candidate["content_hash"]
        if row["content_hash"] not in seen:
            seen.add(row["content_hash"])
            for each in itertools.chain.from_iterable(questions.found_in(row["text"]).values()):
                found.setdefault(each, None if own else {"crawl": row["crawl"], "id": row["id"]})
    for task, question in sorted(found):
        yield {"task": task, "question": question, "of": found[task, question]}


def _of_its_group(
    reader: Reader, pool: Mapping[str, Any], candidate: Row, columns: list[str]
) -> Iterator[Row]:
    """The document first, what represents it, and what that represents, as the release's crawls have them."""
    first = candidate["representative_crawl"], candidate["representative_id"]
    copies = grouped_with(reader, pool["location"], *first)
    names = [(candidate["crawl"], candidate["id"]), first]
    names += [(row["crawl"], row["id"]) for row in itertools.islice(copies, _MOST_COPIES)]
    for crawl, name in dict.fromkeys(names):
        location = input_location(pool, f"documents/{crawl}")
        if location is not None and removed_by(reader.store, location) is None:
            yield from reader.at(location, name, columns=columns)
