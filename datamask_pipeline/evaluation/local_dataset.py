"""The data set that lm-eval asks for by `custom_dataset`: prepared files, read into memory.

Knows no task. Nothing is fetched, and no cache is written.
"""

import datasets
import pyarrow.parquet as pq


def read_files(
    *, questions: str, demonstrations: str | None = None, **metadata: object
) -> datasets.DatasetDict:
    """The splits of one task.

    Args:
        questions: Parquet file of the questions.
        demonstrations: Parquet file of the solved examples, or None.
        metadata: What the task's definition says of itself; lm-eval passes it on, and no file depends on it.
    """
    files = {"questions": questions, "demonstrations": demonstrations}
    return datasets.DatasetDict(
        {split: datasets.Dataset(pq.read_table(file)) for split, file in files.items() if file is not None}
    )
