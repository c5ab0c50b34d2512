"""What a Dagster user does first: open the graph, materialise a partition, see it turn green."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.partitions import RELEASES, partition_key
from datamask_pipeline.definitions import build_defs

pytestmark = pytest.mark.ui

CRAWL = "tiny-2024-10"
SECONDS_TO_RUN = 240

#: Whether the mark at a partition's name has a colour that is mostly green.
IS_GREEN = """
name => {
  const row = [...document.querySelectorAll(`[title="${name}"]`)].map(e => e.parentElement.parentElement);
  const marks = row.flatMap(e => [...e.children]).map(e => getComputedStyle(e).backgroundColor.match(/\\d+/g));
  return marks.some(m => m && m.length === 3 && +m[1] > +m[0] + 50 && +m[1] > +m[2] + 30);
}
"""


def test_the_asset_graph_opens(page: Any, dagster_url: str) -> None:
    page.goto(f"{dagster_url}/asset-groups")
    for group in ("crawls", "releases", "selection", "models", "report"):
        page.get_by_text(group, exact=True).first.wait_for()
    page.keyboard.press("Alt+E")  # expands the groups
    for asset in ("crawl_documents", "quality_scores", "selection_mask", "fineweb_mask", "comparison_report"):
        page.get_by_text(asset, exact=True).first.wait_for(state="attached")


def test_a_partition_is_materialised_by_hand_and_turns_green(page: Any, dagster_url: str) -> None:
    page.goto(f"{dagster_url}/assets/crawl_documents?view=partitions")
    # The sensor `discover` has named the crawls; nobody had to type one in.
    page.get_by_text(CRAWL, exact=True).first.click()
    assert not page.evaluate(IS_GREEN, CRAWL)
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    page.wait_for_function(IS_GREEN, arg=CRAWL, timeout=SECONDS_TO_RUN * 1000)

    page.reload()
    page.get_by_text("Materialized", exact=True).first.wait_for()
    page.get_by_text("computed", exact=True).first.wait_for()

    page.goto(f"{dagster_url}/assets/crawl_documents?view=checks")
    page.get_by_text("ids_are_unique").first.click()
    page.get_by_text("Passed", exact=True).first.wait_for(timeout=SECONDS_TO_RUN * 1000)


def test_a_learning_curve_is_seen_without_a_click(
    page: Any, dagster_url: str, dagster_home: Path, ui_config: Path
) -> None:
    defs = build_defs(config=str(ui_config))
    arm = partition_key("arm", "first/datamask")
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        instance.add_dynamic_partitions(str(RELEASES.name), ["first"])
        keys = [("crawl_job", crawl) for crawl in instance.get_dynamic_partitions("crawls")]
        for job, key in (*keys, ("release_job", "first"), ("arm_job", arm)):
            assert defs.resolve_job_def(job).execute_in_process(instance=instance, partition_key=key).success
    for asset in ("learning_curve", "selection_mask"):
        page.goto(f"{dagster_url}/assets/{asset}?view=partitions&partition={arm}")
        curve = page.get_by_role("img", name="objective").first
        curve.wait_for()
        assert curve.evaluate("image => image.naturalWidth") == 160
