"""What a later stage would refuse is refused before the first one starts, and costs no model and no database."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.schema import EMBEDDING_DIM


def chain(config: Path, record: Path, settings: dict[str, Any]) -> Pipeline:
    return Pipeline(load_config(str(config), {"store": str(record), **settings}))


@pytest.mark.parametrize(
    ("settings", "stage", "before", "words"),
    [
        ({"score.options": {"probe": {}}}, "score", "embed", r"score\.options\.probe.*not used.*rules"),
        ({"score.options": {"rules": {"nope": 1}}}, "score", "embed", r"score\.options\.rules\.nope"),
        ({"embed.heads": ["nobody"]}, "embed", "ingest", "quality scorer 'nobody'"),
        ({"embed.heads": ["rules"]}, "embed", "ingest", "'rules' has no head"),
        (
            {"embed.head_options": {"fineweb_edu": {}}},
            "embed",
            "ingest",
            r"head_options\.fineweb_edu.*not used",
        ),
        (
            {"embed.heads": ["fineweb_edu"], "embed.head_options": {"fineweb_edu": {"nope": 1}}},
            *("embed", "ingest", r"embed\.head_options\.fineweb_edu\.nope"),
        ),
        ({"embed.encoder": "nobody"}, "embed", "ingest", r"encoder 'nobody'.*minilm-mean-cls"),
        (
            {"embed.encoder": "/no/such/model", "embed.revision": "a" * 40},
            *("embed", "ingest", r"encoder '/no/such/model' is no directory"),
        ),
        (
            {"embed.encoder": "no/such/model", "embed.revision": "a" * 40},
            *("embed", "ingest", r"encoder 'no/such/model' is no directory"),
        ),
        ({"embed.imported_file": "/no/such.parquet"}, "embed", "ingest", r"/no/such\.parquet"),
        ({"embed.encoder": "/"}, "embed", "ingest", "directory '/' holds no model"),
        ({"embed.revision": "a" * 40}, "embed", "ingest", "on this disk; leave `revision` out"),
        ({"embed.device": "abacus"}, "embed", "ingest", "no device 'abacus'"),
        ({"embed.device": ["cpu", "cuda:99"]}, "embed", "ingest", "device 'cuda:99' is not available"),
        ({"score.scorers": ["probe"]}, "score", "embed", r"score\.options\.probe: .*no examples are named"),
        ({"score.scorers": ["target"]}, "score", "embed", r"score\.options\.target: no examples are named"),
        (
            {"score.scorers": ["target"], "score.options": {"target": {"examples": "/no/such.jsonl"}}},
            *("score", "embed", r"no such file of examples .*correct the scorer's `examples`"),
        ),
        (
            {"score.scorers": ["probe"], "score.options": {"probe": {"examples": "/no/such.jsonl"}}},
            *("score", "embed", r"no such file of examples \(file /no/such\.jsonl"),
        ),
        (
            {"score.scorers": ["probe"], "score.options": {"probe": {"examples": __file__}}},
            *("score", "embed", r"no JSON object.*test_check\.py, row 0"),
        ),
        (
            {"score.scorers": ["dclm_fasttext"], "score.options": {"dclm_fasttext": {"revision": "main"}}},
            *("score", "embed", "'main' of mlfoundations/fasttext-oh-eli5 is no commit"),
        ),
        (
            {"score.scorers": ["fineweb_edu"], "score.options": {"fineweb_edu": {"model": "/"}}},
            *("score", "embed", "directory '/' holds no model"),
        ),
        (
            {"arms.g": {"policy": "gist", "num_tokens": 900, "ratio": None}},
            *("select", "gather", r"arms\.g\.num_tokens: policy 'gist' counts documents"),
        ),
        (
            {"arms.g": {"policy": "partitioned_greedy", "diversity": "Pair_simi"}},
            *("select", "gather", r"arms\.g\.diversity: .*Pair_graph alone, not \['Pair_simi'\]"),
        ),
        ({"source.options.crawl": "../evil"}, "ingest", None, r"'\.\./evil'.*'\.\.' cannot be the name"),
        ({"source.options.crawl": ""}, "ingest", None, "'' cannot be the name"),
    ],
)
def test_what_a_stage_would_refuse_is_refused_before_any_work(
    settings: dict[str, Any],
    stage: str,
    before: str | None,
    words: str,
    tiny_config_file: Path,
    tmp_path: Path,
) -> None:
    pipeline = chain(tiny_config_file, tmp_path, settings)
    if before is not None:
        pipeline.check(before)
    for until in (stage, "compare"):
        with pytest.raises(DataMaskError, match=words):
            pipeline.check(until)


@pytest.mark.parametrize(
    ("scorer", "options", "words"),
    [
        ("target", {}, r"score\.options\.target: .*embeddings are imported.*`vector_column`"),
        ("probe", {}, r"score\.options\.probe: .*embeddings are imported.*`vector_column`"),
        ("probe", {"label_column": None, "vector_column": "v"}, "shuffled words, which have no vectors"),
    ],
)
def test_examples_that_imported_vectors_cannot_serve_are_refused_before_any_work(
    scorer: str, options: dict[str, Any], words: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    vectors, examples = tmp_path / "vectors.parquet", tmp_path / "examples.jsonl"
    row = {"id": "a", "embedding": [1.0] * EMBEDDING_DIM}
    kind = pa.schema({"id": pa.string(), "embedding": pa.list_(pa.float32())})
    pq.write_table(pa.Table.from_pylist([row], kind), vectors)
    examples.write_text(json.dumps({"text": "a word", "label": 1, "v": row["embedding"]}) + "\n")
    settings = {
        "embed": {"imported_file": str(vectors), "imported_model": "mine", "imported_revision": "1"},
        "score": {"scorers": [scorer], "options": {scorer: {"examples": str(examples), **options}}},
    }
    pipeline = chain(tiny_config_file, tmp_path / "record", settings)
    pipeline.check("embed")
    with pytest.raises(DataMaskError, match=words):
        pipeline.check("score")


def test_a_model_of_the_hub_is_not_taken_for_a_path(tiny_config_file: Path, tmp_path: Path) -> None:
    settings = {"embed.encoder": "owner/model", "embed.revision": "a" * 40}
    chain(tiny_config_file, tmp_path, settings).check("embed")
    with pytest.raises(ConfigurationError, match="pin `revision`"):
        chain(tiny_config_file, tmp_path, {"embed.encoder": "owner/model"}).check("embed")


def test_embedding_and_scores_are_checked_without_a_model_or_a_database(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from datamask_pipeline.pipeline import Pipeline, load_config\n"
        "Pipeline(load_config(sys.argv[1])).check('score')\n"
        "print([n for n in ('torch', 'duckdb') if n in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tiny_config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
