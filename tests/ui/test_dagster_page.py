"""What a Dagster user does first: open the graph, materialise a partition, see it turn green."""

from typing import Any

import pytest

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
