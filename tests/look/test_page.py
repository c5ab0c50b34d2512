"""The page of a selection says what the record says, in a file of its own without scripts."""

import itertools
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from datamask_pipeline import duck
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, StorageError, UnknownNameError
from datamask_pipeline.look import measured
from datamask_pipeline.look.document import document_page
from datamask_pipeline.look.embedding_map import embedding_map
from datamask_pipeline.look.funnel import funnel
from datamask_pipeline.look.page import page, write_page
from datamask_pipeline.look.selected import Selected, selected
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Ref, Store, require


@pytest.fixture
def about(tiny_run: Pipeline) -> Selected:
    return selected(tiny_run.store, "first", "datamask")


def rows_of(about: Selected, stage: str, key: str) -> list[dict[str, object]]:
    return about.store.read_table(require(about.store, stage, key)).to_pylist()


def test_distributions_count_each_document_once(about: Selected, tmp_path: Path) -> None:
    mask = rows_of(about, "select", "first/datamask")
    chosen = [row for row in mask if row["selected"]]
    places = {(row["crawl"], row["id"]): row for row in rows_of(about, "pool", "first")}
    with duck.connect(about.store, tmp_path) as connection:
        for measure in (
            measured.quality,
            measured.length,
            measured.crawl,
            measured.language,
            measured.domain,
        ):
            found = measure(about, connection)
            assert sum(found.before) + found.others[0] + found.unknown[0] == len(mask)
            assert sum(found.after) + found.others[1] + found.unknown[1] == len(chosen)
        found = measured.crawl(about, connection)
        assert dict(zip(found.names, found.after, strict=True)) == Counter(row["crawl"] for row in chosen)
        found = measured.domain(about, connection)
        hosts = Counter(places[row["crawl"], row["id"]]["domain"] for row in chosen)
        assert dict(zip(found.names, found.after, strict=True)) == hosts
        found = measured.length(about, connection)
        tokens = [places[row["crawl"], row["id"]]["token_count"] for row in chosen]
        for place, number in enumerate(found.after):
            assert number == sum(found.edges[place] <= count < found.edges[place + 1] for count in tokens)
        assert measured.tokens(about, connection)[1] == (sum(tokens), 0)


def test_overlap_is_that_of_the_masks(about: Selected, tmp_path: Path) -> None:
    chosen = {
        arm: {row["id"] for row in rows_of(about, "select", f"first/{arm}") if row["selected"]}
        for arm in ("datamask", "random")
    }
    with duck.connect(about.store, tmp_path) as connection:
        found = measured.overlap(about.arms, connection)
    both, either = measured.shared(found, "datamask", "random")
    assert both == len(chosen["datamask"] & chosen["random"])
    assert either == len(chosen["datamask"] | chosen["random"])
    assert found["datamask",] == len(chosen["datamask"] - chosen["random"])


def test_overlap_of_more_arms_than_a_word_has_bits(about: Selected, tmp_path: Path) -> None:
    arms = {f"arm {place}": about.arms[("datamask", "random")[place % 2]] for place in range(70)}
    with duck.connect(about.store, tmp_path) as connection:
        few = measured.overlap({name: about.arms[name] for name in ("datamask", "random")}, connection)
        many = measured.overlap(arms, connection)
    halves = {"datamask": list(arms)[::2], "random": list(arms)[1::2]}
    assert many == {
        tuple(name for name in arms if any(name in halves[of] for of in names)): count
        for names, count in few.items()
    }


def test_languages_are_joined_by_place(hostile, tmp_path: Path) -> None:
    about = selected(hostile.store, "first", "datamask")
    languages = {
        row["id"]: row["language"] for crawl in about.documents for row in rows_of(about, "ingest", crawl)
    }
    expected = Counter(languages[row["id"]] for row in rows_of(about, "select", "first/datamask"))
    with duck.connect(about.store, tmp_path) as connection:
        found = measured.language(about, connection)
    assert dict(zip(found.names, found.before, strict=True)) == expected
    assert len(expected) > 2


def test_the_map_shows_who_was_selected(about: Selected, tmp_path: Path) -> None:
    with duck.connect(about.store, tmp_path) as connection:
        found = embedding_map(about, connection)
        part = embedding_map(about, connection, sample=20)
        assert (embedding_map(about, connection).places == found.places).all()
    mask = rows_of(about, "select", "first/datamask")
    assert found.groups["selected"].tolist() == [row["selected"] for row in mask]
    best = sorted(mask, key=lambda row: -row["quality"])[: int(found.groups["selected"].sum())]
    assert {mask[place]["id"] for place in found.groups["top quality"].nonzero()[0]} == {
        row["id"] for row in best
    }
    assert set(found.groups) == {"selected", "top quality", "top diversity"}
    assert len(part.places) == 20


def test_the_funnel_loses_nothing(hostile) -> None:
    steps = list(funnel(selected(hostile.store, "first", "datamask")))
    assert [step.stage for step in steps] == ["source", "ingest", "pool", "copies", "select"]
    for before, step in itertools.pairwise(steps):
        assert before.kept == step.kept + sum(step.dropped.values()), step
    assert steps[1].dropped["nul byte"] == 4


@pytest.mark.slow
def test_lengths_are_whole_numbers_and_a_stale_selection_is_marked(about: Selected, tmp_path: Path) -> None:
    text = page(about)
    assert "STALE" not in text
    (table,) = re.findall(r"Length: documents</caption>.*?</table>", text, re.DOTALL)
    ranges = re.findall(r'<th scope="row">(?:<bdi>)?([^<]+)', table)
    assert ranges
    assert all(re.fullmatch(r"[\d,]+ to [\d,]+", each) for each in ranges)
    ends = [[int(end.replace(",", "")) for end in each.split(" to ")] for each in ranges]
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ends))
    shutil.copytree(about.store.root, tmp_path / "record")
    config = load_config(
        str(Path(about.store.root).parent / "tiny.yaml"),
        {"store": str(tmp_path / "record"), "pool.validation_share": 0.2},
    )
    pipeline = Pipeline(config)
    pipeline.run("pool", "first")
    assert "STALE:</strong> pool of first was made again since" in page(
        selected(pipeline.store, "first", "datamask")
    )


def test_a_copy_is_shown_with_what_stands_for_it(about: Selected, tmp_path: Path) -> None:
    pool = rows_of(about, "pool", "first")
    kept = {row["id"] for row in rows_of(about, "select", "first/datamask") if row["selected"]}
    copies = [row for row in pool if row["exclusion"] == "duplicate_content"]
    assert copies
    with duck.connect(about.store, tmp_path) as connection:
        for copy in copies[:3]:
            rows = rows_of(about, "ingest", str(copy["crawl"]))
            number = next(place for place, row in enumerate(rows) if row["id"] == copy["id"])
            found = document_page(about.store, about, str(copy["crawl"]), number, connection).representative
            assert found is not None
            assert (found["crawl"], found["id"]) == (copy["representative_crawl"], copy["representative_id"])
            assert found["by"] == "an exact copy"
            assert ("datamask" in found["kept_by"]) == (found["id"] in kept)
            standing = rows_of(about, "ingest", found["crawl"])[found["row"]]
            assert (standing["id"], standing["content_hash"]) == (found["id"], copy["content_hash"])


def test_the_page_is_whole_in_itself(about: Selected, tmp_path: Path) -> None:
    text = page(about)
    assert text == page(about), "the same record gives the same page"
    titles = "Quality and diversity|Learning curve|Before and after|Overlap of arms|Redundancy|Map of|Funnel"
    assert len(set(re.findall(titles, text))) == 7
    assert "<script" not in text
    assert "default-src &#39;none&#39;" in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert text.count("<img ") == text.count('" alt="')
    assert "Facility alone seeks coverage" in text
    bound = about.manifest["metadata"]["blocks"][0]["certificate"]["bound"]
    assert f"Certified bound of the objective: {bound:.4f}" in text


@pytest.mark.slow
def test_an_arm_of_another_pool_is_left_out_and_named(
    about: Selected, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = selected(about.store, "first", "random")
    monkeypatch.setitem(other.__dict__, "index", require(about.store, "pool", "first"))
    monkeypatch.setattr("datamask_pipeline.look.selected._of_release", lambda *_: iter([about, other]))
    assert list(about.arms) == ["datamask"]
    assert about.arms_of_another_pool == ["random"]
    assert "they chose from another pool: random" in page(about)


def test_unknown_names_are_refused_and_nothing_is_written(tiny_run: Pipeline, tmp_path: Path) -> None:
    to = tmp_path / "page.html"
    for release, arm, error, message in (
        ("second", None, UnknownNameError, "unknown release 'second'"),
        ("first", "none", UnknownNameError, "unknown arm 'none'"),
        ("first", None, ConfigurationError, "several arms; name one: datamask, random"),
    ):
        with pytest.raises(error, match=message):
            write_page(tiny_run.store, release, arm, to)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", ""])
def test_a_folder_is_refused_before_anything_is_read(
    tiny_run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "datamask_pipeline.look.page.page", lambda *_, **__: pytest.fail("the page was drawn")
    )
    for to in (Path(place), tmp_path):
        with pytest.raises(StorageError, match="it is a folder; name a file in --to"):
            write_page(tiny_run.store, "first", "datamask", to)
    assert list(tmp_path.iterdir()) == []


def test_a_page_takes_the_place_of_no_pipe_or_link(tiny_run: Pipeline, tmp_path: Path) -> None:
    """As root, ``--to /dev/stdout`` left a file in its place."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "page.html")
    for to, said in ((pipe, "a device or pipe"), (link, "a link")):
        with pytest.raises(StorageError, match=f"it is {said}; name a file in --to"):
            write_page(tiny_run.store, "first", "datamask", to)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_another_processs_private_file_is_left_alone(tiny_run: Pipeline, tmp_path: Path) -> None:
    """Of two that write the same page, each writes a file of its own first."""
    private = tmp_path / ".page.html.tmp"
    private.write_text("half of another's")
    write_page(tiny_run.store, "first", "datamask", tmp_path / "page.html")
    assert {path.name for path in tmp_path.iterdir()} == {private.name, "page.html"}
    assert private.read_text() == "half of another's"


def test_the_command_writes_the_page(tiny_run: Pipeline, tmp_path: Path) -> None:
    to = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(
        app, ["look", "page", "first/datamask", "--to", str(to), "-s", f"store={tiny_run.store.root}"]
    )
    assert result.exit_code == 0, result.output
    assert str(to) in result.output
    assert [path.name for path in to.parent.iterdir()] == ["page.html"]


def test_columns_of_no_value_are_told(about: Selected, tmp_path: Path) -> None:
    """A source that states neither tokens, languages nor addresses."""
    empty = measured.Distribution([], [], [], [], unknown=(3, 1))
    from datamask_pipeline.look.page import _bins, _groups, _tokens

    assert _bins("Length", empty, "tokens").caption == "The source states none."
    assert _tokens((20_000, 0), (12_345, 0)) == "12,345 of 20,000 tokens as the source counts them"
    told = "7 tokens, of 20,000 tokens and 2 of unknown length, as the source counts them"
    assert _tokens((20_000, 2), (7, 0)) == told
    assert _groups("Domain", empty, "domains").caption == "The source states none."


def test_tokens_that_are_not_stated_are_told_beside_the_sum(hostile, tmp_path: Path) -> None:
    about = selected(hostile.store, "first", "datamask")
    with duck.connect(about.store, tmp_path) as connection:
        index = connection.execute(
            f"SELECT count(*) FILTER (token_count IS NULL) FROM {duck.parts_sql(about.store, [about.index])}"
        )
        ((unstated,),) = index.fetchall()
        assert measured.tokens(about, connection)[0][1] == unstated
        found = measured.length(about, connection)
        assert (found.unknown[0], sum(found.before)) == (unstated, about.selection.rows - unstated)


def _written(store: Store, stage: str, key: str, table: pa.Table, inputs: dict[str, Ref | str]) -> Ref:
    builder = store.begin(stage, key, version="1", config={}, inputs=inputs)
    return builder.commit([builder.write_part("00000", table.to_batches(), table.schema)])


def test_documents_without_tokens_are_in_no_bin_of_their_length(tmp_path: Path) -> None:
    from datamask_pipeline.look.page import _bins

    store = Store(tmp_path / "record")
    counts = pa.table({"position": [0, 1, 2], "token_count": pa.array([8, None, 1], pa.int64())})
    sides = pa.table({"position": [0, 1, 2], "selected": [True, True, False]})
    index = _written(store, "gather", "first", counts, {})
    about = Selected(store, _written(store, "select", "first/datamask", sides, {"index": index}))
    with duck.connect(store, tmp_path) as connection:
        found = measured.length(about, connection)
    assert (found.unknown, sum(found.before), sum(found.after)) == ((1, 1), 2, 1)
    table = _bins("Length", found, "tokens", doubling=True).table
    assert table is not None
    assert table.rows[-1] == ["not stated", "1", "1"]
