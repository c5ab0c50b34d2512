"""What an evaluation depends on, as plain values.

Knows no torch, no lm-eval and no files: it is safe to import where the asset graph is built.
"""

from typing import Literal

from pydantic import Field, field_validator

from datamask_pipeline.settings import Settings, each_once, execution_field

LOCAL = "local"


class QuestionsConfig(Settings):
    """What is asked. The defaults suit a demonstration."""

    questions: str = Field(
        LOCAL,
        min_length=1,
        description="`local` makes small question sets out of the held-out documents; anything else is a "
        "directory of question files in JSONL, Parquet or CSV.",
    )
    question_files: dict[str, str] = Field(
        default_factory=dict,
        description="Task -> glob below `questions`. A task without an entry takes `<task>.*`, else all files "
        "of `<task>/`. Layouts are recognised by their columns.",
    )
    demonstration_files: dict[str, str] = Field(
        default_factory=dict,
        description="Task -> glob of the solved examples for few-shot prompts. A task without an entry takes "
        "them from questions that are then not asked.",
    )
    tasks: list[str] = Field(
        default_factory=list, description="Names of the benchmark tasks to run; none named means all."
    )
    _tasks_once = field_validator("tasks")(each_once)

    questions_per_task: int = Field(
        40, ge=1, description="At most so many questions a task, chosen by a hash of question and seed."
    )
    shots: int = Field(0, ge=0, le=32, description="Solved examples before each question.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of every choice: questions, distractors, prompts.")


class EvaluateConfig(QuestionsConfig):
    """What is asked, and how."""

    batch_size: int = Field(32, ge=1, description="Sequences of one forward pass.")
    max_length: int = Field(
        256,
        ge=32,
        description="Tokens of a prompt with its answer; a longer prompt loses its beginning, a longer answer "
        "is refused. Answers are counted when the first model is evaluated, after its training: leave room. "
        "Beyond `pretrain.sequence_length` a model meets positions that it was not trained on.",
    )
    device: Literal["cpu", "cuda"] = execution_field("cpu", description="`cuda` is the first visible GPU.")
    threads: int = Field(1, ge=1, le=256, description="CPU threads; their number can change the last bits.")
