"""What the record says of a subset: sources, scorers, selection, composition. Knows no file of the data set."""

import dataclasses
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from datamask_pipeline import duck
from datamask_pipeline.errors import ConfigurationError, InputError, UnknownNameError
from datamask_pipeline.publish.behind import Artefact, artefacts_behind, inputs_of, made_from
from datamask_pipeline.publish.licences import OF_DATASETS
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.releases import refusal_without

_ON_THE_HUB: Final = re.compile(r"hf://datasets/([^@]+)@([0-9a-f]{40})/")
#: Domains that the card lists.
_MOST_DOMAINS: Final = 20


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a crawl came from.

    Attributes:
        crawl: The crawl.
        kind: The document source, by its name.
        dataset: The data set on the hub, where it came from there.
        revision: Its pinned commit.
        shards: Digest of each file by its name.
    """

    crawl: str
    kind: str
    dataset: str | None
    revision: str | None
    shards: dict[str, str]

    @property
    def url(self) -> str:
        """What a column of its documents was derived from."""
        if self.dataset is None:
            return f"urn:datamask:source:{self.kind}:{self.crawl}"
        return f"https://huggingface.co/datasets/{self.dataset}/tree/{self.revision}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """One subset and all that the record says of it.

    Attributes:
        release: The release of crawls.
        arm: The arm.
        subset: The subset.
        behind: It, all that it was made from, and what was measured on it, by location.
        documents: Documents of each crawl, in the release's order.
        sources: Where each crawl came from, in that order.
        scorers: Name, model, revision, scale and weight of each scorer of the arm.
        selection: Manifest of the selection.
        pool: Manifest of the candidates.
        embedding: What the crawls' embeddings say of their model.
        by_crawl: Crawl, candidates, selected documents, their tokens, and how many of them have no count.
        by_domain: Domain and selected documents of the most frequent domains.
        num_domains: Domains among the selected documents.
        lengths: Least, quartiles and most tokens of a selected document; none where the source states no tokens.
        languages: Languages of the selected documents, as the source states them.
        redundancy: Copies, quality rank and coverage, as `schema.REDUNDANCY` names them; none where they were not measured.
    """

    release: str
    arm: str
    subset: Ref
    behind: dict[str, Artefact]
    documents: dict[str, Ref]
    sources: list[Source]
    scorers: list[dict[str, Any]]
    selection: Mapping[str, Any]
    pool: Mapping[str, Any]
    embedding: Mapping[str, Any]
    by_crawl: list[tuple[str, int, int, int, int]]
    by_domain: list[tuple[str, int]]
    num_domains: int
    lengths: list[int] | None
    languages: list[str]
    redundancy: Mapping[str, Any] | None

    @property
    def key(self) -> str:
        """Release and arm."""
        return f"{self.release}/{self.arm}"


def subset_of(store: Store, release: str, arm: str | None) -> Ref:
    """The current subset of a release's arm.

    Raises:
        UnknownNameError: the record has no subset of such a release or arm.
        ConfigurationError: no arm is named and there are several.
    """
    keys = store.keys("materialise")
    if not (of_release := [key for key in keys if key.split("/")[0] == release]):
        remedy = (
            "" if keys else "the record holds no subset yet: `datamask run --until materialise` makes one"
        )
        known = {key.split("/")[0] for key in keys}
        raise refusal_without(store, release, "subset", known, "materialise", remedy)
    arms = [key.split("/", 1)[1] for key in of_release]
    if arm is None and len(arms) > 1:
        raise ConfigurationError(
            f"release {release!r} has subsets of several arms; name one by --arm: {', '.join(arms)}"
        )
    chosen = arms[0] if arm is None else arm
    if chosen not in arms:
        raise UnknownNameError("arm", chosen, arms)
    ref = store.current("materialise", f"{release}/{chosen}")
    assert ref is not None, "its key was listed"
    return ref


def facts_of(
    store: Store, subset: Ref, scratch: Path, *, measured_among: Collection[str] | None = None
) -> Facts:
    """Read all that the record says of a subset.

    Args:
        store: The record.
        subset: The subset.
        scratch: A folder for what does not fit into memory.
        measured_among: Locations of what may have been measured on it; ``None`` for whatever there is.

    Raises:
        IntegrityError: a manifest behind it is missing or damaged.
    """
    release, arm = subset.key.split("/", 1)
    mask = store.manifest(subset)["basis"]["inputs"]["selection"]
    measured = made_from(store, "redundancy", subset.key, "selection", mask, measured_among)
    behind = artefacts_behind(store, [subset, *([measured] if measured else [])])
    inputs = dict(inputs_of(behind[subset.location].manifest))
    pool, selection = (behind[inputs[name].location].manifest for name in ("candidates", "selection"))
    documents = {crawl: inputs[f"documents/{crawl}"] for crawl in pool["basis"]["config"]["crawls"]}
    stages: dict[str, list[Artefact]] = {}
    for artefact in behind.values():
        stages.setdefault(artefact.ref.stage, []).append(artefact)
    with duck.connect(store, scratch, memory_limit="1GB") as connection:
        connection.execute(f"""
            CREATE TEMP TABLE documents AS
            SELECT c.part_order, c.crawl, c.domain, c.token_count, coalesce(s.selected, false) AS selected
            FROM {duck.parts_sql(store, [inputs["candidates"]], "position, crawl, domain, token_count")} AS c
            LEFT JOIN {duck.parts_sql(store, [inputs["selection"]], "position, selected")} AS s USING (position)
        """)
        by_crawl = connection.execute("""
            SELECT crawl, count(*), count(*) FILTER (selected),
                coalesce(sum(token_count) FILTER (selected), 0)::BIGINT,
                count(*) FILTER (selected AND token_count IS NULL)
            FROM documents GROUP BY part_order, crawl ORDER BY part_order""").fetchall()
        by_domain = connection.execute(f"""
            SELECT domain, count(*) FROM documents WHERE selected AND domain <> ''
            GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_DOMAINS}""").fetchall()
        ((num_domains, lengths),) = connection.execute("""
            SELECT count(DISTINCT domain) FILTER (domain <> ''),
                quantile_disc(token_count, [0, 0.25, 0.5, 0.75, 1])
            FROM documents WHERE selected""").fetchall()
        languages = connection.execute(f"""
            SELECT DISTINCT language FROM {duck.parts_sql(store, [subset], "language")}
            WHERE language IS NOT NULL ORDER BY 1""").fetchall()
    return Facts(
        release=release,
        arm=arm,
        subset=subset,
        behind=behind,
        documents=documents,
        sources=[source_of(crawl, behind[ref.location].manifest) for crawl, ref in documents.items()],
        scorers=_scorers(stages.get("score", []), selection["basis"]["config"]["scorers"]),
        selection=selection,
        pool=pool,
        embedding=stages["embed"][0].manifest["metadata"],
        by_crawl=by_crawl,
        by_domain=by_domain,
        num_domains=num_domains,
        lengths=lengths,
        languages=[language for (language,) in languages],
        redundancy=behind[measured.location].manifest["metadata"] if measured else None,
    )


def source_licences(facts: Facts, stated: str | None) -> set[str]:
    """Licence of each source: the one stated, or what its data set is known to be under.

    Raises:
        InputError: nobody says under which licence a source is.
    """
    found = set()
    for source in facts.sources:
        licence = stated or OF_DATASETS.get(source.dataset or "")
        if licence is None:
            raise InputError(
                f"the licence of crawl {source.crawl!r} is not known",
                value=source.dataset or source.kind,
                remedy="name it in `source.license` or by --source-license, or a column that holds each document's by "
                "--license-column",
            )
        found.add(licence)
    return found


def source_of(crawl: str, manifest: Mapping[str, Any]) -> Source:
    """Where a crawl came from, as the manifest of its documents says."""
    metadata = manifest["metadata"]
    shards = metadata.get("shards", {})
    matches = {match.groups() for item in shards.values() if (match := _ON_THE_HUB.match(item["location"]))}
    dataset, revision = matches.pop() if len(matches) == 1 else (None, None)
    digests = {name: item["digest"] for name, item in shards.items()}
    return Source(crawl, metadata.get("source", "unknown"), dataset, revision, digests)


def _scorers(scored: list[Artefact], weights: Mapping[str, float]) -> list[dict[str, Any]]:
    """The scorers that the arm's quality is made of; every one, equally, where it names none."""
    found: dict[str, dict[str, Any]] = {}
    for artefact in scored:
        for name, about in artefact.manifest["metadata"]["scorers"].items():
            wanted = ("model", "revision", "scale_min", "scale_max")
            found.setdefault(name, {"name": name} | {key: about.get(key) for key in wanted})
    return [
        about | {"weight": weights.get(name, 0.0) if weights else 1.0}
        for name, about in sorted(found.items())
    ]
