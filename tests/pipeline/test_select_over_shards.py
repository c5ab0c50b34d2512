"""Stage `select` over shards: the same artefact from one process and from two, and a proof finds nothing wrong with it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.audit.recompute import check_selection
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.stages.select import SelectConfig
from datamask_pipeline.storage import Ref, Store

ARM: dict[str, Any] = {
    "policy": "datamask",
    "over": "shards",
    "diversity": "DiSF_uncentred",
    "chunk_rows": 64,
}


def selected(config_file: Path, record: Path, store: Path, workers: int, **arm: Any) -> tuple[Pipeline, Ref]:
    shutil.copytree(record, store)
    changes = {
        "store": str(store),
        "compute": {"workers": workers},
        "arms": {"random": {"policy": "random"}, "datamask": ARM | arm},
    }
    pipeline = Pipeline(load_config(str(config_file), changes))
    ref, _ = pipeline.run("select", "first", "datamask")
    return pipeline, ref


def findings(pipeline: Pipeline, ref: Ref) -> list[Any]:
    store: Store = pipeline.store
    inputs = {
        argument: store.current(*of)
        if isinstance(of, tuple)
        else {k: store.current(*v) for k, v in of.items()}
        for argument, of in pipeline.inputs(_select(), ref.key).items()
    }
    return list(
        check_selection(store, ref, store.manifest(ref), inputs["index"], inputs["embeddings"])  # type: ignore[arg-type]
    )


def _select() -> Any:
    from datamask_pipeline.pipeline.flow import FLOW

    return FLOW.stage("select")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "budget",
    [
        {"quotas": {"tiny-2024-10": 0.4, "*": 0.6}},
        {"num_tokens": 150, "diversity": "Pair_simi", "ratio": None},
        {"diversity": "Facility"},
    ],
)
def test_one_process_and_two_make_one_artefact_that_is_proved(
    budget: dict[str, Any], tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = Path(tiny_run.store.root)
    one, ref = selected(tiny_config_file, record, tmp_path / "one", 1, **budget)
    manifest = one.store.manifest(ref)
    assert findings(one, ref) == []
    (block,) = manifest["metadata"]["blocks"]
    assert block["record"]["learner"]["over"] == "shards"
    if "num_tokens" in budget:
        assert block["record"]["rows_too_long"] > 0
    if "num_tokens" not in budget:
        assert block["certificate"]["bound"] >= block["objective"]["value"]
    if "quotas" in budget:
        _, other = selected(tiny_config_file, record, tmp_path / "two", 2, **budget)
        assert (other.fingerprint, other.content_digest) == (ref.fingerprint, ref.content_digest)


def test_blocks_have_the_fingerprint_they_always_had() -> None:
    assert "over" not in SelectConfig.of({"policy": "datamask"}).result_config()
    assert SelectConfig.of({"policy": "datamask", "over": "shards"}).result_config()["over"] == "shards"


def test_what_cannot_go_over_shards_is_refused_before_any_work(tiny_config_file: Path) -> None:
    pipeline = Pipeline(
        load_config(
            str(tiny_config_file), {"arms": {"facility": ARM | {"diversity": {"Facility": 1, "DiSF": 1}}}}
        )
    )
    with pytest.raises(
        ConfigurationError, match=r"arms.facility.over: over shards metrics must be of moments"
    ):
        pipeline.check()
