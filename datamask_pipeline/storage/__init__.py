"""The record on disk or object storage: artefacts of Parquet parts under a manifest that is written last.

Knows fsspec, Parquet and JSON; knows no stage. Layout under the root::

    <stage>/<key>/<fingerprint, 16 digits>/<part>.parquet       published whole, never changed
    <stage>/<key>/<fingerprint, 16 digits>/<part>.npy           an array of as many rows, if the part has one
    <stage>/<key>/<fingerprint, 16 digits>/<part>.parquet.json  rows, digests and counts of that part
    <stage>/<key>/<fingerprint, 16 digits>/<file>               models, plots: anything not tabular
    <stage>/<key>/<fingerprint, 16 digits>/manifest.json        last: without it nothing exists
    <stage>/<key>/current.json                                  pointer to the newest, replaced at once
    record.json                                                 the version of this format; without it, 1
    .staging/  .scratch/  .leases/                               private to writers

Every file is written under a private name and then published by one atomic step (rename on local disk, one
put on object storage), so a reader sees a whole file or none. What one artefact carries over from another is the
same file under a second name where the file system has hard links: a copy of it elsewhere needs its bytes again.
Two writers of one fingerprint write the same bytes, so whichever is last changes nothing.
"""

from datamask_pipeline.storage.builder import ArtefactBuilder, check_balance
from datamask_pipeline.storage.links import link_or_copy
from datamask_pipeline.storage.maps import new_map
from datamask_pipeline.storage.npy import array_files, npy_bytes, open_array
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.refusals import storage_errors
from datamask_pipeline.storage.store import ROW_GROUP_ROWS, Store, require

__all__ = [
    "ROW_GROUP_ROWS",
    "ArtefactBuilder",
    "Ref",
    "Store",
    "array_files",
    "check_balance",
    "link_or_copy",
    "new_map",
    "npy_bytes",
    "open_array",
    "require",
    "storage_errors",
]
