"""Embedding plus FineWeb-Edu score in one pass against the embedding alone. Knows no engine and no peer.

The published architecture (BERT base, 512 tokens, a regression head) with weights made here, and real documents.
Each round does three things into fresh records, in turning order, loading of models included: the embed stage alone;
embedding with the head, then the score stage; embedding alone, then the score stage in a pass of its own.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import texts_of
from benchmarks.harness import Context, Outcome, at_most
from datamask_pipeline.embedding.config import model_directory
from datamask_pipeline.embedding.presets import PRESETS
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.stages import embed, ingest, score
from datamask_pipeline.storage import Store

TITLE = "Embedding and FineWeb-Edu score in one pass"
QUESTION = "What does the score cost when its encoder is the embedding's?"
LONG = True
DOCUMENTS, ROUNDS = 300, 3
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
    source = SOURCES.make("local", {"root": str(crawls)})
    documents, _ = ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)
    options = {SCORER: {"model": str(models[1])}}
    heads = {"heads": (SCORER,), "head_options": options} if way == "one pass" else {}
    config = embed.EmbedConfig(encoder=str(models[0]), dtype="bfloat16", **heads)
    begun, worked = time.perf_counter(), time.process_time()

    def taken() -> Row:
        return {"seconds": time.perf_counter() - begun, "processor seconds": time.process_time() - worked}

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


def run(context: Context) -> Outcome:
    """Every way once a round, in turning order."""
    outcome = Outcome()
    texts = texts_of(context.documents, context.size(DOCUMENTS), context.seeds[0])
    scores: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory(dir=context.folder) as folder:
        root = Path(folder)
        models = make_models(root)
        crawl = root / "crawls" / "crawl"
        crawl.mkdir(parents=True)
        documents = [{"id": f"d{number}", "text": text} for number, text in enumerate(texts)]
        pq.write_table(pa.Table.from_pylist(documents, schema=FINEWEB), crawl / "0.parquet")
        for turn in range(ROUNDS):
            for way in WAYS[turn % 3 :] + WAYS[: turn % 3]:
                row, found = done(way, models, root / "crawls", root / f"{turn} {way}")
                outcome.rows.append({"method": way, "documents": len(texts)} | row)
                if found is not None:
                    scores[way] = found
    for clock in ("seconds", "processor seconds"):
        alone, once = (median(row[clock] for row in outcome.rows if row["method"] == way) for way in WAYS[:2])
        outcome.claims.append(at_most(f"one pass, {clock} against the embedding alone", 1.1, once / alone))
    difference = float(np.abs(scores["one pass"] - scores["two passes"]).max())
    spread = float(np.ptp(scores["two passes"]))
    outcome.notes.append(
        f"Scores differ by at most {difference:.2g} between the ways; they spread over {spread:.2g}."
    )
    return outcome
