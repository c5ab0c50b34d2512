"""What names a release's crawls is never lost: not by a misspelt name, not by a damaged file."""

import datetime
import json
import re
import shutil
import zoneinfo
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.order import told
from datamask_pipeline.pipeline.rolling import Member, new_members, this_month
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.releases import retire


def chain(config: Path, record: Path, crawls: list[str]) -> Pipeline:
    return Pipeline(
        load_config(str(config), {"store": str(record), "releases": {"second": {"crawls": crawls}}})
    )


def test_a_misspelt_crawl_does_not_use_up_the_release_name(tiny_config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"crawl of release 'second' 'nope'; .*tiny-2024-10"):
        list(chain(tiny_config_file, tmp_path, ["tiny-2024-18", "nope"]).steps("second"))
    corrected = chain(tiny_config_file, tmp_path, ["tiny-2024-18", "tiny-2024-10"])
    assert corrected.release_crawls("second") == ["tiny-2024-18", "tiny-2024-10"]


def test_a_crawls_folder_without_files_is_told_from_a_misspelt_name(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    root = tmp_path / "crawls"
    shutil.copytree(
        Path(yaml.safe_load(tiny_config_file.read_text())["source"]["options"]["root"]) / "tiny-2024-10",
        root / "t1",
    )
    (root / "empty").mkdir()
    (root / "empty" / "README.pdf").write_bytes(b"")
    place = {"store": str(tmp_path / "record"), "source.options.root": str(root)}
    settings = {**place, "releases": {"one": {"crawls": ["empty"]}}}
    with pytest.raises(
        UnknownNameError, match=r"'empty'; .*: t1; folder .*/empty is there, but holds no file of a k"
    ):
        Pipeline(load_config(str(tiny_config_file), settings)).check()


def test_a_release_of_no_crawls_is_refused(tiny_config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"releases\.second\.crawls.*at least 1"):
        chain(tiny_config_file, tmp_path, [])


def test_a_crawl_that_came_later_is_told_and_not_taken_in(tiny_config_file: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(tiny_config_file.read_text())
    root = tmp_path / "crawls"
    shutil.copytree(Path(values["source"]["options"]["root"]) / "tiny-2024-10", root / "t1")
    options = ["-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "--until", "ingest"]
    options += ["-s", f"source.options.root={root}"]
    first = CliRunner().invoke(app, ["run", *options])
    assert first.exception is None, first.output
    assert "is not in release" not in first.output
    shutil.copytree(root / "t1", root / "t3")
    second = CliRunner().invoke(app, ["run", *options])
    told = "crawl t3 is not in release first, which was frozen with t1; name a new release to take it in, or have"
    assert told in second.output


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"crawls": []}', '{"crawls": [1]}'])
def test_a_damaged_release_is_named_and_kept(content: str, tiny_config_file: Path, tmp_path: Path) -> None:
    pipeline = chain(tiny_config_file, tmp_path, ["tiny-2024-18"])
    pipeline.release_crawls("second")
    path = tmp_path / "releases" / "second.json"
    path.write_text(content)
    with pytest.raises(IntegrityError, match=r'releases/second\.json .*write \{"crawls"'):
        pipeline.release_crawls("second")
    assert path.read_text() == content


def goes_on(tiny_config_file: Path, folder: Path, record: Path, **releases: object) -> list[str]:
    """Options of a chain whose releases stand in this order, over three crawls and a record."""
    root = Path(yaml.safe_load(tiny_config_file.read_text())["source"]["options"]["root"])
    shutil.copytree(root, folder / "crawls")
    shutil.copytree(root / "tiny-2024-10", folder / "crawls" / "tiny-2024-22")
    pairs = {"store": str(record), "source.options.root": str(folder / "crawls"), "releases": releases}
    options = [option for name, value in pairs.items() for option in ("-s", f"{name}={json.dumps(value)}")]
    return ["-c", str(tiny_config_file), *options]


OLD = {"crawls": ["tiny-2024-10", "tiny-2024-18"]}


def test_what_an_editor_left_beside_a_release_is_none(tiny_config_file: Path, tmp_path: Path) -> None:
    """A refusal of a damaged file says to write it by hand."""
    pipeline = chain(tiny_config_file, tmp_path / "record", ["tiny-2024-18"])
    pipeline.release_crawls("second")
    folder = tmp_path / "record" / "releases"
    for name in ("second.json~", "second.json.bak", ".second.json.swp", ".#second.json"):
        shutil.copy(folder / "second.json", folder / name)
    assert pipeline.releases() == ["second"]


def test_a_release_is_refused_before_any_work_while_what_it_goes_on_from_has_no_mask(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    options = goes_on(tiny_config_file, tmp_path, record, first=OLD, second={"given": "first"})
    refused = CliRunner().invoke(app, ["run", *options, "--release", "second", "--until", "materialise"])
    assert isinstance(refused.exception, ConfigurationError), refused.output
    assert "goes on from 'first', which has no mask yet of arm random, datamask; `datamask run" in str(
        refused.exception
    )
    assert not list(record.glob("*/*/current.json"))
    whole = CliRunner().invoke(app, ["run", *options, "--release", "second", "--until", "pool", "--dry-run"])
    assert whole.exception is None, "what needs no mask is not refused"


def test_releases_are_made_after_those_that_they_go_on_from_however_they_are_listed(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    listed = {"third": {"given": "second"}, "second": {"given": "first"}, "first": OLD}
    options = goes_on(tiny_config_file, tmp_path, record, **listed)
    told = CliRunner().invoke(app, ["run", *options, "--until", "materialise", "--dry-run"])
    assert told.exception is None, told.output
    lines = told.output.splitlines()
    assert [line.partition(":")[0] for line in lines if "steps to compute" in line] == ["first", "second"]
    assert "release third waits for a crawl to add to those of second" in lines


def test_what_a_release_goes_on_from_is_frozen_before_it(tiny_config_file: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    first, second = {"crawls": ["tiny-2024-10"]}, {"given": "first", "crawls": ["tiny-2024-18"]}
    settings = {"store": str(record), "releases": {"second": second, "first": first}}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    assert pipeline.release_crawls("second") == ["tiny-2024-10", "tiny-2024-18"]
    assert (record / "releases" / "first.json").exists()


def test_a_rolling_release_makes_one_with_each_new_crawl(tiny_config_file: Path, tmp_path: Path) -> None:
    record, web = tmp_path / "record", {"every": "crawl", "given": "previous"}
    options = goes_on(tiny_config_file, tmp_path, record, web=web, old=OLD, **{"web-all": {"every": "month"}})
    later = tmp_path / "crawls" / "tiny-2024-22"
    later.rename(tmp_path / "later")

    def called(*command: str) -> str:
        done = CliRunner().invoke(app, [*command, *options])
        assert done.exception is None, done.output
        return done.output

    checked = called("config", "check")
    assert "# release old will be frozen at its first run with tiny-2024-10, tiny-2024-18\n" in checked
    assert "# release web makes one with each new crawl; so far: none; next: web-tiny-2024-18\n" in checked
    assert "# near-copies of what is held may come into web: copies.threshold is not set" in checked
    called("run", "--until", "ingest")
    (tmp_path / "later").rename(later)
    assert "so far: web-tiny-2024-18; next: web-tiny-2024-22\n" in called("config", "check")
    frozen = sorted((record / "releases").iterdir())
    told = called("run", "--until", "pool", "--dry-run", "--release", "web")
    assert "web-tiny-2024-22: 2 steps to compute" in told.replace(
        "web-tiny-2024-22: 3", "web-tiny-2024-22: 2"
    )
    due = CliRunner().invoke(app, ["audit", "status", "--until", "pool", *options])
    assert due.exit_code == 3
    assert "web-tiny-2024-22" in due.stdout
    assert sorted((record / "releases").iterdir()) == frozen, "looking freezes nothing"
    called("run", "--until", "ingest")
    called("run", "--until", "ingest")
    month = f"web-all-{this_month()}"
    assert month not in told
    files = {path.stem: json.loads(path.read_text()) for path in (record / "releases").iterdir()}
    first = {"crawls": ["tiny-2024-10", "tiny-2024-18"], "rolls": "web"}
    second = {"crawls": [*first["crawls"], "tiny-2024-22"], "given": "web-tiny-2024-18", "rolls": "web"}
    assert files.pop(month)["rolls"] == "web-all"
    assert files == {"old": OLD, "web-tiny-2024-18": first, "web-tiny-2024-22": second}
    refused = CliRunner().invoke(app, ["run", *options, "--until", "select", "--release", "web-tiny-2024-22"])
    assert "no mask yet of arm random, datamask" in str(refused.exception)
    of_a_rolling_one = str(CliRunner().invoke(app, ["retire", "web", *options]).exception)
    assert (
        "'web' makes releases and is none itself; so far: web-tiny-2024-18, web-tiny-2024-22. "
        in of_a_rolling_one
    )
    called("retire", "old")
    told = called("config", "check")
    assert "# release old is retired: nothing is made of it; `datamask retire old --undo`" in told
    for further in ([], ["--dry-run"]):
        by_name = CliRunner().invoke(app, ["run", *options, "--release", "old", *further])
        assert "'old' is retired: nothing is made of it; `datamask retire old --undo`" in str(
            by_name.exception
        )
    only_old = [*options[:-1], f"releases={json.dumps({'old': OLD})}"]
    for command in (["run"], ["run", "--dry-run"], ["plan"]):
        alone = CliRunner().invoke(app, [*command, *only_old])
        assert (alone.exit_code, alone.stdout) == (0, ""), alone.exception
        assert alone.stderr.startswith("release old is retired: nothing is made of it")


@pytest.mark.parametrize(
    ("releases", "message"),
    [
        ({"web": {"every": "crawl", "crawls": ["a"]}}, "leave out `crawls`"),
        ({"web": {"max_age_days": 3}}, "give `every` too"),
        (
            {"web": {"every": "month", "max_age_days": 10**9}},
            r"web\.max_age_days: .*less than or equal to 36500",
        ),
        ({"web": {"every": "month"}, "on": {"given": "web"}}, "makes releases and is none itself"),
        ({"web": {"every": "month", "given": "web-2026-10"}}, "say `previous`"),
        ({"web": {"every": "month", "given": "previous"}, "previous": {}}, "give that one another name"),
    ],
)
def test_a_rolling_release_that_makes_no_sense_is_refused(
    releases: dict[str, object], message: str, tiny_config_file: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_config(str(tiny_config_file), {"releases": releases})


def test_a_release_of_the_name_that_a_rolling_one_would_give_is_refused(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    """Before either is frozen: the name would have the crawls of the other."""
    releases = {"web": {"every": "crawl"}, "web-tiny-2024-18": {"crawls": ["tiny-2024-10"]}}
    settings = [f"--set=store={tmp_path / 'record'}", f"--set=releases={releases}"]
    for command in (["config", "check"], ["run", "--until", "ingest"]):
        refused = CliRunner().invoke(app, [*command, "-c", str(tiny_config_file), *settings])
        assert isinstance(refused.exception, ConfigurationError)
        assert "releases.web-tiny-2024-18: 'web' makes a release of that name" in str(refused.exception)
    assert not (tmp_path / "record").exists()


def test_a_crawl_whose_files_are_gone_is_told_with_the_releases_that_have_it(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    values = yaml.safe_load(tiny_config_file.read_text())
    root = tmp_path / "crawls"
    for name in ("t1", "t2"):
        shutil.copytree(Path(values["source"]["options"]["root"]) / "tiny-2024-10", root / name)
    releases = "releases={one: {crawls: [t1]}, two: {crawls: [t1, t2]}}"
    options = ["-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "--until", "ingest"]
    options += ["-s", f"source.options.root={root}", "-s", releases]
    assert CliRunner().invoke(app, ["run", *options]).exception is None
    shutil.rmtree(root / "t1")
    told = str(CliRunner().invoke(app, ["run", *options]).exception)
    assert (
        "no such crawl any more, though a release has it: one, two; there are: t2 (field source, value 't1'); put its"
        in told
    )
    assert told.endswith(
        "`datamask retire one` and `datamask retire two`, with the configuration of this command"
    )


def test_a_misspelt_given_is_told_with_its_setting(tiny_config_file: Path, tmp_path: Path) -> None:
    releases = {"first": {"crawls": ["tiny-2024-10"]}, "second": {"given": "frist"}}
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path), "releases": releases}))
    with pytest.raises(
        UnknownNameError, match=r"^releases\.second\.given: unknown release 'frist' .*'first'.*: first$"
    ):
        pipeline.check()
    rolling = {"first": {"crawls": ["tiny-2024-10"]}, "web": {"given": "frist", "every": "crawl"}}
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path), "releases": rolling}))
    with pytest.raises(UnknownNameError, match=r"^releases\.web\.given: unknown release 'frist'"):
        pipeline.check()
    pipeline.freeze(Member("web-tiny-2024-10", "web", ("tiny-2024-10",), None))
    with pytest.raises(UnknownNameError, match=r"^releases\.web\.given: unknown release 'frist'"):
        pipeline.check()


def test_rolling_releases_of_crawls_with_any_name_have_names_that_fit(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    """Of crawls that differ in what does not fit, too; the names are the same in each process."""
    names = ["a b", "a.b", "b\udcff", "c"]
    values = yaml.safe_load(tiny_config_file.read_text())
    source = Path(values["source"]["options"]["root"]) / "tiny-2024-10"
    for name in names:
        shutil.copytree(source, tmp_path / "crawls" / name)
    web = {"every": "crawl", "given": "previous"}
    settings = {"store": str(tmp_path / "record"), "source.options.root": str(tmp_path / "crawls")}
    pipeline = Pipeline(load_config(str(tiny_config_file), {**settings, "releases": {"web": web}}))
    found = []
    for known in (names[:1], names[:2], names[:3], names):
        (member,) = new_members(pipeline, "web", known, "2026-11")
        pipeline.freeze(member)
        found.append(member.name)
    assert found[:2] == ["web-a_b-c8687a08", "web-a_b-2e7336dc"]
    assert all(re.fullmatch("[A-Za-z0-9_-]+", name) for name in found)
    assert found[3] == "web-c"


@pytest.mark.parametrize("given", ["previous", None])
def test_a_rolling_release_goes_on_where_a_crawl_is_gone_and_what_had_it_is_retired(
    tiny_config_file: Path, tmp_path: Path, given: str | None
) -> None:
    """Which is what a run says that is to be done; later crawls were refused for it, one after the other."""
    values = yaml.safe_load(tiny_config_file.read_text())
    source = Path(values["source"]["options"]["root"]) / "tiny-2024-10"
    root = tmp_path / "crawls"
    web = {"every": "crawl"} | ({"given": given} if given else {})
    settings = {"store": str(tmp_path / "record"), "source.options.root": str(root), "releases": {"web": web}}

    def made() -> list[Member]:
        pipeline = Pipeline(load_config(str(tiny_config_file), settings))
        members = new_members(pipeline, "web", pipeline.crawls(), "2026-11")
        for member in members:
            pipeline.freeze(member)
        pipeline.check("ingest")
        return members

    for name in "abc":
        shutil.copytree(source, root / name)
        made()
    shutil.rmtree(root / "b")
    with pytest.raises(InputError, match="`datamask retire web-b` and `datamask retire web-c`"):
        made()
    shutil.copytree(source, root / "d")
    coming = Pipeline(load_config(str(tiny_config_file), settings))
    with pytest.raises(InputError, match="`datamask retire web-b` and `datamask retire web-c`"):
        coming.planned_crawls("web-d")
    shutil.rmtree(root / "d")
    store = Store(tmp_path / "record")
    for name in ("web-b", "web-c"):
        retire(store, name)
    assert made() == []
    line = next(told(Pipeline(load_config(str(tiny_config_file), settings))))
    assert "so far: web-a, web-b (retired), web-c (retired); " in line
    shutil.copytree(source, root / "d")
    before = "web-a" if given else None
    assert made() == [Member("web-d", "web", ("a", "c", "d"), before)]
    shutil.copytree(source, root / "e")
    assert made() == [Member("web-e", "web", ("a", "c", "d", "e"), "web-d" if given else None)]


def test_a_rolling_release_goes_on_from_the_last_in_use_where_crawls_are_back(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    """A retired one that was passed over has more crawls than what was made instead, and took its place."""
    source = Path(yaml.safe_load(tiny_config_file.read_text())["source"]["options"]["root"]) / "tiny-2024-10"
    root, away, store = tmp_path / "crawls", tmp_path / "away", Store(tmp_path / "record")
    settings = {
        "store": str(tmp_path / "record"),
        "source.options.root": str(root),
        "releases": {"web": {"every": "crawl", "given": "previous"}},
    }

    def made_with(crawl: str) -> list[Member]:
        shutil.copytree(source, root / crawl)
        pipeline = Pipeline(load_config(str(tiny_config_file), settings))
        members = new_members(pipeline, "web", pipeline.crawls(), "2026-11")
        for member in members:
            pipeline.freeze(member)
        return members

    for name in "abcd":
        made_with(name)
    away.mkdir()
    for name in "bc":
        shutil.move(root / name, away / name)
    for name in "bcd":
        retire(store, f"web-{name}")
    assert made_with("e") == [Member("web-e", "web", ("a", "d", "e"), "web-a")]
    for name in "bc":
        shutil.move(away / name, root / name)
    assert made_with("f") == [Member("web-f", "web", ("a", "d", "e", "b", "c", "f"), "web-e")]


def test_a_rolling_release_goes_on_from_one_of_an_earlier_version_named_as_its_crawl(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    web = {"every": "crawl", "given": "previous"}
    pipeline = Pipeline(
        load_config(str(tiny_config_file), {"store": str(tmp_path / "record"), "releases": {"web": web}})
    )
    pipeline.freeze(Member("web-tiny 2024.10", "web", ("tiny-2024-10",), None))
    assert pipeline.given("web-tiny-2024-18") == "web-tiny 2024.10"


@pytest.mark.parametrize(
    ("zone", "moment", "month"),
    [
        ("UTC", (2028, 2, 29, 23, 59), "2028-02"),
        ("America/Los_Angeles", (2026, 12, 31, 20), "2027-01"),
        ("Pacific/Kiritimati", (2028, 3, 1, 3), "2028-02"),
    ],
)
def test_a_month_is_that_of_utc_whatever_zone_a_moment_is_told_in(
    zone: str, moment: tuple[int, ...], month: str
) -> None:
    """As another command names the same release by the clock in UTC."""
    assert this_month(datetime.datetime(*moment, tzinfo=zoneinfo.ZoneInfo(zone))) == month
    assert this_month(datetime.datetime(2026, 12, 1, 3)) == "2026-12", "without a zone it is UTC already"
