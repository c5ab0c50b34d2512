"""Why an artefact is not the one that was current before: what its manifest hashed that the other's did not."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.store import Store

#: Of longer values of settings, so many characters are shown.
SHOWN_CHARACTERS = 60
#: Of what such values begin with alike, so many are.
BEFORE_CHARACTERS = 20


def current_manifest(store: Store, stage: str, key: str) -> dict[str, Any] | None:
    """The manifest of the current artefact; ``None`` where there is none, or it is damaged and will be made anew."""
    try:
        ref = store.current(stage, key)
        return None if ref is None else store.manifest(ref)
    except IntegrityError:
        return None


def reasons(store: Store, before: Mapping[str, Any] | None, made: Ref) -> list[str]:
    """Why an artefact was made, one reason each; none where there was none before it.

    Args:
        store: The record.
        before: The manifest that was current, as ``current_manifest`` gave it.
        made: What was made.
    """
    return [] if before is None else differences(before, store.manifest(made)["basis"], made.fingerprint)


def differences(before: Mapping[str, Any], new: Mapping[str, Any], fingerprint: str) -> list[str]:
    """Why an artefact of that basis and fingerprint is not the one of a manifest, one reason each."""
    if before["fingerprint"] == fingerprint:
        return ["a file of it was missing or damaged"]
    old, found = before["basis"], []
    if old["version"] != new["version"]:
        found.append(f"new version of the stage: {old['version']} -> {new['version']}")
    found += settings_that_differ(old["config"], new["config"])
    for name in sorted(old["inputs"].keys() | new["inputs"].keys()):
        if name not in old["inputs"]:
            found.append(f"new input {name}")
        elif name not in new["inputs"]:
            found.append(f"input {name} is no longer read")
        elif old["inputs"][name] != new["inputs"][name]:
            found.append(f"input {name} changed")
    return found


def settings_that_differ(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings that differ, by dotted name."""
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"setting {prefix}{name}, which was {_short(old[name])}, is not read any more"
        elif name not in old:
            yield f"setting {prefix}{name} {_short(new[name])} was not read before"
        elif isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            yield from settings_that_differ(old[name], new[name], f"{prefix}{name}.")
        elif isinstance(old[name], list) and isinstance(new[name], list) and old[name] != new[name]:
            yield from _items_that_differ(old[name], new[name], f"{prefix}{name}")
        elif old[name] != new[name]:
            before, after = _from_where_they_differ(str(old[name]), str(new[name]))
            yield f"setting {prefix}{name} {_short(before)} -> {_short(after)}"


def _items_that_differ(old: list[Any], new: list[Any], name: str) -> Iterator[str]:
    """Which items came and went; of settings in the same places, which of them differ."""
    pairs = list(zip(old, new, strict=False))
    if len(old) == len(new) and all(isinstance(item, Mapping) for item in [*old, *new]):
        changed = [number for number, (before, after) in enumerate(pairs) if before != after]
        if not any(old[number] in new or new[number] in old for number in changed):
            for number in changed:
                yield from settings_that_differ(old[number], new[number], f"{name}[{number}].")
            return
    gone, come = list(old), []
    for item in new:
        if item in gone:
            gone.remove(item)
        else:
            come.append(item)
    # Whole: items of one list begin alike.
    yield from (f"setting {name}: {item} was taken away" for item in gone)
    yield from (f"setting {name}: {item} was added" for item in come)
    if not gone and not come:
        yield f"setting {name}: the same values in another order"


def _from_where_they_differ(old: str, new: str) -> tuple[str, str]:
    """Two values without most of what they begin with, where they would be cut before they differ."""
    pairs = enumerate(zip(old, new, strict=False))
    alike = next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))
    start = max(0, alike - BEFORE_CHARACTERS)
    return (old, new) if alike < SHOWN_CHARACTERS else (f"...{old[start:]}", f"...{new[start:]}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
