"""How a data set is published. Knows no file."""

from typing import Any, Self

import pydantic

from datamask_pipeline.publish.licences import spelt
from datamask_pipeline.settings import Settings, each_once

#: Columns of an export without texts: enough to find each document in its crawl.
IDS: tuple[str, ...] = ("crawl", "id", "content_hash")


class PublishConfig(Settings):
    """Which rows and columns, in which order and shards, under which licence."""

    licence: str = pydantic.Field(description="Licence of the data set, as the hub spells it, e.g. `odc-by`.")
    source_licence: str | None = pydantic.Field(
        None, description="Licence of the source, where neither the record nor a column of it says so."
    )
    licence_column: str | None = pydantic.Field(
        None, description="Column of the source that holds each document's licence; it is carried along."
    )
    columns: tuple[str, ...] = pydantic.Field((), description="Further columns of the source to carry along.")
    ids_only: bool = pydantic.Field(
        False, description="Publish crawl, id and content hash of each document only."
    )
    max_documents: int | None = pydantic.Field(None, ge=1, description="Most documents in a shard.")
    max_bytes: int = pydantic.Field(
        500_000_000,
        ge=1,
        description="Most bytes in a shard, before compression; a larger document stands alone.",
    )
    seed: int | None = pydantic.Field(
        None, ge=0, description="Put the documents in random order by this seed; null keeps canonical order."
    )

    stale: tuple[str, ...] = pydantic.Field(
        (),
        description="Why the subset was stale when it was published; the card says so. Found, not asked for.",
    )

    _columns_once = pydantic.field_validator("columns")(each_once)

    @pydantic.field_validator("licence", "source_licence")
    @classmethod
    def _as_the_hub_spells_it(cls, value: str | None) -> str | None:
        return None if value is None else spelt(value)

    @pydantic.model_validator(mode="after")
    def _ids_stand_alone(self) -> Self:
        if self.ids_only and self.columns:
            raise ValueError("`ids_only` publishes no further `columns`; leave one of them out")
        return self

    def stated(self) -> dict[str, Any]:
        """As the manifest keeps it, as JSON values."""
        values = self.model_dump(mode="json")
        return values if self.stale else {name: value for name, value in values.items() if name != "stale"}

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of the source that are carried along."""
        own = () if self.licence_column is None or self.ids_only else (self.licence_column,)
        return tuple(dict.fromkeys((*self.columns, *own)))
