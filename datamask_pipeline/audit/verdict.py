"""The verdict of a proof as an in-toto statement that others can check. Knows no signature.

Source: https://github.com/in-toto/attestation/blob/main/spec/predicates/svr.md, Simple Verification Result 0.1.
"""

import json
import time
from importlib.metadata import version
from typing import Any

from datamask_pipeline.publish.manifest import NAME
from datamask_pipeline.storage.hashed import sha256_at


def verdict(fs: Any, path: str, properties: list[str]) -> dict[str, Any]:
    """What was proved of a data set; there is none of one that was not proved.

    Args:
        fs: Its file system.
        path: Its folder there.
        properties: What holds: `DATAMASK_FILES`, `DATAMASK_ROOT`, `DATAMASK_SIGNATURE`, `DATAMASK_RECORD`.

    Returns:
        The statement; its subjects are the folder's files by name and SHA-256, the manifest first.
    """
    files = json.loads(fs.cat_file(f"{path}/{NAME}"))["files"]
    digests = {NAME: sha256_at(fs, f"{path}/{NAME}")} | {name: file["sha256"] for name, file in files.items()}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": "https://in-toto.io/attestation/svr/v0.1",
        "predicate": {
            "verifier": {"id": f"pkg:pypi/datamask-pipeline@{version('datamask-pipeline')}"},
            "timeCreated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "properties": properties,
        },
    }
