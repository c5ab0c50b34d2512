"""What the data and this machine would make a run refuse is refused by the check, with the setting's path."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.pipeline import Pipeline, load_config


def chain(config: Path, record: Path, settings: dict[str, Any]) -> Pipeline:
    return Pipeline(load_config(str(config), {"store": str(record), **settings}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"select.device": "cuda:99"}, r"select\.device: .*'cuda:99'.*not available"),
        ({"arms.random.device": "cuda:99"}, r"arms\.random\.device: .*'cuda:99'.*not available"),
        ({"arms.random.scorers": {"rules": 0}}, r"arms\.random\.scorers: .*all 0"),
        ({"arms.random.quality_weights": {"rules": 1}}, r"arms\.random\.quality_weights: .*scorers"),
        (
            {"select.quotas": {"tiny-2024-1": 0.5, "*": 0.5}},
            r"select\.quotas: unknown crawl of release 'first' in arm 'random' 'tiny-2024-1' .*mean 'tiny-2024-1[08]'",
        ),
        (
            {"select.quotas": {"tiny-2024-10": 1}},
            r"select\.quotas: crawl 'tiny-2024-18' .*'first' has no quota",
        ),
        (
            {"select.quotas": {"tiny-2024-10": 0.5, "tiny-2024-18": 0.2, "*": 0.3}},
            r"select\.quotas: '\*' has a share of arm 'random', and release 'first' has no crawl without a quota",
        ),
        (
            {"arms.random.quotas": {"nope": 0.5, "*": 0.5}},
            r"arms\.random\.quotas: unknown crawl of release 'first'.*'nope'",
        ),
        (
            {"releases.first.crawls": ["tiny-2024-11"]},
            r"releases\.first\.crawls: unknown crawl .*'tiny-2024-11' .did you mean 'tiny-2024-1[08]'",
        ),
        (
            {"score.scorers": ["column"]},
            r"score\.scorers: 'column' reads a column that crawl 'tiny-2024-10' does not have.*field score",
        ),
        (
            {"score.scorers": ["column:x"], "score.options": {"column:x": {"column": "url"}}},
            r"score\.options\.column:x in crawl 'tiny-2024-10': a score column has type string where numbers.*field url",
        ),
        (
            {"source.options.columns": {"text": "body"}},
            r"no column 'body'; there are: text, id, .*correct `source\.options\.columns\.text`",
        ),
        ({"source.options.columns": {"text": "txt"}}, r"no column 'txt' .did you mean 'text'.*; there are"),
        ({"store": "/proc/foo"}, r"store '/proc/foo' cannot be written: '/proc' .*`store`"),
        ({"store": f"{__file__}/record"}, r"store .*test_check_before_work\.py' is not a directory"),
    ],
)
def test_a_fault_that_a_run_would_find_later(
    settings: dict[str, Any], words: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataMaskError, match=words):
        chain(tiny_config_file, tmp_path / "record", settings).check()
    assert not list(tmp_path.iterdir()), "a check makes nothing"


def test_what_a_run_takes_passes(tiny_config_file: Path, tmp_path: Path) -> None:
    settings = {
        "select.quotas": {"tiny-2024-10": 0.5, "*": 0.5},
        "arms.random.quotas": {"a.example": 1},
        "arms.random.quota_by": "domain",
        "arms.random.scorers": {"rules": -1},
    }
    chain(tiny_config_file, tmp_path / "deep" / "record", settings).check()
    assert not list(tmp_path.iterdir())


def test_a_shard_without_rows_hides_no_fault(tiny_config_file: Path, tmp_path: Path) -> None:
    crawl = tmp_path / "crawls" / "t1"
    crawl.mkdir(parents=True)
    (crawl / "000.jsonl").touch()
    (crawl / "001.jsonl").write_text('{"id": "a", "text": "One.", "url": "", "language": "en"}\n')
    settings: dict[str, Any] = {"source.options.root": str(tmp_path / "crawls")}
    chain(tiny_config_file, tmp_path / "record", settings).check("ingest")
    with pytest.raises(DataMaskError, match=r"no column 'body'.*001\.jsonl"):
        chain(
            tiny_config_file, tmp_path / "record", {**settings, "source.options.columns": {"text": "body"}}
        ).check("ingest")


@pytest.mark.parametrize("fixed", [False, True])
def test_imported_vectors_of_another_width(fixed: bool, tiny_config_file: Path, tmp_path: Path) -> None:
    kind = pa.list_(pa.float32(), 300) if fixed else pa.list_(pa.float32())
    vectors = pa.array([np.ones(300, np.float32)] * 3, kind)
    pq.write_table(pa.table({"id": ["a", "b", "c"], "embedding": vectors}), tmp_path / "vectors.parquet")
    settings = {"embed.imported_file": str(tmp_path / "vectors.parquet")}
    with pytest.raises(DataMaskError, match=r"768 wide .*field embedding, value 300"):
        chain(tiny_config_file, tmp_path / "record", settings).check()


@pytest.mark.parametrize("setting", [{"embed.encoder": "nobody"}, {"embed.max_tokens": 64}])
def test_what_imported_vectors_leave_unread_is_refused(
    setting: dict[str, Any], tiny_config_file: Path, tmp_path: Path
) -> None:
    (name,) = setting
    vectors = pa.array([np.ones(768, np.float32)] * 3, pa.list_(pa.float32(), 768))
    pq.write_table(pa.table({"id": ["a", "b", "c"], "embedding": vectors}), tmp_path / "vectors.parquet")
    imported = {"embed": {"imported_file": str(tmp_path / "vectors.parquet")}}
    chain(tiny_config_file, tmp_path / "record", imported).check("embed")
    with pytest.raises(DataMaskError, match=rf"{name}: not read.*embed\.imported_file; leave one"):
        chain(tiny_config_file, tmp_path / "record", {**imported, **setting}).check("embed")
