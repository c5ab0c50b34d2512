"""What the prose states of an experiment is what its report states: a new report leaves no older figure behind."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "experiments").glob("*.md")))


def intervals(text: str) -> set[tuple[float, float]]:
    """Differences and half widths, without their signs, which prose says in words."""
    found = re.findall(r"(\d*\.\d+) ± (\d*\.\d+)", text)
    return {(float(difference), float(half_width)) for difference, half_width in found}


@pytest.mark.parametrize(
    ("page", "section"),
    [
        ("choosing.md", r"- \*\*Length\.\*\*.*?(?=\n- )"),
        ("experiments.md", r"### The second networks\n.*?(?=\n### )"),
        ("experiments.md", r"### What the sweep found\n.*?(?=\n## )"),
    ],
)
def test_intervals_of_the_prose_stand_in_a_report(page: str, section: str) -> None:
    match = re.search(section, (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    stated = intervals(match.group())
    assert len(stated) >= 3
    assert stated <= intervals(REPORTS)
