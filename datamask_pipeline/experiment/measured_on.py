"""What an experiment was measured on, in one line: collection, scorers, encoder, prompts. Knows manifests; reads no rows."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.printable import markdown_text
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.stages.gather import index_scores
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.changes import current_manifest
from datamask_pipeline.storage.ref import ref_of

#: Of a digest or commit, so many characters tell one from another.
_SHOWN = 16


def measured_on(store: Store, draw: Mapping[str, Any]) -> str:
    """The line as Markdown; what a purge has removed is called gone.

    Args:
        store: The record.
        draw: The manifest of a draw.
    """
    refs = dict(inputs_of(draw))
    crawls = {name.partition("/")[2]: ref for name, ref in refs.items() if name.startswith("documents/")}
    vectors = [ref for name, ref in refs.items() if name.startswith("embeddings/")]
    # Draws are found again by the content of their inputs, so another artefact of that content may stand for one.
    index = current_manifest(store, refs["index"].stage, refs["index"].key)
    names = [] if index is None else index_scores(store, ref_of(index)).names
    scorers = (
        ", ".join(markdown_text(name.removeprefix(SCORE_PREFIX)) for name in names) or "scorers that are gone"
    )
    named = ", ".join(map(markdown_text, crawls))
    encoders = dict.fromkeys(_encoders(store, vectors))
    shots = draw["basis"]["config"]["prompts"]["shots"]
    return (
        f"{sum(ref.rows for ref in crawls.values()):,} documents of {_counted(len(crawls), 'crawl')} "
        f"({named}); "
        f"quality by {scorers}; vectors by {' and '.join(encoders)}; {_counted(shots, 'solved example')} before a question; "
        f"content digest of the index {refs['index'].content_digest[:_SHOWN]}"
    )


def _encoders(store: Store, vectors: list[Ref]) -> Iterator[str]:
    for ref in vectors:
        manifest = current_manifest(store, ref.stage, ref.key)
        if manifest is None:
            yield "an encoder that is gone"
            continue
        about = manifest["metadata"]
        revision = str(about["revision"]).removeprefix("sha256:")[:_SHOWN]
        model = markdown_text(str(about["model"] or "a model not stated"))
        yield f"{model} ({markdown_text(revision)})" if revision else model


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
