"""Five crawls one after the other: releases that go on from the last one, against full re-selections of all crawls so far.

The stages that select run as in the pipeline (pool, copies, gather, select), over documents, vectors and scores that are
written into the record directly: nothing is ingested or embedded. Crawls are drawn around real vectors, each with a mix of
its own. From the second on, a hundredth of a crawl are exact copies of documents that both arms hold, and a hundredth
near-copies of such, each with the quality of some fresh document. Both sides collapse copies, as `copies.threshold` asks,
and both have the same two arms, one a metric: pool, copies and gather are made once for both.

Shape suffixes: N documents, n of them, M real vectors, C kinds, D dimensions.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.data import fill
from benchmarks.harness import (
    LAMB,
    Claim,
    Context,
    Outcome,
    Row,
    at_least,
    at_most,
    attainment,
    both_orders,
    processor_seconds,
)
from datamask_pipeline import Given, schema, select_documents
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.reasons import HELD
from datamask_pipeline.sources.content import content_hashes
from datamask_pipeline.stages import copies, embed, gather, ingest, pool, score, select
from datamask_pipeline.stages.release_rows import ReleaseRows, read_rows
from datamask_pipeline.storage import Ref, Store

TITLE = "Re-selection: five crawls of 200 000 documents, one after the other"
QUESTION = "What does it cost to go on from the last release, and what is lost against selecting from all crawls anew?"
LONG = True
CRAWLS, DOCUMENTS, ADDED = 5, 200_000, 20_000
KINDS, EVENNESS, DRAWN = 12, 0.7, 0.6
"""Kinds of real vectors; how even a crawl's mix of them is (of a Dirichlet distribution); share of the vectors in a mix."""
PLANTED = 0.01
THRESHOLD = 0.98
ARMS = ("Pair_simi", "DiSF_uncentred")
"""One of each metric, by its name. Facility takes no documents as held."""
CHUNK = 4_096
SHARED = ("pool", "copies", "gather")
GIVEN, ANEW = "given the last release", "all crawls anew"


def run(context: Context) -> Outcome:
    """Every crawl arrives, is selected from given the last release, and all crawls so far are selected from anew."""
    outcome, seed = Outcome(), context.seeds[0]
    folder = context.folder / "reselection"
    shutil.rmtree(folder, ignore_errors=True)
    world = _World(context, Store(folder), seed)
    for step in range(CRAWLS):
        planted = world.arrive(step)
        given = f"step{step - 1}" if step else None
        if step:
            went_on, whole = both_orders(
                lambda step=step, given=given: world.release(f"step{step}", given),  # type: ignore[misc]
                lambda step=step: world.release(f"whole{step}", None),  # type: ignore[misc]
                step,
            )
        else:
            went_on = whole = world.release("step0", None)
        for arm in ARMS:
            row = _row(GIVEN, arm, step, went_on)
            if step:
                row |= _compared(world, arm, went_on, whole) | _rates(world, arm, went_on, planted)
            outcome.rows += [row, _row(ANEW, arm, step, whole)]
        world.hold(went_on)
    _claim(outcome)
    outcome.notes += [
        "Attainment: the union's distance from random documents beside what was held, as a share of that of the best "
        "union found among all documents not held, old and new, beside the same held documents (`held rows fixed`); and "
        "its distance from random documents as a share of that of the full re-selection (`free`). All on the scale of the "
        "full re-selection of that step.",
        "What may not be concluded. The share is of a full re-selection that collapses near-copies too: one that leaves "
        "them in, as `copies.threshold: null` does, is cheaper. Five crawls of one size: where each step costs what its "
        "own crawl costs and a full re-selection what all cost, the share is 4 of 14 over the four re-selections and a "
        "third (5 of 15) with the first release, which is the same on both sides; less with more crawls, more with fewer. "
        "Nothing is ingested, embedded or scored here, which costs both sides alike, and nothing "
        "joined to texts. Attainment is of two metrics on made-up mixes; what is passed over may matter more where "
        "crawls differ more. No document of these crawls was ever trained on.",
    ]
    shutil.rmtree(folder)
    return outcome


def _claim(outcome: Outcome) -> None:
    for arm in ARMS:
        steps, anew = (
            [row for row in outcome.rows if row["method"] == method and row["metric"] == arm]
            for method in (GIVEN, ANEW)
        )
        later = steps[1:]
        planted = sum(row["planted"] for row in later)
        near, fresh = (
            sum(row[name] for row in later) / planted for name in ("near-copies chosen", "fresh chosen")
        )
        outcome.claims += [
            *_shares(f"{arm}: selection and index of near-copies", ("copies", "select"), steps, anew),
            *_shares(f"{arm}: all four stages", (*SHARED, "select"), steps, anew),
            at_least(
                f"{arm}: attainment, held rows fixed, least of the steps",
                0.97,
                min(row["attainment"] for row in later),
            ),
            at_most(
                f"{arm}: planted exact copies of what is held, chosen",
                0,
                sum(row["exact chosen"] for row in later),
            ),
            at_most(
                f"{arm}: near-copies chosen, share of the rate of fresh documents of their quality",
                0.1,
                near / fresh,
            ),
        ]


def _shares(text: str, stages: tuple[str, ...], steps: list[Row], anew: list[Row]) -> list[Claim]:
    """Of the releases that have one to go on from, and with the first, which costs both sides the same."""
    spent, whole = ([sum(row[f"{stage} cpu"] for stage in stages) for row in rows] for rows in (steps, anew))
    share = f"{text}: processor seconds, share of full re-selection's"
    return [
        at_most(f"{share}, of the four re-selections", 0.35, sum(spent[1:]) / sum(whole[1:])),
        at_most(f"{share}, of all five releases", 0.35, sum(spent) / sum(whole)),
    ]


def _row(method: str, arm: str, step: int, made: Release) -> Row:
    seconds = {stage: made.seconds[stage] for stage in SHARED} | {"select": made.seconds[arm]}
    row: Row = {"method": method, "metric": arm, "crawls": step + 1, "cpu_seconds": sum(seconds.values())}
    return row | {f"{stage} cpu": spent for stage, spent in seconds.items()}


class Release:
    """What was made of a release, and the processor seconds of each stage; masks by the names of their arms."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.refs: dict[str, Ref] = {}

    def did(self, stage: str, made: Ref, begun: float) -> Ref:
        """Take note of a stage."""
        self.seconds[stage], self.refs[stage] = processor_seconds() - begun, made
        return made


class _World:
    """The record and the crawls so far."""

    def __init__(self, context: Context, store: Store, seed: int) -> None:
        self.store, self.seed, self.draws = store, seed, np.random.default_rng(seed)
        self.base, self.size = context.base, context.size(DOCUMENTS)
        self.added = self.size * ADDED // DOCUMENTS
        real_MD = context.base.vectors_MD.astype(np.float32)
        centres_CD = real_MD[self.draws.choice(len(real_MD), KINDS, replace=False)]
        self.kind_M = np.argmax(real_MD @ centres_CD.T, axis=1)
        self.direction_D = self.draws.standard_normal(real_MD.shape[1]).astype(np.float32)
        along_M = real_MD @ self.direction_D
        self.scale = (float(along_M.mean()), float(along_M.std()))
        self.documents: dict[str, Ref] = {}
        self.embeddings: dict[str, Ref] = {}
        self.scores: dict[str, Ref] = {}
        self.vectors: dict[str, NDArray[np.float16]] = {}
        self.texts: dict[str, list[str]] = {}
        self.quality: dict[str, NDArray[np.float64]] = {}
        self.held: list[tuple[str, int]] = []

    def arrive(self, step: int) -> dict[str, NDArray[np.int64]]:
        """A crawl of a mix of its own; the rows of its planted copies, and of the fresh ones of the same quality."""
        crawl = f"crawl{step}"
        weights_M = self.draws.dirichlet(np.full(KINDS, EVENNESS))[self.kind_M]
        weights_M /= weights_M.sum()
        some = self.draws.choice(len(weights_M), round(DRAWN * len(weights_M)), p=weights_M)
        vectors_ND = np.empty((self.size, self.base.vectors_MD.shape[1]), np.float16)
        fill(vectors_ND, replace(self.base, vectors_MD=self.base.vectors_MD[some]), self.seed * 1000 + step)
        texts = [f"document {row} of {crawl}" for row in range(self.size)]
        planted: dict[str, NDArray[np.int64]] = {}
        if step:
            count = max(2, round(PLANTED * self.size))
            rows = self.draws.choice(self.size, 3 * count, replace=False)
            planted = {"exact": rows[:count], "near": rows[count : 2 * count], "fresh": rows[2 * count :]}
            chosen = self.draws.choice(len(self.held), 2 * count)
            for row, place in zip(rows[: 2 * count], chosen, strict=True):
                source, place_there = self.held[place]
                vectors_ND[row] = self.vectors[source][place_there]
            for row, place in zip(planted["exact"], chosen, strict=False):
                source, place_there = self.held[place]
                texts[row] = self.texts[source][place_there]
            vectors_ND[planted["near"]] = self._moved(vectors_ND[planted["near"]])
        quality_N = self._quality(vectors_ND)
        if step:
            quality_N[planted["near"]] = quality_N[planted["fresh"]]
        self._write(crawl, vectors_ND, texts, quality_N)
        return planted

    def _moved(self, rows_nD: NDArray[np.float16]) -> NDArray[np.float16]:
        """Unit vectors at cosines from .981 to .999 to these, in random directions."""
        first_nD = rows_nD.astype(np.float64)
        first_nD /= np.linalg.norm(first_nD, axis=1, keepdims=True)
        noise_nD = self.draws.standard_normal(first_nD.shape)
        noise_nD -= (noise_nD * first_nD).sum(1, keepdims=True) * first_nD
        noise_nD /= np.linalg.norm(noise_nD, axis=1, keepdims=True)
        cosines_n1 = self.draws.uniform(0.981, 0.999, (len(first_nD), 1))
        return (cosines_n1 * first_nD + np.sqrt(1 - cosines_n1**2) * noise_nD).astype(np.float16)

    def _quality(self, vectors_ND: NDArray[np.float16]) -> NDArray[np.float64]:
        """Half a direction of the vectors, half noise; of all crawls on one scale."""
        along = [
            vectors_ND[start : start + CHUNK].astype(np.float32) @ self.direction_D
            for start in range(0, len(vectors_ND), CHUNK)
        ]
        mean, deviation = self.scale
        along_N = (np.concatenate(along).astype(np.float64) - mean) / deviation
        return np.sqrt(0.5) * (along_N + self.draws.standard_normal(len(along_N)))

    def _write(
        self, crawl: str, vectors_ND: NDArray[np.float16], texts: list[str], quality_N: NDArray[np.float64]
    ) -> None:
        """Documents, vectors and scores as their stages leave them."""
        size, name = len(texts), "00000"
        ids = pa.array([f"{crawl}-{row:07d}" for row in range(size)])
        hashes = content_hashes(pa.array(texts))
        values: dict[str, Any] = {
            "text": pa.array(texts),
            "id": ids,
            "dump": pa.array([crawl] * size),
            "url": pa.array([f"https://{row % 997}.example/{crawl}/{row}" for row in range(size)]),
            "token_count": pa.array(np.full(size, 4)),
            "crawl": pa.array([crawl] * size),
            "shard": pa.array([name] * size),
            "row": pa.array(np.arange(size)),
            "content_hash": hashes,
        }
        columns = [values.get(f.name, pa.nulls(size, f.type)) for f in schema.DOCUMENTS]
        counts = {"rows_in": size, "kept": size}
        documents = self.store.begin(ingest.STAGE, crawl, version="benchmark", config={}, inputs={})
        part = documents.write_part(name, [pa.table(columns, schema=schema.DOCUMENTS)], schema.DOCUMENTS)
        self.documents[crawl] = documents.commit([part], counts=counts)
        inputs = {"documents": self.documents[crawl]}
        vectors = self.store.begin(embed.STAGE, crawl, version="benchmark", config={}, inputs=inputs)
        array = vectors.write_array(name, [vectors_ND], dtype="float16", shape=vectors_ND.shape)
        rows = pa.table([ids, hashes], schema=schema.EMBEDDINGS)
        part = vectors.write_part(name, [rows], schema.EMBEDDINGS, array=array)
        self.embeddings[crawl] = vectors.commit([part], counts=counts)
        scores = self.store.begin(score.STAGE, crawl, version="benchmark", config={}, inputs=inputs)
        told = {"id": ids, "scorer": pa.array(["drawn"] * size), "score": pa.array(quality_N)}
        columns = [told.get(f.name, pa.nulls(size, f.type)) for f in schema.SCORES]
        part = scores.write_part(name, [pa.table(columns, schema=schema.SCORES)], schema.SCORES)
        self.scores[crawl] = scores.commit([part], counts=counts)
        path = self.store.file_path(self.embeddings[crawl], f"{name}.npy")
        self.vectors[crawl] = np.load(path, mmap_mode="r")
        self.texts[crawl], self.quality[crawl] = texts, quality_N

    def release(self, name: str, given: str | None) -> Release:
        """The stages that select, timed by the processor."""
        store, made = self.store, Release()

        def held(stage: str) -> dict[str, Any]:
            return {} if given is None else {"held": store.current(stage, given)}

        begun = processor_seconds()
        candidates = made.did(
            "pool",
            pool.run(
                pool.PoolConfig(validation_share=0.0),
                store=store,
                release=name,
                documents=self.documents,
                **held("pool"),
            ),
            begun,
        )
        begun = processor_seconds()
        near = made.did(
            "copies",
            copies.run(
                copies.CopiesConfig(threshold=THRESHOLD),
                store=store,
                release=name,
                candidates=candidates,
                embeddings=self.embeddings,
                **held("copies"),
            ),
            begun,
        )
        begun = processor_seconds()
        index = made.did(
            "gather",
            gather.run(
                gather.GatherConfig(),
                store=store,
                release=name,
                candidates=candidates,
                embeddings=self.embeddings,
                scores=self.scores,
                copies=near,
                **held("gather"),
            ),
            begun,
        )
        count = self.added if given is not None else self.added * len(self.documents)
        for arm in ARMS:
            before = (
                {} if given is None else {"given": given, "held": store.current("select", f"{given}/{arm}")}
            )
            config = select.SelectConfig.of(
                {"policy": "datamask", "lamb": LAMB, "diversity": arm, "num_documents": count}
            )
            begun = processor_seconds()
            mask, _ = select.run(
                config, store=store, release=name, arm=arm, index=index, embeddings=self.embeddings, **before
            )
            made.did(arm, mask, begun)
        return made

    def chosen(self, made: Release, arm: str) -> list[tuple[str, int]]:
        """The documents of a mask, by crawl and row."""
        taken = self.store.read_table(made.refs[arm], ["crawl", "id", "selected"]).filter(
            pc.field("selected")
        )
        pairs = zip(taken.column("crawl").to_pylist(), taken.column("id").to_pylist(), strict=True)
        return [(crawl, int(one.rpartition("-")[2])) for crawl, one in pairs]

    def hold(self, made: Release) -> None:
        """What all arms hold from now on: copies are made of these."""
        first, *others = (self.chosen(made, arm) for arm in ARMS)
        by_all = set(first).intersection(*others)
        self.held = [one for one in first if one in by_all]

    def rows_of(self, made: Release) -> ReleaseRows:
        """What a release's mask was learnt from."""
        return read_rows(self.store, made.refs["gather"], self.embeddings, {}, "rank", None)


def _compared(world: _World, arm: str, went_on: Release, whole: Release) -> Row:
    """Attainment of the union: held rows fixed, and free; on the scale of the full re-selection."""
    store = world.store
    rows = world.rows_of(went_on)
    assert rows.vectors is not None
    mask = store.read_table(went_on.refs[arm], ["selected", "reason"])
    selected_N = mask.column("selected").to_numpy()
    held_N = np.asarray(mask.column("reason").to_numpy() == HELD)
    (block,) = store.manifest(whole.refs[arm])["metadata"]["blocks"]
    scale = {name: (ends[0], ends[1]) for name, ends in block["normalisation"].items()}
    metric = METRICS.find(arm)()

    def held(chosen_N: NDArray[np.bool_]) -> Given:
        assert rows.vectors is not None
        part = rows.vectors.chosen(np.flatnonzero(chosen_N))
        return Given.of(part, rows.quality_N[chosen_N], second=metric.needs_second)

    fixed = select_documents(
        rows.vectors.chosen(np.flatnonzero(~held_N)),
        rows.quality_N[~held_N],
        given=held(held_N),
        num_documents=world.added,
        diversity=arm,
        lamb=LAMB,
        normalisation_constants=scale,
    )
    union = held(selected_N)
    raw = {
        "quality": union.quality["quality"] / union.count,
        arm: metric.value(union.moments(needs_second=metric.needs_second)),
    }
    quality, diversity = (
        (raw[name] - scale[name][0]) / (scale[name][1] - scale[name][0]) for name in ("quality", arm)
    )
    value = LAMB * quality + (1 - LAMB) * diversity
    free = store.manifest(whole.refs[arm])["metadata"]["objective"]
    told = store.manifest(went_on.refs[arm])["metadata"]["blocks"][0]
    return {
        "objective": value,
        "attainment": attainment(value, fixed.objective.random, fixed.objective.value),
        "attainment, free": attainment(value, 0.0, free),
        "gap": told["certificate"]["gap"],
        "held share": told["record"]["given"]["share"],
    }


def _rates(world: _World, arm: str, made: Release, planted: dict[str, NDArray[np.int64]]) -> Row:
    """How many of the planted copies, and of the fresh documents of the same quality, were chosen."""
    crawl = next(reversed(world.documents))
    chosen = {row for name, row in world.chosen(made, arm) if name == crawl}
    numbers = {kind: sum(int(row) in chosen for row in rows) for kind, rows in planted.items()}
    return {
        "planted": len(planted["near"]),
        "exact chosen": numbers["exact"],
        "near-copies chosen": numbers["near"],
        "fresh chosen": numbers["fresh"],
    }
