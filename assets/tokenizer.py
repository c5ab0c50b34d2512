"""The asset of the tokenizer that all models of a release share."""

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets import partitions
from assets.checks import Artefact, Verdict, asset_checks
from assets.launchpad import code_version, launchpad
from assets.metadata import Metadata, scalars
from assets.step import COMMON, run_stage
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.stages import ingest, tokenizer
from datamask_pipeline.storage import Ref
from resources import PipelineResource

#: Documents that are encoded and decoded again by the check.
SAMPLE_DOCUMENTS = 64


def build(config: PipelineConfig) -> dg.Definitions:
    """The asset and its checks."""

    @dg.asset(
        name="tokenizer",
        deps=["candidate_documents", partitions.of_every_crawl("crawl_documents")],
        partitions_def=partitions.RELEASES,
        group_name="releases",
        kinds={"huggingface"},
        tags={"stage": "tokenizer"},
        code_version=code_version(tokenizer.VERSION, config.tokenizer),
        config_schema=launchpad(config.tokenizer),
        **COMMON,
    )
    def learn_tokenizer(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[None]:
        """A byte-level BPE learnt from the whole pool, so that it favours no arm."""
        return run_stage(context, pipeline, "tokenizer", headline=_headline)

    return dg.Definitions(
        assets=[learn_tokenizer],
        asset_checks=[
            asset_checks(
                "tokenizer",
                tokenizer.STAGE,
                partitions.RELEASES,
                blocking=[vocabulary_within_bounds, texts_survive_the_round_trip],
            ),
        ],
    )


def vocabulary_within_bounds(artefact: Artefact) -> Verdict:
    """No more entries than the settings allow, and at least one for each byte."""
    entries, most = (
        artefact.manifest["metadata"]["entries"],
        artefact.manifest["basis"]["config"]["vocab_size"],
    )
    return Verdict(256 < entries <= most, {"entries": entries, "most": most})


def texts_survive_the_round_trip(artefact: Artefact) -> Verdict:
    """Encoding and decoding a document gives the document back, for the first ones that the release's crawls kept."""
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
    return Verdict(bool(texts) and changed == 0, {"documents": len(texts), "changed": changed})


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    return scalars(manifest["metadata"], "entries")
