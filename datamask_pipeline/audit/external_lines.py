"""The report on somebody else's subset as lines for a terminal. Knows the report's shape and no file."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from datamask_pipeline.report.tables import figure
from datamask_pipeline.schema import ABOUT_COVERAGE

Report = Mapping[str, Any]
#: Places of a value on the objective's scale: the bound, and products in float32, are no better than this.
PLACES: Final = 6


def report_lines(report: Report) -> Iterator[str]:
    """One fact a line."""
    against = report["against"]
    held = f"against {against['kind']} {against['name']}"
    yield f"{report['target']}: {report['rows']:,} rows in {report['files']} files, {held}"
    yield f"  found by id              {report['found_by_id']:>12,}"
    yield f"  found by content         {report['found_by_content']:>12,}"
    why = ", ".join(f"{number:,} {reason}" for reason, number in report["why_not_found"].items())
    yield f"  not found                {report['not_found']:>12,}" + (f"  ({why})" if why else "")
    yield f"  unreadable               {report['unreadable']:>12,}  (rows = found + not found + unreadable)"
    yield f"  altered texts            {report['altered']:>12,}  (the id is found, the text differs)"
    if report["found_by_id_without_text"]:
        yield f"  without a text           {report['found_by_id_without_text']:>12,}  (found by id; nothing to compare)"
    yield from _within_lines(report["within"])
    for fault, places in report["examples"].items():
        for place in places:
            yield f"    e.g. {fault.replace('_', ' ')}: {place['file']} row {place['row']}" + (
                f", id {place['id']}" if place["id"] is not None else ""
            )
    if any(report["examples"].values()):
        yield "    rows are counted from 0 in their file; --out FILE has what was found of every row"
    for crawl, number in report["crawls"].items():
        yield f"  of crawl {crawl}: {number:,} rows"
    yield from _licence_lines(report)
    for scorer in report.get("scores", ()):
        yield (
            f"  score {scorer['scorer']}: mean {_number(scorer['mean'])} of {scorer['documents']:,} documents found, "
            f"{_number(scorer['mean_of_all'])} of all; mean rank {figure(scorer['mean_rank'])} (0 to 1, random .5)"
        )
    if "pool" in report:
        pool = report["pool"]
        others = ", ".join(f"{number:,} {reason}" for reason, number in pool["rows_not_eligible"].items())
        yield (
            f"  {pool['rows']:,} of the rows found stand for {pool['eligible_documents']:,} documents that could be selected"
        ) + (f"; the others for documents that could not: {others}" if others else "")
    if "objective" in report:
        yield from _objective_lines(report["objective"])


def _within_lines(within: Report) -> Iterator[str]:
    yield f"  exact copies within      {within['exact_copies']:>12,}  (of {within['texts']:,} texts, white space aside)"
    yield f"  repeated ids             {within['repeated_ids']:>12,}  (of {within['ids']:,} ids)"
    near = within.get("near_duplicates")
    if near is None:
        yield "  near-duplicates within     not sought among so many texts; --minhash seeks them"
    else:
        yield (
            f"  near-duplicates within   {near['near_duplicates']:>12,}  (of {near['texts']:,} distinct texts, by MinHash "
            f"from {near['jaccard']})"
        )


def _licence_lines(report: Report) -> Iterator[str]:
    licence, revision = report["licence"], report["revision"]
    of_rows = ", ".join(f"{name} ({number:,} rows)" for name, number in licence["rows"].items())
    stated = ", ".join([*licence["card"], *([of_rows] if of_rows else [])])
    yield f"  licence: {stated or 'not stated'}"
    for finding in licence["findings"]:
        yield f"    {finding}"
    if licence["source"] is None:
        yield "    against the licence of the source it was not checked; --source-license names that"
    if revision["of_subset"]:
        yield f"  read at commit {revision['of_subset']}"
    if revision["of_source"]:
        yield f"  the card names revision {', '.join(revision['of_source'])}"
    for finding in revision["findings"]:
        yield f"  {finding}"


def _objective_lines(found: Report) -> Iterator[str]:
    if "reason" in found:
        yield f"  objective: not compared: {found['reason']}"
        return
    yield (
        f"  objective of {found['arm']} ({found['objective_of']}), {found['documents']:,} of {found['pool_documents']:,} "
        f"documents; bound {_number(found['bound'])}"
    )
    yield f"    {'':<14}{'objective':>10}{'gap':>10}{'near-copies':>13}{'quality rank':>14}{'coverage':>10}"
    for name, mask in found["masks"].items():
        yield (
            f"    {name:<14}{_value(mask['value']):>10}{_value(mask['gap']):>10}{mask['near_copies']:>13,}"
            f"{figure(mask['quality_rank']):>14}{figure(mask['coverage']):>10}"
        )
    yield f"    random is one mask drawn by lot; the mean objective of such masks is {_value(found['random_mean'])}"
    yield f"    coverage: mean of the largest cosine from a document of the pool to one of the mask. {ABOUT_COVERAGE}"
    if found["learnt"]:
        yield (
            "    ours was learnt anew with this number of documents, without quotas, pruning, blocks or what an earlier "
            "release holds"
        )


def _value(value: float | None) -> str:
    """A value, or a share of a distance, on the objective's scale; what is smaller than its last place is 0."""
    return figure(None if value is None else round(value, PLACES) + 0.0)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
