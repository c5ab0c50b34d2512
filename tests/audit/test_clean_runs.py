"""No false alarm: what every metric, policy and kind of budget leaves in the record is proved."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.pipeline import Pipeline, load_config

ARMS: dict[str, dict[str, Any]] = {
    "disf": {"diversity": "DiSF_uncentred"},
    "facility": {"diversity": "Facility"},
    "mixture": {"diversity": {"Facility": 0.5, "Pair_simi": 0.5}},
    "greedy": {"policy": "greedy"},
    "topk": {"policy": "quality_topk"},
    "semdedup": {"policy": "semdedup"},
    "gradient": {"policy": "policy_gradient"},
    "quotas": {"quotas": {"tiny-2024-10": 0.5, "tiny-2024-18": 0.5}},
    "pruned": {"quality_pruning": 0.3},
    "tokens": {"num_tokens": 2_000},
    "documents": {"num_documents": 11},
    "blocks": {"block_rows": 30},
    "unscaled": {"normalisation": "none"},
    "diversity": {"lamb": 0.0},
    "quality": {"lamb": 1.0},
    "zscore": {"score_normalisation": "zscore"},
    "seeded": {"seed": 3},
    "everything": {"ratio": 1.0},
}


@pytest.fixture(scope="module")
def pipeline(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The tiny record with many arms, as far as their subsets."""
    record = tmp_path_factory.mktemp("clean") / "record"
    shutil.copytree(tiny_run.store.root, record)
    arms = {f"arms.{arm}": {"policy": "datamask", **own} for arm, own in ARMS.items()}
    config = str(Path(tiny_run.store.root).parent / "tiny.yaml")
    pipeline = Pipeline(load_config(config, {"store": str(record), **arms}))
    for _, _, call in pipeline.steps("first", until="materialise"):
        call()
    return pipeline


@pytest.mark.parametrize("arm", ARMS)
def test_a_clean_run_is_proved(pipeline: Pipeline, arm: str) -> None:
    findings = list(prove_record(pipeline.store, "first", arm))
    assert [finding.line() for finding in findings if finding.kind == "contradiction"] == []
    # Of the other bounds, all that is needed is stored.
    assert all("bound" in finding.problem for finding in findings)
    assert not findings or arm in ("facility", "disf")
