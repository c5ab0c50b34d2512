"""One self-contained HTML page about a selection. Knows what is shown; counts nothing and draws nothing itself."""

import base64
import dataclasses
import math
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamask_pipeline import duck, schema
from datamask_pipeline.disk import kind_of
from datamask_pipeline.errors import StorageError
from datamask_pipeline.look import embedding_map, figures, funnel, measured
from datamask_pipeline.look.html import number, policy, rendered
from datamask_pipeline.look.measured import Distribution
from datamask_pipeline.look.redundancy import SHOWN, redundancy
from datamask_pipeline.look.selected import Selected, selected
from datamask_pipeline.near_copies.recall import about_recall
from datamask_pipeline.report.objectives import AFFINE_SCALE, objective_names
from datamask_pipeline.storage import Store, storage_errors
from datamask_pipeline.storage.whole import check_tables
from datamask_pipeline.token_totals import in_words

if TYPE_CHECKING:
    import duckdb

#: Points of a learning curve that are drawn and listed.
_CURVE_POINTS, _CURVE_ROWS = 400, 20

#: Told what is at work.
Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under a head; each row begins with what it is about."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A plot, what it says in words, and its numbers."""

    title: str
    caption: str
    image: str = ""
    alt: str = ""
    table: Table | None = None


@dataclasses.dataclass(frozen=True)
class Section:
    """Figures under a title."""

    anchor: str
    title: str
    figures: Sequence[Figure]
    note: str = ""


def write_page(
    store: Store, release: str, arm: str | None, to: Path, *, progress: Progress = lambda _: None
) -> Path:
    """Write the page of a selection.

    Args:
        store: The record; nothing is written to it.
        release: The release.
        arm: The arm; by default the release's only one.
        to: The HTML file; one that is there is replaced.
        progress: Told what is at work.

    Returns:
        Where the page lies.

    Raises:
        UnknownNameError: the record has no selection of that release or arm.
        ConfigurationError: no arm is named, and there are several.
        IntegrityError: a table that it is drawn from was altered.
        StorageError: the file cannot be written; a folder, a link or what is no file is refused before anything is read.
    """
    if special := kind_of(to):
        raise StorageError(f"cannot write {to}: it is {special}; name a file in --to")
    text = page(selected(store, release, arm), progress=progress)
    with storage_errors(str(to), "--to"):
        to.parent.mkdir(parents=True, exist_ok=True)
        private = to.with_name(f".{to.name}.{uuid.uuid4().hex}.tmp")
        try:
            private.write_text(text, encoding="utf-8")
            private.replace(to)
        finally:
            private.unlink(missing_ok=True)
    return to


def page(about: Selected, *, progress: Progress = lambda _: None) -> str:
    """The page of a selection as HTML.

    Raises:
        IntegrityError: a table that it is drawn from was altered.
    """
    arms = [arm.selection for arm in about.arms.values()]
    drawn = (about.index, about.candidates, about.near_copies, about.made_with("learning_curve"))
    check_tables(about.store, *arms, *filter(None, drawn))
    with (
        tempfile.TemporaryDirectory() as scratch,
        duck.connect(about.store, Path(scratch), memory_limit="1GB") as connection,
    ):
        sections = []
        for make in (_choice, _learning, _before_and_after, _overlap, _redundancy, _map, _funnel):
            progress(make.__name__.strip("_").replace("_", " "))
            sections.append(make(about, connection))
        before, after = measured.tokens(about, connection)
    counts = about.manifest["counts"]
    return rendered(
        "page.html",
        meta_policy=policy(),
        release=about.release,
        arm=about.arm,
        opening=(
            f"{counts['kept']:,} of {about.selection.rows:,} documents, {_tokens(before, after)}, "
            f"from {', '.join(about.documents)}."
        ),
        stale=about.stale,
        summary=_summary(about),
        sections=sections,
        versions=_versions(about),
    )


def _tokens(before: tuple[int, int], after: tuple[int, int]) -> str:
    """Tokens before and after as a phrase, each with the documents that have no count."""
    if before[1]:
        return f"{in_words(*after)}, of {in_words(*before)}, as the source counts them"
    return f"{after[0]:,} of {before[0]:,} tokens as the source counts them"


def _summary(about: Selected) -> Table:
    found, settings = about.manifest["metadata"], about.manifest["basis"]["config"]
    blocks = found["blocks"]
    certificate = blocks[0]["certificate"] if len(blocks) == 1 else {}
    rows = [
        ("policy", str(settings["policy"])),
        ("objective", objective_names({about.arm: found})[about.arm]),
        ("its value", number(found["objective"])),
        ("of random masks", number(found["objective_random"])),
        ("certified bound", number(certificate.get("bound"))),
        ("gap, a share of the way from random to the bound", number(certificate.get("gap"))),
    ]
    return Table("The selection", ["figure", "value"], rows)


def _choice(about: Selected, _: "duckdb.DuckDBPyConnection") -> Section:
    found = {name: arm.manifest["metadata"] for name, arm in about.arms.items()}
    names = objective_names(found)
    mine = found[about.arm]
    same = {name: each for name, each in found.items() if names[name] == names[about.arm]}
    record = mine["blocks"][0]["record"]["config"]
    lamb = float(record["lamb"])
    bounds = [each["blocks"][0]["certificate"]["bound"] for each in same.values() if len(each["blocks"]) == 1]
    bound = min((bound for bound in bounds if bound is not None), default=None)
    rows = [
        [
            name,
            number(each["quality_term"]),
            number(each["diversity_term"]),
            number(each["objective"]),
            names[name],
        ]
        for name, each in found.items()
    ]
    left_out = [name for name in found if name not in same]
    caption = f"Objective: {names[about.arm]}; {AFFINE_SCALE}." if record["normalisation"] == "affine" else ""
    if bound is None:
        caption += " No arm of this objective has a certificate, so no bound is drawn."
    if left_out:
        caption += f" Not drawn, as their objective is another: {', '.join(left_out)}."
    if about.arms_of_another_pool:
        caption += f" Left out, as they chose from another pool: {', '.join(about.arms_of_another_pool)}."
    plot = figures.plane(
        {name: (each["diversity_term"], each["quality_term"]) for name, each in same.items()},
        weights=(1 - lamb, lamb),
        bound=bound,
        scale="0: random masks" if record["normalisation"] == "affine" else "raw units",
    )
    told = "; ".join(f"{row[0]}: quality {row[1]}, diversity {row[2]}" for row in rows)
    return Section(
        "plane",
        "Quality and diversity",
        [
            Figure(
                "Every arm of the release",
                caption,
                _svg(plot),
                f"Diversity across, quality upwards. {told}. Certified bound of the objective: {number(bound)}.",
                Table("Terms of the objective", ["arm", "quality", "diversity", "objective", "of"], rows),
            )
        ],
    )


def _learning(about: Selected, _: "duckdb.DuckDBPyConnection") -> Section:
    ref = about.made_with("learning_curve")
    if ref is None:
        note = "The record holds no learning curve of this very selection."
        return Section("learning", "Learning curve", [], note)
    rows = [row for row in about.store.read_table(ref).to_pylist() if row["block"] == 0]
    drawn = _thinned(rows, _CURVE_POINTS)
    blocks = len(about.manifest["metadata"]["blocks"])
    caption = f"{len(rows):,} steps" + (f" of the first of {blocks} blocks." if blocks > 1 else ".")
    value = about.manifest["metadata"]["blocks"][0]["objective"]["value"]
    caption += f" The mask that came out in the end, after all rounding and swaps, has {number(value)}."
    plot = figures.learning_curve(*([row[name] for row in drawn] for name in ("step", "objective", "bound")))
    told = f"Objective from {number(rows[0]['objective'])} to {number(rows[-1]['objective'])}."
    listed = [
        [number(row["step"]), number(row["objective"]), number(row["bound"])]
        for row in _thinned(rows, _CURVE_ROWS)
    ]
    table = Table("Steps of the learner", ["step", "objective", "bound"], listed)
    return Section(
        "learning", "Learning curve", [Figure("Objective by step", caption, _svg(plot), told, table)]
    )


def _before_and_after(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Section:
    norm = about.manifest["basis"]["config"]["score_normalisation"]
    found = measured.quality(about, connection)
    shown = [_bins("Quality", found, f"the arm's quality (scores by {norm})")]
    found = measured.length(about, connection)
    shown.append(_bins("Length", found, "tokens of a document, as the source counts them", doubling=True))
    for title, measure, what in (
        ("Domain", measured.domain, "registrable domains"),
        ("Language", measured.language, "languages as the source states them"),
        ("Crawl", measured.crawl, "crawls"),
    ):
        shown.append(_groups(title, measure(about, connection), what))
    note = "Before: the documents that the arm could choose. After: those that it chose. Shares of each, in percent."
    return Section("distributions", "Before and after", shown, note)


def _bins(title: str, found: Distribution, label: str, *, doubling: bool = False) -> Figure:
    if not found.before:
        return Figure(title, "The source states none.")
    rows = [
        [_range(found.edges, place, whole=doubling), number(before), number(after)]
        for place, (before, after) in enumerate(zip(found.before, found.after, strict=True))
    ]
    rows += _counted([("not stated", *found.unknown)] if any(found.unknown) else [])
    caption = f"{label[0].upper()}{label[1:]}."
    if any(found.unknown):
        caption += (
            f" Not stated of {found.unknown[0]:,} before and {found.unknown[1]:,} after, which are not drawn."
        )
    before, after = (
        _range(found.edges, max(range(len(counts)), key=counts.__getitem__), whole=doubling)
        for counts in (found.before, found.after)
    )
    alt = f"Most before at {before}, most after at {after}."
    table = Table(f"{title}: documents", [label, "before", "after"], rows)
    return Figure(title, caption, _svg(figures.histogram(found, label, doubling=doubling)), alt, table)


def _groups(title: str, found: Distribution, what: str) -> Figure:
    if not found.names:
        return Figure(title, "The source states none.")
    rows = [[*row] for row in _counted(zip(found.names, found.before, found.after, strict=True))]
    rows += _counted([("all others", *found.others)] if any(found.others) else [])
    rows += _counted([("not stated", *found.unknown)] if any(found.unknown) else [])
    caption = f"{what[0].upper()}{what[1:]}: {found.distinct[0]:,} before, {found.distinct[1]:,} after"
    caption += f"; the {len(found.names)} largest before are drawn." if any(found.others) else "."
    alt = f"{title}, documents before and after: " + "; ".join(
        f"{row[0]} {row[1]} and {row[2]}" for row in rows
    )
    table = Table(f"{title}: documents", [title.lower(), "before", "after"], rows)
    return Figure(title, caption, _svg(figures.groups(found)), alt, table)


def _overlap(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Section:
    found = measured.overlap(about.arms, connection)
    names = list(about.arms)
    shares, rows = [], []
    for one in names:
        own, _ = measured.shared(found, one, one)
        pairs = [measured.shared(found, one, other) for other in names]
        shares.append([100 * both / max(own, 1) for both, _ in pairs])
        rows.append([one, *(f"{both:,} ({100 * both / max(own, 1):.1f} %)" for both, _ in pairs)])
    everywhere, only = found.get(tuple(names), 0), found.get((about.arm,), 0)
    by_lot = 100 * about.manifest["counts"]["kept"] / max(about.selection.rows, 1)
    caption = (
        f"Of what the row's arm chose, how much the column's arm chose too. All arms chose {everywhere:,} documents; "
        f"{about.arm} alone chose {only:,}. A mask drawn by lot would share {by_lot:.1f} % with {about.arm}."
    )
    if len(names) > figures.NAMES_ACROSS:
        caption += " Columns have the numbers of their rows."
    told = "Documents shared by each two arms, in percent of the row's; the numbers stand below."
    table = Table("Documents that both arms chose", ["arm", *names], rows)
    plot = _svg(figures.overlap(names, shares))
    return Section("overlap", "Overlap of arms", [Figure("Shared documents", caption, plot, told, table)])


def _redundancy(about: Selected, _: "duckdb.DuckDBPyConnection") -> Section:
    found = redundancy(about)
    if not found:
        note = "The record holds no count of near-copies among the chosen documents of this selection."
        return Section("redundancy", "Redundancy", [], note)
    rows = [[arm, *(number(row.get(name)) for name in SHOWN)] for arm, row in found.items()]
    share = {arm: 100 * row["near_copies"] / max(row["documents"], 1) for arm, row in found.items()}
    cosine = next(iter(found.values()))["near_copy_cosine"]
    recall = min(row["near_copy_recall"] for row in found.values())
    caption = (
        f"Share of the chosen whose embedding has a cosine of at least {cosine:g} to that of an earlier chosen one"
        f"{about_recall(recall)}. "
        "Coverage of the pool, in the table, is the mean of the largest cosine to a chosen document. "
        f"{schema.ABOUT_COVERAGE}"
    )
    told = "; ".join(f"{arm}: {value:.2f} %" for arm, value in share.items())
    table = Table("Copies among the chosen, and coverage", ["arm", *SHOWN.values()], rows)
    plot = _svg(figures.bars(share, "near-copies among the chosen (%)"))
    return Section("redundancy", "Redundancy", [Figure("Near-copies", caption, plot, told, table)])


def _map(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Section:
    found = embedding_map.embedding_map(about, connection)
    caption = (
        f"The first two principal components of a sample of {len(found.places):,} of {found.rows:,} documents. They explain "
        f"{found.explained[0]:.1%} and {found.explained[1]:.1%} of the sample's variance: what is near on the map need not "
        "be near in meaning. Top quality and top diversity: as large a share as was selected, by quality and by marginal of "
        "diversity."
    )
    if "top diversity" not in found.groups:
        caption += " This arm's marginals of diversity are not known."
    chosen = found.groups["selected"]
    rows = [
        [name, number(int(of.sum())), number(int((of & chosen).sum()))] for name, of in found.groups.items()
    ]
    told = "; ".join(f"{name}: {size} documents, {both} of them selected" for name, size, both in rows)
    image = "data:image/png;base64," + base64.b64encode(figures.embedding_map(found)).decode()
    table = Table("Documents of the sample", ["group", "documents", "of them selected"], rows)
    return Section("map", "Map of the embeddings", [Figure("Who was selected", caption, image, told, table)])


def _funnel(about: Selected, _: "duckdb.DuckDBPyConnection") -> Section:
    steps = list(funnel.funnel(about))
    rows = [
        [
            f"{step.stage}: {step.what}",
            number(step.kept),
            ", ".join(f"{count:,} {reason}" for reason, count in step.dropped.items()) or "none",
        ]
        for step in steps
    ]
    told = "; ".join(f"{row[0]} {row[1]}" for row in rows)
    table = Table("Documents by stage", ["stage", "remained", "dropped"], rows)
    caption = "What remained after each stage, by the counters of the manifests."
    return Section(
        "funnel", "Funnel", [Figure("Documents by stage", caption, _svg(figures.funnel(steps)), told, table)]
    )


def _versions(about: Selected) -> Table:
    refs = [
        about.selection,
        about.index,
        about.candidates,
        *about.documents.values(),
        *about.embeddings.values(),
    ]
    rows = [[ref.location, ref.content_digest] for ref in refs]
    return Table("Versions", ["in the record", "content digest"], rows)


def _counted(rows: Any) -> Iterator[list[str]]:
    return ([str(name), number(before), number(after)] for name, before, after in rows)


def _range(edges: Sequence[float], place: int, *, whole: bool) -> str:
    """The values of a bin; of whole numbers, the first and the last that fall into it."""
    low, high = edges[place], edges[place + 1]
    if whole:
        return f"{math.ceil(low):,} to {math.ceil(high) - 1:,}"
    return f"{number(low)} to {number(high)}"


def _thinned(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """So many rows at most, spread evenly, the first and the last among them."""
    if len(rows) <= most:
        return rows
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def _svg(text: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()
