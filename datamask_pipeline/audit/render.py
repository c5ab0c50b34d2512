"""A document's story as lines for a terminal. Knows the story's shape and no store."""

from collections.abc import Iterator
from typing import Any

Story = dict[str, Any]
#: Columns that say which document a row is of, and where the row stands.
_NAMING = ("crawl", "id", "record")


def story_lines(story: Story) -> Iterator[str]:
    """The story, one fact a line."""
    yield f"document {story['id']}"
    for row in story["rejected"]:
        yield f"  rejected: crawl {row['crawl']}, shard {row['shard']}, row {row['row']}: {row['reason']}"
        yield f"    {row['detail']}"
    for copy in story["copies"]:
        yield from _copy_lines(copy)
    for release in story["releases"]:
        yield from _release_lines(release)


def _copy_lines(copy: Story) -> Iterator[str]:
    yield f"  crawl {copy['crawl']}, shard {copy['shard']}, row {copy['row']}"
    yield f"    url {copy['url']}  date {copy['date']}  language {copy['language']}  tokens {copy['token_count']}"
    yield f"    content {copy['content_hash']}"
    yield f"    in {_place(copy['record'])}"
    embedding = copy["embedding"]
    if embedding is None:
        yield "    embedding: none yet"
    else:
        yield f"    embedding: {embedding['model']} revision {embedding['revision']}"
        yield f"      in {_place(embedding['record'])}"
    for score in copy["scores"]:
        value = "none, " + str(score["reason"]) if score["score"] is None else f"{score['score']:.6g}"
        scale = f"{_bound(score['scale_min'])} to {_bound(score['scale_max'])}"
        yield f"    score {score['scorer']}: {value} (scale {scale}; {score['model']} revision {score['revision']})"
    yield from _further_lines(copy, "    ")


def _release_lines(release: Story) -> Iterator[str]:
    candidate = release["candidate"]
    yield f"  release {release['release']} ({release['fingerprint']})"
    if candidate["num_copies"] > 1:
        yield (
            f"    one of {candidate['num_copies']} copies; represented by {candidate['representative_id']} "
            f"of {candidate['representative_crawl']}"
        )
    if not candidate["eligible"]:
        yield f"    not eligible: {candidate['exclusion']}"
    near = release["near_copy"]
    is_near_copy = near is not None and near["near_copy_of"] is not None
    if is_near_copy:
        yield (
            f"    left out as a near-copy of {near['near_copy_of']} of {near['near_copy_of_crawl']}: "
            f"cosine {_number(near['cosine'])}, one of {near['num_near_copies']} in its group"
        )
    elif near is not None and near["num_near_copies"] > 1:
        yield f"    stands for a group of {near['num_near_copies']} near-copies, itself among them"
    if near is not None:
        yield f"      in {_place(near['record'])}"
    yield from _further_lines(release, "    ")
    for arm in release["arms"]:
        yield from _arm_lines(arm, eligible=candidate["eligible"], is_near_copy=is_near_copy)


def _arm_lines(arm: Story, *, eligible: bool, is_near_copy: bool) -> Iterator[str]:
    place = "IN" if arm["selected"] else "out"
    yield f"    {arm['arm']}: {place}  (selection {arm['selection_id']}, seed {arm['seed']}, code {arm['code_version']})"
    if arm["subset_is_older"]:
        yield "      the subset in the record is older than this mask: run stage materialise"
    row = arm["selection"]
    if row is None:
        yield from _why_not_asked(arm, eligible=eligible, is_near_copy=is_near_copy)
        return
    threshold = row["threshold"]
    yield (
        f"      {row['reason']}; "
        + ("decided by no threshold" if threshold is None else f"threshold {_number(threshold)}")
    )
    yield (
        f"      quality {_number(row['quality'])}  logit {_number(row['logit'])}  "
        f"probability {_number(row['probability'])}"
    )
    if arm["scores"]:
        yield f"      quality is {_quality(arm)}"
    yield (
        f"      marginal: quality {_number(row['quality_marginal'])} + diversity "
        f"{_number(row['diversity_marginal'])}"
    )
    yield "      settings: " + ", ".join(f"{key}={value}" for key, value in _telling(arm["config"]).items())
    yield from _further_lines(arm, "      ")
    if arm["subset"]:
        yield f"      subset row: {_place(arm['subset'])}"
    for model in arm["models"] if arm["selected"] else []:
        yield f"      trained on it: {model['run']} ({model['model']}), {_number(model['bits_per_byte'])} bits per byte"
        for result in model["results"]:
            yield (
                f"        {result['task']}: {result['metric']} {_number(result['value'])} +- "
                f"{_number(result['stderr'])} (n {result['n']}, checkpoint {result['checkpoint']})"
            )


def _further_lines(part: Story, indent: str) -> Iterator[str]:
    """Rows in other tables, each with what it says beside the document's name."""
    for asset, rows in part["further"].items():
        for row in rows:
            told = {name: value for name, value in row.items() if name not in _NAMING}
            values = ", ".join(f"{name} {value}" for name, value in told.items())
            yield f"{indent}{asset}: {values} in {_place(row['record'])}"


def _why_not_asked(arm: Story, *, eligible: bool, is_near_copy: bool) -> Iterator[str]:
    """Why the arm decided nothing of the document."""
    unscored = [score for score in arm["scores"] if score["score"] is None]
    if not eligible:
        yield "      was not among the eligible documents"
    elif is_near_copy:
        yield "      was left out as a near-copy"
    elif unscored:
        for score in unscored:
            yield f"      no score by {score['scorer']}: {score['reason']}"
    else:
        yield "      was not in the pool when this mask was learnt: run stage select"
    if arm["representative"]:
        about = arm["representative"]
        place = "IN" if about["selected"] else "out"
        yield f"      its representative {about['id']} of {about['crawl']} is {place}"


def _quality(arm: Story) -> str:
    """How the scores became the quality."""
    made = {
        "rank": "the rank among the release's eligible documents, 0 lowest to 1 highest, of",
        "zscore": "the z-score among the release's eligible documents of",
        "none": "the score itself of",
    }[arm["config"]["score_normalisation"]]
    scores = arm["scores"]
    told = [f"{score['scorer']} {_number(score['score'])} (weight {score['weight']:g})" for score in scores]
    mean = "the weighted mean of " if len(scores) > 1 else ""
    return f"{mean}{made} {', '.join(told)}"


def _telling(config: Story) -> Story:
    keys = ("policy", "diversity", "lamb", "ratio", "num_documents", "num_tokens", "normalisation", "scorers")
    return {key: config[key] for key in keys if config.get(key) is not None}


def _place(record: Story) -> str:
    return f"{record['artefact']}/{record['part']} row {record['row']}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _bound(value: float | None) -> str:
    """An end of a scale."""
    return "no limit" if value is None else f"{value:g}"
