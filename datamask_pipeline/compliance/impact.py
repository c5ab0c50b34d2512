"""What rests on a crawl, a scorer, a revision, a document or a domain: selections, subsets, models, results. Writes nothing.

Who was made from what, the manifests say; which subsets held a document or a domain, the indexes say that each got when it
was made. Artefacts of earlier versions have none and are scanned, as are crawls for a domain that no subset holds, and those
behind a mask of which no subset was made.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from datamask_pipeline import domains, duck
from datamask_pipeline.compliance.content import tokens_of
from datamask_pipeline.compliance.graph import Graph
from datamask_pipeline.compliance.purged import purged_holdings
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.document_rows import CheckedTables
from datamask_pipeline.storage.ref import ref_of

Kind = Literal["crawl", "scorer", "revision", "document", "domain"]
KINDS: Final[tuple[Kind, ...]] = ("crawl", "scorer", "revision", "document", "domain")
#: What is told of, by the record's name for it.
_TOLD: Final = {
    "select": "selections",
    "materialise": "subsets",
    "pretrain": "models",
    "evaluate": "results",
    "compare": "reports",
}
#: So many digits of a revision are enough.
_FEWEST_DIGITS: Final = 7

Impact = dict[str, Any]


def impact(store: Store, target: str, kind: Kind | None = None) -> Impact:
    """What rests on something, as JSON values.

    Args:
        store: The record.
        target: A crawl; a scorer by its name; a revision (of a scorer or of the embedding's model, or its first digits);
            a document by its id; or a domain, with its subdomains.
        kind: Which of these it is; found out by default.

    Returns:
        ``target``, ``kind``, and lists of ``selections``, ``subsets``, ``models``, ``results`` and ``reports``: of each
        version its ``artefact``, ``key``, ``made_at``, ``state`` (current, stale or superseded) and its figures. Subsets
        say how many ``documents_held`` there are of a domain, or of a document's text under whatever id; the selections are
        those that chose them. Of a document or a domain, ``purged`` tells every purge that erased something of it, as
        `purged_holdings`; versions that were removed by one are listed with the state ``purged``.

    Raises:
        UnknownNameError: the record knows nothing of that name.
        ConfigurationError: several things have that name, and no kind was given.
    """
    graph = Graph(store)
    with contextlib.closing(CheckedTables(store)) as tables:
        gone = purged_holdings(store, target, kind)
        try:
            kind = kind or _kind(graph, tables, target)
            held = _held(graph, tables, target, kind) if kind in ("document", "domain") else None
        except UnknownNameError:
            if gone is None:
                raise
            kind, held = gone.kind, {}
    gone = gone if gone is not None and gone.kind == kind else None
    if held is not None and gone is not None:
        graph, held = Graph(store, with_purged=True), held | gone.held
    resting = _resting(graph, target, kind) if held is None else _resting_on_subsets(graph, held)
    if held is None and not resting:
        raise UnknownNameError(kind, target, _names(graph, kind))
    about: Impact = {"target": target, "kind": kind}
    if held is not None:
        about["purged"] = gone.purges if gone else []
    for stage, name in _TOLD.items():
        locations = [location for location in graph.of(stage) if location in resting]
        about[name] = [_told(graph, location, held) for location in locations]
    return about


def _kind(graph: Graph, tables: CheckedTables, target: str) -> Kind:
    found = [kind for kind in KINDS[:3] if _begin(graph, target, kind)]
    if len(found) > 1:
        raise ConfigurationError(f"{target!r} is a {' and a '.join(found)}; say which by its kind")
    if found:
        return found[0]
    if not graph.of("ingest"):
        raise ConfigurationError(f"{graph.store.root_url} holds no crawl: nothing rests on anything")
    if any(_contents(graph, tables, target)):
        return "document"
    host = domains.canonical_host(target)
    if domains.is_host(host) and (any(_of_domain(graph, tables, host).values()) or _is_crawled(graph, host)):
        return "domain"
    known = {kind: _names(graph, kind) for kind in KINDS[:3]}
    listed = "; ".join(f"{kind}s: {', '.join(names) or 'none'}" for kind, names in known.items())
    raise UnknownNameError(
        "target", target, [], remedy=f"give a document's id as in the crawl, or a domain; {listed}"
    )


def _names(graph: Graph, kind: Kind) -> list[str]:
    """What of a kind the record names in its manifests."""
    if kind == "crawl":
        return sorted({graph.manifests[location]["key"] for location in graph.of("ingest")})
    if kind == "scorer":
        return sorted({name for location in graph.of("score") for name in _scorers(graph, location)})
    return sorted({revision for revisions in _revisions(graph).values() for revision in revisions})


def _scorers(graph: Graph, location: str) -> Mapping[str, Any]:
    scorers: Mapping[str, Any] = graph.manifests[location]["metadata"]["scorers"]
    return scorers


def _revisions(graph: Graph) -> dict[str, dict[str, str | None]]:
    """Of each version of scores and embeddings: its revisions, each with the scorer, or none for the embedding's model.

    What has no revision is not among them.
    """
    found: dict[str, dict[str, str | None]] = {
        location: {
            str(about["revision"]): name
            for name, about in _scorers(graph, location).items()
            if about["revision"]
        }
        for location in graph.of("score")
    }
    for location in graph.of("embed"):
        revision = graph.manifests[location]["metadata"].get("revision")
        found[location] = {str(revision): None} if revision else {}
    return found


def _begin(graph: Graph, target: str, kind: Kind) -> dict[str, set[str] | None]:
    """The versions that a name means, each with the scorers it means there; ``None``: all of it."""
    if kind == "crawl":
        return {each: None for each in graph.of("ingest") if graph.manifests[each]["key"] == target}
    if kind == "scorer":
        return {each: {target} for each in graph.of("score") if target in _scorers(graph, each)}
    found: dict[str, set[str] | None] = {}
    for location, revisions in _revisions(graph).items():
        meant = {
            scorer
            for revision, scorer in revisions.items()
            if revision == target or (len(target) >= _FEWEST_DIGITS and revision.startswith(target))
        }
        if None in meant:
            found[location] = None
        elif meant:
            found[location] = {scorer for scorer in meant if scorer}
    return found


def _resting(graph: Graph, target: str, kind: Kind) -> set[str]:
    """What rests on a crawl, scorer or revision. A selection rests on a scorer only if its weights give it any."""
    found: set[str] = set()
    for location, scorers in _begin(graph, target, kind).items():
        found |= graph.resting_on([location], functools.partial(_uses, graph, scorers))
    return found


def _uses(graph: Graph, scorers: set[str] | None, location: str) -> bool:
    """Whether what was made from some scores rests on these scorers; a subset does if its selection does."""
    if graph.manifests[location]["stage"] == "materialise":
        location = dict(graph.inputs(location))["selection"].location
    manifest = graph.manifests.get(location)
    if scorers is None or manifest is None or manifest["stage"] != "select":
        return True
    weights = manifest["basis"]["config"]["scorers"]
    return not weights or any(weights.get(scorer) for scorer in scorers)


def _held(graph: Graph, tables: CheckedTables, target: str, kind: Kind) -> dict[str, int]:
    """How many documents of a name each version of a subset holds, and each mask of which no subset was made."""
    if kind == "domain":
        host = domains.canonical_host(target)
        return _of_domain(graph, tables, host) | _of_masks_alone(graph, _under(host))
    contents = set(_contents(graph, tables, target))
    if not contents:
        raise UnknownNameError(
            "document", target, [], remedy="give the id as in the crawl, angle brackets included"
        )
    held: dict[str, int] = {}
    condition = f"content_hash IN ({', '.join(map(duck.literal, contents))})"
    for location in graph.of("materialise"):
        found = [tables.num_documents(location, content, "content_hash") for content in contents]
        held[location] = (
            _scan(graph, location, condition) if None in found else sum(number or 0 for number in found)
        )
    return held | _of_masks_alone(graph, condition)


def _of_masks_alone(graph: Graph, condition: str) -> dict[str, int]:
    """How many documents that satisfy a condition each mask chose of which the record holds no subset."""
    made = {dict(graph.inputs(subset))["selection"].location for subset in graph.of("materialise")}
    return {mask: _chosen(graph, mask, condition) for mask in graph.of("select") if mask not in made}


def _chosen(graph: Graph, mask: str, condition: str) -> int:
    """How many documents that satisfy a condition a mask chose: it has neither their texts nor their addresses."""
    crawls: dict[str, list[str]] = {}
    for location in graph.behind(mask):
        manifest = graph.manifests[location]
        if manifest["stage"] == "ingest" and location not in graph.purged:
            crawls.setdefault(manifest["key"], []).append(_files(graph, location))
    chosen = 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        duck.connect(graph.store, Path(scratch)) as connection,
    ):
        for crawl, files in sorted(crawls.items()):
            ids = " UNION ".join(f"SELECT id FROM {each} WHERE {condition}" for each in files)
            sql = (
                f"SELECT count(*) FROM {_files(graph, mask)} WHERE selected AND crawl = {duck.literal(crawl)} "
                f"AND id IN ({ids})"
            )
            chosen += int(connection.execute(sql).fetchall()[0][0])
    return chosen


def _contents(graph: Graph, tables: CheckedTables, name: str) -> Iterator[str]:
    """The content hashes that a document ever had."""
    for location in graph.of("ingest"):
        yield from (row["content_hash"] for row in tables.rows(location, name, ["content_hash"]))


def _of_domain(graph: Graph, tables: CheckedTables, host: str) -> dict[str, int]:
    """How many documents of a host and those below it each version of a subset holds."""
    held: dict[str, int] = {}
    for location in graph.of("materialise"):
        number = tables.num_documents(location, host, "url")
        held[location] = _scan(graph, location, _under(host)) if number is None else number
    return held


def _is_crawled(graph: Graph, host: str) -> bool:
    """Whether a version of a crawl has a document of a host or of one below it."""
    return any(_scan(graph, location, _under(host), most=1) for location in graph.of("ingest"))


def _under(host: str) -> str:
    """An SQL condition on documents of a canonical host and those below it."""
    spelt, name = domains.host_sql("url"), duck.literal(host)
    # Most URLs do not even contain the name, which is told much sooner than their host.
    likely = f"(contains(lower(url), {name}) OR {domains.may_respell_sql('url')})"
    return f"{likely} AND ({spelt} = {name} OR ends_with({spelt}, {duck.literal('.' + host)}))"


def _scan(graph: Graph, location: str, condition: str, *, most: int | None = None) -> int:
    """How many rows of a version satisfy a condition."""
    limit = "" if most is None else f"LIMIT {most}"
    sql = f"SELECT count(*) FROM (SELECT true FROM {_files(graph, location)} WHERE {condition} {limit})"
    with (
        tempfile.TemporaryDirectory() as scratch,
        duck.connect(graph.store, Path(scratch)) as connection,
    ):
        ((count,),) = connection.execute(sql).fetchall()
    return int(count)


def _files(graph: Graph, location: str) -> str:
    store = graph.store
    paths = store.part_paths(ref_of(graph.manifests[location]))
    return (
        f"read_parquet([{', '.join(duck.file_literal(store, path) for path in paths)}], union_by_name = true)"
    )


def _resting_on_subsets(graph: Graph, held: Mapping[str, int]) -> set[str]:
    """Subsets that hold something, what was made of them, and the selections that chose it."""
    holding = [location for location, documents in held.items() if documents]
    subsets = [location for location in holding if graph.manifests[location]["stage"] == "materialise"]
    chosen_by = {dict(graph.inputs(location))["selection"].location for location in subsets}
    return graph.resting_on(subsets) | chosen_by | {*holding}


def _told(graph: Graph, location: str, held: Mapping[str, int] | None) -> Impact:
    manifest = graph.manifests[location]
    told: Impact = {
        "artefact": location,
        "key": manifest["key"],
        "made_at": manifest.get("written_at"),
        "state": graph.state(location),
    }
    if held is not None and location in held:
        told["documents_held"] = held[location]
    return told | dict(_figures(graph.store, manifest))


def _figures(store: Store, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    stage, found = manifest["stage"], manifest["metadata"]
    if stage in ("select", "materialise"):
        yield "documents", manifest["counts"]["kept"]
    if stage == "select":
        yield "objective", found["objective"]
    elif stage == "materialise":
        tokens, without = tokens_of(store, manifest)
        yield "tokens", tokens
        if without:
            yield "without_tokens", without
    elif stage == "pretrain":
        yield "bits_per_byte", found["bits_per_byte"]
    elif stage == "evaluate":
        yield "headline", found["headline"]
    elif stage == "compare":
        yield "means", {arm["arm"]: arm["mean"] for arm in found["arms"]}
