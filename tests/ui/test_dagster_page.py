"""What a Dagster user does first: open the graph, materialise a partition, see it turn green."""

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_chain import write_crawl

from assets.partitions import partition_key
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import releases

pytestmark = pytest.mark.ui

CRAWL = "tiny-2024-10"
SECONDS_TO_RUN = 240
#: For all that a new crawl sets going, on a busy machine too.
SECONDS_TO_RELEASE = 900

#: Whether the mark at a partition's name has a colour that is mostly green.
IS_GREEN = """
name => {
  const row = [...document.querySelectorAll(`[title="${name}"]`)].map(e => e.parentElement.parentElement);
  const marks = row.flatMap(e => [...e.children]).map(e => getComputedStyle(e).backgroundColor.match(/\\d+/g));
  return marks.some(m => m && m.length === 3 && +m[1] > +m[0] + 50 && +m[1] > +m[2] + 30);
}
"""


def test_the_asset_graph_opens(page: Any, dagster_url: str) -> None:
    page.set_viewport_size({"width": 3200, "height": 3200})  # Dagster draws only what lies within the window
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
    page: Any, dagster_url: str, first_release: Pipeline
) -> None:
    arm = partition_key("arm", "first/datamask")
    for asset in ("learning_curve", "selection_mask"):
        page.goto(f"{dagster_url}/assets/{asset}?view=partitions&partition={arm}")
        curve = page.get_by_role("img", name="objective").first
        curve.wait_for()
        assert curve.evaluate("image => image.naturalWidth") == 160


@pytest.mark.timeout(SECONDS_TO_RELEASE + SECONDS_TO_RUN)
def test_a_crawl_that_is_dropped_becomes_a_release_whose_page_shows_the_difference(
    page: Any, dagster_url: str, first_release: Pipeline
) -> None:
    """All else is done by the sensor, once it was switched on."""
    from playwright.sync_api import TimeoutError as NotSeenYet

    store, folder = first_release.store, Path(first_release.config.source.options["root"])
    releases.retire(store, "first")  # so that nothing more is made of it; others go on from it all the same
    page.goto(f"{dagster_url}/locations/datamask_pipeline/sensors/advance")
    switch = page.locator("label:has(input[type=checkbox])").first
    switch.click()
    page.locator("input[type=checkbox]:checked").first.wait_for(state="attached")
    write_crawl(folder, "tiny-2024-22", 30, seed=7)
    arm = partition_key("arm", "web-tiny-2024-22/datamask")
    difference = page.get_by_text("diff from first", exact=True).first
    deadline = time.monotonic() + SECONDS_TO_RELEASE
    page.goto("about:blank")  # Dagster's page would ask for news all the time
    while store.current("select", "web-tiny-2024-22/datamask") is None:
        assert time.monotonic() < deadline, "no release is made"
        time.sleep(1)
    while not difference.is_visible():
        assert time.monotonic() < deadline, "no difference is shown"
        page.goto(f"{dagster_url}/assets/selection_mask?view=partitions&partition={arm}")
        with contextlib.suppress(NotSeenYet):
            difference.wait_for(timeout=5_000)
    page.get_by_text("of a new crawl").first.wait_for()
    page.goto(f"{dagster_url}/locations/datamask_pipeline/sensors/advance")
    page.locator("input[type=checkbox]:checked").first.wait_for(state="attached")
    switch.click()
    page.locator("input[type=checkbox]:not(:checked)").first.wait_for(state="attached")
    assert (made := releases.frozen(store, "web-tiny-2024-22"))
    assert made.given == "first"
