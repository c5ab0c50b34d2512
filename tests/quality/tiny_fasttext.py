"""Writes small supervised fastText models in the library's own binary format, with weights chosen by hand.

The format is that of fastText 0.9, version 12: arguments, dictionary, input matrix, output matrix.
"""

import struct
from pathlib import Path

import numpy as np

MAGIC, VERSION = 793_712_314, 12
SOFTMAX, SUPERVISED = 3, 3
WORD, LABEL = 0, 1
END_OF_LINE = "</s>"


def write_model(path: Path, labels: tuple[str, str], words: dict[str, float]) -> Path:
    """A model whose logit for the first label is the mean weight of the line's known words, end of line included.

    Args:
        path: Where to write it.
        labels: The two labels, without prefix.
        words: Weight of each word; the second label's logit is the negative of the first's.
    """
    vocabulary = {END_OF_LINE: 0.0} | words
    parts = [struct.pack("<ii", MAGIC, VERSION)]
    # dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate, t
    parts.append(struct.pack("<12id", 1, 5, 5, 1, 5, 1, SOFTMAX, SUPERVISED, 0, 0, 0, 100, 1e-4))
    size = len(vocabulary) + len(labels)
    parts.append(struct.pack("<iiiqq", size, len(vocabulary), len(labels), 1000, -1))
    for word in vocabulary:
        parts.append(word.encode() + b"\0" + struct.pack("<qb", 10, WORD))
    for label in labels:
        parts.append(f"__label__{label}".encode() + b"\0" + struct.pack("<qb", 10, LABEL))
    parts.append(_matrix(np.array([[weight] for weight in vocabulary.values()])))
    parts.append(_matrix(np.array([[1.0], [-1.0]])))
    path.write_bytes(b"".join(parts))
    return path


def probability(words: dict[str, float], line: str) -> float:
    """What such a model gives its first label, computed apart from fastText."""
    known = [words[word] for word in line.split() if word in words] + [0.0]
    return 1.0 / (1.0 + float(np.exp(-2.0 * np.mean(known))))


def _matrix(values: np.ndarray) -> bytes:
    rows, columns = values.shape
    return struct.pack("<?qq", False, rows, columns) + values.astype("<f4").tobytes()
