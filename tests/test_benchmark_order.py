"""Every benchmark can be asked for by its name."""

from importlib import import_module
from pkgutil import iter_modules

import benchmarks
from benchmarks.__main__ import ORDER


def test_every_benchmark_is_in_the_order() -> None:
    modules = [
        module.name
        for module in iter_modules(benchmarks.__path__)
        if module.name != "__main__" and hasattr(import_module(f"benchmarks.{module.name}"), "QUESTION")
    ]
    assert sorted(modules) == sorted(ORDER)
