"""Labelled examples for the probe: out of a user's file, or the reference class of the installed documentation.

Knows files and sources; knows no model.
"""

import codecs
import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.quality.trained import INSTALLED, ExamplesConfig, HeldOutConfig
from datamask_pipeline.schema import EMBEDDING_DIM
from datamask_pipeline.sources.filters import invalid_utf8_rows
from datamask_pipeline.sources.formats.jsonl import parse_line
from datamask_pipeline.sources.formats.lines import raw_lines
from datamask_pipeline.vectors import are_unit

#: What the reference class of the installed documentation is made of, and what stands against it.
PROSE_KINDS = ("page", "description")


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts with labels; vectors only if the file has them.

    Attributes:
        texts: What is judged.
        labels_N: Finite numbers, higher is better.
        vectors_ND: Their embeddings, of unit norm as the documents' are, or ``None``.
        num_unlabelled: Rows of the file left out because text or label is null or not there.
        held_by: The text by which each is held out or not: a shuffled one goes where its original goes.
        num_normalised: Vectors of the file that were not of unit norm, and were made so.
    """

    texts: list[str]
    held_by: list[str]
    labels_N: NDArray[np.float64]
    vectors_ND: NDArray[np.float32] | None
    num_unlabelled: int
    num_normalised: int = 0


def examples_digest(config: ExamplesConfig) -> str:
    """Identity of the examples' bytes."""
    if config.examples == INSTALLED:
        source = SOURCES.make(INSTALLED)
        digests = [shard.digest for crawl in source.crawls() for shard in source.shards(crawl)]
        settings = json.dumps(source.result_config(), sort_keys=True)
        return hashlib.sha256(" ".join([settings, *digests]).encode()).hexdigest()
    with _existing(config.examples).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_examples(config: ExamplesConfig) -> None:
    """Refuse a file that is not there, lacks a column or labels no row, and vectors beside texts that are shuffled; reads on
    until a row has every column.

    Raises:
        InputError: naming file and column.
    """
    if config.examples != INSTALLED:
        path = _existing(config.examples)
        _refuse_shuffled_vectors(config)
        any_labelled = False
        for entry in _rows(path, _wanted(config)):
            if None not in entry.values():
                return
            any_labelled |= _is_labelled(entry, config)
        if not any_labelled:
            raise InputError("no row has both a text and a label", file=str(path), remedy="label some rows")


def read_examples(config: ExamplesConfig) -> Examples:
    """The examples that the settings name.

    Raises:
        InputError: the file or a column is missing, nothing is labelled, a text is no string, a label no number,
            or a vector not as the documents' are.
    """
    if config.examples == INSTALLED:
        assert isinstance(config, HeldOutConfig), "others refuse it in their settings"
        return _installed(config.per_class)
    path = _existing(config.examples)
    _refuse_shuffled_vectors(config)
    rows = list(_rows(path, _wanted(config)))
    labelled = [(row, entry) for row, entry in enumerate(rows) if _is_labelled(entry, config)]
    if not labelled:
        raise InputError("no row has both a text and a label", file=str(path), remedy="label some rows")
    labels = [1.0] * len(labelled)
    if column := config.label_column:
        labels = [_label(entry[column], path, row, column) for row, entry in labelled]
    texts = [_text(entry[config.text_column], path, row, config.text_column) for row, entry in labelled]
    if isinstance(config, HeldOutConfig) and config.label_column is None:
        return _against_shuffled(texts, config, len(rows) - len(labelled))
    vectors, num_normalised = None, 0
    if column := config.vector_column:
        vectors = np.stack([_vector(entry[column], path, row, column) for row, entry in labelled])
        norms_N = np.linalg.norm(vectors.astype(np.float64), axis=1)
        off_N = ~are_unit(norms_N)
        vectors[off_N] = vectors[off_N] / norms_N[off_N, None]
        num_normalised = int(off_N.sum())
    return Examples(texts, texts, np.array(labels), vectors, len(rows) - len(labelled), num_normalised)


def _refuse_shuffled_vectors(config: ExamplesConfig) -> None:
    if isinstance(config, HeldOutConfig) and config.label_column is None and config.vector_column is not None:
        raise InputError(
            "texts without labels are told from their shuffled words, which have no vectors",
            file=config.examples,
            field=config.vector_column,
            remedy="leave out `vector_column`, or name a column of labels",
        )


def _against_shuffled(texts: list[str], config: HeldOutConfig, num_left_out: int) -> Examples:
    """The texts, and each of them with its words in random order.

    Raises:
        InputError: no text has words to shuffle.
    """
    shuffled = []
    for text in texts:
        # By the text itself, so that other rows change nothing.
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        shuffled.append(
            " ".join(np.random.default_rng(seed).permutation(np.array(text.split(), dtype=object)))
        )
    kept = [place for place, text in enumerate(texts) if shuffled[place] != " ".join(text.split())]
    if not kept:
        raise InputError("no text has words to shuffle", file=config.examples, remedy="give longer texts")
    pairs = [*(texts[place] for place in kept), *(shuffled[place] for place in kept)]
    labels_N = np.repeat([1.0, 0.0], len(kept))
    return Examples(pairs, [*pairs[: len(kept)]] * 2, labels_N, None, num_left_out + len(texts) - len(kept))


def _installed(per_class: int) -> Examples:
    """As many documentation pages as docstrings, the first ones by a hash of the text."""
    source = SOURCES.make(INSTALLED)
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for crawl in source.crawls():
        for shard in source.shards(crawl):
            for batch in source.read(crawl, shard, batch_rows=1_024):
                for text, kind in zip(
                    batch.documents.column("text").to_pylist(),
                    batch.documents.column("kind").to_pylist(),
                    strict=True,
                ):
                    found[kind in PROSE_KINDS].add(text)
    taken = min(per_class, *map(len, found.values()))
    texts, labels = [], []
    for is_prose, members in found.items():
        ordered = sorted(members, key=lambda text: hashlib.sha256(text.encode()).digest())[:taken]
        texts += ordered
        labels += [float(is_prose)] * len(ordered)
    return Examples(texts, texts, np.array(labels), None, 0)


def _is_labelled(entry: Mapping[str, Any], config: ExamplesConfig) -> bool:
    return entry[config.text_column] is not None and (
        config.label_column is None or entry[config.label_column] is not None
    )


def _wanted(config: ExamplesConfig) -> list[str]:
    return [name for name in (config.text_column, config.label_column, config.vector_column) if name]


def _rows(path: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    return _parquet_rows(path, wanted) if path.suffix == ".parquet" else _json_rows(path, wanted)


def _parquet_rows(path: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    try:
        found = pq.read_schema(path)
        _check_columns(found.names, wanted, path)
        with pq.ParquetFile(path) as opened:
            first = 0
            for batch in opened.iter_batches(columns=wanted):
                if undecodable := invalid_utf8_rows(batch):
                    row = min(undecodable)
                    raise InputError(
                        "a string is not valid UTF-8",
                        file=str(path),
                        row=first + row,
                        field=undecodable[row],
                        remedy="repair the text, or drop the row",
                    )
                yield from batch.to_pylist()
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"not a whole Parquet file: {error}", file=str(path), remedy="write the file again"
        ) from error


def _json_rows(path: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    found: dict[str, None] = {}  # in any row: one that has no label may leave the column out
    with path.open("rb") as stream:
        lines = (line.removeprefix(codecs.BOM_UTF8) for line in raw_lines(stream, str(path)))
        for row, line in enumerate(line for line in lines if line.strip()):
            entry = parse_line(line)
            if isinstance(entry, str):
                raise InputError(
                    f"a line is no JSON object: {entry}", file=str(path), row=row, remedy="repair the line"
                )
            found |= dict.fromkeys(entry)
            yield {name: entry.get(name) for name in wanted}
    if found:
        _check_columns(list(found), wanted, path)


def _check_columns(found: list[str], wanted: list[str], path: Path) -> None:
    for name in wanted:
        if found.count(name) > 1:
            raise InputError(
                "a column stands twice", file=str(path), field=name, remedy="rename one of the two"
            )
        if name not in found:
            raise InputError(
                f"a column is missing; there are: {', '.join(found)}",
                file=str(path),
                field=name,
                remedy="name the right column in the scorer's options",
            )


def _label(value: object, path: Path, row: int, column: str) -> float:
    # A whole number of JSON may be longer than any float.
    if isinstance(value, bool | int | float) and abs(value) <= sys.float_info.max:
        return float(value)
    raise InputError(
        "a label is no finite number",
        file=str(path),
        row=row,
        field=column,
        value=value,
        remedy="repair the label",
    )


def _text(value: object, path: Path, row: int, column: str) -> str:
    try:
        if isinstance(value, str):
            value.encode()
            return value
        problem = "a text is no string"
    except UnicodeEncodeError:
        problem = "a text holds half a surrogate pair, which is no character"
    raise InputError(
        problem, file=str(path), row=row, field=column, value=value, remedy="repair the text, or drop the row"
    )


def _vector(value: object, path: Path, row: int, column: str) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector_D = np.array(value, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        vector_D = np.empty(0, dtype=np.float32)
    problem = f"a vector is no list of {EMBEDDING_DIM} finite numbers, as the documents' vectors are"
    if vector_D.shape == (EMBEDDING_DIM,) and np.isfinite(vector_D).all():
        if vector_D.any():
            return vector_D
        problem = "a vector is zero, which has no direction"
    raise InputError(
        problem,
        file=str(path),
        row=row,
        field=column,
        value=value,
        remedy="embed the examples by the model of the documents, or drop the row",
    )


def _existing(location: str) -> Path:
    path = Path(location)
    if not path.is_file():
        raise InputError("no such file of examples", file=location, remedy="correct the scorer's `examples`")
    return path
