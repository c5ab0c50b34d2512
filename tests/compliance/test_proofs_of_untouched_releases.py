"""A purge changes nothing of a release that has none of its documents: such a one is proved as before."""

import shutil
from pathlib import Path

from datamask_pipeline.audit.findings import Finding
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import require

#: Documents of the first crawl alone.
SITE = "url:https://site{}.example/tiny-2024-10/"


def asking(pipeline: Pipeline, record: Path, *addresses: str) -> Pipeline:
    """A release of each crawl, without what is below these addresses."""
    releases = {crawl[-2:]: {"crawls": [crawl]} for crawl in pipeline.crawls()}
    values = pipeline.config.model_dump() | {"store": str(record), "releases": releases}
    values["pool"]["takedown"] = addresses
    return Pipeline(type(pipeline.config).model_validate(values))


def run(pipeline: Pipeline, *releases: str) -> None:
    for release in releases:
        for _, _, call in pipeline.steps(release, "materialise"):
            call()


def proved(pipeline: Pipeline, release: str) -> list[Finding]:
    return list(prove_record(pipeline.store, release))


def test_a_release_that_no_purge_touched_is_proved_before_and_after_its_next_run(
    tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    for stage in ("ingest", "rejected", "embed", "score"):
        shutil.copytree(f"{tiny_run.store.root}/{stage}", record / stage)
    pipeline = asking(tiny_run, record, SITE.format(1))
    store = pipeline.store
    run(pipeline, "10", "18")
    assert purge(store, "letter 17") is not None
    assert proved(pipeline, "18") == []
    run(pipeline, "10", "18")
    knows_one = require(store, "pool", "18").location
    assert "purged" in store.manifest_at(knows_one)["inputs"]
    pipeline = asking(tiny_run, record, SITE.format(1), SITE.format(2))
    run(pipeline, "10")
    assert purge(store, "letter 18") is not None
    assert require(store, "pool", "18").location == knows_one
    assert proved(pipeline, "18") == []
