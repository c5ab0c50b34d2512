"""A document's story as lines for a terminal. Knows the story's shape and no store."""

from collections.abc import Iterator
from typing import Any

from datamask_pipeline.audit.arm_settings import read_by
from datamask_pipeline.audit.copies_of import KINSHIP
from datamask_pipeline.families import POLICIES
from datamask_pipeline.stages.select import SelectConfig

Story = dict[str, Any]
#: Columns that say which document a row is of, and where the row stands.
_NAMING = ("crawl", "id", "record")


def story_lines(story: Story) -> Iterator[str]:
    """The story, one fact a line."""
    yield f"document {story['id']}"
    for row in story["rejected"]:
        yield f"  rejected: crawl {row['crawl']}, shard {row['shard']}, row {row['row']}: {row['reason']}"
        yield f"    {row['detail']}"
    if not (story["copies"] or story["rejected"]):
        yield "  no crawl of the current record holds it any more"
    for copy in story["copies"]:
        yield from _copy_lines(copy)
    for release in story["releases"]:
        yield from _release_lines(release)
    yield from (f"  {line}" for line in story["left_out"])
    yield from _ever_lines(story)
    if story["scanned"]:
        yield f"  {len(story['scanned'])} artefacts of earlier versions have no index, and were scanned"


def _copy_lines(copy: Story) -> Iterator[str]:
    yield f"  crawl {copy['crawl']}, shard {copy['shard']}, row {copy['row']}"
    stated = {name: copy[name] for name in ("url", "date", "language")} | {"tokens": copy["token_count"]}
    yield "    " + "  ".join(
        f"{name} {'not stated' if value is None else value}" for name, value in stated.items()
    )
    yield f"    content hash {copy['content_hash']}"
    yield f"    in {_place(copy['record'])}"
    embedding = copy["embedding"]
    if embedding is None:
        yield "    embedding: none yet"
    else:
        yield f"    embedding: {_model(embedding)}"
        yield f"      in {_place(embedding['record'])}"
    for score in copy["scores"]:
        value = "none, " + str(score["reason"]) if score["score"] is None else f"{score['score']:.6g}"
        scale = f"{_bound(score['scale_min'])} to {_bound(score['scale_max'])}"
        yield f"    score {score['scorer']}: {value} (scale {scale}; {_model(score)})"
    yield from _stale_lines(copy, "    ")
    yield from _further_lines(copy, "    ")


def _release_lines(release: Story) -> Iterator[str]:
    candidate = release["candidate"]
    yield (
        f"  release {release['release']} (candidates of fingerprint {release['fingerprint']}), crawl {candidate['crawl']}"
    )
    yield from _stale_lines(release, "    ")
    if not candidate["eligible"]:
        yield f"    not eligible: {candidate['exclusion']}"
    for by in release["left_out_by"]:
        yield f"      by {_left_out_by(by)}"
    yield from _copies_lines(release)
    yield from _further_lines(release, "    ")
    for arm in release["arms"]:
        yield from _arm_lines(arm, candidate)


def _left_out_by(by: Story) -> str:
    """An entry that withdrew a document, or a question whose words it has, or a near-duplicate of it."""
    if "entry" in by:
        return str(by["entry"])
    told = f"question {by['question']} of task {by['task']}"
    return told + (
        f", whose words {by['of']['id']} of {by['of']['crawl']} has, a near-duplicate of it"
        if by["of"]
        else ""
    )


def _copies_lines(release: Story) -> Iterator[str]:
    """What stands for the document, or for what it stands."""
    candidate, near, about = release["candidate"], release["near_copy"], release["representative"]
    if candidate["num_copies"] > 1:
        kinds = "copies and near-duplicates" if release["by_words"] else "copies"
        yield (
            f"    one of {candidate['num_copies']} {kinds}; represented by {candidate['representative_id']} "
            f"of {candidate['representative_crawl']}"
        )
    if about is not None and about["exclusion"] == "validation":
        what = "its text" if about["by"] == "copy" else f"what it is {KINSHIP[about['by']]} of"
        yield f"    {what} is held out for validation, as {about['id']} of {about['crawl']}"
    elif about is not None and about["exclusion"] not in (None, candidate["exclusion"]):
        other = f"{about['id']} of {about['crawl']}, which it is {KINSHIP[about['by']]} of"
        yield f"    {other}, is not eligible: {about['exclusion']}"
    if near is not None and near["near_copy_of"] is not None:
        yield (
            f"    left out as a near-copy of {near['near_copy_of']} of {near['near_copy_of_crawl']}: "
            f"cosine {_number(near['cosine'])}, one of {near['num_near_copies']} in its group"
        )
    elif about is not None and about["by"] == "near_copy":
        first = "copy or near-duplicate" if release["by_words"] else "copy"
        yield f"    its first {first} was left out as a near-copy of {about['id']} of {about['crawl']}"
    elif near is not None and near["num_near_copies"] > 1:
        yield f"    stands for a group of {near['num_near_copies']} near-copies, itself among them"
    for copy in release["copies"]:
        kind = (
            f"near-copy, cosine {_number(copy['cosine'])}"
            if "cosine" in copy
            else copy["by"].replace("_", "-")
        )
        yield f"    stands for {copy['id']} of {copy['crawl']} ({kind})"
    num_copies = sum("cosine" not in copy for copy in release["copies"])
    if about is None and candidate["num_copies"] - 1 > num_copies > 0:
        yield f"    and for {candidate['num_copies'] - 1 - num_copies} {kinds} more"
    if near is not None:
        yield f"      in {_place(near['record'])}"


def _arm_lines(arm: Story, candidate: Story) -> Iterator[str]:
    row, about = arm["selection"], arm["representative"]
    place = "IN" if arm["selected"] else "out"
    if about is not None and about["selected"]:
        place = f"its text is IN, as {about['id']} of {about['crawl']}"
        if about["by"] != "copy":
            place = f"out; {about['id']} of {about['crawl']}, which it is {KINSHIP[about['by']]} of, is IN"
    made = f"mask of content digest {arm['selection_id']}, seed {arm['seed']}, code version {arm['code_version']}"
    yield f"    {arm['arm']}: {place}  ({made})"
    yield from _stale_lines(arm, "      ")
    if arm["subset_is_older"]:
        yield "      the subset in the record is of another mask: run stage materialise"
    if row is None:
        yield from _why_not_asked(arm, candidate)
        return
    yield f"      {row['reason']}; {_threshold(arm)}"
    if before := arm["decided_in"]:
        there = before["selection"]
        did = "brought in by" if arm["selected"] else "decided in"
        why = "it was no candidate there" if there is None else f"{there['reason']}"
        if before["purged"]:
            did, why = "decided before, in", f"its mask was purged by {before['purged']}"
        yield f"      {did} release {before['release']}: {why}  ({before['mask']})"
    yield from _decision_lines(arm)
    yield (
        f"      quality {_number(row['quality'])}  logit {_number(row['logit'])}  "
        f"probability {_number(row['probability'])}"
    )
    if arm["scores"]:
        yield f"      quality is {_quality(arm)}"
    if arm["scale"]:
        zero, one = arm["scale"]
        counts = f"{arm['config']['lamb']:g} x (quality - {_number(zero)}) / {_number(one - zero)}"
        yield f"      in the objective a document's quality counts as {counts}"
    yield (
        f"      marginal: quality {_number(row['quality_marginal'])} + diversity "
        f"{_number(row['diversity_marginal'])}"
    )
    yield "      settings: " + ", ".join(f"{key}={value}" for key, value in _telling(arm["config"]).items())
    yield from _further_lines(arm, "      ")
    if arm["subset"]:
        yield f"      subset row: {_place(arm['subset'])}"


def _threshold(arm: Story) -> str:
    threshold, scale, quota = arm["selection"]["threshold"], arm["scale"], arm["quota"]
    if threshold is None:
        return "decided by no threshold"
    name = "threshold"
    if quota is not None:
        threshold, name = quota["threshold"], f"threshold of quota {quota['group']}"
        if threshold is None:
            return f"of quota {quota['group']} none was chosen"
    if scale is None or not arm["by_quality"]:
        return f"{name} {_number(threshold)}"
    zero, one = scale
    return (
        f"{name} {_number(threshold)} on the objective's scale, a quality of "
        f"{_number(zero + threshold * (one - zero))}"
    )


def _decision_lines(arm: Story) -> Iterator[str]:
    """Where the cut lies, and what crowds the document out."""
    if arm["cut"] and arm["cut"]["last_chosen"] is not None:
        first = arm["cut"]["first_not_chosen"]
        not_chosen = "all were chosen" if first is None else f"the first not chosen {_number(first)}"
        yield f"      the last chosen has quality {_number(arm['cut']['last_chosen'])}, {not_chosen}"
    for neighbour in arm["neighbours"] or ():
        cosine = _number(neighbour["cosine"])
        yield f"      near it is chosen {neighbour['id']} of {neighbour['crawl']}: cosine {cosine}"
    if not arm["deep"]:
        yield "      ranks, cut and chosen neighbours need a pass over the release: ask with --deep"


def _ever_lines(story: Story) -> Iterator[str]:
    """What ever held the document, and what was ever trained on it, a line each."""
    for subset in story["subsets"]:
        known = "" if subset["by"] is None else f"as {subset['id']} of {subset['crawl']} "
        if subset["by"] not in (None, "copy"):
            known = f"{subset['id']} of {subset['crawl']}, which it is {KINSHIP[subset['by']]} of, "
        place = _place(subset["record"])
        yield f"  {known}in subset {subset['key']} of {subset['made']}: {subset['state']}, {place}"
        yield from (f"    {line}" for line in subset["why"])
    for model in story["models"]:
        trained = "trained on it" if model["trained"] else "may be trained on it, its subset is gone"
        if model["trained"] is None and model["read"] is not None:
            trained = f"may be trained on it, it read {model['read']:.1%} of its subset's tokens"
        if model["trained"] is False:
            part = "" if model["read"] == 1 else f", of whose subset it read {model['read']:.1%}"
            trained = (
                f"{'may be ' if part else ''}trained on what it is {KINSHIP[model['by']]} of{part}, not on it"
            )
        tasks = (
            f"mean of {model['num_tasks']} tasks {_number(model['mean'])}"
            if model["num_tasks"]
            else "no results"
        )
        yield (
            f"  {trained}: {model['key']} (fingerprint {model['model']}) of {model['made']}: {model['state']}; "
            f"{_number(model['bits_per_byte'])} bits per byte, {tasks}"
        )
        yield from (f"    {line}" for line in model["why"])


def _stale_lines(part: Story, indent: str) -> Iterator[str]:
    for line in part["stale"]:
        yield f"{indent}STALE: {line}"


def _further_lines(part: Story, indent: str) -> Iterator[str]:
    """Rows in other tables, each with what it says beside the document's name."""
    for asset, rows in part["further"].items():
        for row in rows:
            told = {name: value for name, value in row.items() if name not in _NAMING}
            values = ", ".join(f"{name} {value}" for name, value in told.items())
            yield f"{indent}{asset}: {values} in {_place(row['record'])}"


def _why_not_asked(arm: Story, candidate: Story) -> Iterator[str]:
    """Why the arm decided nothing of the document."""
    about = arm["representative"]
    unscored = [score for score in arm["scores"] if score["score"] is None]
    if about is not None and about["by"] == "near_copy":
        yield "      was left out as a near-copy"
    elif not candidate["eligible"]:
        yield f"      was not among the eligible documents: {candidate['exclusion']}"
    elif unscored:
        for score in unscored:
            yield f"      no score by {score['scorer']}: {score['reason']}"
    else:
        yield "      was not in the pool when this mask was learnt: run stage select"
    if about is not None:
        yield f"      its representative {about['id']} of {about['crawl']} is {'IN' if about['selected'] else 'out'}"


def _quality(arm: Story) -> str:
    """How the scores became the quality."""
    name = arm["config"]["score_normalisation"]
    made = {
        "rank": "the rank, 0 lowest to 1 highest, among the release's documents with every score",
        "zscore": "the z-score among the release's documents with every score",
        "none": "the score itself",
    }[name]
    scores = arm["scores"]
    values = arm["normalised"] or [None] * len(scores)
    told = " + ".join(
        f"{score['weight']:g} x {_of_score(score, None if name == 'none' else value)}"
        for score, value in zip(scores, values, strict=True)
    )
    total = sum(abs(score["weight"]) for score in scores)
    return f"({told}) / {total:g}; of each score {made}"


def _of_score(score: Story, normalised: float | None) -> str:
    raw = f"{score['scorer']} {_number(score['score'])}"
    return raw if normalised is None else f"{_number(normalised)} ({raw})"


def _telling(config: Story) -> Story:
    """What of the settings that an arm reads says most: some always, the others where they are not the defaults."""
    keys = ("policy", "diversity", "lamb", "ratio", "num_documents", "num_tokens", "normalisation", "scorers")
    reads = read_by(config)
    told = {key: config[key] for key in keys if key in reads and config[key] is not None}
    told |= {"scorers": "all, equally"} if told.get("scorers") == {} else {}
    if config["policy"] not in POLICIES.classes():  # another package's, which is not here
        return told
    usual = SelectConfig.of({"policy": config["policy"]}).result_config()
    others = sorted(reads - {*keys, "seed"})
    return told | {key: config[key] for key in others if config[key] != usual.get(key)}


def _model(made: Story) -> str:
    """What made a score or an embedding."""
    model = made["model"] or "no model stated"
    return f"{model} revision {made['revision']}" if made["revision"] else f"{model}, no revision stated"


def _place(record: Story) -> str:
    return f"{record['artefact']}/{record['part']} row {record['row']}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _bound(value: float | None) -> str:
    """An end of a scale."""
    return "no limit" if value is None else f"{value:g}"
