"""What a selection policy is. Knows no input format, report or file, and loads no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from datamask_pipeline.selection.reasons import BY_RULE, Decision
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class SelectionPolicy(ABC):
    """A way to choose a mask for a `Problem`.

    A member is one file of this package with the class as ``POLICY``. Ours load torch when they choose, not when
    they are imported, as the asset graph reads their settings.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Settings]] = Settings
    """Its own settings; none unless a member says so. Users write them beside those of the selection."""

    decision: ClassVar[Decision] = BY_RULE
    """How it decides: whether a threshold does, and each document's reason."""

    by_rule: ClassVar[bool] = False
    """Whether the mask follows from quality, budget and seed alone, the same on every machine: a proof makes it again."""

    knows_given: ClassVar[bool] = True
    """Whether it can choose beside documents that are held already."""

    counts_tokens: ClassVar[bool] = True
    """Whether it can fill a budget in tokens."""

    along_graph: ClassVar[bool] = False
    """Whether it chooses along the graph of one metric that has one, and not without."""

    unread: ClassVar[frozenset[str]] = frozenset()
    """Settings of the selection that no mask of it depends on, whatever the others are: they say what a mask is worth."""

    config: Any

    def __init__(self, config: Settings | None = None) -> None:
        self.config = self.Config() if config is None else config

    def check(self, problem: Problem) -> None:
        """Refuse, before any long work, what the policy cannot do.

        Raises:
            ConfigurationError: naming the setting and what to choose instead.
        """
        del problem

    @abstractmethod
    def choose(self, problem: Problem) -> Solution:
        """Choose a mask within the problem's budget. Deterministic given the problem and its seed."""
