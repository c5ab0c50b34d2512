"""What a diversity metric is. Knows no quality score, learner, budget or file.

Shape suffixes: N documents, D embedding dimensions, G masks.

A member of the family is one file in this package, its stem the metric's name in lower case, with the class
under the module name ``METRIC``; or an entry point of the group ``datamask_pipeline.diversity`` in another
package, its name the metric's, which loads to the class.

What a metric offers decides which learners it can have:

========================  =========================================================  ======================
it has                    learners                                                   certificate
========================  =========================================================  ======================
`values` only             every mask or exchanges by values; ``policy_gradient``     none
`marginals` as well       swaps by marginals; counterfactual advantages              none
is a `MomentMetric`       projected gradient on the relaxed mask, greedy, exchanges  if ``concave``; DiSF by rank
is a `CoverageMetric`     ``selection.facility``: lazy greedy, neighbour lists       dual thresholds
is `PairGraph`            ``selection.graph``: annealing, exchanges along edges      slopes of cliques
========================  =========================================================  ======================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from datamask_pipeline.diversity.coverage import value_and_marginals
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.settings import Settings


class DiversityMetric(ABC):
    """A set function to maximise: how different the selected documents are from each other.

    Members state Formula, Source and Cost in their docstring.
    """

    name: ClassVar[str]
    """The name users give, e.g. ``Pair_simi``."""

    Config: ClassVar[type[Settings]] = Settings
    """Its options; none unless a member says so."""

    config: Any

    def __init__(self, config: Settings | None = None) -> None:
        self.config = self.Config() if config is None else config

    exact_marginals: ClassVar[bool] = True
    """Whether `marginals` is the exact change on moving one document, or its first-order approximation."""

    of_samples: ClassVar[bool] = True
    """Whether a sample of a block, of which as large a share is selected, has about the block's values."""

    of_products: ClassVar[bool] = False
    """Whether values rest on float32 products of vectors, and on the order of documents only through `references`."""

    least_documents: ClassVar[int] = 2
    """Documents of a mask below which all masks have one value, but for rounding."""

    @abstractmethod
    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        """The metric of each mask.

        Args:
            embeddings_ND: float32 or float64, rows of unit norm. May be a batch of a larger block: the
                metric is then that of the batch taken alone.
            masks_GN: bool, every row selects at least two documents.

        Returns:
            float64 of shape (G,); higher is more diverse. Finite: the engine refuses NaN and infinity.
        """

    def marginals(self, embeddings_ND: Tensor, mask_N: Tensor) -> Tensor | None:
        """What each document contributes: value with it in, minus value with it out, others as they are.

        A metric that divides by the number of selected documents keeps that number at ``mask_N.sum()`` while
        one document moves, so that marginals of selected and unselected documents can be compared; one that has
        no value at another number (DiSF) lets it move.

        Args:
            embeddings_ND: float32 or float64, rows of unit norm.
            mask_N: bool.

        Returns:
            float64 of shape (N,), or None where the metric has no marginal cheaper than N evaluations.
        """
        del embeddings_ND, mask_N
        return None


class CoverageMetric(DiversityMetric):
    """A monotone submodular metric of the form ``mean over references y of max over selected x of sim(x, y)``.

    ``selection.facility`` optimises and certifies it; a member says how references are chosen and how two
    unit vectors compare (its own attributes).
    """

    of_products = True

    @abstractmethod
    def references(self, num_rows: int) -> Tensor:
        """Rows that are references in a block of that many: int64, rising, the same at every call."""

    def marginals(self, embeddings_ND: Tensor, mask_N: Tensor) -> Tensor:
        """Gain of adding each unselected document, loss on dropping each selected one: float64 of shape (N,)."""
        return value_and_marginals(embeddings_ND, self.references(len(embeddings_ND)), mask_N)[1]


def checked_values(metric: DiversityMetric, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
    """A metric's values, as it may be anybody's: float64 of shape (G,), on the CPU.

    Raises:
        ConfigurationError: it returned NaN or infinity, or not one real number a mask.
    """
    given = metric.values(embeddings_ND, masks_GN.to(embeddings_ND.device))
    try:
        if isinstance(given, Tensor) and given.is_complex():
            raise TypeError("they are complex")
        values_G = torch.as_tensor(given, dtype=torch.float64).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"diversity metric {metric.name!r} returned no numbers: {error}") from error
    if values_G.shape != (len(masks_GN),):
        raise ConfigurationError(
            f"diversity metric {metric.name!r} returned shape {tuple(values_G.shape)} for {len(masks_GN)} masks"
        )
    if not torch.isfinite(values_G).all():
        raise ConfigurationError(
            f"diversity metric {metric.name!r} returned {values_G[~torch.isfinite(values_G)][0]}"
        )
    return values_G


def checked_marginals(metric: DiversityMetric, embeddings_ND: Tensor, mask_N: Tensor) -> Tensor | None:
    """A metric's marginals, or none: float64 of shape (N,), on the CPU.

    Raises:
        ConfigurationError: it returned NaN or infinity, or not one number a document.
    """
    given = metric.marginals(embeddings_ND, mask_N.to(embeddings_ND.device))
    if given is None:
        return None
    marginals_N = torch.as_tensor(given, dtype=torch.float64).cpu()
    if marginals_N.shape != (len(mask_N),) or not torch.isfinite(marginals_N).all():
        raise ConfigurationError(
            f"diversity metric {metric.name!r} returned marginals of shape {tuple(marginals_N.shape)} for "
            f"{len(mask_N)} documents, or one that is not finite"
        )
    return marginals_N
