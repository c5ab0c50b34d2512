"""One forward pass gives embedding and Edu score, where the encoders are equal, and is refused where not.

Real classes and architecture (BERT with a regression label, as the published classifier), small weights made here.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.families import SCORERS, SOURCES
from datamask_pipeline.quality import ScoreBatch
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.stages import embed, ingest, probe, score
from datamask_pipeline.storage import Ref, Store, array_files

WORDS = (
    "river sand silt sea house boat field snow spring water people valley fish child boat walk swim".split()
)


def make_models(root: Path, seed: int = 0) -> tuple[str, str]:
    """An encoder as sentence-transformers stores it, and a classifier on the same encoder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(seed)
    root.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS), ".", ","]
    (root / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(str(root / "vocab.txt"), model_max_length=512)
    config = BertConfig(
        vocab_size=len(vocabulary),
        num_hidden_layers=2,
        intermediate_size=256,
        num_labels=1,
        initializer_range=0.2,
    )
    classifier = BertForSequenceClassification(config)
    classifier.save_pretrained(root / "edu")
    tokenizer.save_pretrained(root / "edu")
    classifier.bert.save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    modules = [Transformer(str(root / "bert"), max_seq_length=64), Pooling(768, "cls"), Normalize()]
    SentenceTransformer(modules=modules).save(str(root / "encoder"))
    return str(root / "encoder"), str(root / "edu")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_models(tmp_path_factory.mktemp("models"))


def documents(tmp_path: Path, store: Store) -> Ref:
    generator = np.random.default_rng(0)
    rows = [
        {"id": f"d{n}", "text": " ".join(generator.choice(WORDS, size=int(generator.integers(1, 90))))}
        for n in range(24)
    ]
    path = tmp_path / "crawl" / "0.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=FINEWEB), path)
    source = SOURCES.make("local", {"root": str(tmp_path)})
    return ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)[0]


def settings(models: tuple[str, str], **changes: object) -> embed.EmbedConfig:
    options = {"fineweb_edu": {"model": models[1], "dtype": "float32", "max_tokens": 64, "device": "cpu"}}
    base = {"encoder": models[0], "dtype": "float32", "device": "cpu", "window_documents": 10}
    return embed.EmbedConfig(**(base | {"heads": ("fineweb_edu",), "head_options": options} | changes))


def edu_scores(store: Store, refs: tuple[Ref, Ref], config: embed.EmbedConfig) -> np.ndarray:
    wanted = score.ScoreConfig(scorers=("fineweb_edu",), options=config.head_options)
    ref = score.run(wanted, store=store, crawl="crawl", documents=refs[0], embeddings=refs[1])
    return store.read_table(ref, ["score"]).column(0).to_numpy()


def test_the_score_of_one_pass_is_the_published_classifiers(
    tmp_path: Path, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from datamask_pipeline.quality.fineweb_edu import FineWebEduScorer

    store = Store(tmp_path / "record")
    ingested = documents(tmp_path, store)
    config = settings(models)
    embedded = embed.run(config, store=store, crawl="crawl", documents=ingested)
    alone = settings(models, heads=(), head_options={})
    plain = embed.run(alone, store=store, crawl="crawl", documents=ingested)
    (path,), (plain_path,) = (array_files(store, ref).values() for ref in (embedded, plain))
    assert path.read_bytes() == plain_path.read_bytes()

    separate = edu_scores(store, (ingested, plain), config)

    def forbidden(self: FineWebEduScorer, texts: list[str]) -> np.ndarray:
        raise AssertionError("a second forward pass")

    monkeypatch.setattr(FineWebEduScorer, "_score_texts", forbidden)
    shared = edu_scores(store, (ingested, embedded), config)
    # Two passes of other batches: on a processor without AVX-512 float32 rounding makes 4e-5 of scores up to 10.
    np.testing.assert_allclose(shared, separate, rtol=1e-5, atol=1e-4)

    model = AutoModelForSequenceClassification.from_pretrained(models[1])
    tokenizer = AutoTokenizer.from_pretrained(models[1])
    texts = store.read_table(ingested, ["text"]).column(0).to_pylist()
    with torch.inference_mode():
        expected = [
            model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=64)).logits.item()
            for text in texts
        ]
    np.testing.assert_allclose(shared, expected, atol=1e-3)
    assert np.std(expected) > 0.01


def test_an_encoder_that_only_looks_equal_is_refused(tmp_path: Path, models: tuple[str, str]) -> None:
    store = Store(tmp_path / "record")
    ingested = documents(tmp_path, store)
    other = make_models(tmp_path / "other", seed=1)
    options = {"model": other[1], "dtype": "float32", "max_tokens": 64, "device": "cpu"}
    refused = {
        r"encoders .* differ, first in tensor": options,
        r"64 tokens with prefix '', 'fineweb_edu' 32": options | {"model": models[1], "max_tokens": 32},
    }
    for told, changed in refused.items():
        config = settings(models, head_options={"fineweb_edu": changed})
        with pytest.raises(ConfigurationError, match=told):
            embed.run(config, store=store, crawl="crawl", documents=ingested)
    with pytest.raises(ConfigurationError, match="no head"):
        embed.run(
            settings(models, heads=("rules",), head_options={}),
            store=store,
            crawl="crawl",
            documents=ingested,
        )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_hidden_layers": 1}, "num_hidden_layers is 2 and 1"),
        ({"hidden_act": "relu"}, "hidden_act is 'gelu' and 'relu'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-12 and 1e-05"),
        ({"num_attention_heads": 6}, "num_attention_heads is 12 and 6"),
    ],
)
def test_equal_tensors_in_another_architecture_are_refused(
    tmp_path: Path, models: tuple[str, str], change: dict[str, object], told: str
) -> None:
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    config = BertConfig.from_pretrained(models[1], **change)
    other = BertForSequenceClassification.from_pretrained(models[1], config=config)
    other.save_pretrained(tmp_path / "other")
    AutoTokenizer.from_pretrained(models[1]).save_pretrained(tmp_path / "other")
    store = Store(tmp_path / "record")
    ingested = documents(tmp_path, store)
    options = {
        "model": str(tmp_path / "other"),
        "dtype": "float32",
        "max_tokens": 64,
        "device": "cpu",
    }
    with pytest.raises(ConfigurationError, match=told):
        embed.run(
            settings(models, head_options={"fineweb_edu": options}),
            store=store,
            crawl="crawl",
            documents=ingested,
        )


def test_tensors_that_the_classifier_lacks_are_found_out(
    tmp_path: Path, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from datamask_pipeline.embedding.encoder import Encoder

    whole = Encoder.weights
    further = {"encoder.layer.2.output.dense.bias": torch.zeros(1)}
    monkeypatch.setattr(Encoder, "weights", lambda self: whole(self) | further)
    store = Store(tmp_path / "record")
    ingested = documents(tmp_path, store)
    with pytest.raises(ConfigurationError, match=r"only one of them has 'encoder\.layer\.2\.output"):
        embed.run(settings(models), store=store, crawl="crawl", documents=ingested)


@pytest.mark.parametrize(("device", "told"), [("cuda:99", "not available"), ("gpu", "no device 'gpu'")])
def test_a_device_that_is_not_there_is_refused_before_the_model_is_loaded(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch, device: str, told: str
) -> None:
    from datamask_pipeline.quality.fineweb_edu import FineWebEduScorer

    def forbidden(self: FineWebEduScorer) -> object:
        raise AssertionError("loaded first")

    monkeypatch.setattr(FineWebEduScorer, "load", forbidden)
    scorer = SCORERS.make("fineweb_edu", {"model": models[1], "device": device})
    with pytest.raises(ConfigurationError, match=told):
        scorer.score(ScoreBatch(pa.table({"text": ["a river"]})))


@pytest.mark.slow
def test_a_model_may_move(tmp_path: Path, models: tuple[str, str]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(Path(models[0]).parent, here)
    store = Store(tmp_path / "record")
    ingested = documents(tmp_path, store)
    labels = [{"text": f"{WORDS[n % 16]} {WORDS[n % 7]} {n}", "label": n % 2} for n in range(120)]
    pq.write_table(pa.Table.from_pylist(labels), tmp_path / "labels.parquet")
    scorers = ("fineweb_edu", "probe")

    def config(root: Path) -> embed.EmbedConfig:
        return settings((str(root / "encoder"), str(root / "edu")))

    def scored(root: Path, embedded: Ref, **probe_options: object) -> Ref:
        options = {"probe": {"examples": str(tmp_path / "labels.parquet"), **probe_options}}
        wanted = score.ScoreConfig(scorers=scorers, options=options | config(root).head_options)
        return score.run(wanted, store=store, crawl="crawl", documents=ingested, embeddings=embedded)

    before = embed.run(config(here), store=store, crawl="crawl", documents=ingested)
    judged = scored(here, before)
    here.rename(there)
    after = embed.run(config(there), store=store, crawl="crawl", documents=ingested)
    assert after == before
    assert scored(there, after) == judged
    with pytest.raises(ConfigurationError, match=r"is not at .* any more"):
        scored(there, after, l2=0.5)
    space = probe.space_of_encoder(config(there).encoder_config())
    options = {"examples": str(tmp_path / "labels.parquet"), "l2": 0.5}
    trained = probe.run(SCORERS.make("probe", options), store=store, space=space)
    assert (
        store.manifest(scored(there, after, l2=0.5))["inputs"]["probe"]["fingerprint"] == trained.fingerprint
    )


def test_embeddings_that_do_not_name_their_encoder_serve_no_probe(
    tmp_path: Path, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "record")
    ingested = documents(tmp_path, store)
    embedded = embed.run(
        settings(models, heads=(), head_options={}), store=store, crawl="crawl", documents=ingested
    )
    whole = Store.manifest

    def earlier(self: Store, ref: Ref) -> dict:
        manifest = whole(self, ref)
        manifest["metadata"].pop("encoder")
        return manifest

    monkeypatch.setattr(Store, "manifest", earlier)
    with pytest.raises(IntegrityError, match="embed again"):
        probe.space_of_embeddings(store, embedded)


def test_the_classifier_needs_a_pinned_revision() -> None:
    with pytest.raises(ConfigurationError, match="pin `revision`"):
        SCORERS.make("fineweb_edu")
    with pytest.raises(ConfigurationError, match="is no commit hash"):
        SCORERS.make("fineweb_edu", {"revision": "main"})


def test_a_classifier_that_lacks_tensors_or_positions_is_refused(
    models: tuple[str, str], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(models[1], tmp_path / "edu")
    weights = tmp_path / "edu" / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(weights).items() if not name.startswith("classifier")}
    save_file(kept, weights, {"format": "pt"})
    with pytest.raises(ConfigurationError, match=r"lacks tensors: classifier\.bias"):
        SCORERS.make("fineweb_edu", {"model": str(tmp_path / "edu")}).load()
    with pytest.raises(ConfigurationError, match="positions"):
        SCORERS.make("fineweb_edu", {"model": models[1], "max_tokens": 100_000}).load()
    weights.write_bytes(b"")
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        SCORERS.make("fineweb_edu", {"model": str(tmp_path / "edu")}).load()


@pytest.mark.parametrize(
    ("stated", "more", "words"),
    [
        ({"id2label": {"0": "low", "1": "high"}}, {}, "is a bert model of 2 labels"),
        ({"model_type": "roberta"}, {}, "is a roberta model of 1 labels"),
        ({}, {"max_tokens": 100_000}, "positions of classifier"),
        ({}, {"revision": "a" * 40}, "on this disk; leave `revision` out"),
    ],
)
def test_a_directory_that_is_no_such_classifier_is_refused_before_any_work(
    stated: dict[str, object], more: dict[str, object], words: str, models: tuple[str, str], tmp_path: Path
) -> None:
    about = json.loads((Path(models[1]) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(about | stated))
    options = {"fineweb_edu": {"model": str(tmp_path), **more}}
    with pytest.raises(ConfigurationError, match=words):
        score.check(score.ScoreConfig(scorers=("fineweb_edu",), options=options))
