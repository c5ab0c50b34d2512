"""The benchmark tasks there are: ours, one YAML each in the folder `tasks`, and any other of lm-eval's by its name.

Knows no question and no model. A task's YAML includes lm-eval's stock one by its path below lm-eval's
`tasks` folder; our own key `benchmark` says how the pipeline treats it. Of a task without a YAML of ours the same is
made out of what lm-eval's definition says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.evaluation import stock
from datamask_pipeline.evaluation.layouts.base import Layout
from datamask_pipeline.families import LAYOUTS

_OURS = Path(__file__).parent / "tasks"
_ORDER = (  # of the paper's tables
    *("race_high", "race_middle", "hellaswag", "nq_open", "openbookqa", "kqapro"),
    *("mmlu", "triviaqa", "arc_challenge", "social_iqa", "piqa", "winogrande"),
)


@dataclass(frozen=True)
class Benchmark:
    """A task: its name, the paper's label, the one metric that stands for it, and its questions' layout.

    Attributes:
        definition: What its YAML says but for `benchmark`.
        split: The split that is asked, as lm-eval chooses: test, else validation.
        examples_split: The split of the solved examples; None: the set has none but what is asked.
        sampler: How lm-eval draws them: `default`, at random, or `first_n`.
        spares_question: Whether lm-eval draws one more, and leaves out the question itself.
        repository: The data set's name on the hub, `owner/name`.
        configuration: The part of the data set that the task takes.
        revision: The commit of the repository that `hub_files` was written for.
        hub_files: Split -> pattern of its files in the repository (`fnmatch`: `*` stands for folders too).
        beside: Whether it is asked only where it is named.
        max_generated: Tokens that lm-eval keeps free for an answer that it generates; 0: it scores given ones.
        no_examples: Why solved examples cannot be shown; None: they can.
    """

    task: str
    label: str
    metric: str
    layout: str
    definition: dict[str, Any]
    split: str
    examples_split: str | None = None
    sampler: str = "default"
    spares_question: bool = False
    repository: str | None = None
    configuration: str | None = None
    revision: str | None = None
    hub_files: dict[str, str] = field(default_factory=dict)
    beside: bool = False
    max_generated: int = 0
    no_examples: str | None = None
    layout_options: dict[str, Any] = field(default_factory=dict)

    def make_layout(self) -> Layout:
        """Its questions' layout, built.

        Raises:
            UnknownNameError: There is none of that name.
            ConfigurationError: An option of the layout is wrong.
        """
        return LAYOUTS.make(self.layout, self.layout_options, f"{self.task}.yaml: layout_options")


@cache
def all_benchmarks() -> dict[str, Benchmark]:
    """Every task of ours by its name: the paper's twelve in their order, then others by name."""
    found = {}
    for path in _OURS.glob("[!_]*.yaml"):
        content = yaml.safe_load(path.read_text())
        found[content["task"]] = _benchmark(content)
    rank = {task: place for place, task in enumerate(_ORDER)}
    return {task: found[task] for task in sorted(found, key=lambda task: (rank.get(task, len(rank)), task))}


def benchmarks_named(names: Iterable[str], where: str = "") -> list[Benchmark]:
    """The tasks of these names in canonical order, lm-eval's others last; for no name, the paper's twelve.

    Args:
        names: Their names.
        where: Path of the setting that gives them.

    Raises:
        UnknownNameError: A name that neither a task of ours nor one of lm-eval's carries.
        ConfigurationError: A task of lm-eval's that cannot be asked.
    """
    known, wanted = all_benchmarks(), set(names)
    ours = [
        benchmark for task, benchmark in known.items() if task in wanted or not (wanted or benchmark.beside)
    ]
    return ours + [_stock_benchmark(name, where) for name in sorted(wanted - set(known))]


def render(benchmark: Benchmark, folder: Path, *, questions: Path, demonstrations: Path | None) -> None:
    """Write the task definition lm-eval reads: includes made absolute, the local files filled in."""
    definition = dict(benchmark.definition)
    definition["include"] = [str(_included(name)) for name in stock.includes_of(definition)]
    files = {"questions": str(questions)}
    if demonstrations is not None:
        files["demonstrations"] = str(demonstrations)
        definition["fewshot_split"] = "demonstrations"
    definition["dataset_kwargs"] = files
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{benchmark.task}.yaml").write_text(yaml.safe_dump(definition, sort_keys=False))


def _benchmark(content: dict[str, Any]) -> Benchmark:
    """The task that a YAML of ours describes."""
    definition = {key: value for key, value in content.items() if key != "benchmark"}
    stated: dict[str, Any] = {}
    for name in stock.includes_of(definition):
        if not (_OURS / name).is_file():
            stated |= stock.read_definition(stock.stock_file(name))
    about = _about_data(stated) | content["benchmark"]
    about["max_generated"] = stock.max_generated(stated | definition)
    return Benchmark(content["task"], **about, definition=definition)


@cache
def _stock_benchmark(name: str, where: str) -> Benchmark:
    """lm-eval's task of that name, as if it had a YAML of ours."""
    path = stock.file_of_task(name)
    if path is None:
        remedy = "or any task of lm-eval's, which `lm-eval ls tasks` lists"
        raise UnknownNameError("benchmark task", name, all_benchmarks(), where, remedy=remedy)
    stated = stock.read_definition(path)
    stock.refuse_what_cannot_be_asked(name, path, stated)
    place = path.relative_to(stock.stock_tasks()).as_posix()
    data = _about_data(stated)
    folder = stated.get("dataset_name") or "default"
    folder = "data" if folder == "default" else folder
    splits = {split for split in (data["split"], data["examples_split"]) if split is not None}
    about = {
        "label": name,
        "metric": stock.headline_metric(name, stated),
        "layout": "stock",
        "layout_options": {"definition": place},
        "beside": True,
        "hub_files": {
            split: f"{folder}/{split}-*" for split in sorted(splits)
        },  # as `push_to_hub` writes them
        "no_examples": _why_no_examples(stated),
    }
    # The rows are prepared as `process_docs` leaves them.
    return _benchmark(
        {"benchmark": about, "include": [place, "_local.yaml"], "task": name, "process_docs": None}
    )


def _why_no_examples(stated: dict[str, Any]) -> str | None:
    settings = stated.get("fewshot_config") or {}
    if isinstance(settings.get("sampler"), stock.Function):
        return "lm-eval draws them by a sampler of the task's own"
    others = sorted(set(settings) - {"sampler", "split"})
    return f"lm-eval makes them in a way of the task's own: {', '.join(others)}" if others else None


def _about_data(stated: dict[str, Any]) -> dict[str, Any]:
    """Which data the stock task reads, and which split for what."""
    if not stated:
        return {}
    training, validation, test = (stated.get(f"{name}_split") for name in ("training", "validation", "test"))
    repository = stated.get("dataset_path")
    return {
        "split": test or validation,
        "examples_split": stated.get("fewshot_split") or training or validation or test,
        "sampler": (stated.get("fewshot_config") or {}).get("sampler", "default"),
        "spares_question": stated.get("fewshot_split") == test,
        # Without an owner it is a reader of files, such as `json`.
        "repository": repository if "/" in str(repository) else None,
        "configuration": stated.get("dataset_name"),
    }


def _included(name: str) -> Path:
    """Ours if it stands beside the task's YAML, else lm-eval's."""
    return _OURS / name if (_OURS / name).is_file() else stock.stock_file(name)
