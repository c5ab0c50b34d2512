"""`croissant.json`: the data set in MLCommons' Croissant 1.1, with provenance down to the field. Knows no record.

Source: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from datamask_pipeline import schema
from datamask_pipeline.publish.columns import Column

_CONTEXT: Final = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
    "value": "cr:value",
}


def croissant(
    *,
    name: str,
    about: str,
    licence: str,
    files: Mapping[str, Mapping[str, Any]],
    columns: Iterable[Column],
    derived_from: Iterable[str],
) -> dict[str, Any]:
    """The description as JSON-LD.

    Args:
        name: The data set's name.
        about: What it is.
        licence: Its licence.
        files: Bytes and SHA-256 of each shard, by its path beside this file.
        columns: Its columns; nested ones and lengths of time are named in the description of the records
            alone.
        derived_from: Addresses of the data sets that it was made from.
    """
    columns = list(columns)
    kinds = {column.field.name: _kind(column.field.type) for column in columns}
    untyped = [each for each, kind in kinds.items() if kind is None]
    shards = [
        {
            "@type": "cr:FileObject",
            "@id": path,
            "name": path.rpartition("/")[2],
            "contentUrl": path,
            "contentSize": f"{file['bytes']} B",
            "encodingFormat": "application/x-parquet",
            "sha256": file["sha256"],
        }
        for path, file in files.items()
    ]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": name,
        "description": about,
        "license": licence,
        "prov:wasDerivedFrom": [{"@id": _iri(address)} for address in derived_from],
        "distribution": [
            *shards,
            {
                "@type": "cr:FileSet",
                "@id": "shards",
                "encodingFormat": "application/x-parquet",
                "includes": "data/*.parquet",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "documents",
                "description": "One record per document."
                + (f" Columns that Croissant cannot type: {', '.join(untyped)}." if untyped else ""),
                "field": [
                    _field(column, kind)
                    for column in columns
                    if (kind := kinds[column.field.name]) is not None
                ],
            }
        ],
    }


def _field(column: Column, kind: str) -> dict[str, Any]:
    name = column.field.name
    return {
        "@type": "cr:Field",
        "@id": f"documents/{quote(name, safe='')}",
        "name": name,
        "description": f"{schema.description(column.field) or 'A column of the source.'} From: {column.origin}.",
        "dataType": kind,
        "source": {"fileSet": {"@id": "shards"}, "extract": {"column": name}},
        "prov:wasDerivedFrom": [{"@id": _iri(address)} for address in column.derived_from],
    }


def _iri(address: str) -> str:
    """An address as JSON-LD takes it: without blanks, as names of models, columns and folders may have."""
    return quote(address, safe="%/:?#[]@!$&'()*+,;=~")


def _kind(kind: pa.DataType) -> str | None:
    """Croissant's name of a type; ``None`` for a nested one, and for a length of time."""
    types = pa.types
    if types.is_boolean(kind):
        return "sc:Boolean"
    if types.is_integer(kind):
        return "sc:Integer"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "sc:Float"
    if types.is_time(kind):
        return "sc:Time"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "sc:DateTime"
    return None if types.is_nested(kind) or types.is_temporal(kind) else "sc:Text"
