"""lm-eval's own task definitions: found by path or by name, read without running any of their code.

Knows no question and no model. A task that cannot be asked question by question from files, or whose code we do not run,
is refused here, with the reason.
"""

import importlib
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from datamask_pipeline.errors import ConfigurationError

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML without libyaml, which is slower
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

#: What lm-eval reads a generation's length from, the first that is there; and its length where none is.
_GENERATED: Final = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_GENERATED_BY_DEFAULT: Final = 256
#: Metrics that are fractions, the one that stands for a task first.
_FRACTIONS: Final = ("acc_norm", "acc", "exact_match", "em", "f1")
_OUTPUTS: Final = ("multiple_choice", "loglikelihood", "generate_until")
#: Code that fetches what no commit pins: another metric's code, or another data set.
_FETCHES: Final = re.compile(r"\b(load_metric|load_dataset|evaluate\.load)\(")


class Function(str):
    """A function that a definition names, as `module.function`; it is not run here."""

    __slots__ = ()


class _Plain(_SafeLoader):
    """YAML in which a function is its name."""


_Plain.add_constructor("!function", lambda loader, node: Function(node.value))


@cache
def stock_tasks() -> Path:
    """lm-eval's tasks, located without importing it."""
    spec: Any = importlib.util.find_spec("lm_eval")
    return Path(spec.submodule_search_locations[0]) / "tasks"


def stock_file(name: str) -> Path:
    """The definition of that path below lm-eval's tasks.

    Raises:
        ConfigurationError: lm-eval has none.
    """
    found = stock_tasks() / name
    if not found.is_file():
        raise ConfigurationError(f"no task definition {name!r} in lm-eval; install lm-eval 0.4.13 or later")
    return found


def includes_of(definition: Mapping[str, Any]) -> list[str]:
    """The definitions that this one includes, as it writes them."""
    includes = definition.get("include", [])
    return [includes] if isinstance(includes, str) else includes


def read_definition(path: Path) -> dict[str, Any]:
    """What a definition says, those that it includes among it; its own keys win."""
    content = yaml.load(path.read_text(encoding="utf-8"), _Plain)
    merged: dict[str, Any] = {}
    for name in includes_of(content):
        merged |= read_definition(path.parent / name)
    return merged | content


@cache
def file_of_task(name: str) -> Path | None:
    """The YAML that defines lm-eval's task of that name, the first by path as in lm-eval's own index; None: there is none.

    Raises:
        ConfigurationError: It is the name of several tasks, or of a class.
    """
    for path in _files_with(name):
        try:
            definition = read_definition(path)
        except (yaml.YAMLError, AttributeError, OSError):
            continue  # as lm-eval, which lists what it can read
        if definition.get("group", definition.get("task")) != name:
            continue
        if "class" in definition:
            raise ConfigurationError(
                f"lm-eval's task {name!r} is a Python class, not a definition; it cannot be asked from question files"
            )
        if "group" in definition:
            raise ConfigurationError(
                f"{name!r} is a group of tasks in lm-eval; name those of its tasks that are to be asked: "
                f"{_members(definition)}"
            )
        return path
    return None


def _files_with(name: str) -> Iterator[Path]:
    text = name.encode()
    return (path for path, content in _definitions() if text in content)


@cache
def _definitions() -> list[tuple[Path, bytes]]:
    """The files of lm-eval's tasks, by path, and what they hold: some seven megabytes."""
    paths = [
        Path(folder, name)
        for folder, _, names in os.walk(stock_tasks())
        for name in names
        if name.endswith(".yaml")
    ]
    return [(path, path.read_bytes()) for path in sorted(paths, key=Path.as_posix)]


def _members(group: Mapping[str, Any]) -> str:
    members = group.get("task") or []
    names = [str(item.get("task", item)) if isinstance(item, dict) else str(item) for item in members]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if names[12:] else "")


def headline_metric(task: str, definition: Mapping[str, Any]) -> str:
    """The metric that stands for a task: `acc_norm` before `acc` and others, a mean over its questions.

    Raises:
        ConfigurationError: It has none that is a fraction, or one whose code lm-eval would fetch.
    """
    from lm_eval.api import registry

    importlib.import_module("lm_eval.api.metrics")  # registers lm-eval's own
    listed = definition.get("metric_list")
    if listed is None:
        names = registry.DEFAULT_METRIC_REGISTRY[definition["output_type"]]
        listed = [{"metric": name} for name in names]
    means = []
    for each in listed:
        name = each["metric"]
        known = name in registry.metric_registry and not each.get("hf_evaluate")
        if not (known or isinstance(name, Function) or definition.get("process_results")):
            raise ConfigurationError(
                f"lm-eval's task {task!r} is scored by {name!r}, whose code lm-eval would fetch from the hub at no fixed "
                "version; code from elsewhere is not run"
            )
        given = each.get("aggregation")
        averaged = given == "mean" or (given is None and known and _is_mean(registry, name))
        if averaged and each.get("higher_is_better", True):
            means.append(str(name))
    found = [name for name in _FRACTIONS if name in means]
    if not found:
        raise ConfigurationError(
            f"lm-eval's task {task!r} has no metric that is a share of its questions, but "
            f"{', '.join(str(each['metric']) for each in listed) or 'none'}; needed is one of: {', '.join(_FRACTIONS)}"
        )
    return found[0]


def _is_mean(registry: Any, metric: str) -> bool:
    return bool(registry.get_metric_aggregation(metric) is registry.get_aggregation("mean"))


def refuse_what_cannot_be_asked(task: str, path: Path, definition: Mapping[str, Any]) -> None:
    """Refuse a task whose questions cannot be read from files, or whose code is not to be run.

    Raises:
        ConfigurationError: It is one, with the reason.
    """
    reason = _why_not(path, definition)
    if reason is not None:
        raise ConfigurationError(f"lm-eval's task {task!r} cannot be asked: {reason}")


def _why_not(path: Path, definition: Mapping[str, Any]) -> str | None:
    output = definition.get("output_type", "generate_until")
    if output not in _OUTPUTS:
        return (
            f"its output type is {output!r}; those that can are {', '.join(_OUTPUTS)}. How well a model predicts whole "
            "texts is measured on held-out documents anyway"
        )
    if definition.get("unsafe_code"):
        return "it runs the programs that a model writes"
    if definition.get("custom_dataset"):
        return "its questions are made by code, not read from files"
    for key in ("doc_to_image", "doc_to_audio", "use_prompt"):
        if definition.get(key):
            return f"it needs {key!r}"
    if definition.get("repeats", 1) != 1:
        return "it asks each question several times"
    if _is_drawn(definition.get("generation_kwargs") or {}):
        return "its answers are drawn at random"
    if not (definition.get("test_split") or definition.get("validation_split")):
        return "it names neither a test nor a validation split"
    for module in _modules(path.parent, definition):
        if found := _FETCHES.search(module.read_text(encoding="utf-8")):
            return (
                f"its code ({module.relative_to(stock_tasks()).as_posix()}) calls {found[1]}, which fetches from the hub at "
                "no fixed version"
            )
    return None


def _is_drawn(settings: Mapping[str, Any]) -> bool:
    """Without `do_sample`, lm-eval draws where there is a temperature."""
    return bool(settings.get("do_sample", float(settings.get("temperature") or 0) > 0))


def max_generated(definition: Mapping[str, Any]) -> int:
    """Tokens that lm-eval keeps free for a generated answer; 0: the task scores given ones."""
    if definition.get("output_type", "generate_until") != "generate_until":
        return 0
    settings = definition.get("generation_kwargs") or {}
    given = [int(settings[name]) for name in _GENERATED if settings.get(name) is not None]
    return given[0] if given else _GENERATED_BY_DEFAULT


def _modules(folder: Path, definition: Mapping[str, Any]) -> set[Path]:
    """Python files that its functions are in; a definition that is included may lie in another folder."""
    named = {str(item).rpartition(".")[0].replace(".", "/") for item in _functions(definition)}
    folders = [folder, *(parent for parent in folder.parents if stock_tasks() in parent.parents)]
    return {file for name in named for of in folders if (file := of / f"{name}.py").is_file()}


def _functions(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _functions(inner)
