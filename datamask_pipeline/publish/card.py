"""The data card: `README.md` with the YAML that the hub reads, written from what the record says. Knows no file.

Names of crawls, domains and models are data: they stand in code spans, and nothing in them is Markdown or HTML.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from datamask_pipeline import schema
from datamask_pipeline.families import POLICIES
from datamask_pipeline.near_copies.recall import about_recall
from datamask_pipeline.printable import code_span
from datamask_pipeline.publish.columns import Column
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.facts import Facts
from datamask_pipeline.publish.licences import OTHER
from datamask_pipeline.selection.config import stated_budget


def card(
    facts: Facts,
    config: PublishConfig,
    columns: Sequence[Column],
    *,
    left_out: Sequence[pa.Field],
    num_documents: int,
    num_bytes: int,
    file_bytes: int,
    licences: dict[str, int | None],
) -> str:
    """The whole file.

    Args:
        facts: What the record says.
        config: How it is published.
        columns: Its columns.
        left_out: Columns of the documents that it does not have.
        num_documents: Rows.
        num_bytes: Their bytes before compression.
        file_bytes: Bytes of the shards.
        licences: Licences of what is in it, with the number of documents where a column says so.
    """
    header = _header(facts, config, columns, num_documents, num_bytes, file_bytes)
    sections = [
        _opening(facts, config, num_documents),
        _loading(),
        _licences(config, licences),
        _sources(facts),
        _selection(facts),
        _composition(facts),
        _columns(columns, left_out),
        _limits(facts, config),
    ]
    return f"---\n{header}---\n\n" + "\n\n".join(sections) + "\n"


def title(facts: Facts) -> str:
    """The data set's name."""
    return f"datamask-{facts.release}-{facts.arm}"


def _header(
    facts: Facts,
    config: PublishConfig,
    columns: Sequence[Column],
    num_documents: int,
    num_bytes: int,
    file_bytes: int,
) -> str:
    from datasets import DatasetInfo, Features
    from datasets.info import DatasetInfosDict
    from datasets.splits import SplitDict, SplitInfo
    from huggingface_hub import DatasetCardData

    splits = SplitDict()
    splits.add(SplitInfo("train", num_bytes=num_bytes, num_examples=num_documents))
    features = Features.from_arrow_schema(pa.schema([column.field for column in columns]))
    info = DatasetInfo(features=features, splits=splits, download_size=file_bytes, dataset_size=num_bytes)
    is_other = config.licence == OTHER
    data = DatasetCardData(
        pretty_name=title(facts),
        license=config.licence,
        license_name="each-document-its-own" if is_other else None,
        license_link="README.md" if is_other else None,
        language=[language for language in facts.languages if language.isalpha() and len(language) in (2, 3)],
        source_datasets=sorted({source.dataset for source in facts.sources if source.dataset}) or None,
        task_categories=["text-generation"],
        tags=["datamask", "pretraining"],
        configs=[{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}],
    )
    DatasetInfosDict({"default": info}).to_dataset_card_data(data)
    return str(data.to_yaml()) + "\n"


def _opening(facts: Facts, config: PublishConfig, num_documents: int) -> str:
    crawls = ", ".join(code_span(source.crawl) for source in facts.sources)
    texts = (
        "Their texts are not in here, but each one's digest."
        if config.ids_only
        else "Texts are as they came."
    )
    return (
        f"# {title(facts)}\n\n"
        f"{num_documents} documents that arm {code_span(facts.arm)} selected from release {code_span(facts.release)}: the "
        f"crawls {crawls}. {texts} Made by datamask-pipeline; "
        "`manifest.json` holds the SHA-256 of every file, what all was made from, and the root digest that stands for it."
    )


def _loading() -> str:
    return """## Loading

```python
import datasets, pandas

rows = datasets.load_dataset("path/of/this/folder", split="train")
frame = pandas.read_parquet("path/of/this/folder/data")
```

```sql
SELECT * FROM 'path/of/this/folder/data/*.parquet' LIMIT 10;
```"""


def _licences(config: PublishConfig, licences: dict[str, int | None]) -> str:
    rows = [
        [code_span(name), "all" if count is None else str(count)] for name, count in sorted(licences.items())
    ]
    released = (
        "Each document keeps its own licence."
        if config.licence == OTHER
        else f"The data set is released under {code_span(config.licence)}."
    )
    stated = "What its sources are under:"
    if config.licence_column:
        stated = f"Column {code_span(config.licence_column)} holds each document's."
        if config.ids_only:
            stated = f"Column {code_span(config.licence_column)} of the source, which is not in here, holds each document's."
    note = ""
    if "odc-by" in licences:
        note = "\n\nData sets of Common Crawl, FineWeb among them, are also subject to Common Crawl's terms of use."
    return f"## Licence\n\n{released} {stated}\n\n{_table(['licence', 'documents'], rows)}{note}"


def _sources(facts: Facts) -> str:
    rows = [
        [
            code_span(source.crawl),
            code_span(source.dataset or source.kind),
            code_span(source.revision) if source.revision else "files pinned by their digests, no revision",
            str(len(source.shards)),
        ]
        for source in facts.sources
    ]
    return f"## Source\n\n{_table(['crawl', 'source', 'revision', 'files'], rows)}"


def _selection(facts: Facts) -> str:
    settings, found = facts.selection["basis"]["config"], facts.selection["metadata"]
    blocks = found["blocks"]
    added, held = "", []
    if (given := found.get("given")) is not None:
        added = ", of the added documents alone"
        held = [[f"held from release {code_span(given['release'])}", f"{given['held']} documents"]]
    certificates = sorted({block["certificate"]["method"] for block in blocks})
    rows = [
        ["policy", code_span(settings["policy"])],
        ["diversity", code_span(settings["diversity"]) + _not_read(settings, "diversity")],
        ["weight of quality", _number(settings["lamb"]) + _not_read(settings, "lamb")],
        ["budget", stated_budget(settings) + added],
        *_quotas(settings),
        *held,
        ["seed", str(settings["seed"])],
        ["blocks selected each by itself", str(len(blocks))],
        ["objective of the mask", _number(found["objective"])],
        ["objective of random masks", _number(found["objective_random"])],
        ["upper bound", _number(blocks[0]["certificate"]["bound"]) if len(blocks) == 1 else "of each block"],
        [
            "gap, a share of the distance from random to the bound",
            _number(blocks[0]["certificate"]["gap"]) if len(blocks) == 1 else "of each block",
        ],
        ["certificate", "; ".join(map(_plain, certificates))],
        [
            "embedding",
            f"{_stated(facts.embedding.get('model'))}, revision {_stated(facts.embedding.get('revision'))}",
        ],
        ["scores made comparable by", code_span(settings["score_normalisation"])],
        ["mask", f"{code_span(facts.selection['content_digest'])}"],
    ]
    scorers = [
        [
            code_span(scorer["name"]),
            code_span(scorer["model"]),
            _stated(scorer["revision"]),
            "not stated"
            if scorer["scale_min"] is None and scorer["scale_max"] is None
            else f"{_number(scorer['scale_min'])} to {_number(scorer['scale_max'])}",
            _number(scorer["weight"]),
        ]
        for scorer in facts.scorers
    ]
    names = ["scorer", "model", "revision", "scale", "weight"]
    return f"## Selection\n\n{_table(['', ''], rows)}\n\n{_table(names, scorers)}"


def _quotas(settings: Mapping[str, Any]) -> Iterator[list[str]]:
    if settings.get("quotas"):
        shares = ", ".join(f"{code_span(group)} {share}" for group, share in settings["quotas"].items())
        yield [f"quotas by {settings['quota_by']}, shares of the budget", shares]


def _not_read(settings: Mapping[str, Any], name: str) -> str:
    policy: Any = POLICIES.classes().get(settings["policy"])
    return (
        " (of the objective below; the policy does not read it)" if policy and name in policy.unread else ""
    )


def _composition(facts: Facts) -> str:
    crawls = [
        [
            code_span(crawl),
            str(candidates),
            str(selected),
            f"{tokens} and {without} of unknown length" if without else str(tokens),
        ]
        for crawl, candidates, selected, tokens, without in facts.by_crawl
    ]
    domains = [[code_span(domain), str(count)] for domain, count in facts.by_domain]
    parts = [
        "## Composition",
        _table(["crawl", "documents", "selected", "their tokens, as the source counts"], crawls),
    ]
    if facts.redundancy is not None:
        parts.append(_table(["", ""], _redundancy(facts.redundancy)))
        parts.append(schema.ABOUT_COVERAGE)
    if facts.lengths is not None:
        names = ("least", "first quartile", "median", "third quartile", "most")
        parts.append(_table([*names], [[str(length) for length in facts.lengths]]))
        parts.append(
            "Tokens of a selected document, as the source counts them; quartiles are those of a document, not interpolated."
        )
    if domains:
        parts.append(f"Domains: {facts.num_domains}; the {len(domains)} with most documents:")
        parts.append(_table(["domain", "documents"], domains))
    return "\n\n".join(parts)


def _redundancy(found: Mapping[str, Any]) -> list[list[str]]:
    """What can be said of the documents without training on them."""
    documents = found["documents"]
    error = f" ± {_number(found['coverage_error'])}" if found["coverage_error"] else ""
    return [
        [
            f"near-copies: cosine of at least {found['near_copy_cosine']} to an earlier document"
            f"{about_recall(found.get('near_copy_recall'))}",
            f"{found['near_copies']} ({100 * found['near_copies'] / documents:.3g} %)",
        ],
        ["exact copies, but for white space", f"{found['exact_copies']}"],
        [
            "mean quality rank among the documents that could be selected, 0 to 1",
            _number(found["quality_rank"]),
        ],
        [
            f"coverage: mean of the largest cosine to a document of the subset, over {found['coverage_documents']} of the "
            f"{found['pool_documents']} that could be selected",
            _number(found["coverage"]) + error,
        ],
    ]


def _columns(columns: Sequence[Column], left_out: Sequence[pa.Field]) -> str:
    rows = [
        [
            code_span(column.field.name),
            code_span(str(column.field.type)),
            _plain(schema.description(column.field) or "A column of the source, as it came."),
            _plain(column.origin),
        ]
        for column in columns
    ]
    table = f"## Columns\n\n{_table(['column', 'type', 'meaning', 'from'], rows)}"
    if not left_out:
        return table
    others = [
        [
            code_span(field.name),
            code_span(str(field.type)),
            _plain(schema.description(field) or ""),
        ]
        for field in left_out
    ]
    more = _table(["column", "type", "meaning"], others)
    return f"{table}\n\nOf the documents there is more, which was left out:\n\n{more}"


def _limits(facts: Facts, config: PublishConfig) -> str:
    counts = facts.pool["counts"]
    left_out = ", ".join(
        f"{number} {name.removeprefix('dropped_').replace('_', ' ')}"
        for name, number in counts.items()
        if name.startswith("dropped_") and number
    )
    without_score = facts.selection["counts"]["dropped_no_score"]
    without_tokens = facts.behind[facts.subset.location].manifest["metadata"].get("without_token_count")
    blocks = facts.selection["metadata"]["blocks"]
    near = facts.pool["basis"]["config"].get("near_duplicates")
    near_copies = [*_near_copies(facts, counted=not config.ids_only)]
    lines = [
        *(f"The subset was stale when it was published: {code_span(reason)}." for reason in config.stale),
        f"Of {counts['rows_in']} documents, {counts['kept']} could be selected; left out before: {left_out or 'none'}.",
        "Documents that are nearly the same were collapsed."
        if near
        else "Exact copies were collapsed; documents with nearly the same words were not, but for those that follow."
        if near_copies
        else "Exact copies were collapsed; documents that are nearly the same were not.",
        *near_copies,
        "Quality is what the scorers above say, and diversity what the embedding sees; neither says that a text is true, "
        "harmless or free of personal data."
        + ("" if config.ids_only else " Nothing was removed from any text."),
    ]
    if without_score:
        lines.append(f"Documents without a score of the arm, which could not be selected: {without_score}.")
    if without_tokens:
        lines.append(f"Documents without a token count: {without_tokens}.")
    if len(blocks) > 1:
        lines.append(f"{len(blocks)} random blocks were selected each by itself; no certificate spans them.")
    if any(block["certificate"]["bound"] is None for block in blocks):
        lines.append("There is no certificate: how far the mask is from the best one is not known.")
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines)


def _near_copies(facts: Facts, *, counted: bool) -> Iterator[str]:
    """How many were left out in the release, and in each that it goes on from; whether a column counts them."""
    for manifest in (artefact.manifest for artefact in facts.behind.values()):
        if manifest["stage"] == "copies":
            own = manifest["key"] == facts.release
            of = "" if own else f" in release {code_span(manifest['key'])}, which this one goes on from,"
            number, threshold = manifest["counts"]["dropped_near_copy"], manifest["metadata"]["threshold"]
            by = f"; {code_span(schema.NUM_NEAR_COPIES.name)} counts them" if counted else ""
            yield (
                f"{number} of those that could be selected{of} were left out as near-copies: their embedding has a cosine "
                f"of at least {threshold} to that of an earlier document{by}."
            )


def _table(names: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    names = list(names)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: Any) -> str:
    return "none" if value is None else f"{value:.6g}"


def _stated(value: object) -> str:
    return code_span(value) if value else "not stated"


def _plain(text: str) -> str:
    """A sentence of ours in a cell of a table; code spans in it stay."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
