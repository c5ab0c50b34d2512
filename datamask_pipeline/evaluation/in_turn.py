"""The solved examples before each question, in the order in which lm-eval asks for them.

Knows no task and draws nothing: which examples stand before which question was decided when they were prepared.
"""

from collections.abc import Sequence
from typing import Any

from lm_eval.api.samplers import ContextSampler


class InTurn(ContextSampler):
    """Hands out the rows of the split one question after the other, each question's rows as often as they stand there."""

    def sample(self, n: int, *arguments: Any, **named: Any) -> Sequence[dict[str, Any]]:
        """The next question's examples.

        Raises:
            ValueError: These are not `n` examples of one question.
        """
        place = getattr(self, "place", 0)
        rows = [dict(row) for row in self.df[place : place + n]]
        self.place = place + n
        if len({row.pop("before") for row in rows}) != 1 or len(rows) != n:
            raise ValueError(f"rows {place} to {place + n} of the examples are not {n} of one question")
        return rows
