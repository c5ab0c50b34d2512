"""What is damaged or edited in a record or a data set is noticed and named by file; what is whole is proved."""

import contextlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from old_record import unpack
from typer.testing import CliRunner

from datamask_pipeline import families
from datamask_pipeline.audit.findings import Finding, exit_status
from datamask_pipeline.audit.prove import prove_record, root_of_record
from datamask_pipeline.audit.prove_behind import prove_behind
from datamask_pipeline.audit.prove_data_set import prove_data_set
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, IntegrityError, UnknownNameError
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.publish.manifest import manifest_bytes, sealed, stated
from datamask_pipeline.sources.content import content_hash
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.ref import manifest_digest, pretty_json

#: So many corruptions of each kind, at random places.
EACH = 50


def found(record: Path, arm: str | None = None, *, files_only: bool = True) -> list[Finding]:
    return list(prove_record(Store(record), "first", arm, files_only=files_only))


def contradicted(findings: list[Finding]) -> set[str]:
    return {finding.file for finding in findings if finding.kind == "contradiction"}


def files_of(record: Path) -> list[Path]:
    """Every file that is not private to writers."""
    paths = (path for path in record.rglob("*") if path.is_file())
    return sorted(path for path in paths if not path.relative_to(record).parts[0].startswith("."))


@pytest.fixture(scope="module")
def record(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny record, to be damaged and mended."""
    folder = tmp_path_factory.mktemp("proved") / "record"
    shutil.copytree(tiny_run.store.root, folder)
    return folder


def test_a_clean_record_is_proved(tiny_run: Pipeline) -> None:
    assert found(Path(tiny_run.store.root), files_only=False) == []
    assert all(found(Path(tiny_run.store.root), arm) == [] for arm in tiny_run.config.arms)


def flip(path: Path, draws: random.Random, _: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
    path.write_bytes(bytes(data))


def truncate(path: Path, draws: random.Random, _: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draws.randrange(len(data))])


def swap(path: Path, draws: random.Random, others: list[Path]) -> None:
    """Another file of the record takes its place."""
    data = path.read_bytes()
    different = [other for other in others if other.read_bytes() != data]
    alike = [other for other in different if other.suffix == path.suffix]
    path.write_bytes(draws.choice(alike or different).read_bytes())


def edit(path: Path, draws: random.Random, _: list[Path]) -> None:
    """Some bytes are overwritten, some inserted or removed."""
    data = path.read_bytes()
    start = draws.randrange(len(data))
    new = draws.randbytes(draws.randrange(1, 9))
    edited = data[:start] + new + data[start + draws.choice([0, len(new), len(new) + 3]) :]
    path.write_bytes(edited if edited != data else data + b" ")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, truncate, swap, edit])
def test_every_corruption_is_noticed_and_named(record: Path, damage: Callable[..., None]) -> None:
    files = files_of(record)
    draws = random.Random(damage.__name__)
    missed = []
    for _ in range(EACH):
        path = draws.choice(files)
        kept = path.read_bytes()
        damage(path, draws, files)
        assert path.read_bytes() != kept
        named = contradicted(found(record))
        if path.relative_to(record).as_posix() not in named:
            missed.append((path, named))
        path.write_bytes(kept)
    assert missed == []


def test_a_manifest_without_its_digest_is_named(record: Path) -> None:
    """One flipped bit in the digest's name, which sorts where it did."""
    path = next(record.glob("pool/first/*/manifest.json"))
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b'"manifest_digest"', b'"manifest_digesu"'))
    findings = found(record)
    path.write_bytes(kept)
    assert contradicted(findings) == {path.relative_to(record).as_posix()}


@pytest.mark.slow
def test_a_file_that_is_lost_or_added_is_named(record: Path) -> None:
    for path in files_of(record)[::9]:
        kept = path.read_bytes()
        path.unlink()
        assert path.relative_to(record).as_posix() in {finding.file for finding in found(record)}
        path.write_bytes(kept)
    added = next(record.glob("materialise/first/datamask/*/")) / "00002.parquet"
    added.write_bytes(b"")
    assert [finding.file for finding in found(record)] == [added.relative_to(record).as_posix()]
    added.unlink()
    assert found(record) == []


def test_a_link_to_a_file_outside_is_named(record: Path, tmp_path: Path) -> None:
    """Whoever can write where it leads can change it after the proof, without touching the record."""
    wanted = ["ingest/*/*/*.parquet", "embed/*/*/*.npy", "pool/first/*/rows_by_id.u64", "select/first/*/*/manifest.json",
              "gather/first/current.json", "releases/first.json", "record.json"]  # fmt: skip
    for pattern in wanted:
        path, outside = next(record.glob(pattern)), tmp_path / "outside"
        path.rename(outside)
        path.symlink_to(outside)
        (finding,) = found(record)
        assert finding.file == path.relative_to(record).as_posix()
        assert f"is a link to {outside}, outside the record" in finding.problem
        path.unlink()
        outside.rename(path)
    through = tmp_path / "record"
    through.symlink_to(record)
    assert found(through) == []


def test_a_record_of_an_earlier_version_contradicts_nothing_and_cannot_be_told(tmp_path: Path) -> None:
    unpack(tmp_path)
    findings = found(tmp_path / "record")
    assert {finding.kind for finding in findings} == {"cannot tell"}
    assert exit_status(findings) == 2


@pytest.mark.parametrize(("family", "name"), [(METRICS, "Pair_simi"), (POLICIES, "datamask")])
def test_a_selection_by_what_is_not_installed_cannot_be_told(
    tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch, family: families.Family[Any], name: str
) -> None:
    """As where another package had the metric, and whoever proves the record does not have that package."""
    classes = families._classes

    def without(asked: families.Family[Any]) -> dict[str, type[Any]]:
        return {each: found for each, found in classes(asked).items() if (asked, each) != (family, name)}

    monkeypatch.setattr(families, "_classes", without)
    findings = found(Path(tiny_run.store.root), "datamask", files_only=False)
    (told,) = findings
    assert told.file.startswith("select/first/datamask/")
    assert f"{family.kind} {name!r}" in told.problem
    assert exit_status(findings) == 2


def test_an_unknown_release_or_arm_is_an_error(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    with pytest.raises(UnknownNameError, match="unknown release 'second'"):
        list(prove_record(store, "second"))
    with pytest.raises(UnknownNameError, match="unknown arm 'greedy'"):
        list(prove_record(store, "first", "greedy"))


def test_an_arm_of_another_release_is_not_proved_by_nothing(record: Path, tmp_path: Path) -> None:
    shutil.copytree(record, tmp_path / "record")
    pools = tmp_path / "record" / "pool"
    shutil.copytree(pools / "first", pools / "second")
    store = Store(tmp_path / "record")
    for prove in (prove_record, root_of_record):
        with pytest.raises(UnknownNameError, match="release 'second': unknown arm 'random'; there is none"):
            list(prove(store, "second", "random"))


def test_a_mask_without_its_subset_is_not_proved_to_be_one(record: Path, tmp_path: Path) -> None:
    shutil.copytree(record, tmp_path / "record")
    shutil.rmtree(tmp_path / "record" / "materialise" / "first" / "random")
    with pytest.raises(
        ConfigurationError, match=r"'random' of release 'first' has no subset yet; .* --until materialise"
    ):
        found(tmp_path / "record", "random")


@pytest.fixture
def data_set(tiny_run: Pipeline, tmp_path: Path) -> Path:
    config = PublishConfig(licence="odc-by", source_licence="odc-by", max_documents=8)
    publish(tiny_run.store, "first", "datamask", str(tmp_path / "mask"), config)
    return tmp_path / "mask"


def proved(folder: Path, root: str | None = None) -> list[Finding]:
    return list(prove_data_set(Store(folder).fs, str(folder), root))


def seal(folder: Path, changed: Path) -> None:
    """Write manifest and root digest anew for a file that was changed."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][changed.relative_to(folder).as_posix()] |= stated(changed)
    (folder / "manifest.json").write_bytes(manifest_bytes(sealed(manifest)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", [flip, truncate, swap, edit])
def test_every_corruption_of_a_data_set_is_noticed_and_named(
    data_set: Path, damage: Callable[..., None]
) -> None:
    assert proved(data_set) == []
    files = files_of(data_set)
    draws = random.Random(damage.__name__)
    for _ in range(EACH):
        path = draws.choice(files)
        kept = path.read_bytes()
        damage(path, draws, files)
        assert path.relative_to(data_set).as_posix() in {finding.file for finding in proved(data_set)}
        path.write_bytes(kept)
    assert proved(data_set) == []


def test_a_manifest_written_anew_is_noticed_by_the_root_kept_elsewhere(data_set: Path) -> None:
    manifest = json.loads((data_set / "manifest.json").read_text())
    root = manifest.pop("root")
    manifest["data_set"]["arm"] = "another"
    (data_set / "manifest.json").write_bytes(manifest_bytes(sealed(manifest)))
    assert proved(data_set) == []
    (finding,) = proved(data_set, root)
    assert finding.file == "manifest.json"
    assert root in finding.problem


def test_the_record_behind_a_data_set_makes_its_rows(tiny_run: Pipeline, data_set: Path) -> None:
    assert list(prove_behind(tiny_run.store, Store(data_set).fs, str(data_set))) == []


def test_a_data_set_of_other_rows_is_found_out(tiny_run: Pipeline, data_set: Path) -> None:
    """Its manifest and root digest were written anew."""
    shard = data_set / "data" / "train-00001-of-00003.parquet"
    table = pq.read_table(shard)
    texts = table.column("text").to_pylist()
    texts[3] = "another text"
    table = table.set_column(
        table.schema.get_field_index("text"), table.schema.field("text"), pa.array(texts)
    )
    pq.write_table(table, shard)
    seal(data_set, shard)
    (finding,) = proved(data_set)
    assert finding.file == "data/train-00001-of-00003.parquet"
    assert finding.problem == "row 3: its text is not that of its `content_hash`"
    hashes = table.column("content_hash").to_pylist()
    hashes[3] = content_hash("another text")
    of_hash = table.schema.get_field_index("content_hash"), table.schema.field("content_hash")
    pq.write_table(table.set_column(*of_hash, pa.array(hashes)), shard)
    seal(data_set, shard)
    assert proved(data_set) == []
    (finding,) = prove_behind(tiny_run.store, Store(data_set).fs, str(data_set))
    assert (finding.file, finding.row) == ("data/train-00001-of-00003.parquet", 3)
    assert "`text`" in finding.problem


@pytest.mark.parametrize("name", ["README.md", "croissant.json"])
def test_a_file_that_states_another_licence_than_the_manifest_is_found_out(data_set: Path, name: str) -> None:
    path = data_set / name
    text = path.read_text()
    assert "odc-by" in text
    path.write_text(text.replace("odc-by", "mit"))
    seal(data_set, path)
    (finding,) = proved(data_set)
    assert (finding.file, finding.problem) == (name, "states the licence mit, and manifest.json odc-by")


@pytest.mark.parametrize("name", ["README.md", "data/train-00001-of-00003.parquet"])
def test_a_data_set_of_links_is_proved_by_its_bytes(data_set: Path, tmp_path: Path, name: str) -> None:
    """As the hub's cache has one: each file is a link out of the folder."""
    outside = tmp_path / "outside"
    (data_set / name).rename(outside)
    (data_set / name).symlink_to(outside)
    assert proved(data_set) == []
    outside.write_bytes(outside.read_bytes() + b" ")
    assert {finding.file for finding in proved(data_set)} == {name}


def reseal(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Write the manifest anew, with its root digest, after a change of what it says."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_bytes(manifest_bytes(sealed(manifest)))


def without(manifest: dict[str, Any], stage: str) -> None:
    manifest["lineage"] = {
        location: about
        for location, about in manifest["lineage"].items()
        if not location.startswith(f"{stage}/")
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda said: said["data_set"].update(arm="random"), "is of first/random, and its subset of"),
        (lambda said: said["data_set"].update(release="other"), "is of other/datamask, and its subset"),
        (lambda said: said["data_set"].update(name="evil"), "`data_set.name` is 'evil', and the record"),
        (lambda said: said["data_set"].update(columns=["text"]), "`data_set.columns` is ['text'], and"),
        (lambda said: said["data_set"].update(licences={"cc0-1.0": None}), "`data_set.licences` is {'cc0"),
        (lambda said: without(said, "select"), "`lineage` lacks select/first/datamask/"),
        (lambda said: without(said, "materialise"), "`lineage` lacks materialise/first/datamask/"),
        (lambda said: [of.update(fingerprint="0" * 64) for of in said["lineage"].values()], "another fing"),
    ],
)
def test_a_manifest_that_says_something_else_than_the_record_is_found_out(
    tiny_run: Pipeline, data_set: Path, change: Callable[[dict[str, Any]], Any], told: str
) -> None:
    reseal(data_set, change)
    assert proved(data_set) == []
    findings = list(prove_behind(tiny_run.store, Store(data_set).fs, str(data_set)))
    assert {finding.kind for finding in findings} == {"contradiction"}
    assert told in findings[0].problem


@pytest.mark.parametrize(
    "change",
    [
        lambda said: [of.pop("manifest_sha256") for of in said["lineage"].values()],
        lambda said: said["data_set"].pop("subset"),
        lambda said: said["data_set"]["settings"].pop("licence"),
        lambda said: said["files"]["README.md"].pop("bytes"),
        lambda said: said["files"]["data/train-00000-of-00003.parquet"].update(rows="8"),
    ],
)
def test_a_manifest_that_lacks_something_is_a_finding(
    data_set: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    reseal(data_set, change)
    (finding,) = proved(data_set)
    assert (finding.kind, finding.file) == ("contradiction", "manifest.json")
    assert " lacks " in finding.problem


def objective_of(text: str) -> str:
    """The figure of the card's line on the mask's objective."""
    return re.findall(r"\| objective of the mask \| (\S+) \|", text)[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "change", "kind", "told"),
    [
        (
            "README.md",
            lambda text: text.replace(objective_of(text), "0.9999"),
            "contradiction",
            "states 0.9999,",
        ),
        ("README.md", lambda text: text.replace("`random`", "`other`"), None, ""),
        (
            "README.md",
            lambda text: text.replace("| diversity | `", "| diversity | `Not"),
            "contradiction",
            "`Not",
        ),
        (
            "README.md",
            lambda text: text.replace("num_examples: ", "num_examples: 1"),
            "contradiction",
            "examples",
        ),
        (
            "README.md",
            lambda text: text.replace("pretty_name: ", "pretty_name: un"),
            "contradiction",
            "pretty_name",
        ),
        ("README.md", lambda text: text + "\nIt is the best.\n", "cannot tell", "reads otherwise"),
        (
            "croissant.json",
            lambda text: text.replace(" documents that", "0 documents that"),
            "contradiction",
            "`desc",
        ),
        (
            "croissant.json",
            lambda text: text.replace("sc:Float", "sc:Text", 1),
            "contradiction",
            "dataType` states",
        ),
        (
            "croissant.json",
            lambda text: text.replace('"name": "text"', '"name": "tekst"'),
            "contradiction",
            "tekst",
        ),
        (
            "croissant.json",
            lambda text: text.replace("{", '{"creator": "evil",', 1),
            "cannot tell",
            "reads otherwise",
        ),
    ],
)
def test_what_a_data_set_says_in_words_and_figures_is_held_against_the_record(
    tiny_run: Pipeline, data_set: Path, name: str, change: Callable[[str], str], kind: str | None, told: str
) -> None:
    path = data_set / name
    path.write_text(change(path.read_text()))
    seal(data_set, path)
    assert proved(data_set) == []
    findings = list(prove_behind(tiny_run.store, Store(data_set).fs, str(data_set)))
    assert {finding.kind for finding in findings} == ({kind} if kind else set())
    assert all(finding.file == name for finding in findings)
    assert told in " ".join(finding.problem for finding in findings)


def describe_otherwise(shard: Path, column: str, **options: Any) -> None:
    table = pq.read_table(shard)
    place = table.schema.get_field_index(column)
    field = table.schema.field(place).with_metadata({b"description": b"forged"})
    pq.write_table(table.cast(table.schema.set(place, field)), shard, **options)


def test_a_column_that_is_described_otherwise_is_found_out(
    tiny_run: Pipeline, data_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the record itself was described by another version of this program."""
    shard = data_set / "data" / "train-00001-of-00003.parquet"
    describe_otherwise(shard, "quality")
    seal(data_set, shard)
    assert proved(data_set) == []
    fs = Store(data_set).fs
    (finding,) = prove_behind(tiny_run.store, fs, str(data_set))
    assert finding.kind == "contradiction"
    assert finding.problem.startswith("column `quality` is described otherwise than in the record: {b'desc")
    monkeypatch.setattr("datamask_pipeline.audit.prove_behind._schemas", lambda *_: ())
    (finding,) = prove_behind(tiny_run.store, fs, str(data_set))
    assert (finding.kind, finding.problem) == (
        "cannot tell",
        "column `quality` is described otherwise, as another version of this program may do",
    )


def test_a_data_set_whose_shards_another_library_wrote_is_proved(tiny_run: Pipeline, data_set: Path) -> None:
    """The same rows in other bytes: card and `croissant.json` state those."""
    manifest = json.loads((data_set / "manifest.json").read_text())
    said = {name: dict(file) for name, file in manifest["files"].items() if "rows" in file}
    told = {name: (data_set / name).read_text() for name in ("README.md", "croissant.json")}
    for name, old in said.items():
        shard = data_set / name
        pq.write_table(pq.read_table(shard), shard, compression="gzip")
        new = stated(shard)
        told["croissant.json"] = (
            told["croissant.json"]
            .replace(old["sha256"], new["sha256"])
            .replace(f'"{old["bytes"]} B"', f'"{new["bytes"]} B"')
        )
        seal(data_set, shard)
    sizes = [
        sum(old["bytes"] for old in said.values()),
        sum((data_set / name).stat().st_size for name in said),
    ]
    told["README.md"] = told["README.md"].replace(f"download_size: {sizes[0]}", f"download_size: {sizes[1]}")
    for name, text in told.items():
        (data_set / name).write_text(text)
        seal(data_set, data_set / name)
    assert proved(data_set) == []
    assert list(prove_behind(tiny_run.store, Store(data_set).fs, str(data_set))) == []


def test_with_files_only_it_is_said_that_rows_were_not_compared(tiny_run: Pipeline, data_set: Path) -> None:
    shard = data_set / "data" / "train-00001-of-00003.parquet"
    table = pq.read_table(shard)
    pq.write_table(table.take(list(reversed(range(len(table))))), shard)
    seal(data_set, shard)
    command = ["audit", "prove", str(data_set), "--with-record", "-s", f"store={tiny_run.store.root}"]
    assert CliRunner().invoke(app, command).exit_code == 1
    result = CliRunner().invoke(app, [*command, "--files-only"])
    assert result.exit_code == 2, result.output
    assert "were not held against the record: that is left out with --files-only" in result.output


def test_a_record_behind_a_data_set_that_changed_is_named(
    tiny_run: Pipeline, data_set: Path, record: Path
) -> None:
    location = next(record.glob("select/first/datamask/*/manifest.json"))
    kept = location.read_bytes()
    manifest = json.loads(kept)
    manifest["wall_seconds"] = 0.5
    manifest["manifest_digest"] = manifest_digest(manifest)
    location.write_text(pretty_json(manifest))
    assert found(record, "datamask", files_only=False) == []
    (finding,) = prove_behind(Store(record), Store(data_set).fs, str(data_set), files_only=True)
    location.write_bytes(kept)
    assert finding.file == location.relative_to(record).as_posix()


def test_the_command_tells_by_its_exit_status(tiny_run: Pipeline, data_set: Path, tmp_path: Path) -> None:
    store = f"store={tiny_run.store.root}"
    for target in ("first", "first/datamask", str(data_set)):
        result = CliRunner().invoke(app, ["audit", "prove", target, "-s", store])
        assert result.exit_code == 0, result.output
        assert "proved" in result.output
    result = CliRunner().invoke(app, ["audit", "prove", str(data_set), "--with-record", "-s", store])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["audit", "prove", str(data_set), "--root", "0" * 64, "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["findings"][0]["file"] == "manifest.json"
    elsewhere = ["--with-record", "-s", f"store={tmp_path}/elsewhere"]
    result = CliRunner().invoke(app, ["audit", "prove", str(data_set), *elsewhere])
    assert str(result.exception).startswith(f"there is no record at {tmp_path}/elsewhere; ")
    unpack(tmp_path)
    result = CliRunner().invoke(app, ["audit", "prove", "first", "-s", f"store={tmp_path}/record"])
    assert result.exit_code == 2


#: By artefact and key, what is asked of a record in which it was altered.
LICENCES = ["--license", "odc-by", "--source-license", "odc-by"]
ASKED_OF = {
    ("materialise", "first/datamask"): [
        ["release", "first", "--arm", "datamask", *LICENCES, "--to", "OUT"],
        ["audit", "training-content", "first", "--arm", "datamask"],
    ],
    ("select", "first/datamask"): [
        ["look", "page", "first/datamask", "--to", "OUT"],
        ["audit", "funnel", "first"],
    ],
    ("learning_curve", "first/datamask"): [["look", "page", "first/datamask", "--to", "OUT"]],
    ("compare", "first"): [["report", "-c", "CONFIG"]],
    ("questions", "first"): [["audit", "contamination", "first"]],
}
ALTERED_MANIFESTS = ASKED_OF | {
    ("select", "first/datamask"): [
        *ASKED_OF["select", "first/datamask"],
        ["release", "first", "--arm", "datamask", *LICENCES, "--to", "OUT", "--stale"],
        ["audit", "impact", "rules"],
    ],
    ("pool", "first"): [["audit", "training-content", "first", "--arm", "datamask"]],
    ("pretrain", "first/datamask.dense.seed0"): [["audit", "impact", "rules"]],
}


@contextlib.contextmanager
def restored(path: Path) -> Iterator[None]:
    """After it a file holds what it held before."""
    kept = path.read_bytes()
    try:
        yield
    finally:
        path.write_bytes(kept)


def refused(command: list[str], record: Path, config: Path) -> str:
    out = record.parent / "out"
    words = [{"OUT": str(out), "CONFIG": str(config)}.get(word, word) for word in command]
    error = CliRunner().invoke(app, [*words, "-s", f"store={record}"]).exception
    assert isinstance(error, IntegrityError), (command, error)
    assert not out.exists()
    return str(error)


@pytest.mark.parametrize(("stage", "key"), ASKED_OF)
def test_nothing_is_published_drawn_or_counted_from_altered_tables(
    record: Path, tiny_config_file: Path, stage: str, key: str
) -> None:
    """The file is whole Parquet with as many rows: only its digest tells."""
    location = require(Store(record), stage, key).location
    path = sorted((record / location).rglob("*.parquet"))[0]
    table = pq.read_table(path)
    columns = {"materialise": "text", "select": "quality", "learning_curve": "objective", "compare": "n"}
    column = columns.get(stage, "question_id")
    place = table.schema.get_field_index(column)
    other = pa.array([*reversed(table.column(column).to_pylist())], table.schema.field(column).type)
    with restored(path):
        pq.write_table(table.set_column(place, table.schema.field(column), other), path)
        for command in ASKED_OF[stage, key]:
            told = refused(command, record, tiny_config_file)
            assert told.startswith(f"{path} holds other bytes than were written to it; ")


@pytest.mark.parametrize(("stage", "key"), ALTERED_MANIFESTS)
def test_no_figure_of_an_altered_manifest_is_told(
    record: Path, tiny_config_file: Path, stage: str, key: str
) -> None:
    path = record / require(Store(record), stage, key).location / "manifest.json"
    manifest = json.loads(path.read_bytes()) | {"wall_seconds": 123.0}
    with restored(path):
        path.write_text(pretty_json(manifest))
        for command in ALTERED_MANIFESTS[stage, key]:
            told = refused(command, record, tiny_config_file)
            assert told.startswith(f"{path} says something else than was written"), command


def test_no_figure_of_an_altered_pointer_is_told(record: Path, tiny_config_file: Path) -> None:
    path = record / "select/first/datamask/current.json"
    with restored(path):
        path.write_text(pretty_json(json.loads(path.read_bytes()) | {"rows": 5}))
        told = refused(["look", "page", "first/datamask", "--to", "OUT"], record, tiny_config_file)
        assert told.startswith(f"{path} says something else")
