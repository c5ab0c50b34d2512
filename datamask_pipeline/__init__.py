"""Choose pre-training data for quality and diversity together. Importing this loads nothing heavy."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datamask_pipeline.selection.api import select_documents

__all__ = ["select_documents"]


def __getattr__(name: str) -> Any:
    if name == "select_documents":
        from datamask_pipeline.selection.api import select_documents

        return select_documents
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
