"""Licences as the hub spells them, and none that nobody gave."""

import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.publish.licences import check_released_under, spelt

COMMONS = "https://creativecommons.org"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (f"{COMMONS}/licenses/by-sa/4.0/", "cc-by-sa-4.0"),
        (f"{COMMONS}/licenses/by/3.0/deed.de", "cc-by-3.0"),
        (f"{COMMONS}/publicdomain/zero/1.0/", "cc0-1.0"),
        ("CC0", "cc0-1.0"),
        ("ODC_By 1.0", "odc-by"),
    ],
)
def test_a_licence_is_spelt_as_the_hub_does(said: str, expected: str) -> None:
    assert spelt(said) == expected


def test_a_mark_of_the_public_domain_is_no_licence() -> None:
    mark = f"{COMMONS}/publicdomain/mark/1.0/"
    assert spelt(mark) == mark
    with pytest.raises(InputError, match="a licence whose terms are not known here"):
        check_released_under("odc-by", [spelt(mark)])
