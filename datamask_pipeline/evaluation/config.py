"""What an evaluation depends on, as plain values.

Knows no torch, no lm-eval and no files: it is safe to import where the asset graph is built.
"""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from datamask_pipeline.settings import Settings, each_once, execution_field

LOCAL = "local"
HUB = "hub"


class HubConfig(Settings):
    """Where the hub's questions are taken from: only for `questions: hub`."""

    revisions: dict[str, str] = Field(
        default_factory=dict,
        description="Task -> commit of its data set; a task without an entry takes the one that docs/evaluation.md names.",
    )
    endpoint: str | None = execution_field(None, description="Another server that speaks the hub's protocol.")
    cache_dir: str | None = execution_field(
        None, description="Where downloads are kept; null: the hub's own cache."
    )


class QuestionsConfig(Settings):
    """What is asked. The defaults suit a demonstration."""

    questions: str = Field(
        LOCAL,
        min_length=1,
        description="`local` makes small question sets out of the held-out documents; `hub` takes the published ones "
        "from the Hugging Face hub, each at a pinned commit; anything else is a directory of question files in JSONL, "
        "Parquet or CSV.",
    )
    question_files: dict[str, str] = Field(
        default_factory=dict,
        description="Task -> glob below `questions`, or in the task's data set on the hub. A task without an entry takes "
        "`<task>.*`, or of `<task>/` the split that lm-eval asks. Layouts are recognised by their columns.",
    )
    hub: HubConfig = Field(
        default_factory=HubConfig, description="Commits of the hub's data sets, and where it is."
    )
    demonstration_files: dict[str, str] = Field(
        default_factory=dict,
        description="Task -> glob of the solved examples for few-shot prompts. A task without an entry takes the split "
        "that lm-eval takes; from a set of one file, questions that are then not asked.",
    )
    tasks: list[str] = Field(
        default_factory=list,
        description="Names of the benchmark tasks to run; none named means the paper's twelve. Beside them: arc_easy, "
        "commonsense_qa, and any of lm-eval's own by its name there.",
    )
    _tasks_once = field_validator("tasks")(each_once)

    questions_per_task: int = Field(
        40, ge=1, description="At most so many questions a task, chosen by a hash of question and seed."
    )
    shots: int = Field(0, ge=0, le=32, description="Solved examples before each question.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the choice of questions and of wrong answers.")
    fewshot_seed: int = Field(
        1234,
        ge=0,
        lt=2**32,
        description="Seed by which solved examples are drawn, as lm-eval's setting of that name.",
    )
    curated: str | None = Field(
        None,
        min_length=1,
        description="File, folder or glob of curated documents in JSONL, Parquet or CSV, such as a few that were chosen by "
        "hand: bits per byte of these are measured beside those of held-out documents. Null: of none.",
    )
    curated_column: str = Field("text", min_length=1, description="Column of their text.")


class DecontaminationConfig(Settings):
    """Which questions, and curated documents, the pool's documents are held against before any is selected."""

    questions: str | None = Field(
        None,
        min_length=1,
        description="`hub`, or a directory of question files, as `evaluate.questions`; every question of the splits asked "
        "counts. Null: `curated` alone.",
    )
    question_files: dict[str, str] = Field(
        default_factory=dict, description="Task -> glob below `questions`, as `evaluate.question_files`."
    )
    hub: HubConfig = Field(default_factory=HubConfig, description="As `evaluate.hub`.")
    tasks: list[str] = Field(
        default_factory=list,
        description="Names of the benchmark tasks; none named means the paper's twelve, whatever `evaluate.tasks` asks "
        "beside them.",
    )
    _tasks_once = field_validator("tasks")(each_once)

    ngram: int = Field(
        13,
        ge=1,
        description="A document that has so many words in a row of a question, or of a curated document, is left out; 13 "
        "and 8 are usual.",
    )
    curated: str | None = Field(
        None, min_length=1, description="Curated documents, as `evaluate.curated`; null: none."
    )
    curated_column: str = Field("text", min_length=1, description="Column of their text.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.questions is None and self.curated is None:
            raise ValueError("documents are held against nothing; give `questions` or `curated`")
        if self.questions is None and (self.tasks or self.question_files or self.hub != HubConfig()):
            raise ValueError("tasks, question_files and hub are of `questions`; give it, or leave them out")
        return self

    @field_validator("questions")
    @classmethod
    def _a_folder(cls, questions: str | None) -> str | None:
        if questions == LOCAL:
            raise ValueError(
                "questions of `local` are made of the pool's own held-out documents, so they come after it; name a "
                "directory of question files or `hub`, or see `datamask audit contamination`"
            )
        return questions


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
