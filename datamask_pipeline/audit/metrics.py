"""What the manifests of current artefacts hold, in the text form that Prometheus reads. Knows no stage; opens no table."""

from collections.abc import Iterator
from typing import Final

from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.changes import current_manifest
from datamask_pipeline.storage.ref import stored_bytes

_HELP: Final = {
    "datamask_rows": "Rows of the current artefact.",
    "datamask_rows_in": "Rows that its stage read.",
    "datamask_rows_kept": "Of these, rows kept.",
    "datamask_rows_dropped": "Of these, rows left out, by reason.",
    "datamask_rows_carried": "Rows of the current artefact that were carried over from one before.",
    "datamask_compute_seconds": "On the clock, to compute it, without what was carried over.",
    "datamask_written_timestamp_seconds": "When it was written.",
    "datamask_bytes": "Of its parts, vectors and other files.",
}


def metrics_lines(store: Store) -> Iterator[str]:
    """Each metric with its help, then a sample for each artefact and key, sorted."""
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for artefact in [output.artefact for stage in FLOW for output in stage.makes]:
        for key in store.keys(artefact):
            manifest = current_manifest(store, artefact, key)
            if manifest is None:
                continue
            counts, labels = manifest["counts"], {"stage": artefact, "key": key}
            values = {
                "datamask_rows": manifest["rows"],
                "datamask_rows_carried": manifest.get("rows_carried", 0),
                "datamask_compute_seconds": manifest["wall_seconds"],
                "datamask_written_timestamp_seconds": manifest["written_at_ns"] / 1e9,
                "datamask_bytes": stored_bytes(manifest),
            }
            if "rows_in" in counts:
                values |= {"datamask_rows_in": counts["rows_in"], "datamask_rows_kept": counts["kept"]}
            for name, value in values.items():
                samples[name].append(_sample(name, labels, value))
            for name in sorted(name for name in counts if name.startswith("dropped_")):
                reason = {"reason": name.removeprefix("dropped_")}
                samples["datamask_rows_dropped"].append(
                    _sample("datamask_rows_dropped", labels | reason, counts[name])
                )
    for name, told in samples.items():
        yield f"# HELP {name} {_HELP[name]}"
        yield f"# TYPE {name} gauge"
        yield from told


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    given = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{given}}} {float(value)!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
