"""`datamask audit impact`: what rests on a crawl, scorer, revision, document or domain."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.compliance.impact import KINDS, Kind
from datamask_pipeline.compliance.impact import impact as impact_of
from datamask_pipeline.compliance.purged import under
from datamask_pipeline.errors import UnknownNameError

_PLACES = ("artefact", "key", "made_at", "state", "documents_held")


def impact(
    target: Annotated[
        str,
        typer.Argument(
            help="A crawl, a scorer's name, a revision or its first digits, a document's id, or a domain."
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option("--kind", help=f"Which of these it is, where a name is of several: {', '.join(KINDS)}."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Name every selection, subset, model and result that rests on something, with its figures, superseded ones too.

    `current` counts today; `stale` does, but was made from something that does not any more; `superseded` does not;
    `purged` is gone, and its tombstone tells of it.

    Examples:

        datamask audit impact CC-MAIN-2024-10

        datamask audit impact example.com --json
    """
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    with plain_console(stderr=True).status("reading the record"):
        found = impact_of(store, target, _kind(kind))
    print_answer(found, _lines(found), as_json=as_json)


def _kind(name: str | None) -> Kind | None:
    for kind in KINDS:
        if kind == name:
            return kind
    if name is None:
        return None
    raise UnknownNameError("kind of target", name, KINDS, "--kind")


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['kind']} {found['target']}"
    for each in found.get("purged", ()):
        yield f"  purged by request {each['number']} ({each['request']}) of {each['date']}{under(each)}{_gone(each)}"
    for name in (name for name in found if name not in ("target", "kind", "purged")):
        yield f"  {name}: {len(found[name]) or 'none'}"
        for each in found[name]:
            held = f", {each['documents_held']} of them held" if "documents_held" in each else ""
            figures = "; ".join(_figure(key, value) for key, value in each.items() if key not in _PLACES)
            yield f"    {each['key']} ({each['state']}, {each['made_at']}): {each['artefact']}{held}"
            yield f"      {figures}"


def _gone(purge: Mapping[str, Any]) -> str:
    """What a purge erased of a domain; tombstones do not tell sub-domains apart."""
    if "documents" not in purge:
        return ""
    of = f" of {purge['counted_as']} with all its sub-domains" if purge["counted_as"] else ""
    return f": {purge['documents']:,} documents, {purge['bytes']:,} bytes{of}"


def _figure(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(_figure(key, inner) for key, inner in value.items())
    shown = f"{value:.6g}" if isinstance(value, float) else "unknown" if value is None else f"{value:,}"
    return f"{name.replace('_', ' ')} {shown}"
