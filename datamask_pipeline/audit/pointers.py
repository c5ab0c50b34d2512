"""Finds what stands behind a release in a record: from pointers to manifests to inputs. Knows no stage's meaning."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.audit.findings import Finding, contradiction, purged
from datamask_pipeline.audit.stated import DAMAGE, check_link, read_manifest
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import CURRENT, MANIFEST, REF_FIELDS, pretty_json, ref_of
from datamask_pipeline.storage.tombstones import removed_by

#: Manifests by the directory of their artefact.
Manifests = dict[str, dict[str, Any]]


def files_of(store: Store) -> dict[str, int]:
    """Bytes of every file of the record that is not private to writers, by path in it."""
    found = store.fs.find(store.root, detail=True)
    named = {path[len(store.root) + 1 :]: info["size"] for path, info in found.items()}
    return {path: size for path, size in named.items() if not path.startswith(".")}


def pointers(files: Mapping[str, int], release: str, arm: str | None) -> list[str]:
    """Paths of the pointers to what is to be proved; a pointer may be missing where its artefacts are not.

    Raises:
        UnknownNameError: nothing of the record belongs to such a release, or to such an arm of it.
        ConfigurationError: the arm has a mask and no subset.
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
        arms = {folder.split("/")[2] for folder in keyed if folder.startswith(f"materialise/{release}/")}
        if arm not in arms and f"select/{release}/{arm}" in keyed:
            raise ConfigurationError(
                f"arm {arm!r} of release {release!r} has no subset yet; "
                f"`datamask run --release {release} --until materialise` makes it"
            )
        if arm not in arms:
            raise UnknownNameError("arm", arm, arms, f"release {release!r}")
        stages = ("materialise", "select", "learning_curve")
        chosen = [folder for folder in keyed if folder in {f"{stage}/{release}/{arm}" for stage in stages}]
    return sorted(f"{folder}/{CURRENT}" for folder in chosen)


def walk(
    store: Store, folders: list[str], files: Mapping[str, int], manifests: Manifests
) -> Iterator[Finding]:
    """Follow the pointers of these folders, and of every stage and key that is reached; gathers the manifests."""
    waiting, seen, gone = [*folders], set(folders), set[str]()
    while waiting:
        folder = waiting.pop()
        location, findings = _pointed(store, folder, files)
        yield from findings
        yield from check_link(store, f"{folder}/{CURRENT}")
        locations = [location] if location else []
        while locations:
            here = locations.pop()
            if here in manifests or here in gone:
                continue
            try:
                manifests[here] = read_manifest(store, here)
                refs = [ref for _, ref in inputs_of(manifests[here])]
                sides = _beside(manifests[here])
            except DAMAGE as error:
                manifests.pop(here, None)
                if (by := removed_by(store, here)) is not None:
                    gone.add(here)
                    yield purged(f"{here}/{MANIFEST}", by)
                    continue
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
