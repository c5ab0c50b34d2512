"""Groups are read by their names, however a column spells them, and a quota that no document meets is told."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from datamask_pipeline import Shard, frontier, select_documents, select_over_shards
from datamask_pipeline.errors import ConfigurationError, InputError

QUOTAS = {"bad": 0.0, "*": 1.0}
BAD_N = np.arange(400) % 2 == 0
NAMES = np.where(BAD_N, "bad", "ok")
NUMBERS = np.where(BAD_N, 0, 7)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "groups",
    [
        list(NAMES),
        NAMES.astype("S"),
        NAMES.astype(object),
        pd.Series(NAMES),
        pd.Series(NAMES, dtype="category"),
        pa.array(NAMES),
        list(pa.array(NAMES)),
        pa.array(NAMES).dictionary_encode(),
        pa.chunked_array([NAMES[:150], NAMES[150:]]),
        pa.array(NAMES.astype("S").tolist(), pa.binary()),
    ],
    ids=lambda groups: f"{type(groups).__name__}-{type(groups[0]).__name__}",
)
def test_strings_of_every_kind_are_their_names(groups, clustered) -> None:
    found = select_documents(*clustered, groups=groups, quotas=QUOTAS, num_kicks=0, num_restarts=0)
    assert not (found.mask & BAD_N).any()
    assert found.mask.sum() == 40


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "groups",
    [
        NUMBERS,
        NUMBERS.tolist(),
        NUMBERS.astype(np.uint8),
        torch.from_numpy(NUMBERS),
        pa.array(NUMBERS),
        pa.array(NUMBERS).dictionary_encode(),
    ],
    ids=lambda groups: f"{type(groups).__name__}-{type(groups[0]).__name__}",
)
def test_whole_numbers_are_read_in_decimal(groups, clustered) -> None:
    found = select_documents(*clustered, groups=groups, quotas={"0": 0.0, "7": 1.0}, num_kicks=0)
    assert not (found.mask & BAD_N).any()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "null"),
        (np.nan, "no name"),
        (pd.NA, "no name"),
        (1.0, "no name"),
        (True, "no name"),
        (np.datetime64("2024-01-01", "ns"), "no name"),
        (b"\xff", "no UTF-8"),
    ],
)
def test_what_is_no_name_is_refused_by_row(wrong, said, clustered) -> None:
    groups = list(NAMES)
    groups[3] = wrong
    with pytest.raises(InputError, match=rf"{said}.*row 3, field groups.*;"):
        select_documents(*clustered, groups=groups, quotas=QUOTAS)


@pytest.mark.parametrize(
    "groups",
    [
        NUMBERS.astype(float),
        NUMBERS.astype("datetime64[ns]"),
        pa.array([None, *NAMES[1:]]),
        pa.array(NUMBERS.astype(float)),
    ],
    ids=lambda groups: str(getattr(groups, "dtype", getattr(groups, "type", ""))),
)
def test_columns_without_names_are_refused(groups, clustered) -> None:
    with pytest.raises(InputError, match="row 0, field groups"):
        select_documents(*clustered, groups=groups, quotas={"*": 1.0})


def over_shards(folder: Path, clustered, groups, quotas):
    rows, quality = clustered
    np.save(folder / "v.npy", rows)
    np.save(folder / "q.npy", quality)
    np.save(folder / "g.npy", groups)
    shards = [
        Shard(
            vectors=folder / "v.npy",
            quality={"q": folder / "q.npy"},
            groups=folder / "g.npy",
            start=start,
            num_rows=200,
        )
        for start in (0, 200)
    ]
    return select_over_shards(
        shards, folder / "out", engine="here", workers=2, chunk_rows=64, num_steps=5, quotas=quotas
    )


@pytest.mark.parametrize(
    ("groups", "name"), [(NUMBERS, "0"), (NAMES.astype("S"), "bad")], ids=["integers", "bytes"]
)
def test_over_shards_too(groups, name, clustered, tmp_path: Path) -> None:
    found = over_shards(tmp_path, clustered, groups, {name: 0.0, "*": 1.0})
    assert not (found.column("mask") & BAD_N).any()


def test_over_shards_floats_are_refused_by_document(clustered, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row 0, field groups, value 0\.0"):
        over_shards(tmp_path, clustered, NUMBERS.astype(float), {"*": 1.0})


MISSPELT = {"bda": 0.0, "*": 1.0}


@pytest.mark.slow
def test_a_quota_of_no_document_is_told_with_the_nearest_name(clustered, tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        select_documents(*clustered, groups=NAMES, quotas=QUOTAS)
        frontier(*clustered, lambs=[0.3, 0.6], groups=NAMES, quotas=QUOTAS)
        over_shards(tmp_path, clustered, NAMES, QUOTAS)
        select_documents(*clustered, groups=["bad"] * 400, quotas={"bad": 1.0, "*": 0.0})
        select_documents(*clustered, groups=NAMES, quotas=MISSPELT, known_groups=["bda"])
    assert caplog.messages == []
    for call in (
        lambda: select_documents(*clustered, groups=NAMES, quotas=MISSPELT),
        lambda: frontier(*clustered, lambs=[0.3, 0.6], groups=NAMES, quotas=MISSPELT),
        lambda: over_shards(tmp_path, clustered, NAMES, MISSPELT),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            call()
        assert caplog.messages == [
            "no document has the group 'bda' that quotas name (did you mean 'bad'?); its quota changes nothing"
        ]


def test_a_quota_that_no_document_meets_is_told_the_nearest_group(clustered) -> None:
    groups = ["alpha"] * 200 + ["beta"] * 200
    with pytest.raises(
        ConfigurationError, match=r"'alpah' \(did you mean 'alpha'\?\).* 0 that may .*; name a group"
    ):
        select_documents(*clustered, groups=groups, quotas={"alpah": 0.5, "*": 0.5})


def test_known_groups_are_read_as_the_documents_are(clustered, caplog) -> None:
    groups = [number % 2 for number in range(400)]
    select_documents(
        *clustered,
        policy="random",
        groups=groups,
        quotas={"0": 0.5, "1": 0.5, "7": 0},
        known_groups=[7],
    )
    assert "'7'" not in caplog.text
