"""Whoever follows a recipe of the documentation to the letter gets a member that is found."""

from pathlib import Path

from datamask_pipeline import families

ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_the_recipe_says_by_what_a_family_finds_its_members() -> None:
    """A file that does not name its class in this attribute is passed over without a word."""
    recipe = ARCHITECTURE.read_text(encoding="utf-8").split("## How to add")[1].split("\n## ")[0]
    found = [each for each in vars(families).values() if isinstance(each, families.Family)]
    assert len(found) == 7
    assert [family.kind for family in found if f"`{family.attribute} = " not in recipe] == []
