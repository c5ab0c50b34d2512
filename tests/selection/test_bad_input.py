"""What cannot be selected from is refused at once, naming the row or the field."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from datamask_pipeline import Shard, frontier, select_documents, select_over_shards
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.errors import ConfigurationError, InputError, UnknownNameError
from datamask_pipeline.families import POLICIES


def spoilt(rows, row, value):
    rows = rows.copy()
    rows[row] = value
    return rows


class Broken(DiversityMetric):
    name = "Broken"

    def values(self, embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        return torch.full((len(masks_GN),), float("nan"))


SETTINGS = [
    ({"ratio": 0.0}, "ratio"),
    ({"ratio": 1.5}, "ratio"),
    ({"ratio": 0.001}, "at least 2"),
    ({"num_documents": 401}, "401 documents, the block has 400"),
    ({"num_documents": 5, "ratio": 0.1}, "one budget"),
    ({"lamb": 1.2}, "lamb"),
    ({"lamb": -0.1}, "lamb"),
    ({"lamb": float("nan")}, "lamb"),
    ({"policy": "policy_gradient", "num_rollouts": 1}, "num_rollouts"),
    ({"device": "cuda:7"}, "cpu"),
    ({"device": "toaster"}, "cpu"),
    ({"diversity": Broken()}, "Broken"),
    ({"colour": "red"}, "colour"),
    ({"min_lr": 20.0}, "min_lr"),
    ({"diversity": {"Pair_simi": -1.0}}, "positive"),
    ({"diversity_options": {"LogDet": {"scale": 2.0}}}, "not used"),
    ({"diversity": "LogDet", "diversity_options": {"LogDet": {"scale": 1e9}}}, "LogDet.*scale.*1000000"),
    ({"quality_weights": {"other": 1.0}}, "other"),
    ({"num_tokens": 10**9, "token_counts": np.ones(400)}, "more than the block's 400"),
    ({"quotas": {"a": 0.5, "b": 0.6}}, "sum to 1"),
    (
        {"quotas": {"a": 0.5, "b": 0.5}, "groups": ["a"] * 399 + ["b"]},
        "'b' is 20 documents, and the block has 1 that",
    ),
    ({"quality_pruning": 0.95}, "quality_pruning"),
    ({"normalisation_constants": {"quality": (0.0, 1.0)}}, "Pair_simi"),
    ({"normalisation_constants": {"quality": (1.0, 1.0), "Pair_simi": (0.0, 1.0)}}, "quality"),
    ({"policy": "policy_gradient", "partial": 0.01, "ratio": 0.02}, "partial"),
    ({"policy": "policy_gradient", "estimator": "expected", "diversity": "DiSF"}, "DiSF"),
    ({"policy": "greedy", "num_tokens": 20, "token_counts": np.ones(400)}, "num_tokens"),
]


@pytest.mark.parametrize(("settings", "said"), SETTINGS, ids=[said for _, said in SETTINGS])
def test_a_wrong_setting_is_named_before_the_policy_works(
    settings, said, clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    for policy in POLICIES.classes().values():
        monkeypatch.setattr(policy, "choose", lambda *_: pytest.fail("the policy was set to work"))
    with pytest.raises(ConfigurationError, match=said.replace("(", r"\(")):
        select_documents(*clustered, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "greedy", "num_tokens": 200, "token_counts": np.ones(400)},
        {"policy": "policy_gradient", "partial": 0.01, "ratio": 0.02},
        {"quality_weights": {"other": 1.0}},
        {
            "policy": "policy_gradient",
            "log_prob": "plackett_luce",
            "num_tokens": 200,
            "token_counts": np.ones(400),
        },
    ],
    ids=str,
)
def test_what_does_not_fit_the_block_is_told_before_anything_is_measured(
    settings, clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = "datamask_pipeline.selection.api.random_values"
    monkeypatch.setattr(measure, lambda *_: pytest.fail("random masks were measured"))
    with pytest.raises(ConfigurationError):
        select_documents(*clustered, **settings)


@pytest.mark.parametrize(
    ("row", "value", "said"), [(7, np.nan, "row 7"), (9, np.inf, "row 9"), (11, 0.0, "zero vector .*row 11")]
)
def test_a_bad_embedding_is_named(row, value, said, clustered) -> None:
    with pytest.raises(InputError, match=said):
        select_documents(spoilt(clustered[0], row, value), clustered[1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_score_is_named(value, clustered) -> None:
    with pytest.raises(InputError, match="row 3, field edu"):
        select_documents(clustered[0], {"edu": spoilt(clustered[1], 3, value)})


def test_shapes(clustered) -> None:
    rows, quality = clustered
    with pytest.raises(InputError, match="two dimensions"):
        select_documents(rows[0], quality)
    with pytest.raises(InputError, match="400 embeddings"):
        select_documents(rows, quality[:-1])
    with pytest.raises(InputError, match="documents and features, some of each"):
        select_documents(rows[:0], quality[:0])
    with pytest.raises(InputError, match=r"some of each \(field target"):
        select_documents(rows, quality, target=rows[:0])
    for other in (str, complex):
        with pytest.raises(InputError, match="must be real numbers"):
            select_documents(rows.astype(other), quality)


def test_missing_scores_are_not_zero(clustered) -> None:
    scores = clustered[1].astype(object)
    scores[5] = None
    with pytest.raises(InputError):
        select_documents(clustered[0], scores)


def test_a_score_that_float64_does_not_hold_is_refused(clustered) -> None:
    with pytest.raises(InputError, match=r"no number that float64 holds \(field quality"):
        select_documents(clustered[0], [10**400, *range(399)])


def test_scores_whose_sum_float64_does_not_hold_are_refused(clustered) -> None:
    largest = spoilt(clustered[1], [7, 300], np.finfo(np.float64).max)
    with pytest.raises(InputError, match=r"does not hold their sum \(row 7, field quality"):
        select_documents(clustered[0], largest, diversity="Facility", normalisation="none")
    with pytest.raises(InputError, match=r"token counts are so large.*row 7, field token_counts"):
        select_documents(*clustered[:2], token_counts=largest, num_tokens=10)


def test_an_archive_of_arrays_is_told_as_one(clustered, tmp_path: Path) -> None:
    archive, vectors = tmp_path / "v.npz", tmp_path / "v.npy"
    np.savez(archive, clustered[0])
    np.save(vectors, clustered[0])
    with pytest.raises(InputError, match=r"an archive of arrays, not one array .*v\.npz"):
        select_documents(archive, clustered[1])
    with pytest.raises(InputError, match=r"an archive of arrays, not one array .*v\.npz"):
        select_over_shards([Shard(vectors=vectors, quality={"q": archive})], tmp_path / "out", engine="here")


@pytest.mark.parametrize(
    ("ids", "said"), [([*range(399), 3], "row 3 already"), ([None, *range(399)], "row 0")]
)
def test_ids(ids, said, clustered) -> None:
    with pytest.raises(InputError, match=said):
        select_documents(*clustered, ids=ids)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("tensor", [torch.ones(400).bfloat16(), torch.ones(400, requires_grad=True)])
def test_token_counts_may_be_any_tensor(clustered, tensor) -> None:
    settings = {"policy": "quality_topk", "num_tokens": 50, "token_counts": tensor}
    assert select_documents(*clustered, **settings).record["selected_tokens"] == 50
    assert frontier(*clustered, lambs=[0.5], **settings | {"policy": "datamask"}).results[0].mask.sum() == 50


def test_token_counts(clustered) -> None:
    with pytest.raises(InputError, match="token_counts"):
        select_documents(*clustered, num_tokens=50)
    with pytest.raises(InputError, match="row 2"):
        select_documents(*clustered, num_tokens=50, token_counts=spoilt(np.ones(400), 2, 0))
    with pytest.raises(InputError, match=r"below 0 \(row 2, field token_counts, value -5"):
        select_documents(*clustered, policy="random", token_counts=spoilt(np.ones(400), 2, -5))
    empty = select_documents(*clustered, policy="random", token_counts=np.zeros(400))
    assert empty.record["selected_tokens"] == 0


def test_groups(clustered) -> None:
    with pytest.raises(InputError, match="row 0"):
        select_documents(*clustered, quotas={"a": 1.0}, groups=["x"] * 400)
    with pytest.raises(InputError, match="groups"):
        select_documents(*clustered, quotas={"a": 1.0})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"config": {"ratio": 0.1}}, "config must be a SelectionConfig, not {'ratio': 0.1}"),
        ({"progress": True}, "progress must be a function.*not True"),
        ({"checkpoint_dir": 3}, "checkpoint_dir must be the path of a folder, not 3"),
        ({"known_groups": None}, "known_groups must be a list.*not None"),
        ({"known_groups": "ab"}, "known_groups must be a list.*not 'ab'"),
        ({"known_groups": ["a", None]}, "known_groups must be strings.*not None"),
        ({"ids": 3}, "as many ids .*value 3"),
        ({"ids": np.array(3)}, "as many ids .*value"),
        ({"groups": 3, "quotas": {"a": 1.0}}, "field groups"),
        ({"groups": np.array("a"), "quotas": {"a": 1.0}}, "field groups"),
    ],
)
def test_an_argument_of_another_kind_is_named(given: dict[str, Any], said: str, clustered) -> None:
    with pytest.raises((ConfigurationError, InputError), match=said):
        select_documents(*clustered, **given)


def test_zero_range_is_refused_only_where_it_counts(clustered) -> None:
    with pytest.raises(ConfigurationError, match="'quality' cannot be normalised"):
        select_documents(clustered[0], np.ones(400))
    assert select_documents(clustered[0], np.ones(400), lamb=0.0, num_kicks=0).mask.sum() == 40
    same = np.tile(clustered[0][:1], (400, 1))
    with pytest.raises(ConfigurationError, match="'Pair_simi' cannot be normalised"):
        select_documents(same, clustered[1])


@pytest.mark.parametrize(
    ("constant", "remedy", "followed"),
    [
        (("quality",), "choose by diversity alone with lamb 0", {"lamb": 0.0}),
        (("quality",), "or use normalisation none", {"normalisation": "none"}),
        (("a",), "give 'a' weight 0 in quality_weights", {"quality_weights": {"a": 0.0, "b": 1.0}}),
        (("a", "b"), "give 'a' weight 0 in quality_weights", {"lamb": 0.0}),
        (("rows",), "choose by quality alone with lamb 1", {"lamb": 1.0}),
    ],
)
def test_what_is_advised_about_a_term_without_a_range_can_be_followed(
    clustered, constant: tuple[str, ...], remedy: str, followed: dict[str, Any]
) -> None:
    """It was to be left out, which quality cannot be."""
    rows, quality = clustered
    scores = dict.fromkeys(("a", "b") if "a" in constant else ("quality",), quality)
    scores |= {name: np.ones(400) for name in constant if name != "rows"}
    rows = np.tile(rows[:1], (400, 1)) if "rows" in constant else rows
    with pytest.raises(ConfigurationError, match=remedy):
        select_documents(rows, scores)
    assert select_documents(rows, scores, num_kicks=0, **followed).mask.sum() == 40


def test_of_two_constant_scores_the_last_that_has_weight_is_not_to_lose_it(clustered) -> None:
    rows, scores = clustered[0], {"a": np.ones(400), "b": np.ones(400)}
    with pytest.raises(ConfigurationError, match=r"'b' cannot be normalised.*lamb 0"):
        select_documents(rows, scores, quality_weights={"a": 0.0, "b": 1.0})


def test_unknown_names(clustered) -> None:
    with pytest.raises(UnknownNameError, match="semdedup"):
        select_documents(*clustered, policy="best")
    with pytest.raises(UnknownNameError, match="Facility"):
        select_documents(*clustered, diversity="facility")


def test_what_cannot_be_read_or_looked_up_is_one_clear_line(clustered) -> None:
    rows, quality = clustered
    tensor = torch.from_numpy(rows)
    for sparse in (tensor.to_sparse(), tensor.half().to_sparse()):
        with pytest.raises(InputError, match=r"a sparse tensor cannot be read .*to_dense"):
            select_documents(sparse, quality)
    with pytest.raises(InputError, match=r"a sparse tensor cannot be read \(field quality"):
        select_documents(rows, torch.from_numpy(quality).to_sparse())
    for spoilt_one in ({"embeddings": csr_matrix(rows)}, {"quality": csr_matrix(quality)}):
        given = {"embeddings": rows, "quality": quality, **spoilt_one}
        with pytest.raises(
            InputError, match=rf"a sparse array cannot be read .*{next(iter(spoilt_one))}.*toarray"
        ):
            select_documents(**given)
    with pytest.raises(InputError, match=r"looked up \(row 0, field ids"):
        select_documents(rows, quality, ids=[rows[0]] * 400)
    lists = [[row] for row in range(400)]
    with pytest.raises(InputError, match=r"looked up \(row 0, field ids, value \[0\]\)"):
        select_documents(rows, quality, ids=lists)
    with pytest.raises(InputError, match=r"no name \(row 0, field groups, value \[0\]\)"):
        select_documents(rows, quality, groups=lists, quotas={"*": 1.0})


@pytest.mark.parametrize("given", [lambda rows, masks: 0, 3, [("Pair_simi", "much")], {}])
def test_what_is_no_metric_is_refused_with_what_would_be(given, clustered) -> None:
    with pytest.raises(ConfigurationError, match="diversity"):
        select_documents(*clustered, diversity=given)


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["affine", "none"])
def test_disf_of_two_documents_is_refused_where_it_counts(normalisation: str, tmp_path: Path) -> None:
    """All correlations of two points are 1 or -1, and float32 products do not tell a small difference from none."""
    draws = np.random.default_rng(1)
    rows, quality = draws.normal(size=(50, 5)).astype(np.float32), draws.random(50)
    wanted = {"diversity": "DiSF", "num_documents": 2, "normalisation": normalisation, "num_steps": 5}
    np.save(tmp_path / "v.npy", rows)
    np.save(tmp_path / "q.npy", quality)
    shards = [Shard(vectors=tmp_path / "v.npy", quality={"q": tmp_path / "q.npy"})]
    for call in (
        lambda **given: select_documents(rows, quality, **given),
        lambda **given: select_documents(rows, quality, **given, policy="random"),
        lambda **given: frontier(rows, quality, lambs=[0.5], **given),
        lambda **given: select_over_shards(shards, tmp_path / "out", engine="here", **given),
    ):
        settings = {name: value for name, value in wanted.items() if name != "num_steps"}
        with pytest.raises(
            ConfigurationError, match=r"'DiSF' has no range: .* 2 documents apart; select at least 3"
        ):
            call(**settings)
    assert select_documents(rows, quality, **wanted, lamb=1.0).mask.sum() == 2
    held = select_documents(rows[:30], quality[:30], **wanted | {"num_documents": 3}).held
    assert select_documents(rows[30:], quality[30:], **wanted, given=held).mask.sum() == 2


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_rows_beyond_float32_are_told_as_such(scale: float, clustered, tmp_path: Path) -> None:
    rows, quality = clustered[0].astype(np.float64), clustered[1]
    rows[7] *= scale
    np.save(tmp_path / "v.npy", rows)
    said = re.escape(f"(row 7, field embeddings, value {float(np.abs(rows[7]).max())!r}); divide")
    for given in (rows, torch.from_numpy(rows), tmp_path / "v.npy"):
        with pytest.raises(InputError, match="beyond the range of float32 " + said):
            select_documents(given, quality)
    with pytest.raises(InputError, match="zero vector"):
        select_documents(spoilt(clustered[0], 7, 0.0), quality)


def test_a_score_that_is_not_finite_has_a_remedy(clustered) -> None:
    rows, quality = clustered
    wrong = quality.copy()
    wrong[7] = np.nan
    with pytest.raises(InputError, match=r"not finite.*row 7, field quality.*; drop the document"):
        select_documents(rows, wrong)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(
            ({"workers": one}, f"workers must be a whole number.*{one!r}")
            for one in (0, 1.5, "2", None, True)
        ),
        ({"folder": None}, "folder must be the path of a folder, not None"),
        ({"folder": __file__}, "folder .* is a file"),
        ({"folder": f"{__file__}/below"}, "folder .* lies below one"),
    ],
)
def test_over_shards_workers_and_folder_of_another_kind_are_named(given, said, clustered, tmp_path) -> None:
    np.save(tmp_path / "vectors.npy", clustered[0])
    np.save(tmp_path / "scores.npy", clustered[1])
    shard = Shard(vectors=tmp_path / "vectors.npy", quality={"quality": tmp_path / "scores.npy"})
    with pytest.raises(ConfigurationError, match=said):
        select_over_shards([shard], **{"folder": tmp_path / "out", "engine": "here", **given})
