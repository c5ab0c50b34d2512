"""Makes an artefact again from its inputs, into a private record beside the real one, and compares row by row.

For stages that join, count and compare vectors: they read no text but to copy it, learn nothing, and give the same rows on
every machine.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.settings import validated
from datamask_pipeline.sources.content import content_hashes
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.ref import MANIFEST, ref_of
from datamask_pipeline.storage.tombstones import FOLDER, num_purges_of, tombstones

#: Stages that are replayed, with the settings that say in which order their inputs stand.
ORDERED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "pool": ("crawls",),
    "copies": ("crawls",),
    "gather": ("crawls",),
    "materialise": (),
    "redundancy": ("crawls",),
    "compare": ("runs", "arms"),
}
#: Figures that are computed, not copied, may be off by this share on another processor.
TOLERANCE: Final = 1e-9


def check_replayed(store: Store, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Hold an artefact against what its stage makes of the same inputs.

    Args:
        store: The record.
        manifest: The artefact's manifest.
    """
    ref, stage = ref_of(manifest), FLOW.stage(manifest["stage"])
    file = f"{ref.location}/{MANIFEST}"
    if not store.is_local:
        yield unknown(file, "stages are replayed on a record on this machine's disks alone; copy it there")
        return
    if "purged" in manifest["inputs"]:
        tombstones(store)  # a damaged one is told by where it lies, not by its link in the private record
    with tempfile.TemporaryDirectory() as folder:
        side = _beside(store, stage.name, manifest["key"].partition("/")[0], Path(folder))
        if stage.name == "pool":
            _show_purges_of(store, side, manifest["basis"]["inputs"].get("purged"))
        again = side.manifest(_run(store, side, stage, manifest))
        if again["fingerprint"] != ref.fingerprint:
            yield contradiction(file, "its settings and inputs have another fingerprint")
            return
        for name in ("counts", "metadata"):
            if (where := _difference(manifest[name], again[name], name)) is not None:
                yield contradiction(file, f"{where}, made again from its inputs")
        if [part["name"] for part in again["parts"]] != [part["name"] for part in manifest["parts"]]:
            yield contradiction(
                file, f"its inputs make other parts: {[part['name'] for part in again['parts']]}"
            )
            return
        for mine, theirs in zip(again["parts"], manifest["parts"], strict=True):
            if mine["digest"] != theirs["digest"]:
                path = f"{ref.location}/{mine['name']}.parquet"
                with (
                    store.open_parquet(f"{store.root}/{path}") as had,
                    side.open_parquet(f"{side.root}/{path}") as made,
                ):
                    found = first_difference(path, had, made)
                yield found or contradiction(path, "its rows have another digest than its inputs make")
        yield from _check_near_copy_index(manifest, again)


def _check_near_copy_index(manifest: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Finding]:
    """The index of near-copies is that of the same vectors: a later release finds, or misses, near-copies by it."""
    have, made = (
        {file["name"]: file["sha256"] for file in each["files"] if file["name"].startswith("index/")}
        for each in (manifest, again)
    )
    for name in sorted(name for name in {*have, *made} if have.get(name) != made.get(name)):
        yield contradiction(f"{manifest['location']}/{name}", "is not what its inputs make")


def check_content(store: Store, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Each document's text is the one that its content hash was made of."""
    ref = ref_of(manifest)
    for name in store.part_names(ref):
        first = 0
        with store.part_file(ref, name) as part:
            for batch in part.iter_batches(ROW_GROUP_ROWS, columns=["text", "content_hash"]):
                again = content_hashes(batch.column("text"))
                differing = pc.not_equal(again, batch.column("content_hash"))
                if pc.any(differing).as_py():
                    row = first + differing.to_pylist().index(True)
                    problem = "`content_hash` is not that of its text"
                    yield contradiction(f"{ref.location}/{name}.parquet", problem, row)
                    return
                first += batch.num_rows


def _beside(store: Store, stage: str, release: str, folder: Path) -> Store:
    """A record that has all of the other's artefacts but those of one stage and release."""
    for path in Path(store.root).iterdir():
        if path.is_dir() and path.name != stage and not path.name.startswith("."):
            (folder / path.name).symlink_to(path.resolve())
    (folder / stage).mkdir()
    for path in (Path(store.root) / stage).iterdir():  # what another release made of it may be read
        if path.name != release:
            (folder / stage / path.name).symlink_to(path.resolve())
    return Store(folder)


def _show_purges_of(store: Store, side: Store, digest: str | None) -> None:
    """Leave in the private record the purges that a pool was made after; what later ones erased is not of it."""
    if (shown := num_purges_of(store, digest)) is None:
        return  # no purges make that digest: with all of them the pool is not what it says
    (folder := Path(side.root) / FOLDER).unlink(missing_ok=True)
    folder.mkdir()
    for path in sorted((Path(store.root) / FOLDER).glob("*.json"))[:shown]:
        (folder / path.name).symlink_to(path.resolve())


def _run(store: Store, side: Store, stage: Any, manifest: Mapping[str, Any]) -> Ref:
    """Run the stage on the very versions that were read."""
    settings = dict(manifest["basis"]["config"])
    orders = {name: settings.pop(name) for name in ORDERED_BY[stage.name]}
    given: dict[str, Any] = {}
    for name, ref in inputs_of(manifest):
        argument, _, key = name.partition("/")
        if key:
            given.setdefault(argument, {})[key] = ref
        else:
            given[argument] = ref
    if stage.name == "materialise":
        orders["crawls"] = store.manifest(given["candidates"])["basis"]["config"]["crawls"]
    for argument, refs in given.items():
        if isinstance(refs, dict):
            order = next(names for names in orders.values() if {*names} == {*refs})
            given[argument] = {name: refs[name] for name in order}
    release, _, arm = manifest["key"].partition("/")
    of_arm = {"arm": arm} if arm else {}
    made: Ref = stage.module.run(
        validated(stage.config, settings), store=side, release=release, **of_arm, **given
    )
    return made


def first_difference(path: str, had: pq.ParquetFile, made: pq.ParquetFile) -> Finding | None:
    """The first row in which a file differs from what its inputs make; ``None`` where all rows are equal.

    Args:
        path: The file, for the finding.
        had: The file.
        made: The same, made again.
    """
    if not had.schema_arrow.equals(made.schema_arrow):
        return contradiction(path, f"its columns are not {made.schema_arrow.names}")
    first, makes = 0, made.iter_batches(ROW_GROUP_ROWS)
    for batch in had.iter_batches(ROW_GROUP_ROWS):
        again = next(makes, None)
        if again is None or not batch.equals(again):
            rows, wanted = batch.to_pylist(), [] if again is None else again.to_pylist()
            for place, (row, want) in enumerate(zip(rows, wanted, strict=False)):
                if names := [f"`{name}`" for name, value in want.items() if repr(row[name]) != repr(value)]:
                    return contradiction(path, f"its inputs make another {', '.join(names)}", first + place)
            if len(rows) != len(wanted):
                problem = f"its inputs make {'fewer' if len(wanted) < len(rows) else 'more'} rows"
                return contradiction(path, problem, first + min(len(rows), len(wanted)))
        first += batch.num_rows
    return None if next(makes, None) is None else contradiction(path, "its inputs make more rows", first)


def _difference(have: Any, want: Any, where: str) -> str | None:
    """Where two JSON values differ, floats within the tolerance."""
    if isinstance(have, dict) and isinstance(want, dict):
        for name in sorted({*have, *want}):
            if (found := _difference(have.get(name), want.get(name), f"{where}.{name}")) is not None:
                return found
        return None
    if isinstance(have, list) and isinstance(want, list) and len(have) == len(want):
        each = (_difference(*pair, f"{where}[{n}]") for n, pair in enumerate(zip(have, want, strict=True)))
        return next((found for found in each if found is not None), None)
    if isinstance(have, float) and isinstance(want, float | int):
        if abs(have - want) <= TOLERANCE * max(1.0, abs(want)):
            return None
    elif have == want:
        return None
    return f"`{where}` is {have!r} and is {want!r}"
