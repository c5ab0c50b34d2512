"""Evaluate: the twelve benchmarks on every checkpoint of a model, through lm-eval.

Two artefacts: the question sets of a release (built once, shared by its models) and one result table a run.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline import schema, texts
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.stages import pretrain as pretrain_stage
from datamask_pipeline.stages import tokenizer as tokenizer_stage
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "evaluate"
QUESTIONS_STAGE: Final = "questions"
VERSION: Final = "1"
TREE: Final = "questions"
