"""What a withdrawal cost an arm: its selection before and after, by what their manifests say. Knows no document."""

from collections.abc import Mapping
from typing import Any, Final

from datamask_pipeline.compliance.content import tokens_of
from datamask_pipeline.compliance.versions import Versions
from datamask_pipeline.families import POLICIES
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.selection.config import stated_budget
from datamask_pipeline.selection.reasons import BY_DRAW
from datamask_pipeline.storage import require

Figures = dict[str, Any]
#: Of the settings before a selection: what is asked to be withdrawn is the matter itself, crawls are told beside.
_NOT_COMPARED: Final = ("takedown", "robots", "crawls")
#: Figures of which the difference is told.
COUNTED: Final = (
    "documents",
    "tokens",
    "documents_without_tokens",
    "mean_quality",
    "objective_on_the_scale_before",
)


def cost_of(versions: Versions, release: str) -> list[Figures]:
    """Of each arm of a release: its figures before the withdrawal, after it, and the difference.

    Before is the latest version of the arm's selection with the same settings whose pool was asked to withdraw other things,
    be it purged by now: its tombstone keeps its manifest. An objective
    stands on the scale of its own pool; ``objective_on_the_scale_before`` is the mask after, on the scale before. Quality
    by rank (the default) is a rank in its own pool on either side.

    Returns:
        One entry an arm: ``arm``, ``applied`` (whether its current selection is of a pool with the current requests),
        ``before`` (null where the record has no such version), ``after``, ``difference``; ``crawls_changed``: crawls
        that only one of both was made of, or that were read from other files; and ``settings_changed``: those of what lies
        between crawls and selection, such as ``copies.threshold``. What either changed is in the figures too; so is that an
        arm which ``is_drawn`` at random was drawn anew.
    """
    store = versions.store
    pool = require(store, "pool", release).location
    found, asked, texts = [], _requests_of_pool(versions, pool), _texts(versions, pool)
    for key in store.keys("select"):
        ref = store.current("select", key)
        if key.split("/")[0] != release or ref is None:
            continue
        after = store.manifest(ref)
        before = _before(versions, after)
        own = _figures(versions, after, after)
        earlier = None if before is None else _figures(versions, before, before)
        if before is not None:
            own["objective_on_the_scale_before"] = _objective(after, before)
        found.append(
            {
                "arm": key.split("/", 1)[1],
                "is_drawn": _is_drawn(after["basis"]["config"]),
                "applied": _requests(versions, after) == asked
                and _texts(versions, _pool_of(versions, after)) == texts,
                "before": earlier,
                "after": own,
                "difference": None if earlier is None else _difference(earlier, own),
                "crawls_changed": [] if before is None else _changed(versions, before, after),
                "settings_changed": [] if before is None else _other_settings(versions, before, after),
            }
        )
    return found


def _before(versions: Versions, after: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The version that the withdrawal superseded."""
    withdrew, found = _requests(versions, after), []
    for manifest in versions.all("select"):
        same = manifest["key"] == after["key"] and manifest["basis"]["config"] == after["basis"]["config"]
        if (
            same
            and manifest["written_at_ns"] < after["written_at_ns"]
            and _requests(versions, manifest) != withdrew
        ):
            found.append(manifest)
    return max(found, key=lambda manifest: int(manifest["written_at_ns"]), default=None)


def _requests(versions: Versions, selection: Mapping[str, Any]) -> str | None:
    """Which requests the pool behind a selection applied; ``None``: none."""
    return _requests_of_pool(versions, _pool_of(versions, selection))


def _pool_of(versions: Versions, selection: Mapping[str, Any]) -> str:
    """The pool behind a selection."""
    index = dict(inputs_of(selection))["index"]
    return str(dict(inputs_of(versions.manifest(index.location)))["candidates"].location)


def _texts(versions: Versions, pool: str) -> int:
    """How many texts of crawls outside its release a pool was asked to withdraw."""
    asked = dict(inputs_of(versions.manifest(pool))).get("takedown")
    return 0 if asked is None else int(versions.manifest(asked.location)["metadata"].get("texts", 0))


def _requests_of_pool(versions: Versions, pool: str) -> str | None:
    """Digest of what was asked, whether or not it is kept without names by now."""
    asked = dict(inputs_of(versions.manifest(pool))).get("takedown")
    return None if asked is None else str(versions.manifest(asked.location)["basis"]["inputs"]["asked"])


def _changed(versions: Versions, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The crawls that are another's, or read from other files, in the order of their names."""
    then, now = (_files_of_crawls(versions, _pool_of(versions, each)) for each in (before, after))
    return sorted(crawl for crawl in then.keys() | now.keys() if then.get(crawl) != now.get(crawl))


def _files_of_crawls(versions: Versions, pool: str) -> dict[str, dict[str, str]]:
    """Digests of the files that each crawl of a pool was read from, by shard; what a purge left of them is no matter."""
    found = {}
    for name, ref in inputs_of(versions.manifest(pool)):
        if name.startswith("documents/"):
            read = versions.manifest(ref.location)["basis"]["inputs"]
            found[name.partition("/")[2]] = {one: of for one, of in read.items() if one.startswith("shards/")}
    return found


def _other_settings(versions: Versions, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The settings of pool, copies and index by which two selections differ, but for what was asked to be withdrawn."""
    then, now = (_settings_before(versions, each) for each in (before, after))
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))


def _settings_before(versions: Versions, selection: Mapping[str, Any]) -> dict[str, Any]:
    index = versions.manifest(dict(inputs_of(selection))["index"].location)
    read = dict(inputs_of(index))
    sections = {"gather": index, "pool": versions.manifest(read["candidates"].location)}
    if "copies" in read:  # left out where none are sought
        sections["copies"] = versions.manifest(read["copies"].location)
    return {
        f"{section}.{name}": value
        for section, manifest in sections.items()
        for name, value in manifest["basis"]["config"].items()
        if name not in _NOT_COMPARED
    }


def _figures(versions: Versions, selection: Mapping[str, Any], scale: Mapping[str, Any]) -> Figures:
    metadata, counts = selection["metadata"], selection["counts"]
    blocks = metadata["blocks"]
    weights = [block["record"]["selected"] for block in blocks]
    qualities = [_raw_quality(block) for block in blocks]
    known = [quality for quality in qualities if quality is not None]
    tokens, without = _tokens(versions, selection)
    return {
        "selection": selection["location"],
        "budget": stated_budget(selection["basis"]["config"]),
        "candidates": counts["rows_in"],
        "new_candidates": _new(selection),
        "documents": counts["kept"],
        "tokens": tokens,
        "documents_without_tokens": without,
        "mean_quality": sum(q * w for q, w in zip(known, weights, strict=True)) / sum(weights)
        if len(known) == len(blocks)
        else None,
        "objective": metadata["objective"],
        "objective_on_the_scale_before": _objective(selection, scale),
    }


def _is_drawn(config: Mapping[str, Any]) -> bool:
    policy = POLICIES.classes().get(config["policy"])
    return policy is not None and policy.decision is BY_DRAW


def _new(selection: Mapping[str, Any]) -> int | None:
    """Candidates beside those of the release that it goes on from, of which a ratio is; none where it goes on from none."""
    given, metadata = selection["metadata"].get("given"), selection["metadata"]
    if given is None:
        return None
    earlier = given["held"] + given["passed_over"] + given["reserve"]
    return int(selection["counts"]["rows_in"] - metadata["unscored"] - earlier)


def _tokens(versions: Versions, selection: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """As `tokens_of` the subset that was made of a selection; ``None``: there is none."""
    for manifest in versions.all("materialise"):
        if dict(inputs_of(manifest))["selection"].location == selection["location"]:
            return tokens_of(versions.store, manifest)
    return None, None


def _raw_quality(block: Mapping[str, Any]) -> float | None:
    """Mean quality of the selected, off the objective's scale."""
    ends, value = block["normalisation"].get("quality"), block["objective"].get("quality")
    return None if ends is None or value is None else ends[0] + value * (ends[1] - ends[0])


def _objective(selection: Mapping[str, Any], scale: Mapping[str, Any]) -> float | None:
    """The value of a mask on the scale of another selection; ``None`` where one has several blocks or another scale."""
    if selection is scale:
        value: float = selection["metadata"]["objective"]
        return value
    blocks, others = selection["metadata"]["blocks"], scale["metadata"]["blocks"]
    if len(blocks) != 1 or len(others) != 1:
        return None
    config, metrics = others[0]["record"]["config"], others[0]["record"]["diversity"]
    raw = dict(blocks[0]["objective"].get("raw", {})) | {"quality": _raw_quality(blocks[0])}
    if {*others[0]["normalisation"]} - {*raw} or None in raw.values():
        return None

    def on_scale(name: str) -> float:
        low, high = others[0]["normalisation"][name]
        return float((raw[name] - low) / (high - low))

    weights = {
        name: (1 - config["lamb"]) * weight / sum(metrics.values()) for name, weight in metrics.items()
    }
    weights["quality"] = config["lamb"]
    if {name for name, weight in weights.items() if weight} - {*others[0]["normalisation"]}:
        return None
    return sum(weight * on_scale(name) for name, weight in weights.items() if weight)


def _difference(before: Figures, after: Figures) -> Figures:
    pairs = {name: (before[name], after[name]) for name in COUNTED}
    return {name: None if None in pair else pair[1] - pair[0] for name, pair in pairs.items()}
