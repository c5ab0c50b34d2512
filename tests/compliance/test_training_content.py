"""The summary's figures are those of the subset, counted in another way; what strangers named is inert in it."""

import json
from collections import Counter
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from datamask_pipeline import domains
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.content import DATE_SQL
from datamask_pipeline.compliance.training_content import _listed, training_content
from datamask_pipeline.compliance.training_content_markdown import as_markdown
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import require


def test_domains_are_listed_by_their_share_of_bytes(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    found = training_content(store, "first", "datamask")
    rows = store.read_table(require(store, "materialise", "first/datamask")).to_pylist()
    sizes: Counter[str] = Counter()
    for row in rows:
        host = row["url"].split("/")[2]
        sizes[domains.registrable_domain(host)] += len(row["text"].encode())
    total = sum(sizes.values())
    text = found["modalities"]["text"]
    assert (text["documents"], text["bytes"]) == (len(rows), total)
    assert text["tokens"] == sum(row["token_count"] for row in rows)
    assert text["size_band"] == "less than 1 billion tokens"
    assert found["domains"]["number"] == len(sizes) == 6
    (top,) = found["domains"]["listed"]  # a tenth of six, rounded up
    assert (top["domain"], top["bytes"]) == min(sizes.items(), key=lambda item: (-item[1], item[0]))
    assert top["share"] == pytest.approx(top["bytes"] / total)
    assert found["collected"] == {"first": "2024-01-01", "last": "2024-01-01", "documents_without_date": 0}
    assert [source["crawls"] for source in found["sources"]] == [["tiny-2024-10", "tiny-2024-18"]]
    assert found["languages"] == [{"language": "en", "bytes": total, "share": 1.0}]
    pool = store.manifest(require(store, "pool", "first"))
    assert found["reservations"]["documents_withdrawn"] == pool["counts"]["dropped_takedown"] > 0
    assert found["reservations"]["entries"] == 3


def test_what_is_no_date_is_none() -> None:
    """The period of collection was `1970-01-01 to infinity` where two documents had such dates."""
    dates = ["2013-05-18T05:33:20Z", "2013-05-18T23:33:20+02:00", " 2024/1/2", None, "2024", "soon", ""]
    none = ["epoch", "EPOCH", "infinity", "-infinity", "0044-03-15 (BC)", "24-01-01"]
    sql = f"SELECT ({DATE_SQL})::VARCHAR FROM (SELECT unnest(?::VARCHAR[]) AS date)"
    found = [date for (date,) in duckdb.execute(sql, [dates + none]).fetchall()]
    assert found == ["2013-05-18", "2013-05-18", "2024-01-02"] + [None] * 10


@pytest.mark.parametrize(
    ("number", "small", "listed"), [(95, False, 10), (95, True, 5), (40_000, True, 1_000), (0, False, 0)]
)
def test_how_many_domains_are_listed(number: int, small: bool, listed: int) -> None:
    sizes = {f"d{each}.org": (1, number - each) for each in range(number)} | {"": (2, 7)}
    found = _listed(sizes, sum(size for _, size in sizes.values()), small=small)
    assert (found["number"], len(found["listed"]), found["documents_without_domain"]) == (number, listed, 2)
    assert [each["domain"] for each in found["listed"]] == [f"d{each}.org" for each in range(listed)]


def test_markdown_holds_it_all_and_nothing_of_it_is_markup(withdrawn: Pipeline) -> None:
    found: dict[str, Any] = training_content(withdrawn.store, "first", "random", licence="odc-by")
    found["domains"]["listed"][0]["domain"] = "<script>|`\x1b[31m"
    found["languages"][0]["language"] = "e`n|<b>"
    by = {"number": 1, "request": "a|<i>`", "date": "2026-11-22"}
    found["purged"] = by
    found["models"][0] |= {"subset": "other/1234", "subset_purged": by, "purged": by}
    found["reservations"]["purged"] = [by | {"documents": 1, "domains": {"<b>|": [1, 2]}}]
    text = as_markdown(found)
    assert "`odc-by`" in text
    assert "<" not in text
    assert "\x1b" not in text
    assert all(line.count("|") in (0, 3, 4, 5, 6) for line in text.splitlines())


def test_the_command(withdrawn: Pipeline) -> None:
    arguments = ["audit", "training-content", "first", "-s", f"store={withdrawn.store.root}"]
    several = CliRunner().invoke(app, arguments)
    assert isinstance(several.exception, ConfigurationError | SystemExit)
    told = CliRunner().invoke(app, [*arguments, "--arm", "datamask"])
    assert told.exit_code == 0, told.output
    assert "## Domains" in told.output
    whole = CliRunner().invoke(app, [*arguments, "--arm", "datamask", "--json", "--small"])
    assert json.loads(whole.stdout) == training_content(withdrawn.store, "first", "datamask", small=True)
