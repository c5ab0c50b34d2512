"""A licence that nobody looked at is refused, whatever stands beside it."""

import importlib.util
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    path = Path(__file__).parents[1] / ".ci" / "licences.py"
    spec = importlib.util.spec_from_file_location("licences", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "said",
    [
        *("MIT", "MIT-0", "MIT-CMU", "Apache 2.0 License", "BSD", "ISC License (ISCL)", "MPL-2.0 AND MIT"),
        *("BSD License; Apache Software License", "MIT OR GPL-2.0-only", "(MIT OR GPL-2.0) AND BSD-3-Clause"),
        "GNU Lesser General Public License v2 or later (LGPLv2+)",
        "Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND BSL-1.0 AND 0BSD",
    ],
)
def test_what_was_looked_at_is_allowed(licences: ModuleType, said: str) -> None:
    assert licences.is_allowed("package", said)


@pytest.mark.parametrize(
    "said",
    [
        *("not said", "Proprietary", "GPL-3.0-only", "AGPL-3.0", "CC-BY-NC-4.0", "", "BUSL-1.1"),
        *("MIT AND GPL-3.0-only", "GPL-3.0-only OR AGPL-3.0", "(MIT AND GPL-3.0) OR AGPL-3.0"),
        "GNU General Public License v3 (GPLv3); MIT License",
        "Other; see the disclaimer",
        "Free for non commercial use, simple terms",
        "MIT, for non-commercial use",
        "MIT or GPL, see the files",
    ],
)
def test_what_was_not_is_refused(licences: ModuleType, said: str) -> None:
    assert not licences.is_allowed("package", said)


def test_a_package_is_looked_at_with_every_extra_by_which_it_is_needed(
    licences: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be named without one before."""
    needs = {
        licences.PROJECT: ["plain", "other", "Plain[more] ; extra == 'ray'", "gone"],
        "plain": ["hidden ; extra == 'more'"],
        "other": ["plain"],
        "hidden": [],
    }

    def distribution(name: str) -> Any:
        if name not in needs:
            raise PackageNotFoundError(name)
        return SimpleNamespace(requires=needs[name], name=name)

    monkeypatch.setattr(licences, "distribution", distribution)
    assert sorted(dist.name for dist in licences.installed()) == ["hidden", "other", "plain"]
