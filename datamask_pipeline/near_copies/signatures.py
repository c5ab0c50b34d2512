"""Signatures: on which sides of random planes a vector lies. Vectors with a small angle share most of them.

Random hyperplanes (Charikar, "Similarity Estimation Techniques from Rounding Algorithms", 2002) in bands; a later
vector asks in each band for its own key and for those that differ in its least certain bits (Lv et al., "Multi-Probe LSH",
2007). Embeddings share a common direction that would put most of them on one side of every plane; so the planes pass
through the mean of a sample. A signature depends on its own vector alone, never on others, threads or blocks: vectors
and planes are rounded to whole numbers so small that every product and sum is exact in float32.

Shape suffixes: N vectors, n of a chunk, M vectors of the sample, D embedding dimensions, L bands, b bits of a band,
U uncertain bits, S planes of a sketch, P pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.near_copies.vectors import Vectors, read_unit
from datamask_pipeline.spill import Room

BAND_BITS = 24
UNCERTAIN_BITS = 3
MOST_BANDS = 64
TARGET_RECALL = 0.998
"""Share of pairs at the threshold that meet in a band, if `MOST_BANDS` reach it."""
SAMPLE_ROWS = 16_384
TRIAL_ROWS = 2_048
CHUNK_ROWS = 1_024
PLANE_STEPS = 8
"""Whole numbers to a standard deviation of the planes' normal numbers."""
EXACT = 2.0**24
"""Whole numbers up to it are exact in float32."""
SKETCH_PLANES = 32
DEVIATION_STEPS, MOST_STEPS = 24, 127
"""Steps of a sketch to a standard deviation of the distance from a plane, and how many it tells on either side."""
PAIR_ROWS = 4_096
"""Pairs told apart at a time: their numbers stay in the processor's cache."""
DEVIATIONS = 4.5
"""The sketches of a pair may be so many standard deviations farther apart than the mean at the threshold."""


@dataclass(frozen=True)
class Keys:
    """Signatures of vectors.

    Attributes:
        bands_LN: uint32 below 2 ** `BAND_BITS`: the bits of each band.
        uncertain_LUN: uint8 numbers of the bits whose planes lie nearest to the vector.
        sketches_NS: int8; how far the vector lies from the first planes: near vectors have near sketches.
    """

    bands_LN: NDArray[np.uint32]
    uncertain_LUN: NDArray[np.uint8]
    sketches_NS: NDArray[np.int8]

    def chosen(self, index_n: NDArray[np.int64], room: Room) -> Keys:
        """Those of some vectors.

        Args:
            index_n: Which, ascending.
            room: Where they lie.
        """
        if len(index_n) == len(self.sketches_NS):
            return self
        return Keys(
            room.taken(self.bands_LN, index_n, 1),
            room.taken(self.uncertain_LUN, index_n, 2),
            room.taken(self.sketches_NS, index_n),
        )

    def asked(self, band: int) -> list[NDArray[np.uint32]]:
        """The keys under which each vector asks: with every choice of its uncertain bits turned round."""
        asked = [self.bands_LN[band]]
        for flips_N in np.uint32(1) << self.uncertain_LUN[band].astype(np.uint32):
            asked += [keys_N ^ flips_N for keys_N in asked]
        return asked


@dataclass(frozen=True, kw_only=True)
class Signatures:
    """What makes the signature of a vector.

    Attributes:
        centre_D: float32; where the planes pass through.
        planes_DB: int8, one plane a column, L bands of `BAND_BITS` each; L is even.
        sketch_step: Product with a plane that makes a step of the sketch.
        most_apart: Squared distance that sketches of near-copies may have.
        expected_recall: Share, from 0 to 1, of pairs at the threshold that meet in a band: tried on the sample.
    """

    centre_D: NDArray[np.float32]
    planes_DB: NDArray[np.int8]
    sketch_step: float
    most_apart: int
    expected_recall: float

    @property
    def num_bands(self) -> int:
        """L."""
        return self.planes_DB.shape[1] // BAND_BITS

    def keys(self, vectors: Vectors, start: int, stop: int, room: Room | None = None) -> Keys:
        """The signatures of these rows.

        Args:
            vectors: Unit rows, (N, D).
            start: The first row.
            stop: Behind the last one.
            room: Where the signatures lie; in the system's temporary folder by default, if they are long.

        Raises:
            InputError: a vector is not of unit norm.
        """
        room = room or Room()
        bands_LN = room.array((self.num_bands, stop - start), np.uint32)
        uncertain_LUN = room.array((self.num_bands, UNCERTAIN_BITS, stop - start), np.uint8)
        sketches_NS = room.array((stop - start, SKETCH_PLANES), np.int8)
        step = round(self.sketch_step * self._scale())
        for first, sides_bLn in self.sides(vectors, start, stop):
            here = slice(first - start, first - start + sides_bLn.shape[2])
            bands_LN[:, here] = _bands(sides_bLn)
            for bit, uncertain_Ln in enumerate(_uncertain(sides_bLn)):
                uncertain_LUN[:, bit, here] = uncertain_Ln
            steps_Sn = _sketched(sides_bLn) // step
            sketches_NS[here] = np.clip(steps_Sn, -MOST_STEPS, MOST_STEPS).T
        return Keys(bands_LN, uncertain_LUN, sketches_NS)

    def sides(self, vectors: Vectors, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """How far these rows lie before each plane, in whole numbers: the first row of a chunk, and shape (b, L, n)."""
        scale = np.float32(self._scale())
        # Bits first: what is done for each bit runs over long rows of the others.
        planes_bLD = self.planes_DB.T.reshape(self.num_bands, BAND_BITS, -1).swapaxes(0, 1)
        planes_BD = np.ascontiguousarray(planes_bLD, np.float32).reshape(self.planes_DB.shape[1], -1)
        for first in range(start, stop, CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, stop)
            whole_nD = np.rint((read_unit(vectors, first, last) - self.centre_D) * scale)
            yield first, (planes_BD @ whole_nD.T).astype(np.int32).reshape(BAND_BITS, self.num_bands, -1)

    def _scale(self) -> float:
        """What vectors are multiplied by before they are rounded.

        By Cauchy and Schwarz no partial sum exceeds `EXACT`; rounding adds at most a half in each dimension.
        """
        longest = math.sqrt(float((self.planes_DB.astype(np.float64) ** 2).sum(0).max()))
        reach = 1.01 + float(np.linalg.norm(self.centre_D.astype(np.float64)))
        return 2.0 ** math.floor(math.log2((EXACT / longest - math.sqrt(len(self.centre_D))) / reach))


def _sketched(sides_bLn: NDArray[np.int32]) -> NDArray[np.int32]:
    """The distances from the first planes, shape (S, n): the same planes however many bands there are."""
    first_Sn: NDArray[np.int32] = sides_bLn[:, :2].swapaxes(0, 1).reshape(2 * BAND_BITS, -1)[:SKETCH_PLANES]
    return first_Sn


def _bands(sides_bLn: NDArray[np.int32]) -> NDArray[np.uint32]:
    """The bits of each band, shape (L, n): 1 where a vector lies before its plane."""
    bands_Ln = np.zeros(sides_bLn.shape[1:], np.uint32)
    for bit, sides_Ln in enumerate(sides_bLn):
        bands_Ln |= (sides_Ln > 0).astype(np.uint32) << np.uint32(bit)
    return bands_Ln


def _uncertain(sides_bLn: NDArray[np.int32]) -> list[NDArray[np.uint8]]:
    """The numbers of the bits whose planes are nearest, of each band: the nearest first, of equal ones the first."""
    farthest = np.iinfo(np.int32).max
    nearest = [np.full(sides_bLn.shape[1:], farthest, np.int32) for _ in range(UNCERTAIN_BITS)]
    for bit, sides_Ln in enumerate(sides_bLn):
        # Distances are below 2 ** 25 and bits below 2 ** 5.
        other_Ln = np.abs(sides_Ln) << 5 | bit
        for place, kept_Ln in enumerate(nearest):
            nearest[place] = np.minimum(kept_Ln, other_Ln)
            other_Ln = np.maximum(kept_Ln, other_Ln)
    return [(kept_Ln & 31).astype(np.uint8) for kept_Ln in nearest]


def apart(
    left_NS: NDArray[np.int8],
    left_P: NDArray[np.int64],
    right_NS: NDArray[np.int8],
    right_P: NDArray[np.int64],
) -> NDArray[np.float32]:
    """The squared distance of the two rows' sketches, of each pair: whole numbers, exact in float32."""
    apart_P = np.empty(len(left_P), np.float32)
    for start in range(0, len(left_P), PAIR_ROWS):
        here = slice(start, start + PAIR_ROWS)
        both_2nS = left_NS.take(left_P[here], 0), right_NS.take(right_P[here], 0)
        apart_nS = np.subtract(*both_2nS, dtype=np.int16).astype(np.float32)
        apart_P[here] = np.einsum("ps,ps->p", apart_nS, apart_nS)
    return apart_P


def signatures_for(sample_MD: NDArray[np.float32], threshold: float, seed: int) -> Signatures:
    """Signatures with the fewest bands that find what lies at the threshold among vectors like these.

    Args:
        sample_MD: Vectors of unit norm, as `sample_of` reads them.
        threshold: Least cosine of near-copies, in (0, 1).
        seed: Of the planes, and of the copies by which the bands are tried.
    """
    draws = np.random.default_rng(seed)
    centre_D = sample_MD.mean(0, dtype=np.float64).astype(np.float32)
    normal_DB = draws.standard_normal((len(centre_D), MOST_BANDS * BAND_BITS)) * PLANE_STEPS
    planes_DB = np.clip(np.rint(normal_DB), -127, 127).astype(np.int8)
    every = Signatures(
        centre_D=centre_D, planes_DB=planes_DB, sketch_step=0.0, most_apart=0, expected_recall=0.0
    )
    first_MD = sample_MD[np.linspace(0, len(sample_MD) - 1, TRIAL_ROWS).astype(np.int64)]
    spread = np.std([_sketched(sides_bLn) for _, sides_bLn in every.sides(first_MD, 0, TRIAL_ROWS)])
    # The scale is a power of 2, and no less with fewer planes: a step is a whole number with these too.
    every = replace(every, sketch_step=max(1, round(float(spread) / DEVIATION_STEPS)) / every._scale())
    first = every.keys(first_MD, 0, TRIAL_ROWS)
    second = every.keys(_copies_at(first_MD, threshold, draws), 0, TRIAL_ROWS)
    met_LM = [
        np.any([asked_M == first.bands_LN[band] for asked_M in second.asked(band)], axis=0)
        for band in range(MOST_BANDS)
    ]
    recall_L = np.logical_or.accumulate(met_LM).mean(1)
    enough = int(np.argmax(recall_L >= TARGET_RECALL)) + 1 if recall_L[-1] >= TARGET_RECALL else MOST_BANDS
    num_bands = enough + enough % 2
    rows_M = np.arange(TRIAL_ROWS)
    apart_M = apart(first.sketches_NS, rows_M, second.sketches_NS, rows_M)
    return Signatures(
        centre_D=centre_D,
        planes_DB=planes_DB[:, : num_bands * BAND_BITS].copy(),
        sketch_step=every.sketch_step,
        most_apart=math.ceil(float(apart_M.mean() + DEVIATIONS * apart_M.std())),
        expected_recall=float(recall_L[num_bands - 1]),
    )


def sample_of(vectors: Vectors) -> NDArray[np.float32]:
    """The first `SAMPLE_ROWS` vectors in float32.

    Raises:
        InputError: one is not of unit norm.
    """
    return read_unit(vectors, 0, min(SAMPLE_ROWS, vectors.shape[0]))


def _copies_at(
    vectors_MD: NDArray[np.float32], cosine: float, draws: np.random.Generator
) -> NDArray[np.float32]:
    """A unit vector at this cosine to each, in a random direction from it."""
    noise_MD = draws.standard_normal(vectors_MD.shape)
    noise_MD -= (noise_MD * vectors_MD).sum(1, keepdims=True) * vectors_MD
    noise_MD *= math.sqrt(1 - cosine**2) / np.sqrt((noise_MD**2).sum(1, keepdims=True))
    moved_MD = cosine * vectors_MD + noise_MD
    unit_MD: NDArray[np.float32] = (moved_MD / np.sqrt((moved_MD**2).sum(1, keepdims=True))).astype(
        np.float32
    )
    return unit_MD
