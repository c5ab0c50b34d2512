"""Proves a release, or one arm's subset, from the record alone: without Dagster, and without learning again.

Changes nothing in the record. What it cannot tell, it says; `docs/publishing.md` lists what no such proof can notice.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from datamask_pipeline import lineage
from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.audit.index import check_index
from datamask_pipeline.audit.pointers import Manifests, files_of, pointers, walk
from datamask_pipeline.audit.recompute import check_selection
from datamask_pipeline.audit.replay import ORDERED_BY, check_content, check_replayed
from datamask_pipeline.audit.stated import DAMAGE, check_artefact, check_link
from datamask_pipeline.errors import ConfigurationError, DataMaskError, IntegrityError, UnknownNameError
from datamask_pipeline.families import ESTIMATORS, METRICS, POLICIES
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Store, releases
from datamask_pipeline.storage.format import FORMAT_FILE, format_bytes
from datamask_pipeline.storage.ref import MANIFEST, manifest_digest, ref_of
from datamask_pipeline.storage.tombstones import FOLDER as PURGED
from datamask_pipeline.storage.tombstones import tombstones


def prove_record(
    store: Store, release: str, arm: str | None = None, *, files_only: bool = False, root: str | None = None
) -> Iterator[Finding]:
    """Every contradiction in what stands behind a release, or behind one arm of it.

    Args:
        store: The record.
        release: The release.
        arm: The arm; ``None`` proves all of the release, models and results included.
        files_only: Leave out what is computed again from inputs: joins, counts, the selection's figures.
        root: The root digest that was kept elsewhere; without it, a record that was written anew as a whole goes
            unnoticed where nothing contradicts.

    Raises:
        UnknownNameError: the record has no such release or arm.
    """
    files = files_of(store)
    manifests: Manifests = {}
    yield from walk(store, _folders(files, release, arm), files, manifests)
    yield from prove_artefacts(store, manifests, files, files_only=files_only)
    yield from _check_root(store, release, manifests, files)
    if root is not None and (found := _root_of(manifests)) != root:
        target = release if arm is None else f"{release}/{arm}"
        yield contradiction(target, f"its root digest is {found}, and {root} was kept")


def root_of_record(store: Store, release: str, arm: str | None = None) -> str:
    """The root digest of what stands behind a release, or behind one arm of it: of every manifest that is reached.

    Each manifest states the digests of its files, so that this stands for all of them once they are proved. What was
    purged on request has none any more: the digest is then that of what is left.

    Args:
        store: The record.
        release: The release.
        arm: The arm; ``None`` takes all of the release.

    Raises:
        UnknownNameError: the record has no such release or arm.
        IntegrityError: a manifest or pointer cannot be read, so that there is no such digest.
    """
    files = files_of(store)
    manifests: Manifests = {}
    for finding in walk(store, _folders(files, release, arm), files, manifests):
        if finding.kind != "purged":
            raise IntegrityError(f"there is no root digest: {finding.line()}")
    return _root_of(manifests)


def _folders(files: Mapping[str, int], release: str, arm: str | None) -> list[str]:
    """Where the pointers to what is wanted lie."""
    return [pointer.rpartition("/")[0] for pointer in pointers(files, release, arm)]


def _root_of(manifests: Manifests) -> str:
    """SHA-256 of the canonical JSON of every manifest's digest, by the artefact's location."""
    digests = {location: manifest_digest(manifest) for location, manifest in manifests.items()}
    return lineage.sha256_text(lineage.canonical_json(digests))


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
        yield from _told(location, check_index(store, location, manifest))
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
        held = inputs.get("held")
        try:
            yield from check_selection(store, ref_of(manifest), manifest, inputs["index"], embeddings, held)
        except UnknownNameError as error:
            if error.family not in (METRICS.kind, POLICIES.kind, ESTIMATORS.kind):
                raise
            problem = f"{error.family} {error.name!r} made or valued it, and is not installed: nothing was computed again"
            yield unknown(f"{manifest['location']}/{MANIFEST}", problem)
    else:
        yield from check_replayed(store, manifest)


def _told(location: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings; what damage raises is one more."""
    try:
        yield from findings
    except DAMAGE as error:
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        yield contradiction(f"{location}/{MANIFEST}", f"does not fit what it was made from: {problem}")


def _by_artefact(files: Mapping[str, int], locations: Collection[str]) -> dict[str, dict[str, int]]:
    """The files in each of some directories, by path there."""
    found: dict[str, dict[str, int]] = {location: {} for location in locations}
    for path, size in files.items():
        steps = path.split("/")
        for depth in range(2, len(steps)):
            if (location := "/".join(steps[:depth])) in found:
                found[location]["/".join(steps[depth:])] = size
    return found


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
    """The record's own small files: the release's, the format's, and tombstones of purges."""
    try:
        tombstones(store)
    except IntegrityError as error:
        yield contradiction(PURGED, str(error))
    path = f"releases/{release}.json"
    for file in (path, FORMAT_FILE):
        yield from check_link(store, file)
    masks = [
        each for each in manifests.values() if each["stage"] == "select" and _release_of(each) == release
    ]
    crawls = [
        manifest["basis"]["config"].get("crawls")
        for manifest in manifests.values()
        if manifest["stage"] == "pool" and manifest["key"] == release
    ]
    if path not in files:
        yield contradiction(path, "is missing")
    elif crawls:
        held = {ref.key.split("/")[0] for made in masks for name, ref in inputs_of(made) if name == "held"}
        try:
            frozen = releases.frozen(store, release) or releases.Frozen([])  # it has just been listed
            givens, rolls = {*held} if masks else {frozen.given}, frozen.rolls
        except IntegrityError as error:
            yield contradiction(path, str(error))
            givens, rolls = {*held}, None
        said = [
            releases.frozen_bytes(each, given, rolls, retired=retired)
            for each, given, retired in itertools.product(crawls, givens or {None}, (False, True))
        ]
        if store.fs.cat_file(f"{store.root}/{path}") not in said:
            after = f", after {', '.join(sorted(held))}" if held else ""
            yield contradiction(
                path, f"names other crawls than the candidates were made from: {crawls[0]}{after}"
            )
    digested = any("manifest_digest" in manifest for manifest in manifests.values())
    if FORMAT_FILE not in files:
        if digested:
            yield contradiction(FORMAT_FILE, "is missing")
        else:
            yield unknown(FORMAT_FILE, "a record of the first format states none")
    elif store.fs.cat_file(f"{store.root}/{FORMAT_FILE}") != format_bytes():
        try:
            problem = f"states format {store.format()} otherwise than this program writes it"
        except DataMaskError as error:  # a later format, or no JSON: with what to do
            problem = str(error)
        yield contradiction(FORMAT_FILE, problem)


def _release_of(manifest: Mapping[str, Any]) -> str:
    return str(manifest["key"]).partition("/")[0]


def parse_target(target: str) -> tuple[str, str | None]:
    """Release and arm out of ``release`` or ``release/arm``.

    Raises:
        ConfigurationError: it is neither.
    """
    release, _, arm = target.partition("/")
    if not release or "/" in arm:
        raise ConfigurationError(f"{target!r} is neither `release` nor `release/arm`")
    return release, arm or None
