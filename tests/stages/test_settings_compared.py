"""Settings of a record beside those of a configuration, where a manifest states them in its own way."""

from typing import Any

import pytest

from datamask_pipeline.stages import compare, decontaminate, embed, pool, score
from datamask_pipeline.stages.embed import EmbedConfig
from datamask_pipeline.stages.pool import PoolConfig
from datamask_pipeline.stages.score import ScoreConfig

COMPUTED = {"model": "sha256:1", "pooling": "mean", "prefix": "", "max_tokens": 32, "dtype": "bfloat16"}
IMPORTED = {"imported_id_column": "id", "imported_vector_column": "v", "imported_model": "m"}
IMPORTED |= {"imported_revision": "1"}


def differing(found: Any) -> list[tuple[str, Any, Any]]:
    return [(name, before, now) for name, before, now in found if before != now]


def test_of_vectors_from_a_file_the_columns_are_compared() -> None:
    given = EmbedConfig(imported_file="v.parquet", imported_vector_column="w", imported_model="m")
    given = given.model_copy(update={"imported_revision": "1"})
    assert differing(embed.compared(given, IMPORTED)) == [("imported_vector_column", "v", "w")]


@pytest.mark.parametrize(
    ("given", "recorded"), [(EmbedConfig(), IMPORTED), (EmbedConfig(imported_file="v.parquet"), COMPUTED)]
)
def test_vectors_from_a_file_are_told_from_computed_ones(
    given: EmbedConfig, recorded: dict[str, Any]
) -> None:
    assert [name for name, *_ in differing(embed.compared(given, recorded))] == ["imported_file"]


def test_what_the_machine_chose_differs_from_nothing() -> None:
    given = EmbedConfig(encoder="someone/model", revision="a" * 40, max_tokens=32)
    recorded = COMPUTED | {"model": f"someone/model@{'b' * 40}", "batch_tokens": 4096}
    found = {name: now for name, _, now in differing(embed.compared(given, recorded))}
    assert found["encoder"] == f"someone/model@{'a' * 40}"
    assert not {"dtype", "batch_tokens"} & found.keys()


def test_options_of_a_scorer_are_compared() -> None:
    recorded = {"scorers": [{"name": "column:edu", "column": "edu", "higher_is_better": True}]}
    given = ScoreConfig(scorers=("column:edu",), options={"column:edu": {"column": "other"}})
    assert differing(score.compared(given, recorded)) == [("options.column:edu.column", "edu", "other")]


def test_what_the_pool_is_held_against_is_no_setting_and_how_is_one() -> None:
    given = PoolConfig.model_validate({"decontaminate": {"questions": "gold", "ngram": 8, "tasks": ["piqa"]}})
    recorded = given.result_config() | {"decontaminate": {"questions": "taken in", "ngram": 13}}
    assert differing(pool.compared(given, recorded)) == [("decontaminate.ngram", 13, 8)]
    recorded = {"tasks": [], "question_files": {}}
    assert differing(decontaminate.compared(given, recorded)) == [("decontaminate.tasks", [], ["piqa"])]


def test_a_baseline_that_is_not_named_is_what_it_stands_for() -> None:
    recorded = {"baseline": "random", "arms": ["top", "random"], "runs": []}
    open_, named = compare.CompareConfig(), compare.CompareConfig(baseline="random")
    assert [*compare.compared(open_, recorded)] == [*compare.compared(named, recorded)]
    assert [*compare.compared(open_, {**recorded, "arms": ["top", "joint"]})] == [
        ("baseline", "random", "top")
    ]
