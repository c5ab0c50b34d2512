"""The report says where models saw a part of an arm alone, and where they read one more often than another."""

import pytest

from datamask_pipeline.report.arms import _about_epochs


@pytest.mark.parametrize(
    ("epochs", "told"),
    [
        ((0.16, 0.29), ["models saw 16% of random, 29% of datamask: `pretrain.token_budget` says how much is read"]),
        ((0.5, 1.0), ["models saw 50% of random: `pretrain.token_budget` says how much is read"]),
        ((1.0, 1.0), []),
        ((2.0, 2.05), []),
        ((2.0, 4.0), ["arms of fewer tokens were read more often (random 2.0000 times, datamask 4.0000 times): "
                      "`select.num_tokens` makes their tokens equal"]),
        ((None, None), []),
    ],
)  # fmt: skip
def test_times_read_are_told_as_what_they_are(
    epochs: tuple[float | None, float | None], told: list[str]
) -> None:
    arms = [{"arm": arm, "epochs": times} for arm, times in zip(("random", "datamask"), epochs, strict=True)]
    assert _about_epochs(arms) == told
