"""A base-size encoder on a GPU against plain `SentenceTransformer.encode` at its best batch size. Knows no engine.

Random weights of BERT's base architecture, a tokenizer trained on the texts, 512 tokens at most. The peer's batch size is
searched in either arithmetic. All embed the same documents in turns, the order turning with each. A head like FineWeb-Edu's
on that encoder scores them, too: along with the embedding, and by a pass of its own after it.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import torch

from benchmarks.data import texts_of
from benchmarks.embed import Method, cosines, ours, seconds_of, vectors_of, windows_of
from benchmarks.harness import Context, Outcome, at_least, at_most
from datamask_pipeline.embedding.config import EncoderConfig
from datamask_pipeline.quality.base import ScoreBatch
from datamask_pipeline.stages.heads import attach, make_heads

TITLE = "On a GPU: embedding, a base-size encoder"
QUESTION = "How many documents a second, against the plain encoder at its best batch size?"
LONG = ON_DEVICE = True
DOCUMENTS, SEARCH_DOCUMENTS, TURNS = 2_000, 500, 3
MAX_TOKENS, VOCABULARY, BATCH_SIZES = 512, 30_000, (64, 128, 256, 512)
PEER = "sentence-transformers, {}"
TARGETS = {"float32": 2.0, "bfloat16": 1.5}
"""Documents a second of bfloat16 here, against the peer in this arithmetic; float32 is how it comes."""
OWN, ALONG, AFTER = "datamask, bfloat16", "datamask, head along", "datamask, head by a pass of its own"
HEAD, HEAD_COST = "fineweb_edu", 0.1
"""Time that a head along may cost, as a share of the embedding's."""


def models_of(folder: Path, texts: list[str]) -> tuple[str, str]:
    """Directories that `SentenceTransformer` and the scorer with a head load: the same encoder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = BertWordPieceTokenizer()
    words.train_from_iterator(texts, vocab_size=VOCABULARY, show_progress=False)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=words.get_vocab_size(), num_labels=1)
    classifier = BertForSequenceClassification(config).eval()
    for part, name in ((classifier, "classifier"), (classifier.bert, "transformer")):
        part.save_pretrained(folder / name)
        BertTokenizerFast(tokenizer_object=words._tokenizer).save_pretrained(folder / name)
    first = modules.Transformer(str(folder / "transformer"), max_seq_length=MAX_TOKENS)
    model = SentenceTransformer(modules=[first, modules.Pooling(config.hidden_size)], device="cpu")
    model.save(str(folder / "model"))
    return str(folder / "model"), str(folder / "classifier")


def plain(model: str, dtype: str, sample: list[str]) -> tuple[Method, dict[int, float]]:
    """The peer at its best batch size, and its documents a second at each."""
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(model, device="cuda", model_kwargs={"dtype": getattr(torch, dtype)})
    peer.max_seq_length = MAX_TOKENS

    def embed(texts: list[str], batch_size: int) -> np.ndarray:
        vectors: np.ndarray = peer.encode(
            texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors.astype(np.float32)

    embed(sample[:100], 64)
    rates = {
        size: len(sample) / seconds_of(lambda texts, size=size: embed(texts, size), sample)[1]
        for size in BATCH_SIZES
    }
    best = max(rates, key=rates.__getitem__)
    return lambda texts: embed(texts, best), rates


def with_head(config: EncoderConfig, classifier: str, scores: dict[str, np.ndarray]) -> dict[str, Method]:
    """Embedding and scoring in one pass, and in two; the last scores of each are left in ``scores``."""
    options = {
        HEAD: {"model": classifier, "dtype": "bfloat16", "max_tokens": MAX_TOKENS, "device": config.device}
    }
    embed_along = windows_of(config, lambda encoder: attach(encoder, make_heads([HEAD], options)))
    embed = ours(config)
    (scorer,) = make_heads([HEAD], options).values()

    def along(texts: list[str]) -> np.ndarray:
        windows = embed_along(texts)
        scores[ALONG] = np.concatenate([window.head_scores_N[HEAD] for window in windows])
        return vectors_of(windows)

    def after(texts: list[str]) -> np.ndarray:
        vectors_ND = embed(texts)
        scores[AFTER] = scorer.score(ScoreBatch(pa.table({"text": texts}))).values_N
        return vectors_ND

    return {ALONG: along, AFTER: after}


def arithmetic(lengths: list[int], model: str) -> float:
    """Floating-point operations of the transformer's products for documents of these tokens."""
    from transformers import AutoConfig

    shape = AutoConfig.from_pretrained(model)
    width, inner = shape.hidden_size, shape.intermediate_size
    tokens_N = np.asarray(lengths, dtype=np.float64)
    a_token = 2 * (4 * width**2 + 2 * width * inner) + 4 * width * tokens_N
    return float(shape.num_hidden_layers * (tokens_N * a_token).sum())


def product_rate() -> float:
    """Floating-point operations a second of large products in bfloat16: the best of ten."""
    from datamask_pipeline.pretraining.speed import product_rate as measured

    return measured("cuda", "bfloat16", 1)


def run(context: Context) -> Outcome:
    """All turns over documents of the first seed."""
    from transformers import AutoTokenizer

    outcome = Outcome()
    texts = texts_of(context.documents, context.size(DOCUMENTS), context.seeds[0])
    model, classifier = models_of(context.folder / "base-encoder", texts)
    tokens = AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    work = arithmetic([len(ids) for ids in tokens], model)
    methods: dict[str, Method] = {}
    for dtype in TARGETS:
        name = PEER.format(dtype)
        methods[name], rates = plain(model, dtype, texts[:SEARCH_DOCUMENTS])
        found = ", ".join(f"{size}: {rate:.0f}" for size, rate in rates.items())
        outcome.notes.append(f"{name}, documents a second by batch size: {found}.")
    config = EncoderConfig(encoder=model, device="cuda:0", dtype="bfloat16", max_tokens=MAX_TOKENS)
    scores: dict[str, np.ndarray] = {}
    mine = {OWN: ours(config)} | with_head(config, classifier, scores)
    for method in mine.values():
        method(texts[:SEARCH_DOCUMENTS])
    methods |= mine

    names, vectors = list(methods), {}
    taken: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(TURNS):
        for name in names if turn % 2 == 0 else names[::-1]:
            vectors[name], seconds = seconds_of(methods[name], texts)
            taken[name].append(seconds)
    limit = product_rate()
    reference = vectors[PEER.format("float32")]
    for name in names:
        seconds = median(taken[name])
        passes = 2 if name == AFTER else 1
        row = {"method": name, "documents": len(texts), "documents per second": len(texts) / seconds}
        outcome.rows.append(
            row
            | {
                "TFLOP per second": passes * work / seconds / 1e12,
                "of plain products": passes * work / seconds / limit,
                "lowest cosine": float(cosines(vectors[name], reference).min()),
            }
        )

    def of_turns(other: str, one: str) -> float:
        return median(theirs / mine for theirs, mine in zip(taken[other], taken[one], strict=True))

    for dtype, target in TARGETS.items():
        claim = f"documents per second in bfloat16, against plain encode in {dtype}, median of {TURNS} turns"
        outcome.claims.append(at_least(claim, target, of_turns(PEER.format(dtype), OWN)))
    outcome.claims.append(
        at_most("time that a head along adds to the embedding's", HEAD_COST, of_turns(ALONG, OWN) - 1)
    )
    apart = float(np.abs(scores[ALONG] - scores[AFTER]).max())
    spread = float(scores[ALONG].std())
    mean = sum(map(len, tokens)) / len(tokens)
    outcome.notes += [
        f"{mean:.0f} tokens a document; plain products in bfloat16 run at {limit / 1e12:.0f} TFLOP a second.",
        f"The head's scores of a document, along and by a pass of its own, differ by {apart:.1e} at most, by the "
        f"length of the batches; their standard deviation is {spread:.1e}. Its weights are random, as the encoder's are.",
        "The claims are medians of each turn's own ratio; rows are medians of seconds. The plain encoder's batch is the "
        f"best of {len(BATCH_SIZES)} sizes, one pass each over {SEARCH_DOCUMENTS} texts.",
    ]
    return outcome
