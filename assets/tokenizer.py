"""What Dagster checks and shows of the tokenizer that all models of a release share."""

import itertools
import tempfile
from pathlib import Path

from assets.checks import Artefact, Shown, Verdict
from datamask_pipeline.stages import ingest, tokenizer

#: Documents that are encoded and decoded again by the check.
SAMPLE_DOCUMENTS = 64


def vocabulary_within_bounds(artefact: Artefact) -> Verdict:
    """No more entries than the settings allow, and at least one for each byte; of another model's, any at all."""
    entries = artefact.found["entries"]
    if _is_named(artefact):
        return Verdict(entries > 0, {"entries": entries})
    most = artefact.settings["vocab_size"]
    return Verdict(256 < entries <= most, {"entries": entries, "most": most})


def texts_survive_the_round_trip(artefact: Artefact) -> Verdict:
    """Encoding and decoding a document gives the document back, for the first ones that the release's crawls kept.

    Another model's tokenizer may lose capitals and blanks: that is counted, and no reason to stop.
    """
    from tokenizers import Tokenizer

    store = artefact.pipeline.store
    crawls = artefact.pipeline.release_crawls(artefact.release)
    kept = (
        text
        for crawl in crawls
        for batch in store.iter_batches(
            artefact.neighbour(ingest.STAGE, crawl), ["text"], batch_rows=SAMPLE_DOCUMENTS
        )
        for text in batch.column(0).to_pylist()
    )
    texts = list(itertools.islice(kept, SAMPLE_DOCUMENTS))
    with tempfile.TemporaryDirectory() as scratch:
        folder = store.local_copy(artefact.ref, tokenizer.TREE, Path(scratch))
        loaded = Tokenizer.from_file(str(folder / "tokenizer.json"))
    changed = sum(loaded.decode(loaded.encode(text).ids, skip_special_tokens=False) != text for text in texts)
    is_whole = changed == 0 or _is_named(artefact)
    return Verdict(bool(texts) and is_whole, {"documents": len(texts), "changed": changed})


def _is_named(artefact: Artefact) -> bool:
    """Whether it is another model's tokenizer, taken as it is."""
    return "model" in artefact.settings


SHOWN = {
    "tokenizer": Shown(
        blocking=(vocabulary_within_bounds, texts_survive_the_round_trip), numbers=("entries",)
    )
}
