"""Embedding plus FineWeb-Edu score in one pass against the embedding alone. Run as `python -m benchmarks.one_pass DIR`.

The published architecture (BERT base, 512 tokens, a regression head) with weights made here, and real documents.
Each round does three things into fresh records, in turning order, loading of models included: the embed stage alone;
embedding with the head, then the score stage; embedding alone, then the score stage in a pass of its own.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.embed import texts_of
from benchmarks.harness import machine
from datamask_pipeline.embedding.config import model_directory
from datamask_pipeline.embedding.presets import PRESETS
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources import make_source
from datamask_pipeline.stages import embed, ingest, score
from datamask_pipeline.storage import Store

SCORER = "fineweb_edu"
WAYS = ("embedding alone", "one pass", "two passes")
Row = dict[str, float]


def make_models(root: Path) -> tuple[Path, Path]:
    """An encoder as sentence-transformers stores it, and a classifier on that same encoder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model_directory(PRESETS["minilm-mean-cls"]))
    classifier = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=1))
    for name, model in (("edu", classifier), ("bert", classifier.bert)):
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    modules = [Transformer(str(root / "bert"), max_seq_length=512), Pooling(768, "cls"), Normalize()]
    SentenceTransformer(modules=modules).save(str(root / "encoder"))
    return root / "encoder", root / "edu"


def done(way: str, models: tuple[Path, Path], crawls: Path, record: Path) -> tuple[Row, np.ndarray | None]:
    """Seconds of the embed and score stages by the clock and by the processor, and the scores."""
    store = Store(record)
    source = make_source("local", {"root": str(crawls)})
    documents, _ = ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)
    options = {SCORER: {"model": str(models[1])}}
    heads = {"heads": (SCORER,), "head_options": options} if way == "one pass" else {}
    config = embed.EmbedConfig(encoder=str(models[0]), dtype="bfloat16", **heads)
    begun, worked = time.perf_counter(), time.process_time()

    def taken() -> Row:
        return {"seconds": time.perf_counter() - begun, "processor": time.process_time() - worked}

    embedded = embed.run(config, store=store, crawl="crawl", documents=documents)
    if way == WAYS[0]:
        return taken(), None
    scored = score.run(
        score.ScoreConfig(scorers=(SCORER,), options=options),
        store=store,
        crawl="crawl",
        documents=documents,
        embeddings=embedded,
    )
    seconds = taken()
    return seconds, store.read_table(scored, ["score"]).column(0).to_numpy()


def ratios(rows: dict[str, list[Row]], way: str, clock: str) -> Row:
    """To the embedding alone: of the medians, and of the fastest rounds."""
    mine, base = ([row[clock] for row in rows[name]] for name in (way, WAYS[0]))
    return {"medians": statistics.median(mine) / statistics.median(base), "fastest": min(mine) / min(base)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts = texts_of(options.source, options.documents, options.seed)
    rows: dict[str, list[Row]] = {way: [] for way in WAYS}
    scores: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        models = make_models(root)
        (root / "crawls" / "crawl").mkdir(parents=True)
        documents = [{"id": f"d{number}", "text": text} for number, text in enumerate(texts)]
        pq.write_table(
            pa.Table.from_pylist(documents, schema=FINEWEB), root / "crawls" / "crawl" / "0.parquet"
        )
        for turn in range(options.rounds):
            for way in WAYS[turn % 3 :] + WAYS[: turn % 3]:
                row, found = done(way, models, root / "crawls", root / f"{turn} {way}")
                rows[way].append(row)
                if found is not None:
                    scores[way] = found
            print(f"round {turn}", {way: row[-1] for way, row in rows.items()}, file=sys.stderr)
    report = {
        "documents": len(texts),
        **{
            f"{way}, {clock}": ratios(rows, way, clock)
            for way in WAYS[1:]
            for clock in ("seconds", "processor")
        },
        "largest_score_difference": float(np.abs(scores["one pass"] - scores["two passes"]).max()),
        "spread_of_scores": float(np.ptp(scores["two passes"])),
        "machine": machine(),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
