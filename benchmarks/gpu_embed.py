"""A base-size encoder on a GPU against plain `SentenceTransformer.encode` at its best batch size. Knows no engine.

Random weights of BERT's base architecture, a tokenizer trained on the texts, 512 tokens at most. The peer's batch size is
searched in either arithmetic. All embed the same documents in turns, the order turning with each.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.data import texts_of
from benchmarks.embed import Method, cosines, ours, seconds_of
from benchmarks.harness import Context, Outcome, at_least
from datamask_pipeline.embedding.config import EncoderConfig

TITLE = "On a GPU: embedding, a base-size encoder"
QUESTION = "How many documents a second, against the plain encoder at its best batch size?"
LONG = ON_DEVICE = True
DOCUMENTS, SEARCH_DOCUMENTS, TURNS = 2_000, 500, 3
MAX_TOKENS, VOCABULARY, BATCH_SIZES = 512, 30_000, (64, 128, 256, 512)
PEER = "sentence-transformers, {}"
TARGETS = {"float32": 2.0, "bfloat16": 1.5}
"""Documents a second of bfloat16 here, against the peer in this arithmetic; float32 is how it comes."""


def model_of(folder: Path, texts: list[str]) -> str:
    """A directory that `SentenceTransformer` loads."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = BertWordPieceTokenizer()
    words.train_from_iterator(texts, vocab_size=VOCABULARY, show_progress=False)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=words.get_vocab_size())
    BertModel(config).eval().save_pretrained(folder / "transformer")
    BertTokenizerFast(tokenizer_object=words._tokenizer).save_pretrained(folder / "transformer")
    first = modules.Transformer(str(folder / "transformer"), max_seq_length=MAX_TOKENS)
    model = SentenceTransformer(modules=[first, modules.Pooling(config.hidden_size)], device="cpu")
    model.save(str(folder / "model"))
    return str(folder / "model")


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
    model = model_of(context.folder / "base-encoder", texts)
    tokens = AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    work = arithmetic([len(ids) for ids in tokens], model)
    methods: dict[str, Method] = {}
    for dtype in TARGETS:
        name = PEER.format(dtype)
        methods[name], rates = plain(model, dtype, texts[:SEARCH_DOCUMENTS])
        found = ", ".join(f"{size}: {rate:.0f}" for size, rate in rates.items())
        outcome.notes.append(f"{name}, documents a second by batch size: {found}.")
    own = "datamask, bfloat16"
    methods[own] = ours(
        EncoderConfig(encoder=model, device="cuda:0", dtype="bfloat16", max_tokens=MAX_TOKENS)
    )
    methods[own](texts[:SEARCH_DOCUMENTS])

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
        row = {"method": name, "documents": len(texts), "documents per second": len(texts) / seconds}
        outcome.rows.append(
            row
            | {
                "TFLOP per second": work / seconds / 1e12,
                "of plain products": work / seconds / limit,
                "lowest cosine": float(cosines(vectors[name], reference).min()),
            }
        )
    for dtype, target in TARGETS.items():
        ratios = [theirs / mine for mine, theirs in zip(taken[own], taken[PEER.format(dtype)], strict=True)]
        claim = f"documents per second in bfloat16, against plain encode in {dtype}, median of {TURNS} turns"
        outcome.claims.append(at_least(claim, target, median(ratios)))
    mean = sum(map(len, tokens)) / len(tokens)
    outcome.notes += [
        f"{mean:.0f} tokens a document; plain products in bfloat16 run at {limit / 1e12:.0f} TFLOP a second.",
        "The claims are medians of each turn's own ratio; rows are medians of seconds. The plain encoder's batch is the "
        f"best of {len(BATCH_SIZES)} sizes, one pass each over {SEARCH_DOCUMENTS} texts.",
    ]
    return outcome
