"""What every configuration model has in common. Knows no stage."""

from collections.abc import Iterable
from typing import Any

import pydantic

from datamask_pipeline.errors import ConfigurationError


class Settings(pydantic.BaseModel):
    """Frozen, and strict about names: a misspelt field is an error, not a silent default."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def result_config(self) -> dict[str, Any]:
        """The fields that affect results, as JSON values: what goes into a fingerprint."""
        execution = {
            name
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("execution")
        }
        return self.model_dump(mode="json", exclude=execution)


def execution_field(default: Any, *, description: str, **bounds: Any) -> Any:
    """A field that says how to compute, not what: it stays out of fingerprints.

    Args:
        default: The default value.
        description: Help for the reader.
        bounds: ``ge``, ``le`` and the like, as pydantic takes them.
    """
    return pydantic.Field(default, description=description, json_schema_extra={"execution": True}, **bounds)


def refuse_unused(setting: str, options: Iterable[str], users: str, used: Iterable[str]) -> None:
    """Options of a member that is not used would be a misspelt name, or a member forgotten.

    Raises:
        ConfigurationError: which options those are.
    """
    unused = sorted(set(options) - set(used))
    if unused:
        raise ConfigurationError(
            f"{setting} are given for {unused}, which are not among {users}: {list(used)}"
        )
