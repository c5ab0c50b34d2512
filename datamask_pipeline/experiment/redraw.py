"""One draw of an experiment: half of the pool, every arm's subset, and what the ruler says of it, in the record.

Halves come in pairs that share no document: draws 0 and 1 are the two halves of one cut, 2 and 3 of the next. Every seed
follows from the experiment's, the number of the draw and the name of the arm.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.arms import chosen_places, engine_budget, learnt_texts
from datamask_pipeline.experiment.collection import Documents, Inputs, Ruler
from datamask_pipeline.experiment.config import ArmConfig, ExperimentConfig, ProxyConfig
from datamask_pipeline.experiment.measures import VERSION as MEASURES_VERSION
from datamask_pipeline.experiment.measures import measured
from datamask_pipeline.experiment.outside import Outside
from datamask_pipeline.experiment.planted import VERSION as PLANTED_VERSION
from datamask_pipeline.experiment.planted import found_of
from datamask_pipeline.experiment.proxy import VERSION as PROXY_VERSION
from datamask_pipeline.experiment.proxy import Curve, proxy_bits
from datamask_pipeline.ngram.trigram import Numbers, Texts
from datamask_pipeline.stages import ngram as ngram_stage
from datamask_pipeline.stages import pretrain as pretrain_stage
from datamask_pipeline.stages import select as select_stage
from datamask_pipeline.storage import Ref, Store, npy_bytes

STAGE: Final = "experiment"
VERSION: Final = "4"
#: Beside the table: bits of every item by every arm, then by every further random subset; each item's length; and where
#: networks are trained, the bits at each checkpoint, (C, A, I).
BITS, BYTES, CURVE = "bits.npy", "bytes.npy", "curve.npy"
#: What the further random subsets are called.
RANDOM = "random subset {}"


@dataclass(frozen=True)
class Drawn:
    """What a draw needs beside its number."""

    documents: Documents
    ruler: Ruler


def run(
    config: ExperimentConfig,
    pool: str,
    number: int,
    *,
    store: Store,
    inputs: Inputs,
    drawn: Callable[[], Drawn],
    outside: Mapping[str, Outside] | None = None,
    kept: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Ref:
    """Measure every arm on one draw, or find it measured.

    Args:
        config: The experiment.
        pool: Name of its pool.
        number: Which draw.
        store: The record.
        inputs: What it is drawn from.
        drawn: Reads that; called where something has to be measured.
        outside: Subsets that somebody else chose, by arm.
        kept: Folder of what networks found, shared by all draws and pools; ``None``: the record alone.
        tell: Told of each arm.

    Returns:
        A row for each arm and task.

    Raises:
        InputError: an arm has too few tokens.
    """
    proxy = config.proxy_of(pool)
    asked_with = store.manifest(inputs.questions)["basis"]["config"]
    settings = {
        # The engine and the ruler are theirs: what they change, they change here.
        "versions": {
            "select": select_stage.VERSION,
            "ngram": ngram_stage.VERSION,
            **({} if proxy is None else {"pretrain": pretrain_stage.VERSION, "proxy": PROXY_VERSION}),
            **({} if config.pools[pool].planted is None else {"planted": PLANTED_VERSION}),
        },
        "prompts": {name: asked_with[name] for name in ("shots", "fewshot_seed")},
        "pool": config.pools[pool].result_config(),
        "arms": {name: arm.result_config() for name, arm in config.arms.items()},
        **({} if config.grid is None else {"measures": MEASURES_VERSION}),
        **({"outside": {arm: each.digest for arm, each in outside.items()}} if outside else {}),
        "proxy": None if proxy is None else proxy.result_config(),
        "draw": number,
        **{name: getattr(config, name) for name in ("ratio", "num_random", "seed")},
    }
    key = f"{config.name}/{pool}/{number:03d}"
    with store.exclusive(STAGE, key):
        builder = store.begin(STAGE, key, version=VERSION, config=settings, inputs=inputs.refs())
        if (done := builder.finished()) is not None:
            return done
        found = drawn()
        networks = None if kept is None else kept / pool / f"{number:03d}"
        rows, bits_AI, curves, planted, measures = _measured(
            config, proxy, number, found, builder.scratch(), networks, tell
        )
        builder.write_file(BITS, npy_bytes(bits_AI.astype(np.float32)))
        if curves:
            bits_CAI = np.stack([curve.bits_CI for curve in curves], axis=1)
            builder.write_file(CURVE, npy_bytes(bits_CAI.astype(np.float32)))
        builder.write_file(BYTES, npy_bytes(found.ruler.bytes_I))
        part = builder.write_part(
            "00000", pa.Table.from_pylist(rows, schema.EXPERIMENT).to_batches(), schema.EXPERIMENT
        )
        tasks = list(dict.fromkeys(found.ruler.tasks))
        metadata = {
            "experiment": config.name,
            "pool": pool,
            "draw": number,
            "items": {task: found.ruler.tasks.count(task) for task in tasks},
            "pool_documents": len(found.documents.lengths_N),
            **({"curve_tokens": list(curves[0].tokens)} if curves else {}),
            **({} if proxy is None else {"cut": found.ruler.longer_than(proxy.architecture.sequence_length)}),
            **({} if config.pools[pool].planted is None else {"planted": planted}),
            **({} if config.grid is None else {"measures": measures}),
            **({"outside": _found_of(outside, found.documents)} if outside else {}),
        }
        return builder.commit([part], metadata=metadata)


def _found_of(outside: Mapping[str, Outside], documents: Documents) -> dict[str, dict[str, int]]:
    """Of each subset from outside its rows, and how many documents of the pool they are."""
    return {
        arm: {"rows": each.num_rows, "documents": int(documents.outside[arm].sum())}
        for arm, each in outside.items()
    }


def half_of(config: ExperimentConfig, num_documents: int, number: int) -> NDArray[np.int64]:
    """The documents of a draw, in canonical order: those of the other draw of its pair are all the others."""
    order_N = np.random.default_rng([config.seed, number // 2]).permutation(num_documents)
    return np.sort(order_N[number % 2 :: 2])


def draws_of(config: ExperimentConfig, number: int, what: str) -> np.random.Generator:
    """The random numbers of one arm on one draw."""
    name = int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], "big")
    return np.random.default_rng([config.seed, number, name])


def _measured(
    config: ExperimentConfig,
    proxy: ProxyConfig | None,
    number: int,
    found: Drawn,
    scratch: Path,
    networks: Path | None,
    tell: Callable[[str], None],
) -> tuple[
    list[dict[str, Any]],
    Numbers,
    list[Curve],
    dict[str, dict[str, float | None]],
    dict[str, dict[str, float]],
]:
    half = found.documents.part(half_of(config, len(found.documents.lengths_N), number))
    num_tokens = int(config.ratio * int(half.lengths_N.sum()))
    rows: list[dict[str, Any]] = []
    bits: list[Numbers] = []
    curves: list[Curve] = []
    planted: dict[str, dict[str, float | None]] = {}
    measures: dict[str, dict[str, float]] = {}
    chosen: dict[str, NDArray[np.int64]] = {}
    further = {RANDOM.format(place): ArmConfig() for place in range(config.num_random)}
    for name, arm in {**config.arms, **further}.items():
        tell(name)
        draws = draws_of(config, number, name)
        engine = None
        if name in config.arms:
            seed = int(draws.integers(2**31))
            wanted = max(num_tokens, int((arm.ratio or 0.0) * int(half.lengths_N.sum())))
            engine = config.engine(name, engine_budget(half, wanted), seed)
        try:
            places_n = chosen_places(arm, engine, half, num_tokens, draws, chosen, half.outside.get(name))
            ruler = found.ruler
            learnt = learnt_texts(arm, half, places_n, num_tokens, draws, ruler.encode, ruler.end)
        except InputError as error:
            raise InputError(f"arm {name!r} on draw {number}: {error}") from error
        chosen[name] = places_n
        trigram_I = found.ruler.bits(learnt)
        bits.append(trigram_I)
        if proxy is not None:
            network = proxy.pretrain(num_tokens, int(draws.integers(2**31)))
            kept = None if networks is None else networks / name
            curves.append(proxy_bits(learnt, found.ruler, network, scratch / name, kept))
            bits[-1] = curves[-1].result_I
        if name in config.arms:
            rows += _rows(name, learnt, half, places_n, found.ruler, bits[-1], trigram_I)
            learnt_n = places_n[: len(learnt.offsets_D) - 1]
            if half.planted is not None:
                planted[name] = found_of(half.planted, learnt_n)
            if config.grid is not None:
                measures[name] = measured(half, learnt_n)
    return rows, np.stack(bits), curves, planted, measures


def _rows(
    arm: str,
    learnt: Texts,
    half: Documents,
    places_n: NDArray[np.int64],
    ruler: Ruler,
    bits_I: Numbers,
    trigram_I: Numbers,
) -> list[dict[str, Any]]:
    lengths_n = half.lengths_N[places_n[: len(learnt.offsets_D) - 1]]
    low, median, high = np.quantile(lengths_n, [0.1, 0.5, 0.9])
    about = {
        "arm": arm,
        "documents": len(lengths_n),
        "tokens": len(learnt.tokens_T),
        "length_tenth": float(low),
        "length_median": float(median),
        "length_ninetieth": float(high),
    }
    tasks = np.array(ruler.tasks)
    return [
        {
            **about,
            "task": task,
            "bits": float(bits_I[tasks == task].sum()),
            "trigram_bits": float(trigram_I[tasks == task].sum()),
            "bytes": int(ruler.bytes_I[tasks == task].sum()),
        }
        for task in dict.fromkeys(ruler.tasks)
    ]
