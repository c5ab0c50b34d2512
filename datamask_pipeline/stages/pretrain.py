"""Pretrain: a small language model on one arm's subset, validated on text that no arm saw."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline import schema, texts
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.stages import materialise as materialise_stage
from datamask_pipeline.stages import tokenizer as tokenizer_stage
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "pretrain"
VERSION: Final = "5"
TREE: Final = "models"


def check(config: PretrainConfig) -> None:
    """Refuse a model that this machine cannot train.

    Raises:
        ConfigurationError: the device is not there, or too small, or does not multiply in that dtype.
    """
    from datamask_pipeline.pretraining import checks

    checks.check(config)


def run(
    config: PretrainConfig,
    *,
    store: Store,
    release: str,
    run_name: str,
    subset: Ref,
    tokenizer: Ref,
    candidates: Ref,
    documents: Mapping[str, Ref],
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Ref:
    """Pretrain one model.

    Args:
        config: Architecture, budget and seed.
        store: The record.
        release: The release's name.
        run_name: ``<arm>.<architecture>.seed<n>``.
        subset: The arm's documents.
        tokenizer: The release's tokenizer.
        candidates: The release's candidates, which name the validation documents.
        documents: Documents of each crawl, which hold the validation documents' texts.
        progress: Told of optimiser steps.

    Returns:
        The loss curve as rows; the checkpoints as a directory ``models``.

    Raises:
        ConfigurationError: the release holds out no document to validate on.
    """
    inputs: dict[str, Ref | str] = {"subset": subset, "tokenizer": tokenizer, "candidates": candidates}
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    # By its documents: another mask of the same documents trains the same model.
    documents_digest = materialise_stage.documents_digest(store, subset)
    builder = store.begin(
        STAGE,
        f"{release}/{run_name}",
        version=VERSION,
        config=config.result_config(),
        inputs=inputs,
        digests={"subset": documents_digest},
    )
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.pretraining.tokenizer import load_tokenizer
    from datamask_pipeline.pretraining.train import pretrain

    def validation() -> Iterator[str]:
        return (text for _, text in texts.pool_documents(store, candidates, documents, "validation"))

    if next(validation(), None) is None:
        raise ConfigurationError(
            f"release {release!r} holds out no document for validation; raise pool.validation_share "
            "or give more documents"
        )
    scratch = builder.scratch()
    result = pretrain(
        _subset_texts(store, subset),
        load_tokenizer(store.local_copy(tokenizer, tokenizer_stage.TREE, scratch)),
        validation(),
        scratch / "run",
        config,
        None if progress is None else (lambda done, total: progress(run_name, done, total)),
    )
    curve = pa.Table.from_pylist(result.curve, schema=schema.LOSS_CURVE)
    part = builder.write_part("loss_curve", curve.to_batches(), schema.LOSS_CURVE)
    tree = builder.write_tree(TREE, scratch / "run" / "models")
    _write_plot(builder, result.curve)
    metadata = {
        "release": release,
        "run": run_name,
        "documents_digest": documents_digest,
        "parameters": result.num_parameters,
        "active_parameters": result.num_active_parameters,
        "steps": result.steps,
        "tokens_seen": result.tokens_seen,
        "subset_tokens": result.subset_tokens,
        "epochs": result.epochs,
        "bits_per_byte": result.validation.bits_per_byte,
        "validation_documents": result.validation.num_documents,
        "validation_bytes": result.validation.num_bytes,
        "tokens_per_second": None if result.speed is None else result.speed.tokens_per_second,
        "utilisation": None if result.speed is None else result.speed.utilisation,
        "checkpoints": {str(item.step): item.directory.name for item in result.checkpoints},
    }
    return builder.commit([part], trees=[tree], metadata=metadata)


def _subset_texts(store: Store, subset: Ref) -> Iterator[str]:
    for batch in store.iter_batches(subset, ["text"], batch_rows=1_024):
        yield from batch.column(0).to_pylist()


def _write_plot(builder: Any, curve: list[dict[str, float]]) -> None:
    from datamask_pipeline.report.plots import loss_curve_figure, png

    builder.write_file("loss_curve.png", png(loss_curve_figure(curve)))


def checkpoint_directories(store: Store, model: Ref, scratch: Path) -> dict[int, Path]:
    """Local directories of a model's checkpoints by step."""
    names: dict[str, str] = store.manifest(model)["metadata"]["checkpoints"]
    models = store.local_copy(model, TREE, scratch)
    return {int(step): models / name for step, name in names.items()}
