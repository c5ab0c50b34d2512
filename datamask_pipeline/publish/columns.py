"""What each published column means and where it comes from. Knows no file."""

import dataclasses

import pyarrow as pa

from datamask_pipeline import schema
from datamask_pipeline.publish.facts import Facts

_OF_THE_RECORD = {
    field.name: field for table in ("materialise", "ingest") for field in schema.TABLES[table].columns
}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the data set.

    Attributes:
        field: Its name, type and description.
        origin: Who made its values, in words.
        derived_from: Addresses of what it was derived from.
    """

    field: pa.Field
    origin: str
    derived_from: list[str]


def described(field: pa.Field) -> pa.Field:
    """A column of a subset with its description: files of earlier versions lack it."""
    return field.with_metadata(_OF_THE_RECORD.get(field.name, field).metadata or field.metadata)


def columns_of(columns: pa.Schema, facts: Facts) -> list[Column]:
    """Where each column comes from."""
    sources = sorted({source.url for source in facts.sources})
    near_copies = schema.NUM_NEAR_COPIES.name
    own = {*schema.SUBSET_EXTRA.names, near_copies}
    scorers = {f"score_{scorer['name']}": scorer for scorer in facts.scorers}
    selection = f"urn:datamask:{facts.selection['location']}:{facts.selection['content_digest']}"
    found = []
    for field in columns:
        if scorer := scorers.get(field.name):
            at = f" at {scorer['revision']}" if scorer["revision"] else ""
            origin = f"stage `score`: {scorer['model']}{at}"
            found.append(Column(field, origin, [_model_url(scorer["model"], scorer["revision"])]))
        elif field.name in own:
            stage = {"num_copies": "pool", near_copies: "copies"}.get(field.name, "select")
            found.append(Column(field, f"stage `{stage}`", [selection]))
        elif field.name in {each.name for each in schema.PROVENANCE}:
            found.append(Column(field, "stage `ingest`", sources))
        else:
            found.append(Column(field, "the source, as it came", sources))
    return found


def _model_url(model: str, revision: str) -> str:
    if model.count("/") == 1 and len(revision or "") == 40:
        return f"https://huggingface.co/{model}/tree/{revision}"
    return f"urn:datamask:model:{model}" + (f"@{revision}" if revision else "")
