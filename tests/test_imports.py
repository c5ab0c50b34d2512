"""A submodule that a file reaches through its package is imported by that file, not by whoever happened to run before.

And every module of the package has its layer, as the page on the architecture shows them.
"""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for folder in ("datamask_pipeline", "assets", "resources", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
]


def reached_unimported(source: str) -> list[str]:
    """Names ``package.name`` that the file uses, that it does not import, and that the package alone lacks."""
    tree = ast.parse(source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return sorted(
        f"{package}.{name}"
        for package, name in set(_uses(tree))
        if not any(f"{module}.".startswith(f"{package}.{name}.") for module in imported)
        and not _has(package, name)
    )


def _uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """First attributes of every name that ``import`` binds to a package."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            yield bound[node.value.id], node.attr


@functools.cache
def _names_of(package: str) -> frozenset[str]:
    """What importing the package alone, in a fresh interpreter, makes reachable."""
    code = f"import importlib; m = importlib.import_module({package!r}); print(*dir(m), *vars(m))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return frozenset(run.stdout.split())


def _has(package: str, name: str) -> bool:
    return name in _names_of(package)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pyarrow as pa\npa.compute.sum", ["pyarrow.compute"]),
        ("import xml\nxml.dom.minidom.parse", ["xml.dom"]),
        ("import pyarrow as pa\nimport pyarrow.compute\npa.compute.sum", []),
        ("import xml.dom.minidom\nxml.dom.minidom.parse", []),
        ("import numpy as np\nnp.random.default_rng", []),
    ],
)
def test_a_forgotten_import_is_found(source: str, found: list[str]) -> None:
    assert reached_unimported(source) == found


@pytest.mark.slow
def test_every_file_imports_what_it_reaches_through_packages() -> None:
    wrong = {str(path.relative_to(ROOT)): reached_unimported(path.read_text()) for path in FILES}
    assert not {path: names for path, names in wrong.items() if names}


def layers_checked() -> list[set[str]]:
    """The layers of import-linter's contract, from the top: folders, and modules of the package by their bare names."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [
        {name.strip().removeprefix("datamask_pipeline.") for name in layer.split("|")} for layer in layers
    ]


def test_every_module_of_the_package_is_in_a_layer() -> None:
    """What is in none may import anything, and be imported by anything: nobody is told."""
    folder = ROOT / "datamask_pipeline"
    there = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    assert there - {"__init__"} | {"assets", "resources"} == set().union(*layers_checked())


def test_the_page_on_the_architecture_shows_the_layers_that_are_checked() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = re.findall(r"^(?:datamask_pipeline/(?:\{(.+?)\}|(\w+))|(assets|resources)/) ", text, re.MULTILINE)
    assert [set("".join(names).split(", ")) for names in shown] == layers_checked()
