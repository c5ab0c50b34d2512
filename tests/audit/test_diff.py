"""Who came and who went, against a count in plain Python over small random releases."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from datamask_pipeline import schema
from datamask_pipeline.audit import diff_reasons
from datamask_pipeline.audit.diff import REASONS, changed_documents, compare_selections
from datamask_pipeline.audit.selections import paired
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.selection.reasons import (
    BY_DRAW,
    BY_MARGINALS,
    BY_QUALITY,
    BY_RULE,
    HELD,
    PASSED_OVER,
    Decision,
)
from datamask_pipeline.storage import Ref, Store

INDEX = pa.schema([*schema.RELEASE_INDEX, schema.score_column("rules")])
EXCLUSIONS = ("takedown", "near_duplicate", "duplicate_content", "duplicate_id", "validation", "contaminated")
Row = dict[str, Any]


def write(store: Store, stage: str, key: str, rows: list[list[Row]], columns: pa.Schema, **basis: Any) -> Ref:
    builder = store.begin(
        stage, key, version="1", config=basis.get("config", {}), inputs=basis.get("inputs", {})
    )
    parts = [
        builder.write_part(f"{number:05d}", [pa.RecordBatch.from_pylist(each, schema=columns)], columns)
        for number, each in enumerate(rows)
    ]
    return builder.commit(parts)


class World:
    """Crawls of few documents, each in two versions; releases drawn from them, and kept as rows for the count."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.store, self.draw = Store(folder), random.Random(seed)
        self.crawls: dict[tuple[str, int], tuple[Ref, list[Row]]] = {}
        for crawl, version in itertools.product(("a", "b", "c"), (0, 1)):
            names = [f"{crawl}{self.draw.randrange(25)}" for _ in range(30)]  # ids repeat
            rows = [
                {
                    "id": name,
                    "content_hash": f"{name}/{self.draw.randrange(2) if version else 0}",
                    "crawl": crawl,
                }
                for name in names
            ]
            columns = pa.schema([("id", pa.string()), ("content_hash", pa.string()), ("crawl", pa.string())])
            ref = write(self.store, "ingest", crawl, [rows], columns, config={"version": version})
            self.crawls[crawl, version] = ref, rows

    def release(self, name: str, decision: Decision, config: Row, *, text: int) -> tuple[Ref, list[Row]]:
        """A mask, and its documents as a plain list, unselected and ineligible ones too."""
        draw = self.draw
        chosen = draw.sample(["a", "b", "c"], draw.randint(1, 3))
        versions = {crawl: draw.choice((0, text)) for crawl in chosen}
        inputs: Row = {f"documents/{crawl}": self.crawls[crawl, versions[crawl]][0] for crawl in chosen}
        documents, parts = [], []
        for crawl in chosen:
            part = []
            for row in self.crawls[crawl, versions[crawl]][1]:
                exclusion = draw.choice(EXCLUSIONS) if draw.random() < 0.3 else None
                part.append(
                    {
                        **row,
                        "position": len(documents),
                        "domain": f"site{len(row['id'])}",
                        "token_count": draw.choice([None, 5, 7]),
                        "exclusion": exclusion,
                        "near": exclusion is None and draw.random() < 0.2,
                        "score": draw.choice([None, 0.1, 0.2, 0.2]),
                    }
                )
                documents.append(part[-1])
            parts.append(part)
        pool = write(self.store, "pool", name, _only(parts, schema.CANDIDATES), schema.CANDIDATES,
                     config={"crawls": chosen}, inputs=inputs)  # fmt: skip
        near = [
            {**row, "near_copy_of": "x" if row["near"] else None}
            for row in documents
            if row["exclusion"] is None
        ]
        copies = write(self.store, "copies", name, _only([near], schema.NEAR_COPIES), schema.NEAR_COPIES,
                       inputs={"candidates": pool})  # fmt: skip
        indexed = [
            {**row, "score_rules": row["score"]}
            for row in documents
            if row["exclusion"] is None and not row["near"]
        ]
        of_scores = pa.schema([("id", pa.string())])
        scored: Row = {
            f"scores/{crawl}": write(
                self.store, "score", crawl, [[{"id": name}]], of_scores, config={"of": name}
            )
            for crawl in chosen
        }
        index = write(self.store, "gather", name, _only([indexed], INDEX), INDEX,
                      inputs={"candidates": pool, "copies": copies} | scored)  # fmt: skip
        for row in documents:
            row["masked"] = row["exclusion"] is None and not row["near"] and row["score"] is not None
            row["selected"] = row["masked"] and draw.random() < 0.5
            if row["masked"]:
                row |= {
                    "quality": draw.random(),
                    "quality_marginal": draw.choice([0.1, 0.2, 0.3]),
                    "diversity_marginal": draw.choice([None, 0.1, 0.2, 0.3]),
                    "threshold": 0.35 if decision in (BY_MARGINALS, BY_QUALITY) else None,
                    "reason": decision.into if row["selected"] else decision.out,
                }
            if (
                row["masked"] and decision is BY_QUALITY
            ):  # some out by lot among equals, some for want of budget
                row["quality"] = draw.choice([0.5, 0.6])
                if not row["selected"]:
                    row["reason"] = draw.choice([decision.out, decision.out_all_the_same])
            if row["masked"] and draw.random() < 0.1:
                row["reason"] = HELD if row["selected"] else PASSED_OVER
        embedded: Row = {f"embeddings/{crawl}": self.embeddings(crawl) for crawl in chosen}
        masked = [row for row in documents if row["masked"]]
        mask = write(self.store, "select", f"{name}/datamask", _only([masked], schema.SELECTION), schema.SELECTION,
                     config={"scorers": {}, **config}, inputs={"index": index} | embedded)  # fmt: skip
        return mask, documents

    def embeddings(self, crawl: str) -> Ref:
        return write(self.store, "embed", crawl, [[{"id": "x", "content_hash": "x"}]], schema.EMBEDDINGS)


def _only(parts: list[list[Row]], columns: pa.Schema) -> list[list[Row]]:
    return [[{name: row.get(name) for name in columns.names} for row in part] for part in parts]


def numbered(documents: list[Row]) -> dict[tuple[str, str, int], Row]:
    """Documents by crawl, id and how often the crawl had that id before."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for row in documents:
        found[row["crawl"], row["id"], seen[row["crawl"], row["id"]]] = row
        seen[row["crawl"], row["id"]] += 1
    return found


def reason(mine: Row, other: Row | None, crawls: set[str], *, configured: bool) -> str:
    if mine["crawl"] not in crawls:
        return "crawl"
    if other is None:
        return "documents"
    if other["exclusion"]:
        return str(other["exclusion"])
    if other["near"]:
        return "near_copy"
    if not other["masked"]:
        return "no_score"
    if configured:
        return "configuration"
    if mine["content_hash"] != other["content_hash"]:
        return "text"
    if mine["score"] != other["score"]:
        return "score"
    if mine["reason"] == HELD or other["reason"] == PASSED_OVER:
        return "earlier_release"
    if other["reason"] == BY_DRAW.out:
        return "draw"
    if other["reason"] == BY_QUALITY.out_all_the_same and mine["quality"] == other["quality"] == 0.5:
        return "draw"
    if other["reason"] in (BY_QUALITY.out, BY_QUALITY.out_all_the_same):
        return "quality"
    if mine["diversity_marginal"] is None or other["diversity_marginal"] is None:
        return "displaced"
    by_diversity = other["diversity_marginal"] - mine["diversity_marginal"]
    by_quality = other["quality_marginal"] - mine["quality_marginal"]
    if other["threshold"] is not None:
        by_quality -= other["threshold"] - mine["threshold"]
    return "diversity" if by_diversity < by_quality else "quality"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_every_document_has_the_reason_that_a_count_gives_it(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed >= 4:  # crawls are cut into windows
        monkeypatch.setattr(diff_reasons, "WINDOW_ROWS", 7)
    world = World(tmp_path, seed)
    decision = (BY_MARGINALS, BY_QUALITY, BY_DRAW, BY_RULE)[seed % 4]
    before, old = world.release("first", decision, {"lamb": 0.5}, text=0)
    lamb = 0.5 if seed % 3 else 0.7
    after, new = world.release("second", decision, {"lamb": lamb}, text=seed % 2)
    found = compare_selections(world.store, before, after)
    sides = {"went": (numbered(old), numbered(new)), "came": (numbered(new), numbered(old))}
    for side, (mine, other) in sides.items():
        crawls = {row["crawl"] for row in other.values()}
        want = [
            (row["crawl"], row["id"], row["domain"], row["token_count"],
             reason(row, other.get(name), crawls, configured=lamb != 0.5))
            for name, row in mine.items()
            if row["selected"] and not (name in other and other[name]["selected"])
        ]  # fmt: skip
        rows = list(changed_documents(world.store, before, after, side))  # type: ignore[arg-type]
        have = [(row["crawl"], row["id"], row["domain"], row["tokens"], row["reason"]) for row in rows]
        assert have == want
        assert all(row["told"] == REASONS[row["reason"]][side] for row in rows)  # type: ignore[index]
        total = found[side]
        assert (total["documents"], total["tokens"]) == (len(want), sum(row[3] or 0 for row in want))
        assert total["without_tokens"] == sum(row[3] is None for row in want)
        for name, column in (("reasons", 4), ("crawls", 0), ("domains", 2)):
            counted = Counter(row[column] for row in want)
            assert {row["name"]: row["documents"] for row in total[name]} == counted
            for number in ("documents", "tokens", "without_tokens"):
                assert sum(row[number] for row in total[name]) == total[number]
    assert found["stayed"] == sum(row["selected"] for row in old) - found["went"]["documents"]
    assert found["stayed"] == sum(row["selected"] for row in new) - found["came"]["documents"]
    told = [line for line in found["settings"] if line.startswith("select")]
    assert told == ([] if lamb == 0.5 else [f"select: setting lamb 0.5 -> {lamb}"])
    read = [
        world.store.manifest(world.store.current("pool", name))["basis"]["inputs"]
        for name in ("first", "second")
    ]
    changed = [
        name.partition("/")[2] for name in sorted({*read[0]} & {*read[1]}) if read[0][name] != read[1][name]
    ]
    told = [line for line in found["settings"] if "has other documents" in line]
    assert told == [
        f"ingest: {crawl} has other documents: its files, or what was kept of them, changed"
        for crawl in changed
    ]
    if seed == 1:
        assert changed


def test_what_an_arm_does_not_read_is_no_reason(tmp_path: Path) -> None:
    """Lambda says what a random mask is worth, and draws no other one."""
    for number, (policy, decision) in enumerate((("random", BY_DRAW), ("datamask", BY_MARGINALS))):
        world = World(tmp_path / policy, number)
        before, _ = world.release(
            "first", decision, {"policy": policy, "lamb": 0.5, "quota_by": "crawl"}, text=0
        )
        after, _ = world.release(
            "second", decision, {"policy": policy, "lamb": 0.7, "quota_by": "domain"}, text=0
        )
        found = compare_selections(world.store, before, after)
        read = {True: "select: setting lamb 0.5 -> 0.7", False: "select: setting quota_by crawl -> domain"}
        reads_lambda = policy == "datamask"
        told = [line for line in found["settings"] if line.startswith("select")]
        assert told == [read[True]] * reads_lambda
        unread = [line for line in found["settings_not_read"] if line.startswith("select")]
        assert unread == [*([] if reads_lambda else [read[True]]), read[False]]
        reasons = {row["name"] for side in ("came", "went") for row in found[side]["reasons"]}
        assert ("configuration" in reasons) is reads_lambda


def test_of_two_policies_only_what_both_read_is_compared(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    configs = (
        {"policy": "random", "ratio": 0.2, "num_documents": None, "lamb": 0.5, "seed": 0},
        {"policy": "datamask", "ratio": 0.1, "num_documents": 40, "lamb": 0.7, "seed": 3, "num_steps": 40},
    )
    before, _ = world.release("first", BY_DRAW, configs[0], text=0)
    after, _ = world.release("second", BY_MARGINALS, configs[1], text=0)
    found = compare_selections(world.store, before, after)
    assert [line for line in found["settings"] if line.startswith("select")] == [
        "select: setting num_documents 40 was not read before",
        "select: setting policy random -> datamask",
        "select: setting ratio, which was 0.2, is not read any more",
        "select: setting seed 0 -> 3",
    ]


def test_what_one_side_reads_is_not_told_as_unread_too(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    by_tokens = {"policy": "datamask", "ratio": 0.1, "num_tokens": 8_000, "quota_by": "crawl", "quotas": None}
    by_share = {
        "policy": "datamask",
        "ratio": 0.2,
        "num_tokens": None,
        "quota_by": "domain",
        "quotas": {"*": 1.0},
    }
    before, _ = world.release("first", BY_MARGINALS, by_tokens, text=0)
    after, _ = world.release("second", BY_MARGINALS, by_share, text=0)
    found = compare_selections(world.store, before, after)
    told = [line for line in found["settings"] if line.startswith("select")]
    assert "select: setting num_tokens, which was 8000, is not read any more" in told
    assert "select: setting quota_by domain was not read before" in told
    assert [line for line in found["settings_not_read"] if line.startswith("select")] == []


def test_targets_are_arms_releases_and_older_versions(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    older, _ = world.release("first", BY_DRAW, {"seed": 0}, text=0)
    first, _ = world.release("first", BY_DRAW, {"seed": 1}, text=0)
    second, _ = world.release("second", BY_DRAW, {"seed": 1}, text=0)
    store = world.store
    assert paired(store, "first/datamask", "second/datamask") == ([(first, second)], [])
    assert paired(store, "first", "second") == ([(first, second)], [])
    for version in ("previous", older.short, older.fingerprint[:6]):
        assert paired(store, f"first/datamask@{version}", "first/datamask") == ([(older, first)], [])
    for wrong in ("third", "first/random", "first/datamask@0000"):
        other = "first/datamask" if "/" in wrong else "first"
        with pytest.raises(UnknownNameError):
            paired(store, wrong, other)
    with pytest.raises(ConfigurationError, match="name two arms"):
        paired(store, "first", "first/datamask")


def test_the_command_prints_totals_and_documents(tmp_path: Path) -> None:
    world = World(tmp_path, 5)
    before, _ = world.release("first", BY_MARGINALS, {}, text=0)
    after, _ = world.release("second", BY_MARGINALS, {}, text=0)
    call = ["audit", "diff", "first/datamask", "second/datamask", "-s", f"store={tmp_path}"]
    found = compare_selections(world.store, before, after)
    printed = CliRunner().invoke(app, call)
    assert printed.exit_code == 0, printed.exception
    assert (
        f"  came: {found['came']['documents']} documents, {found['came']['tokens']} tokens" in printed.stdout
    )
    assert json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout) == found
    listed = CliRunner().invoke(app, [*call, "--list", "went"])
    assert len(listed.stdout.splitlines()) == found["went"]["documents"]
