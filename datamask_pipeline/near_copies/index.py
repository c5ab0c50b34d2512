"""The index of near-copies: what was taken in, in a folder of `.npy` files; later vectors are matched against it.

It holds signatures, not vectors: taking in new ones reads them once, and of the held ones only those that are compared.
One process at a time may write a folder; whoever shares it sees to that.

Shape suffixes: N vectors, Q of a block, H that stand for themselves, L bands, D embedding dimensions.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.disk import save_array
from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError
from datamask_pipeline.near_copies.buckets import Held
from datamask_pipeline.near_copies.groups import Block
from datamask_pipeline.near_copies.recall import FEW
from datamask_pipeline.near_copies.signatures import SKETCH_PLANES, Signatures, sample_of, signatures_for
from datamask_pipeline.near_copies.vectors import Vectors, require_shape, require_unit
from datamask_pipeline.spill import Room

logger = logging.getLogger(__name__)

FORMAT = 4
BLOCK_ROWS = 2**18
"""Vectors decided at a time: their signatures lie in files of the index's folder, up to half a kilobyte a vector."""
MOST_ROWS = 2**32
"""Rows are told apart by half of a word."""
LEAST_THRESHOLD, MOST_THRESHOLD = 0.9, 0.9999
INDEX_FILE = "index.json"
STATED = ("format", "threshold", "sketch_step", "most_apart", "expected_recall", "segments")
"""What that file states; and the seed."""
OF_SEGMENT = {"name": str, "num_rows": int, "num_representatives": int, "num_compared": int}
"""What it states of each segment."""
UNFINISHED = "index.json.unfinished"
"""What becomes the index's file: it stands in the folder before anything else, so that it tells a cut-off index."""


@dataclass(frozen=True)
class Representatives:
    """What stands for consecutive vectors.

    Attributes:
        first_row: Row of the first of them.
        rows_Q: int64 row of what stands for each; its own where it stands for itself.
        cosines_Q: float32 cosine to it.
    """

    first_row: int
    rows_Q: NDArray[np.int64]
    cosines_Q: NDArray[np.float32]


class NearCopyIndex:
    """Vectors taken in so far, each with the first one near it that stands for itself.

    Rows are numbered in the order of taking in. What is found does not depend on how many are taken in at a time,
    nor on threads: a later crawl leaves the groups that both would have made at once.

    Args:
        folder: Where an index lies.

    Raises:
        InputError: there is none.
        IntegrityError: it was written by another version, or files are lost or damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = folder = Path(folder)
        try:
            self._state: dict[str, Any] = json.loads((folder / INDEX_FILE).read_bytes())
        except ValueError as error:
            raise IntegrityError(
                f"cannot read {folder / INDEX_FILE}: {error}; make the index again"
            ) from error
        except FileNotFoundError as error:
            raise InputError(
                "no index of near-copies", folder=str(folder), remedy="create it from the first vectors"
            ) from error
        if not isinstance(self._state, dict):
            raise self._damaged(INDEX_FILE, "it is no object of JSON")
        if self._state.get("format", FORMAT) != FORMAT:
            raise IntegrityError(
                f"{folder} is an index of format {self._state['format']}, this version writes {FORMAT}; make it again"
            )
        if missing := [name for name in STATED if name not in self._state]:
            raise self._damaged(INDEX_FILE, f"it does not state {', '.join(missing)}")
        if not _are_segments(self._state["segments"]):
            raise self._damaged(INDEX_FILE, f"its segments do not each state {', '.join(OF_SEGMENT)}")
        self.threshold: float = self._state["threshold"]
        self.signatures = Signatures(
            centre_D=self._load("centre.npy"),
            planes_DB=self._load("planes.npy"),
            sketch_step=self._state["sketch_step"],
            most_apart=self._state["most_apart"],
            expected_recall=self._state["expected_recall"],
        )
        for segment in self._state["segments"]:
            self._require_whole(segment)

    @classmethod
    def create(
        cls, folder: Path | str, sample_nD: NDArray[np.float32], *, threshold: float = 0.98, seed: int = 0
    ) -> Self:
        """An empty index.

        Args:
            folder: Where it shall lie; made if it is not there.
            sample_nD: Vectors like those to come, see `sample_of`: where the planes pass through, and how many.
            threshold: Least cosine of near-copies.
            seed: Of the random planes.

        Raises:
            ConfigurationError: the threshold is out of range, or the folder holds something.
            InputError: there is no vector in the sample, or one that is not of unit norm.
        """
        folder, threshold = Path(folder), _number(threshold)
        if not LEAST_THRESHOLD <= threshold <= MOST_THRESHOLD:
            raise ConfigurationError(
                f"threshold {threshold} of near-copies must lie from {LEAST_THRESHOLD} to {MOST_THRESHOLD}: "
                "it is a cosine, and below it two documents are alike, not copies"
            )
        if len(sample_nD) == 0:
            raise InputError("an index of near-copies needs a sample of at least one vector")
        require_shape(sample_nD, np.shape(sample_nD)[-1])
        require_unit(np.asarray(sample_nD, np.float32), 0)
        if folder.exists() and any(folder.iterdir()):
            raise ConfigurationError(f"{folder} is not empty; give an empty folder, or open the index there")
        folder.mkdir(parents=True, exist_ok=True)
        signatures = signatures_for(sample_nD, threshold, seed)
        if signatures.expected_recall < FEW:
            logger.warning(
                "of near-copies at the cosine %s this index is expected to find %.0f %%, and more of nearer ones",
                threshold,
                100 * signatures.expected_recall,
            )
        (folder / UNFINISHED).touch()
        save_array(folder / "centre.npy", signatures.centre_D)
        save_array(folder / "planes.npy", signatures.planes_DB)
        state = {
            "format": FORMAT,
            "threshold": threshold,
            "seed": seed,
            "sketch_step": signatures.sketch_step,
            "most_apart": signatures.most_apart,
            "expected_recall": signatures.expected_recall,
            "segments": [],
        }
        _publish(folder, state)
        return cls(folder)

    @classmethod
    def of(cls, folder: Path | str, vectors: Vectors, *, threshold: float) -> Self:
        """The index of all these vectors; after a kill it goes on behind the last block that was finished.

        Args:
            folder: Where it lies or shall lie: an index, also one whose making was cut off, an empty folder, or none yet.
            vectors: Unit rows, (N, D), in canonical order.
            threshold: Least cosine of near-copies.

        Raises: as `create` and `add`; a folder that holds something else, or an index of another threshold, is refused and
            left as it is.
        """
        folder, threshold = Path(folder), _number(threshold)
        if not (folder / INDEX_FILE).exists():
            if (folder / UNFINISHED).exists():
                shutil.rmtree(folder)
            elif folder.exists() and any(folder.iterdir()):
                raise ConfigurationError(
                    f"{folder} is not empty and holds no index of near-copies; give an empty folder, or one that is not "
                    "there yet"
                )
            cls.create(folder, sample_of(vectors), threshold=threshold)
        index = cls(folder)
        if index.threshold != threshold:
            raise ConfigurationError(
                f"{folder} holds an index of threshold {index.threshold}, not {threshold}; give that one, or another folder"
            )
        index.add(vectors)
        return index

    def __len__(self) -> int:
        """Vectors taken in."""
        return sum(segment["num_rows"] for segment in self._state["segments"])

    @property
    def expected_recall(self) -> float:
        """Share, from 0 to 1, of pairs at the threshold that are expected to be found; more of nearer ones."""
        return self.signatures.expected_recall

    @property
    def num_representatives(self) -> int:
        """Vectors that stand for themselves."""
        return sum(segment["num_representatives"] for segment in self._state["segments"])

    @property
    def num_compared(self) -> int:
        """Pairs of a new and a held vector that were compared: so often was a held vector read again."""
        return sum(segment["num_compared"] for segment in self._state["segments"])

    def add(self, vectors: Vectors, *, block_rows: int = BLOCK_ROWS) -> None:
        """Take in the vectors after those that are held; a block that is finished stays, whatever becomes of the rest.

        Args:
            vectors: Unit rows, (N, D), in canonical order: first those held, in their places, then the new ones.
            block_rows: Vectors decided at a time; no result depends on it.

        Raises:
            InputError: fewer vectors than are held or more than `MOST_ROWS`, another width, no floats, or a vector that is
                not of unit norm; no block.
            IntegrityError: the held rows are not those that the index was made from, as far as the last vector of each
                segment that stands for itself tells: others are not looked at.
        """
        if block_rows < 1:
            raise InputError("a block has at least one vector", field="block_rows", value=block_rows)
        require_shape(vectors, len(self.signatures.centre_D))
        if vectors.shape[0] < len(self):
            raise InputError(
                f"the index holds {len(self)} vectors, {vectors.shape[0]} were given",
                remedy="give the held vectors in their places, then the new ones",
            )
        if vectors.shape[0] > MOST_ROWS:
            raise InputError(
                f"an index of near-copies takes at most {MOST_ROWS} vectors, {vectors.shape[0]} were given",
                remedy="give fewer crawls to one release",
            )
        self._require_held(vectors)
        room = Room(self.folder)
        for start in range(len(self), vectors.shape[0], block_rows):
            self._add_block(vectors, start, min(start + block_rows, vectors.shape[0]), room)

    def representatives(self) -> Iterator[Representatives]:
        """What stands for every vector, block by block in order; arrays are mapped from their files."""
        first_row = 0
        for segment in self._state["segments"]:
            name = segment["name"]
            yield Representatives(
                first_row, self._load(f"{name}/representatives.npy"), self._load(f"{name}/cosines.npy")
            )
            first_row += segment["num_rows"]

    def _add_block(self, vectors: Vectors, start: int, stop: int, room: Room) -> None:
        num_rows = stop - start
        block = Block(
            self.signatures.most_apart,
            vectors,
            self.threshold,
            start,
            self.signatures.keys(vectors, start, stop, room),
            np.full(num_rows, -1),
            np.zeros(num_rows),
            room,
        )
        compared = block.match(np.arange(num_rows), self._held())
        own_n = block.decide(np.flatnonzero(block.representatives_Q < 0))
        self._write(block, own_n, compared)

    def _held(self) -> list[Held]:
        """What stands for itself of every segment, mapped from its files."""
        return [
            Held(*(self._load(f"{segment['name']}/{of}.npy") for of in ("bands", "sketches", "rows")))
            for segment in self._state["segments"]
        ]

    def _write(self, block: Block, own_n: NDArray[np.int64], num_compared: int) -> None:
        """A segment under a private name, then its folder, then the index that names it."""
        name = f"{len(self._state['segments']):05d}"
        private, target = self.folder / f"{name}.tmp", self.folder / name
        for left_behind in (private, target):
            shutil.rmtree(left_behind, ignore_errors=True)
        private.mkdir()
        save_array(private / "bands.npy", block.room.taken(block.keys.bands_LN, own_n, 1))
        save_array(private / "sketches.npy", block.room.taken(block.keys.sketches_NS, own_n))
        save_array(private / "rows.npy", block.first_row + own_n)
        save_array(private / "representatives.npy", block.representatives_Q)
        save_array(private / "cosines.npy", block.cosines_Q.astype(np.float32))
        private.rename(target)
        segment = {
            "name": name,
            "num_rows": len(block.representatives_Q),
            "num_representatives": len(own_n),
            "num_compared": num_compared,
        }
        state = self._state | {"segments": [*self._state["segments"], segment]}
        _publish(self.folder, state)
        self._state = state

    def _require_whole(self, segment: dict[str, Any]) -> None:
        """The files of a segment hold as many vectors as the index says; their headers alone are read.

        Raises:
            IntegrityError: one is lost or damaged, or of another segment.
        """
        name, num_rows, num_own = (segment[of] for of in ("name", "num_rows", "num_representatives"))
        stated = {
            "bands": (self.signatures.num_bands, num_own),
            "sketches": (num_own, SKETCH_PLANES),
            "rows": (num_own,),
            "representatives": (num_rows,),
            "cosines": (num_rows,),
        }
        for of, shape in stated.items():
            if (held := self._load(f"{name}/{of}.npy").shape) != shape:
                raise self._damaged(f"{name}/{of}.npy", f"it has shape {held} where {shape} were written")

    def _damaged(self, name: str, problem: str) -> IntegrityError:
        return IntegrityError(f"{self.folder / name} is damaged: {problem}; make the index again")

    def _require_held(self, vectors: Vectors) -> None:
        """The last vector of each segment that stands for itself still has its signature."""
        for segment in self._state["segments"]:
            if not segment["num_representatives"]:
                continue
            row = int(self._load(f"{segment['name']}/rows.npy")[-1])
            bands_L1 = self.signatures.keys(vectors, row, row + 1).bands_LN
            if (bands_L1[:, 0] != self._load(f"{segment['name']}/bands.npy")[:, -1]).any():
                raise IntegrityError(
                    f"row {row} is not the vector that the index {self.folder} was made from; "
                    "give the held vectors in their places, or make the index again"
                )

    def _load(self, name: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.asarray(np.load(self.folder / name, mmap_mode="r"))
        except (OSError, ValueError, EOFError) as error:
            raise IntegrityError(f"cannot map {self.folder / name}: {error}; make the index again") from error
        return array


def _are_segments(stated: Any) -> bool:
    return isinstance(stated, list) and all(
        isinstance(one, dict) and all(isinstance(one.get(of), kind) for of, kind in OF_SEGMENT.items())
        for one in stated
    )


def _number(threshold: float) -> float:
    """
    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(threshold, bool | str) or threshold is None:
        raise ConfigurationError(f"threshold {threshold!r} of near-copies is no number")
    return float(threshold)


def _publish(folder: Path, state: dict[str, Any]) -> None:
    private = folder / UNFINISHED
    private.write_text(json.dumps(state, indent=1) + "\n")
    private.replace(folder / INDEX_FILE)
