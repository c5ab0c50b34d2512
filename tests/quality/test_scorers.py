"""What holds for every scorer there is, and what holds for the column scorer."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from datamask_pipeline import families
from datamask_pipeline.errors import ConfigurationError, InputError, UnknownNameError
from datamask_pipeline.families import SCORERS
from datamask_pipeline.quality import ScoreBatch, Scorer, Scores
from datamask_pipeline.settings import Settings, execution_field


def test_names_and_options_are_checked() -> None:
    assert {"rules", "probe", "column"} <= set(SCORERS.names())
    with pytest.raises(UnknownNameError, match="column"):
        SCORERS.make("no-such")
    with pytest.raises(ConfigurationError, match=r"rules\.temperature: unknown setting"):
        SCORERS.make("rules", {"temperature": 1})


def test_importing_the_family_imports_no_torch() -> None:
    code = (
        "import sys; from datamask_pipeline.families import SCORERS; SCORERS.names();"
        "import datamask_pipeline.stages.score, datamask_pipeline.stages.embed, datamask_pipeline.stages.ingest;"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def scored(values: pa.Array, **options: object) -> tuple[list[float], dict[int, str]]:
    documents = pa.table({"edu": values, "id": [f"d{row}" for row in range(len(values))]})
    found = SCORERS.make("column", {"column": "edu", **options}).score(ScoreBatch(documents))
    return found.values_N.tolist(), dict(found.missing)


def test_a_column_is_taken_as_it_stands_and_a_null_stays_missing() -> None:
    values, missing = scored(pa.array([1.5, None, 3.0, float("nan")]))
    assert (values[0], values[2]) == (1.5, 3.0)
    assert list(missing) == [1, 3]
    assert scored(pa.array([1, 4], pa.int32())) == ([1.0, 4.0], {})
    assert scored(pa.array([True, None, False]))[0][::2] == [1.0, 0.0]
    assert scored(pa.array([2**60])) == ([2.0**60], {}), "beyond what float64 holds exactly"
    assert scored(pa.array([2**60 + 1])) == ([2.0**60], {})


def test_a_column_where_lower_is_better_is_turned_around_with_its_scale() -> None:
    values, _ = scored(pa.array([1.0, 4.0]), higher_is_better=False, scale_min=0.0, scale_max=5.0)
    assert values == [-1.0, -4.0]
    scorer = SCORERS.make("column", {"higher_is_better": False, "scale_min": 0.0, "scale_max": 5.0})
    assert scorer.scale == (-5.0, 0.0)


def test_a_score_outside_of_the_scale_that_is_stated_is_refused() -> None:
    told = r"document 'd2' lies outside.* 0 to 5 \(field edu, value 5\.5\)"
    values = pa.array([0.0, None, 5.5, 5.0])
    for higher in (True, False):
        with pytest.raises(InputError, match=told):
            scored(values, scale_min=0.0, scale_max=5.0, higher_is_better=higher)
    assert scored(values, scale_min=0.0)[0][2] == 5.5
    with pytest.raises(ConfigurationError, match=r"scale_min 5\.0 is above scale_max 1\.0"):
        scored(values, scale_min=5.0, scale_max=1.0)


def test_a_column_of_words_is_refused() -> None:
    with pytest.raises(InputError, match="numbers are needed"):
        scored(pa.array(["good"]))


def test_the_probe_must_be_trained_first() -> None:
    with pytest.raises(ConfigurationError, match="not trained"):
        SCORERS.make("probe", {"examples": "labels.parquet"}).score(
            ScoreBatch(pa.table({"id": ["a"]}), np.ones((1, 768), np.float32))
        )


def test_a_probe_needs_examples() -> None:
    with pytest.raises(
        ConfigurationError, match="no examples are named; name a Parquet or JSON Lines file of them"
    ):
        SCORERS.make("probe", {"label_column": "good"})


class CountedConfig(Settings):
    at_most: int = 100
    threads: int = execution_field(1, description="How many.")


class CountedScorer(Scorer):
    """A member as another package may write it: it says nothing of its settings."""

    name = "counted"
    Config = CountedConfig
    scale = (0.0, None)
    model = "counted"
    revision = "1"

    def score(self, batch: ScoreBatch) -> Scores:
        lengths = [min(len(text), self.config.at_most) for text in batch.texts()]
        return Scores(np.asarray(lengths, np.float64))


def test_scores_of_another_packages_scorer_are_by_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "counted"

        def load(self) -> type[Scorer]:
            return CountedScorer

    monkeypatch.setattr("datamask_pipeline.families.entry_points", lambda group: [Point()])
    families._classes.cache_clear()
    try:
        plain = SCORERS.make("counted").identity()
        assert SCORERS.make("counted", {"at_most": 5}).identity() == plain | {"at_most": 5}
        assert SCORERS.make("counted", {"threads": 2}).identity() == plain
    finally:
        families._classes.cache_clear()


def test_our_own_scorers_tell_their_settings_by_themselves() -> None:
    """Else scores that stand in records would be computed again."""
    for name in SCORERS.names():
        scorer = SCORERS.find(name)
        assert scorer.told_by_revision or not scorer.Config.model_fields, name
    assert {*SCORERS.make("rules").identity()} == {"name", "model", "revision", "scale"}
