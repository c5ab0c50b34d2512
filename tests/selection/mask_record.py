"""The run's record out of what `train_mask` or `datamask select` wrote."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from datamask_pipeline.mask_file import METADATA_KEY


def record_of(path: Path) -> Any:
    return json.loads(pq.read_schema(path).metadata[METADATA_KEY])
