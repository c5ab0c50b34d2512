"""Which benchmarks rank data sets at small sizes as they do at 1 B parameters: what was published. Measures nothing."""

from typing import Final

#: Of each task, the share of pairs of corpora that models of 150 M and of 300 M parameters rank as models of 1 B do.
#: One half is a coin. Source: Allen Institute for AI, signal-and-noise, table of decision accuracy.
DECISION_ACCURACY: Final = {
    "arc_easy": (0.93, 0.95),
    "mmlu": (0.89, 0.91),
    "arc_challenge": (0.83, 0.86),
    "hellaswag": (0.74, 0.83),
    "piqa": (0.74, 0.71),
    "commonsense_qa": (0.69, 0.79),
    "openbookqa": (0.65, 0.70),
    "social_iqa": (0.55, 0.76),
    "winogrande": (0.50, 0.57),
    "boolq": (0.48, 0.56),
}
_NEAR_A_COIN: Final = 0.6


def without_signal(task: str) -> str | None:
    """Why a task cannot tell data sets apart below 1 B parameters; None: it can, or nothing is known of it."""
    small, larger = DECISION_ACCURACY.get(task, (1.0, 1.0))
    if small >= _NEAR_A_COIN:
        return None
    return (
        f"models of 150 M parameters rank two corpora as models of 1 B do in {small:.0%} of pairs, those of 300 M in "
        f"{larger:.0%}; a coin in 50% (AI2, signal-and-noise)"
    )
