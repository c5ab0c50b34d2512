"""Proves a release, or one arm's subset, from the record alone: without Dagster, and without learning again.

Changes nothing in the record. What it cannot tell, it says; `docs/publishing.md` lists what no such proof can notice.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.audit.recompute import check_selection
from datamask_pipeline.audit.replay import ORDERED_BY, check_content, check_replayed
from datamask_pipeline.audit.stated import DAMAGE, check_artefact, read_manifest
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.format import FORMAT_FILE, format_bytes
from datamask_pipeline.storage.ref import CURRENT, MANIFEST, REF_FIELDS, pretty_json, ref_of
from datamask_pipeline.storage.releases import frozen_bytes

Manifests = dict[str, dict[str, Any]]


def prove_record(
    store: Store, release: str, arm: str | None = None, *, files_only: bool = False
) -> Iterator[Finding]:
    """Every contradiction in what stands behind a release, or behind one arm of it.

    Args:
        store: The record.
        release: The release.
        arm: The arm; ``None`` proves all of the release, models and results included.
        files_only: Leave out what is computed again from inputs: joins, counts, the selection's figures.

    Raises:
        UnknownNameError: the record has no such release or arm.
    """
    files = files_of(store)
    wanted = _pointers(files, release, arm)
    manifests: Manifests = {}
    yield from _walk(store, [pointer.rpartition("/")[0] for pointer in wanted], files, manifests)
    yield from prove_artefacts(store, manifests, files, files_only=files_only)
    yield from _check_root(store, release, manifests, files)


def prove_artefacts(
    store: Store, manifests: Manifests, files: Mapping[str, int], *, files_only: bool
) -> Iterator[Finding]:
    """Every contradiction in some artefacts.

    Args:
        store: The record.
        manifests: Their manifests, by location.
        files: Bytes of every file of the record, by path in it.
        files_only: As `prove_record`.
    """
    of_each = _by_artefact(files, manifests)
    whole = {}
    for location, manifest in manifests.items():
        damaged = False
        for finding in _told(location, _check_stated(store, location, manifests, of_each[location])):
            damaged = damaged or finding.kind == "contradiction"
            yield finding
        if not damaged:
            whole[location] = manifest
    for location, manifest in {} if files_only else whole.items():
        if all(ref.location in whole for _, ref in inputs_of(manifest)):
            yield from _told(location, _check_computed(store, manifest))


def _check_stated(
    store: Store, location: str, manifests: Manifests, files: Mapping[str, int]
) -> Iterator[Finding]:
    yield from check_artefact(store, location, manifests[location], files)
    yield from _check_inputs(location, manifests[location], manifests)


def _check_computed(store: Store, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """What can be computed again from inputs, without learning."""
    name, inputs = manifest["stage"], dict(inputs_of(manifest))
    if name not in ("ingest", "select", *ORDERED_BY):
        return
    version, ours = manifest["basis"]["version"], FLOW.stage(name).version
    if version != ours:
        problem = (
            f"version {version} of {name} made it, and this program has {ours}: nothing was computed again"
        )
        yield unknown(f"{manifest['location']}/{MANIFEST}", problem)
    elif name == "ingest":
        yield from check_content(store, manifest)
    elif name == "select":
        crawls = [each for each in inputs if each.startswith("embeddings/")]
        embeddings = {each.partition("/")[2]: inputs[each] for each in crawls}
        yield from check_selection(store, ref_of(manifest), manifest, inputs["index"], embeddings)
    else:
        yield from check_replayed(store, manifest)


def _told(location: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings; what damage raises is one more."""
    try:
        yield from findings
    except DAMAGE as error:
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        yield contradiction(f"{location}/{MANIFEST}", f"does not fit what it was made from: {problem}")


def files_of(store: Store) -> dict[str, int]:
    """Bytes of every file of the record that is not private to writers, by path in it."""
    found = store.fs.find(store.root, detail=True)
    named = {path[len(store.root) + 1 :]: info["size"] for path, info in found.items()}
    return {path: size for path, size in named.items() if not path.startswith(".")}


def _by_artefact(files: Mapping[str, int], locations: Collection[str]) -> dict[str, dict[str, int]]:
    """The files in each of some directories, by path there."""
    found: dict[str, dict[str, int]] = {location: {} for location in locations}
    for path, size in files.items():
        steps = path.split("/")
        for depth in range(2, len(steps)):
            if (location := "/".join(steps[:depth])) in found:
                found[location]["/".join(steps[depth:])] = size
    return found


def _pointers(files: Mapping[str, int], release: str, arm: str | None) -> list[str]:
    """Paths of the pointers to what is to be proved; a pointer may be missing where its artefacts are not.

    Raises:
        UnknownNameError: nothing of the record belongs to such a release or arm.
    """
    folders = {path.rpartition("/")[0] for path in files if path.endswith(f"/{CURRENT}")}
    folders |= {path.rsplit("/", 2)[0] for path in files if path.endswith(f"/{MANIFEST}")}
    keyed = {folder: folder.partition("/")[2] for folder in folders}
    releases = {key.split("/")[0] for folder, key in keyed.items() if folder.startswith("pool/")}
    if release not in releases:
        raise UnknownNameError("release", release, releases)
    if arm is None:
        chosen = [folder for folder, key in keyed.items() if key.split("/")[0] == release]
    else:
        arms = {key.partition("/")[2] for folder, key in keyed.items() if folder.startswith("materialise/")}
        if arm not in arms:
            raise UnknownNameError("arm", arm, arms)
        stages = ("materialise", "select", "learning_curve")
        chosen = [folder for folder in keyed if folder in {f"{stage}/{release}/{arm}" for stage in stages}]
    return sorted(f"{folder}/{CURRENT}" for folder in chosen)


def _walk(
    store: Store, folders: list[str], files: Mapping[str, int], manifests: Manifests
) -> Iterator[Finding]:
    """Follow the pointers of these folders, and of every stage and key that is reached; gathers the manifests."""
    waiting, seen = [*folders], set(folders)
    while waiting:
        folder = waiting.pop()
        location, findings = _pointed(store, folder, files)
        yield from findings
        locations = [location] if location else []
        while locations:
            here = locations.pop()
            if here in manifests:
                continue
            try:
                manifests[here] = read_manifest(store, here)
                refs = [ref for _, ref in inputs_of(manifests[here])]
                sides = _beside(manifests[here])
            except DAMAGE as error:
                manifests.pop(here, None)
                yield contradiction(f"{here}/{MANIFEST}", f"cannot be read: {type(error).__name__}: {error}")
                continue
            for ref in refs:
                locations.append(ref.location)
                sides.append(f"{ref.stage}/{ref.key}")
            for side in sides:
                if side not in seen:
                    seen.add(side)
                    waiting.append(side)


def _beside(manifest: Mapping[str, Any]) -> list[str]:
    """What the same stage made at the same time under another name: the rejected rows of a crawl."""
    return [f"rejected/{manifest['key']}"] if manifest["stage"] == "ingest" else []


def _pointed(store: Store, folder: str, files: Mapping[str, int]) -> tuple[str | None, list[Finding]]:
    """Where the pointer of a stage and key leads, and what is wrong with it."""
    pointer = f"{folder}/{CURRENT}"
    if pointer not in files:
        return None, [contradiction(pointer, "is missing")]
    try:
        data = store.fs.cat_file(f"{store.root}/{pointer}")
        ref = Ref(**{name: _values(data)[name] for name in REF_FIELDS})
    except DAMAGE as error:
        return None, [contradiction(pointer, f"cannot be read: {type(error).__name__}: {error}")]
    if not any(path.startswith(f"{ref.location}/") for path in files):
        return None, [contradiction(pointer, f"points to {ref.location}, where nothing is")]
    try:
        said = ref_of(read_manifest(store, ref.location))
    except DAMAGE:
        return ref.location, []  # whoever reads that manifest next tells it
    if data != pretty_json(said.as_dict()).encode() or f"{said.stage}/{said.key}" != folder:
        problem = f"says something else of {ref.location} than the manifest there, or belongs elsewhere"
        return ref.location, [contradiction(pointer, problem)]
    return ref.location, []


def _values(data: bytes) -> dict[str, Any]:
    values = json.loads(data)
    if not isinstance(values, dict):
        raise ValueError("it holds no JSON object")
    return values


def _check_inputs(location: str, manifest: Mapping[str, Any], manifests: Manifests) -> Iterator[Finding]:
    """What it says of its inputs is what they say of themselves, and what was hashed is their digest."""
    file, hashed = f"{location}/{MANIFEST}", manifest["basis"]["inputs"]
    if {*hashed} != {*manifest["inputs"]}:
        yield contradiction(file, "`inputs` and `basis.inputs` name others")
        return
    for name, item in manifest["inputs"].items():
        if not isinstance(item, Mapping):
            if hashed[name] != item:
                yield contradiction(file, f"input {name!r} was hashed with another digest")
            continue
        made = manifests.get(item["location"])
        if made is None:
            continue  # told already
        if ref_of(made).as_dict() != dict(item):
            yield contradiction(file, f"input {name!r} is not what {item['location']} says of itself")
        if hashed[name] not in (made["content_digest"], made["metadata"].get("documents_digest")):
            yield contradiction(file, f"input {name!r} was hashed with another digest than it has")


def _check_root(
    store: Store, release: str, manifests: Manifests, files: Mapping[str, int]
) -> Iterator[Finding]:
    """The record's own two small files."""
    frozen = f"releases/{release}.json"
    crawls = [
        manifest["basis"]["config"].get("crawls")
        for manifest in manifests.values()
        if manifest["stage"] == "pool" and manifest["key"] == release
    ]
    if frozen not in files:
        yield contradiction(frozen, "is missing")
    elif crawls and store.fs.cat_file(f"{store.root}/{frozen}") not in map(frozen_bytes, crawls):
        yield contradiction(frozen, f"names other crawls than the candidates were made from: {crawls[0]}")
    digested = any("manifest_digest" in manifest for manifest in manifests.values())
    if FORMAT_FILE not in files:
        if digested:
            yield contradiction(FORMAT_FILE, "is missing")
        else:
            yield unknown(FORMAT_FILE, "a record of the first format states none")
    elif store.fs.cat_file(f"{store.root}/{FORMAT_FILE}") != format_bytes():
        yield contradiction(FORMAT_FILE, "does not state the format of this program")


def parse_target(target: str) -> tuple[str, str | None]:
    """Release and arm out of ``release`` or ``release/arm``.

    Raises:
        ConfigurationError: it is neither.
    """
    release, _, arm = target.partition("/")
    if not release or "/" in arm:
        raise ConfigurationError(f"{target!r} is neither `release` nor `release/arm`")
    return release, arm or None
