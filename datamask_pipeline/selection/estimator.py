"""The engine in scikit-learn's manner: settings at construction, `fit`, and what was selected. Knows no learner.

Shape suffixes: N documents.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.api import select_documents

OF_FIT = {"embeddings": "X", "quality": "y"}
"""What `fit` has under another name."""

LIKENESS = ("target", "avoid")
"""What else of `fit` is a score of every row."""


class DataMaskSelector(BaseEstimator):
    """Chooses rows of X, for quality and diversity together; it selects documents, not features.

    It has no ``transform``, as what would be left are other rows: a pipeline that ends with it can be fitted.

    Args:
        diversity: As of `select_documents`; so are the next ones.
        lamb: Weight of quality.
        ratio: Share of the rows; a tenth where no other budget is given.
        num_documents: Budget in documents, two or more, instead of the ratio.
        policy: How to choose.
        seed: Of every draw.
        settings: Any other setting, by name, e.g. ``num_tokens`` instead of the ratio.

    Attributes:
        result_: What `select_documents` returned.
        n_features_in_: Dimensions of X.
    """

    def __init__(
        self,
        *,
        diversity: Any = "Pair_simi",
        lamb: float = 0.5,
        ratio: float | None = None,
        num_documents: int | None = None,
        policy: str = "datamask",
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.diversity, self.lamb, self.ratio, self.num_documents = diversity, lamb, ratio, num_documents
        self.policy, self.seed, self.settings = policy, seed, settings

    def fit(self, X: Any, y: Any = None, **given: Any) -> Self:
        """Choose.

        Args:
            X: Shape (N, D), numbers; rows need not be of unit norm.
            y: Quality, shape (N,), or several scores by name, higher is better; without it likeness to ``target`` and
                ``avoid`` is all of the quality, and without these too diversity alone counts.
            given: What else `select_documents` takes for each document, e.g. ``token_counts``, ``target``.

        Raises:
            ConfigurationError: a setting that is given twice, one that goes by quality without any, or what
                `select_documents` refuses.
            InputError: what `select_documents` refuses.
        """
        self._require_once(given)
        if isinstance(X, torch.Tensor):
            X = X.detach().cpu()  # where and how it is kept is nothing that numpy takes
            X = X.float() if X.dtype == torch.bfloat16 else X
        X = validate_data(
            self, X, dtype=[np.float64, np.float32], ensure_min_samples=2, ensure_min_features=2
        )
        budgets = {"ratio": self.ratio, "num_documents": self.num_documents}
        settings: dict[str, Any] = {name: value for name, value in budgets.items() if value is not None}
        settings |= {"policy": self.policy, "seed": self.seed, **(self.settings or {})}
        lamb, quality = self.lamb, y
        if y is None:
            quality, alike = np.zeros(len(X)), [name for name in LIKENESS if given.get(name) is not None]
            if alike:
                weights = settings.get("quality_weights") or dict.fromkeys(alike, 1.0)
                settings["quality_weights"] = {"quality": 0.0, **weights}
            elif self.policy == "quality_topk" or settings.get("quality_pruning"):
                by = "policy 'quality_topk'" if self.policy == "quality_topk" else "quality_pruning"
                raise ConfigurationError(f"{by} goes by quality, and fit was given none: give it as y of fit")
            else:
                lamb = 0.0
        self.result_ = select_documents(X, quality, diversity=self.diversity, lamb=lamb, **settings, **given)
        return self

    def _require_once(self, given: dict[str, Any]) -> None:
        if not isinstance(self.settings, dict | None):
            raise ConfigurationError(
                f"settings of DataMaskSelector are a dict by their names, not {self.settings!r}"
            )
        own = {name: f"DataMaskSelector({name}=...)" for name in self.get_params(deep=False)}
        own |= {name: f"{place} of fit" for name, place in OF_FIT.items()}
        for name in sorted({*own} & {*(self.settings or {})}):
            raise ConfigurationError(
                f"settings of DataMaskSelector name {name!r}: give it as {own[name]} instead"
            )
        own |= dict.fromkeys(self.settings or {}, "one of DataMaskSelector's settings alone")
        for name in sorted({*own} & {*given}):
            raise ConfigurationError(f"fit takes no {name!r}: give it as {own[name]}")

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """Which rows were chosen: bool of shape (N,), or their numbers."""
        check_is_fitted(self)
        mask_N = self.result_.mask
        return np.flatnonzero(mask_N) if indices else mask_N

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")
