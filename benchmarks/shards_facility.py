"""Facility over shards against one block and against blocks that know nothing of each other: value, certificate, time.

Shape suffixes: N documents.
"""

from __future__ import annotations

import shutil

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import LAMB, RATIO, Context, Outcome, at_least, attainment, processor_seconds
from benchmarks.shard_data import in_one, write_shards
from datamask_pipeline import select_documents, select_over_shards
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.parallel import Workers

TITLE = "Facility over shards, N = 40 000"
QUESTION = "How near does a selection by regions come to one block's, how tight is its certificate, and what do blocks lose?"
LONG = True
DOCUMENTS, SHARDS = 40_000, 10
METRIC = "Facility"


def run(context: Context) -> Outcome:
    """Ten shards of mixes of their own; every mask's coverage is computed anew, from every similarity."""
    outcome, seed = Outcome(), context.seeds[0]
    folder, size = context.folder / "shards-facility", context.size(DOCUMENTS)
    shutil.rmtree(folder, ignore_errors=True)
    shards = write_shards(folder, context.base, SHARDS, size // SHARDS, seed)
    vectors, quality_N = in_one(shards)
    settings = {"diversity": METRIC, "ratio": RATIO, "lamb": LAMB, "num_workers": 1}
    begun = processor_seconds()
    block = select_documents(vectors, quality_N, **settings)
    spent = {"one block": processor_seconds() - begun}
    settings["normalisation_constants"] = block.normalisation
    begun = processor_seconds()
    found = select_over_shards(shards, folder / "selected", engine="here", **settings)
    spent["over shards"] = processor_seconds() - begun
    masks = {"one block": block.mask, "over shards": np.array(found.column("mask"))}
    in_order = np.arange(len(vectors))
    cuts = {"the shards": in_order, "random": np.random.default_rng(0).permutation(in_order)}
    for name, order in cuts.items():
        begun = processor_seconds()
        mask_N = np.zeros(len(vectors), bool)
        for part in np.array_split(order, SHARDS):
            rows = np.sort(part)
            mask_N[rows] = select_documents(vectors.chosen(rows), quality_N[rows], **settings).mask
        masks[f"blocks: {name}"] = mask_N
        spent[f"blocks: {name}"] = processor_seconds() - begun
    (zero, one), (worst, best) = block.normalisation["quality"], block.normalisation[METRIC]
    rows_ND = torch.nn.functional.normalize(torch.from_numpy(vectors[in_order]).float())
    values = {
        name: LAMB * float(quality_N[mask_N].mean() - zero) / (one - zero)
        + (1 - LAMB) * (_covered(rows_ND, mask_N) - worst) / (best - worst)
        for name, mask_N in masks.items()
    }
    bounds = {"one block": block.certificate.bound, "over shards": found.certificate.bound}
    random = found.objective.random
    for name, value in values.items():
        bound = bounds.get(name, found.certificate.bound)
        assert bound is not None
        outcome.rows.append(
            {
                "method": f"union of {name}" if name not in bounds else name,
                "cpu_seconds": spent[name],
                "objective": value,
                "attainment": attainment(value, random, values["one block"]),
                "gap": (bound - value) / (bound - random),
            }
        )
    reached = attainment(values["over shards"], random, values["one block"])
    blocks = max(attainment(values[f"blocks: {name}"], random, values["one block"]) for name in cuts)
    outcome.claims += [
        at_least("over shards, share of one block's distance from random", 0.95, reached),
        at_least("that above the better blocks", 0.0, reached - blocks),
    ]
    learner = found.record["learner"]
    outcome.notes.append(
        f"{learner['regions']} regions. Gaps of blocks are to the certificate over shards. That one rests on a sample of "
        "references and holds with probability .999."
    )
    shutil.rmtree(folder)
    return outcome


def _covered(rows_ND: torch.Tensor, mask_N: NDArray[np.bool_]) -> float:
    """The metric of a mask from every similarity."""
    with Workers(1) as workers, torch.inference_mode():
        selected_T = torch.nonzero(torch.from_numpy(mask_N)).squeeze(1)
        return coverage_of(rows_ND, torch.arange(len(rows_ND)), selected_T, workers, torch.float32).mean
