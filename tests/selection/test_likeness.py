"""Like these, unlike those: planted relatives are found, the objective is its formula, and no mask exceeds the bound."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from selection.mask_record import record_of
from typer.testing import CliRunner

from datamask_pipeline import select_documents
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError

Rows = NDArray[np.float64]


def unit(rows: Rows) -> Rows:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def planted(seed: int, num_shown: int = 6) -> tuple[Rows, NDArray[np.bool_], Rows]:
    """A pool of 900 around 30 topics that crowd differently, three of them wanted, and a few shown of each of these."""
    draws = np.random.default_rng(seed)
    centres = 0.6 * draws.normal(size=32) + draws.normal(size=(30, 32))
    topic = np.concatenate([draws.integers(3, 30, 810), np.repeat(np.arange(3), 30 + num_shown)])
    spread = draws.uniform(0.4, 1.3, 30)[topic, None]
    rows = unit(centres[topic] + spread * draws.normal(size=(len(topic), 32)))
    shown = np.zeros(len(topic), bool)
    for wanted in range(3):
        shown[np.flatnonzero(topic == wanted)[:num_shown]] = True
    return rows[~shown], (topic < 3)[~shown], rows[shown]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
def test_planted_relatives_are_found_about_as_well_as_by_similarity_alone(name: str) -> None:
    ours, search, best = [], [], []
    for seed in range(2):
        rows, wanted, shown = planted(seed)
        quality = np.random.default_rng(seed + 9).random(len(rows))
        result = select_documents(
            rows, quality, target=shown, diversity=name, num_documents=int(wanted.sum())
        )
        nearest = (rows @ shown.T).max(1)
        for found, chosen in (
            (ours, result.mask), (search, np.argsort(-nearest)[:90]), (best, np.argsort(-quality)[:90])
        ):  # fmt: skip
            found.append(wanted[chosen].mean())
        assert result.certificate.gap is not None
        assert result.certificate.gap < 0.02
        assert result.record["shown"]["target"]["vectors"] == 18
    assert np.mean(ours) >= np.mean(search) - 0.03
    assert np.mean(ours) > 0.75
    assert np.mean(ours) > np.mean(best) + 0.5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "Facility"])
def test_what_is_to_be_avoided_is(name: str) -> None:
    rows, unwanted, shown = planted(1)
    settings = {"diversity": name, "ratio": 0.2, "num_steps": 8, "lamb": 0.7}
    quality = np.random.default_rng(0).random(len(rows)) + unwanted
    free = select_documents(rows, quality, **settings)
    kept = select_documents(rows, quality, avoid=shown, **settings)
    assert unwanted[free.mask].mean() > 0.3
    assert unwanted[kept.mask].mean() < 0.05


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
@pytest.mark.parametrize(("held", "in_tokens"), [(False, False), (True, False), (False, True)])
def test_the_objective_is_its_formula_and_the_bound_holds_of_every_mask(
    name: str, held: bool, in_tokens: bool
) -> None:
    rows, _, shown = planted(2)
    rows = rows[np.r_[:6, -5:0]]
    draws = np.random.default_rng(5)
    quality, others = draws.random(11), unit(draws.normal(size=(4, 32)))
    settings = {"diversity": name, "num_documents": 4, "target": shown, "avoid": others, "dtype": "float32"}
    lengths = draws.integers(5, 40, 11)
    if in_tokens:
        del settings["num_documents"]
        settings |= {"num_tokens": 100, "token_counts": lengths}
    given = None
    if held:
        given = select_documents(unit(draws.normal(size=(8, 32))), draws.random(8), **settings).held
    result = select_documents(rows, quality, given=given, **settings)
    power = 1 if name == "Pair_simi" else 2

    def diversity(chosen: Rows) -> float:
        pairs, count = (chosen @ chosen.T) ** power, len(chosen)
        own = (pairs.sum() - np.trace(pairs)) / (count * (count - 1)) if power == 1 else pairs.mean()
        return 2 * ((chosen @ shown.T) ** power).mean() - 2 * ((chosen @ others.T) ** power).mean() - own

    if held:
        assert {"target", "avoid"} <= set(given.quality)
        assert result.objective.value <= result.certificate.bound
        return
    scores = {
        "quality": quality, "target": (rows @ shown.T).max(1), "avoid": -(rows @ others.T).max(1)
    }  # fmt: skip
    ends, values = result.normalisation, {}
    masks = [list(mask) for mask in combinations(range(11), 4)]
    if in_tokens:
        every = (list(mask) for count in range(2, 11) for mask in combinations(range(11), count))
        left = ((mask, 100 - lengths[mask].sum()) for mask in every)
        masks = [mask for mask, rest in left if 0 <= rest < np.delete(lengths, mask).min()]
    for mask in masks:
        terms = {
            kind: (scores[kind][mask].mean() - ends[kind][0]) / (ends[kind][1] - ends[kind][0])
            for kind in scores
        }
        spread = (diversity(rows[mask]) - ends[name][0]) / (ends[name][1] - ends[name][0])
        values[tuple(mask)] = (
            0.5 * (terms["quality"] + 9 * terms["target"] + 9 * terms["avoid"]) / 19 + 0.5 * spread
        )
    if not in_tokens:
        assert np.mean([diversity(rows[mask]) for mask in masks]) == pytest.approx(ends[name][0], abs=1e-6)
    chosen = tuple(np.flatnonzero(result.mask).tolist())
    assert result.objective.value == pytest.approx(values[chosen], abs=1e-5)
    assert result.certificate.bound >= max(values.values()) - 1e-5
    # Marginals are exact: with the count held still, one document in or out.
    inside = next(iter(chosen))
    fewer = [row for row in chosen if row != inside]
    pairs = (rows[[inside]] @ rows[fewer].T) ** power
    alone = 0 if power == 1 else 1
    count = len(chosen)
    scale = count * (count - 1) if power == 1 else count**2
    moved = -(2 * pairs.sum() + alone) / scale
    moved += (
        2 * (((rows[inside] @ shown.T) ** power).mean() - ((rows[inside] @ others.T) ** power).mean()) / count
    )
    expected = 0.5 * moved / (ends[name][1] - ends[name][0])
    assert result.marginals.diversity_N[inside] == pytest.approx(expected, abs=1e-5)


def test_what_cannot_be_shown_is_refused(clustered) -> None:
    rows, quality = clustered
    for name in ("target", "avoid"):
        with pytest.raises(
            InputError, match=rf"vectors have 8 dimensions, the documents 16 \(field {name}\)"
        ):
            select_documents(rows, quality, **{name: rows[:5, :8]})
        with pytest.raises(InputError, match=rf"zero vector.*row 2, field {name}"):
            select_documents(rows, quality, **{name: np.diag([1.0, 1, 0] + [1] * 13)})
    with pytest.raises(ConfigurationError, match="called as `target=` is"):
        select_documents(rows, {"target": quality}, target=rows[:5])
    with pytest.raises(ConfigurationError, match="quality_weights names"):
        select_documents(rows, quality, quality_weights={"quality": 1, "target": 2})


def test_a_weight_of_its_own_and_the_command_line(clustered, tmp_path: Path) -> None:
    rows, quality = clustered
    like = rows[:3] @ rows.T
    result = select_documents(
        rows, quality, target=rows[:3], lamb=1.0, quality_weights={"quality": 0, "target": 1}
    )
    assert set(np.flatnonzero(result.mask)) == set(np.argsort(-like.max(0))[:40])
    names = ("in", "shown", "bad")
    tables = [
        {"chunk_id": range(400), "quality_score": quality, "feature_arr": list(rows)},
        {"feature_arr": list(rows[:3])},
        {"feature_arr": list(rows[:3] * np.array([[1], [0], [1]], np.float32))},
    ]
    for name, table in zip(names, tables, strict=True):
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    files = {"input": tmp_path / "in.parquet", "output": tmp_path / "out.parquet"}
    weighed = "quality_weights={quality_score: 0, target: 1}"

    def by_command(*options: str) -> None:
        paths = ["-i", str(files["input"]), "-o", str(files["output"])]
        CliRunner().invoke(app, ["select", *paths, *options], catch_exceptions=False)

    by_command("--lamb", "1", "--target", str(tmp_path / "shown.parquet"), "-s", weighed)
    written = pq.read_table(files["output"]).column("selected").to_numpy()
    assert np.array_equal(written, result.mask)
    assert record_of(files["output"])["shown"]["target"]["vectors"] == 3
    with pytest.raises(InputError, match=r"bad\.parquet, row 1, field feature_arr"):
        by_command("--avoid", str(tmp_path / "bad.parquet"))
