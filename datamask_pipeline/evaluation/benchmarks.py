"""The benchmark tasks there are: one YAML each, in the folder `tasks`.

Knows no question and no model. A task's YAML includes lm-eval's stock one by its path below lm-eval's
`tasks` folder; our own key `benchmark` says how the pipeline treats it.
"""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from datamask_pipeline.errors import ConfigurationError, UnknownNameError
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
        split: The split that is asked, as lm-eval chooses: test, else validation.
        examples_split: The split of the solved examples; None: the set has none but what is asked.
        sampler: How lm-eval draws them: `default`, at random, or `first_n`.
        spares_question: Whether lm-eval draws one more, and leaves out the question itself.
        repository: The data set's name on the hub, `owner/name`.
        configuration: The part of the data set that the task takes.
        revision: The commit of the repository that `hub_files` was written for.
        hub_files: Split -> pattern of its files in the repository (`fnmatch`: `*` stands for folders too).
        beside: Whether it is asked only where it is named.
    """

    task: str
    label: str
    metric: str
    layout: str
    definition: Path
    split: str
    examples_split: str | None = None
    sampler: str = "default"
    spares_question: bool = False
    repository: str | None = None
    configuration: str | None = None
    revision: str | None = None
    hub_files: dict[str, str] = field(default_factory=dict)
    beside: bool = False
    layout_options: dict[str, Any] = field(default_factory=dict)

    def make_layout(self) -> Layout:
        """Its questions' layout, built.

        Raises:
            UnknownNameError: There is none of that name.
            ConfigurationError: An option of the layout is wrong.
        """
        return LAYOUTS.make(self.layout, self.layout_options, f"{self.definition.name}: layout_options")


@cache
def all_benchmarks() -> dict[str, Benchmark]:
    """Every task by its name: the paper's twelve in their order, then others by name."""
    found = {}
    for path in _OURS.glob("[!_]*.yaml"):
        content = yaml.safe_load(path.read_text())
        about = _about_data(_stock_definition(_includes(content))) | content["benchmark"]
        found[content["task"]] = Benchmark(content["task"], **about, definition=path)
    rank = {task: place for place, task in enumerate(_ORDER)}
    return {task: found[task] for task in sorted(found, key=lambda task: (rank.get(task, len(rank)), task))}


def benchmarks_named(names: Iterable[str], where: str = "") -> list[Benchmark]:
    """The tasks of these names in canonical order; for no name, all but those that stand beside the others.

    Args:
        names: Their names.
        where: Path of the setting that gives them.

    Raises:
        UnknownNameError: A name that no task carries.
    """
    known, wanted = all_benchmarks(), set(names)
    for name in sorted(wanted):
        if name not in known:
            raise UnknownNameError("benchmark task", name, known, where)
    return [
        benchmark for task, benchmark in known.items() if task in wanted or not (wanted or benchmark.beside)
    ]


def render(benchmark: Benchmark, folder: Path, *, questions: Path, demonstrations: Path | None) -> None:
    """Write the task definition lm-eval reads: includes made absolute, the local files filled in."""
    definition = yaml.safe_load(benchmark.definition.read_text())
    del definition["benchmark"]
    definition["include"] = [str(_included(name)) for name in _includes(definition)]
    files = {"questions": str(questions)}
    if demonstrations is not None:
        files["demonstrations"] = str(demonstrations)
        definition["fewshot_split"] = "demonstrations"
    definition["dataset_kwargs"] = files
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{benchmark.task}.yaml").write_text(yaml.safe_dump(definition, sort_keys=False))


def _about_data(stock: dict[str, Any]) -> dict[str, Any]:
    """Which data the stock task reads, and which split for what."""
    if not stock:
        return {}
    training, validation, test = (stock.get(f"{name}_split") for name in ("training", "validation", "test"))
    return {
        "split": test or validation,
        "examples_split": stock.get("fewshot_split") or training or validation or test,
        "sampler": (stock.get("fewshot_config") or {}).get("sampler", "default"),
        "spares_question": stock.get("fewshot_split") == test,
        "repository": stock["dataset_path"],
        "configuration": stock.get("dataset_name"),
    }


def _includes(definition: dict[str, Any]) -> list[str]:
    includes = definition.get("include", [])
    return [includes] if isinstance(includes, str) else includes


def _stock_definition(names: Iterable[str], folder: Path | None = None) -> dict[str, Any]:
    """What lm-eval's own definitions say, those that they include among them."""
    found: dict[str, Any] = {}
    for name in names:
        path = _included(name) if folder is None else folder / name
        if path.parent != _OURS:
            content = yaml.load(path.read_text(), _Plain)
            found |= _stock_definition(_includes(content), path.parent) | content
    return found


class _Plain(yaml.SafeLoader):
    """YAML in which a function's name is a text."""


_Plain.add_constructor("!function", lambda loader, node: str(node.value))


def _included(name: str) -> Path:
    """Ours if it stands beside the task's YAML, else lm-eval's."""
    if (_OURS / name).is_file():
        return _OURS / name
    stock = _stock_tasks() / name
    if not stock.is_file():
        raise ConfigurationError(f"no task definition {name!r} in lm-eval; install lm-eval 0.4.13 or later")
    return stock


@cache
def _stock_tasks() -> Path:
    """lm-eval's tasks, located without importing it."""
    spec: Any = importlib.util.find_spec("lm_eval")
    return Path(spec.submodule_search_locations[0]) / "tasks"
