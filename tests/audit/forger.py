"""Forges a record consistently: after any change, every digest, manifest, path and pointer is written anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline import lineage
from datamask_pipeline.stages.materialise import DOCUMENT_IDENTITY
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.pieces import PIECES_FILE, digests_of
from datamask_pipeline.storage.ref import location_of, manifest_digest, pretty_json, ref_of
from datamask_pipeline.storage.row_index import INDEX_FILES, write_index

#: An artefact may be read once what it was made from is there.
ORDER = "ingest rejected embed score pool copies gather select learning_curve materialise".split()


class Forger:
    """A record of one arm, as far as its subset; every method leaves it consistent.

    Args:
        record: Its folder.
        arm: The arm's key.
    """

    def __init__(self, record: Path, arm: str = "first/datamask") -> None:
        self.record, self.arm = record, arm

    def manifests(self, stage: str) -> dict[Path, dict[str, Any]]:
        """Every manifest of a stage by its file."""
        return {
            path: json.loads(path.read_text())
            for path in sorted((self.record / stage).rglob("manifest.json"))
        }

    def ids(self, stage: str) -> set[str]:
        """Ids of all rows of a stage."""
        files = sorted((self.record / stage).rglob("*.parquet"))
        return {value for file in files for value in pq.read_table(file, columns=["id"])["id"].to_pylist()}

    def change_manifest(self, stage: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what the first manifest of a stage says."""
        path, manifest = next(iter(self.manifests(stage).items()))
        change(manifest)
        path.write_text(json.dumps(manifest))
        self.settle()

    def change_rows(self, stage: str, change: Callable[[list[dict[str, Any]]], None], part: int = 0) -> None:
        """Change the rows of a part of the first artefact of a stage."""
        path, manifest = next(iter(self.manifests(stage).items()))
        record = manifest["parts"][part]
        file = path.parent / f"{record['name']}.parquet"
        columns = pq.read_schema(file)
        rows = pq.read_table(file).to_pylist()
        before = len(rows)
        change(rows)
        table = pa.Table.from_pylist(rows, schema=columns)
        pq.write_table(table, file)
        digest = lineage.TableDigest(columns)
        digest.update(table)
        record |= {
            "rows": len(rows),
            "bytes": file.stat().st_size,
            "sha256": sha256_file(file),
            "digest": digest.hexdigest(),
        }
        if "identity_digest" in record:
            record["identity_digest"] = digest.hexdigest(DOCUMENT_IDENTITY)
        counts = manifest["counts"]
        for name in ("rows_in", "kept") if len(rows) != before and "kept" in counts else ():
            counts[name] += len(rows) - before
        path.write_text(json.dumps(manifest))
        self.settle()

    def change_array(self, name: str, change: Callable[[NDArray[np.float64]], None]) -> None:
        """Change the numbers in an array beside the first selection's part."""
        path, manifest = next(iter(self.manifests("select").items()))
        values = np.load(path.parent / name)
        change(values)
        np.save(path.parent / name, values)
        (record,) = (file for file in manifest["files"] if file["name"] == name)
        record["sha256"] = sha256_file(path.parent / name)
        path.write_text(json.dumps(manifest))
        self.settle()

    def change_cliques(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Change the cliques beside the first selection's part."""
        path, manifest = next(iter(self.manifests("select").items()))
        file = path.parent / "cliques.parquet"
        pq.write_table(change(pq.read_table(file)), file)
        (record,) = (each for each in manifest["files"] if each["name"] == file.name)
        record["sha256"] = sha256_file(file)
        path.write_text(json.dumps(manifest))
        self.settle()

    def settle(self) -> None:
        """Write every digest anew, from the crawls on."""
        made: dict[str, dict[str, Any]] = {}
        for stage in ORDER:
            for path, manifest in self.manifests(stage).items():
                self._settle(path, manifest, made)

    def _settle(self, path: Path, manifest: dict[str, Any], made: dict[str, dict[str, Any]]) -> None:
        self.index_again(path.parent, manifest)
        old = manifest["location"]
        for name, item in manifest["inputs"].items():
            if isinstance(item, dict):
                manifest["inputs"][name] = ref_of(made[item["location"]]).as_dict()
                manifest["basis"]["inputs"][name] = made[item["location"]]["content_digest"]
        arrays = [{"name": f"{p['name']}.npy", **p["array"]} for p in manifest["parts"] if "array" in p]
        named = [(p["name"], p["digest"]) for p in [*manifest["parts"], *arrays, *manifest["trees"]]]
        manifest["content_digest"] = lineage.combined_digest(named)
        manifest["rows"] = sum(part["rows"] for part in manifest["parts"])
        if "documents_digest" in manifest["metadata"]:
            identities = ((part["name"], part["identity_digest"]) for part in manifest["parts"])
            manifest["metadata"]["documents_digest"] = lineage.combined_digest(identities)
        manifest["fingerprint"] = lineage.sha256_text(lineage.canonical_json(manifest["basis"]))
        stage, key = manifest["stage"], manifest["key"]
        manifest["location"] = location_of(stage, key, manifest["fingerprint"])
        manifest["manifest_digest"] = manifest_digest(manifest)
        folder = self.record / manifest["location"]
        path.parent.rename(folder)
        for part in manifest["parts"]:
            (folder / f"{part['name']}.parquet.json").write_text(pretty_json(part))
        (folder / "manifest.json").write_text(pretty_json(manifest))
        (self.record / stage / key / "current.json").write_text(pretty_json(ref_of(manifest).as_dict()))
        made[old] = manifest

    def index_again(self, folder: Path, manifest: dict[str, Any]) -> None:
        """The indexes of rows by document, and the digests of pieces, of the files as they are now."""
        stated = {file["name"]: file for file in manifest.get("files", ())}
        if PIECES_FILE not in stated:
            return
        files = [folder / f"{part['name']}.parquet" for part in manifest["parts"]]
        store = Store(self.record)
        for column, name in INDEX_FILES.items():
            if name in stated:
                stated[name] |= write_index(
                    store, map(str, files[: len(manifest["parts"])]), column, folder / name, folder
                )
                files.append(folder / name)
        digests = b"".join(digests_of(file.open("rb")) for file in files)
        (folder / PIECES_FILE).write_bytes(digests)
        stated[PIECES_FILE] |= {"bytes": len(digests), "sha256": sha256_file(folder / PIECES_FILE)}

    def state_index(self, folder: Path, manifest: dict[str, Any]) -> None:
        """State the digests of indexes and pieces as they are, whatever they say."""
        for file in manifest.get("files", ()):
            path = folder / file["name"]
            file |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
