"""What Dagster shows of an artefact. Knows the record; knows no stage."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg
import pyarrow as pa

from datamask_pipeline.printable import markdown_text
from datamask_pipeline.report import plots
from datamask_pipeline.schema import description
from datamask_pipeline.storage import Ref, Store

Metadata = dict[str, Any]


def artefact_metadata(
    store: Store, ref: Ref, manifest: Mapping[str, Any], *, plot_files: Iterable[str] = ()
) -> Metadata:
    """Rows, columns, place, hashes, counters, settings and plots of an artefact.

    Args:
        store: The record.
        ref: The artefact.
        manifest: Its manifest.
        plot_files: Names of PNG files beside the parts; shown where they exist.
    """
    metadata = _plots(store, ref, plot_files)
    metadata |= {f"rows: {name}": int(number) for name, number in manifest["counts"].items()}
    if manifest["parts"]:
        metadata["dagster/row_count"] = ref.rows
        metadata["parts"] = len(manifest["parts"])
        seconds = float(manifest["wall_seconds"])
        carried = int(manifest.get("rows_carried", 0))
        rows = int(manifest["counts"].get("rows_in", ref.rows)) - carried
        metadata["rows per second"] = round(rows / seconds, 2) if seconds else 0.0
        if carried:
            metadata["rows carried over"] = carried
        metadata["dagster/column_schema"] = column_schema(parts_schema(store, ref))
    return metadata | {
        "location": dg.MetadataValue.path(store.address(ref.location)),
        "fingerprint": ref.fingerprint,
        "content digest": ref.content_digest,
        "seconds to compute": float(manifest["wall_seconds"]),
        "settings": dg.MetadataValue.json(dict(manifest["basis"]["config"])),
        "inputs": dg.MetadataValue.json(dict(manifest["basis"]["inputs"])),
    }


def _plots(store: Store, ref: Ref, names: Iterable[str]) -> Metadata:
    """Each plot as a small image, and the path of its file."""
    metadata: Metadata = {}
    for name in names:
        path = store.file_path(ref, name)
        if store.fs.exists(path):
            metadata[name] = image(name, store.fs.cat_file(path))
            metadata[f"{name} (file)"] = dg.MetadataValue.path(path)
    return metadata


def sparkline(store: Store, ref: Ref, column: str) -> dg.MarkdownMetadataValue:
    """The course of a column over an artefact's rows, so small that the page shows it at once (below 1 000 characters)."""
    values = store.read_table(ref, [column]).column(0).drop_null().to_pylist()
    return image(column, plots.sparkline(values))


def image(name: str, content: bytes) -> dg.MarkdownMetadataValue:
    """A PNG as Markdown; pages show it without a click below 1 000 characters."""
    return dg.MetadataValue.md(f"![{name}](data:image/png;base64,{base64.b64encode(content).decode()})")


def parts_schema(store: Store, ref: Ref) -> pa.Schema:
    """The Arrow schema of the artefact's first part; all parts have the same."""
    with store.part_file(ref, store.part_names(ref)[0]) as part:
        return part.schema_arrow.remove_metadata()


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """An Arrow schema as the UI shows it."""
    return dg.TableSchema(
        columns=[dg.TableColumn(field.name, str(field.type), description(field)) for field in schema]
    )


def table(rows: Iterable[Mapping[str, Any]], *columns: str, **renamed: str) -> dg.MarkdownMetadataValue:
    """Some columns of some rows, ``renamed`` ones last and under another name; ``-`` where there is no value."""
    heads = {**{name: name.replace("_", " ") for name in columns}, **renamed}
    lines: list[Iterable[str]] = [map(markdown_text, heads.values()), ["---"] * len(heads)]
    lines += [[_cell(row.get(name)) for name in heads] for row in rows]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return markdown_text(value)
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def scalars(values: Mapping[str, Any], *names: str) -> Metadata:
    """Those of the named values that are numbers: the UI plots them over time."""
    return {name: values[name] for name in names if isinstance(values.get(name), int | float)}
