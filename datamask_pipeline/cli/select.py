"""``datamask select``: the learner alone, on a Parquet file. Knows no stage, record or Dagster."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datamask_pipeline.cli.pairs import parse_pairs
from datamask_pipeline.errors import ConfigurationError, shown
from datamask_pipeline.families import ESTIMATORS, METRICS, POLICIES
from datamask_pipeline.listing import defaults, lines
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.result import SelectionResult

FIELDS = SelectionConfig.model_fields


def select(
    context: typer.Context,
    input: Annotated[Path, typer.Option("--input", "-i", help="Parquet: ids, quality scores, embeddings.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Parquet: every input row in order, with selected, logit, probability."
        ),
    ],
    diversity: Annotated[
        list[str] | None,
        typer.Option(
            help="Diversity metric: Pair_simi, DiSF, DiSF_uncentred, Facility, LogDet, Vendi, Pair_graph "
            "or a plugin's. NAME=WEIGHT, repeated, combines several."
        ),
    ] = None,
    lamb: Annotated[float, typer.Option(help=FIELDS["lamb"].description)] = FIELDS["lamb"].default,
    ratio: Annotated[float | None, typer.Option(help=FIELDS["ratio"].description)] = None,
    num_documents: Annotated[int | None, typer.Option(help=FIELDS["num_documents"].description)] = None,
    num_tokens: Annotated[int | None, typer.Option(help=FIELDS["num_tokens"].description)] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="datamask (the best learner for the metric), policy_gradient (the paper's), greedy, partitioned_greedy "
            "(of Pair_graph), gist, semdedup, quality_topk, random or a plugin's."
        ),
    ] = FIELDS["policy"].default,
    seed: Annotated[int, typer.Option(help=FIELDS["seed"].description)] = FIELDS["seed"].default,
    id_column: Annotated[str, typer.Option(help="Column of ids.")] = "chunk_id",
    quality_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of a quality score, quality_score unless given; repeatable."),
    ] = None,
    embedding_column: Annotated[str, typer.Option(help="Column of embeddings.")] = "feature_arr",
    token_column: Annotated[
        str | None, typer.Option(help="Column of token counts, for --num-tokens.")
    ] = None,
    group_column: Annotated[str | None, typer.Option(help="Column of groups, for quotas.")] = None,
    target: Annotated[
        Path | None,
        typer.Option(help="Parquet whose embeddings (same column) the selection shall be like."),
    ] = None,
    avoid: Annotated[
        Path | None,
        typer.Option(help="Parquet whose embeddings (same column) the selection shall be unlike."),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a memory-mapped copy of the embeddings: memory then does not grow with N."
        ),
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for resuming a killed run.")] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Write each row's quality_marginal, diversity_marginal and reason, too.",
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the optimisation curve here: .png, .pdf, .svg.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="FIELD=VALUE",
            help="Any other setting, its value in YAML; --list-settings prints them. Repeatable.",
        ),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option(
            "--list-settings",
            is_eager=True,
            callback=lambda on: _list_settings(on),
            help="Print every setting.",
        ),
    ] = False,
) -> None:
    """Choose documents for quality and diversity together, from a Parquet file of scores and embeddings.

    The objective is lamb x mean quality + (1 - lamb) x diversity; both are
    scaled so that 0 is a random choice and 1 an estimate of the best each
    reaches alone.
    Where the metric allows a proof, the last lines say how far from the best
    possible the choice can be at most (the gap).

    Examples:

      datamask select -i in.parquet -o out.parquet

      datamask select -i in.parquet -o out.parquet --diversity DiSF --lamb 0.3

      datamask select -i in.parquet -o out.parquet --ratio 0.2 \\
        --diversity Pair_simi=1 --diversity Facility=2

      datamask select -i in.parquet -o out.parquet \\
        --num-tokens 1000000 --token-column token_count

      datamask select -i in.parquet -o out.parquet --num-documents 500 \\
        --target good.parquet --avoid spam.parquet

      datamask select -i in.parquet -o out.parquet \\
        --policy policy_gradient -s num_epochs=500 -s num_rollouts=32
    """
    from rich.progress import Progress, TextColumn

    from datamask_pipeline.cli.terminal import plain_console
    from datamask_pipeline.mask_file import (
        check_output,
        check_plot,
        read_input,
        read_vectors,
        users_names,
        write_output,
    )
    from datamask_pipeline.report.plots import objectives_figure
    from datamask_pipeline.selection.api import check_settings, select_documents

    named: dict[str, Any] = {"lamb": lamb, "policy": policy, "seed": seed}
    budgets = {"ratio": ratio, "num_documents": num_documents, "num_tokens": num_tokens}
    named |= {name: value for name, value in budgets.items() if value is not None}
    if diversity:
        named["diversity"] = _metrics(diversity)
    more = parse_pairs(settings, example="num_steps=60")
    for name in sorted(named.keys() & more.keys()):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and named[name] != more[name]:
            raise ConfigurationError(
                f"{name} is given twice: {shown(named[name])} by --{name.replace('_', '-')} and {shown(more[name])} by "
                "--set; leave one of them"
            )
    named |= more
    config, _, _ = check_settings(**named)
    if group_column is not None and config.quotas is None:
        raise ConfigurationError(
            f"--group-column {group_column} says nothing without quotas: add them, as by "
            "-s 'quotas={NAME: 0.5, \"*\": 0.5}', or leave it out"
        )
    files = {name: path for name, path in (("target", target), ("avoid", avoid)) if path is not None}
    check_output(output, input, explain=explain)
    if plot is not None:
        check_plot(plot)
    with Progress(
        *Progress.get_default_columns(),
        TextColumn("{task.fields[line]}", markup=False),
        console=plain_console(stderr=True),
        transient=True,
    ) as bars:
        task = bars.add_task("reading", total=None, line=str(input))
        data = read_input(
            input,
            id_column=id_column,
            quality_columns=quality_column or ["quality_score"],
            embedding_column=embedding_column,
            token_column=token_column,
            group_column=group_column,
            scratch=scratch,
        )
        bars.update(task, description="selecting", line="")
        columns = {
            "ids": id_column,
            "embeddings": embedding_column,
            "token_counts": token_column,
            "groups": group_column,
        }
        sets: dict[str, Any] = {name: read_vectors(path, embedding_column) for name, path in files.items()}
        with users_names(input, columns, files):
            result = select_documents(
                data.embeddings,
                data.quality,
                ids=data.ids,
                token_counts=data.token_counts,
                groups=data.groups,
                **sets,
                checkpoint_dir=checkpoint,
                progress=lambda line, step, total: bars.update(task, completed=step, total=total, line=line),
                **named,
            )
        bars.update(task, description="writing", line=str(output))
        write_output(output, input, result, explain=explain)
    if plot is not None:
        objectives_figure({policy: result.curve}).savefig(plot)
    for line in _summary(result, output):
        typer.echo(line)


def _metrics(given: list[str]) -> str | dict[str, float]:
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    weights = {}
    for item in given:
        name, equals, weight = item.partition("=")
        if name in weights:
            raise ConfigurationError(f"--diversity {item!r}: {name} is given twice")
        try:
            weights[name] = float(weight) if equals else 1.0
        except ValueError as error:
            raise ConfigurationError(f"--diversity {item!r}: the weight is not a number") from error
    return weights


def _summary(result: "SelectionResult", output: Path) -> Iterator[str]:
    value, certificate = result.objective, result.certificate
    tokens = result.record.get("selected_tokens")
    together = "" if tokens is None else f", {tokens:,.16g} tokens together"
    yield f"selected {int(result.mask.sum())} of {len(result.mask)} documents{together} -> {output}"
    yield (
        f"objective {value.value:.6f} (random {value.random:z.6f}): "
        f"quality {value.quality:.6f}, diversity {value.diversity:.6f}"
    )
    if normalised := result.record["rows_normalised_to_unit"]:
        yield f"{normalised} of {len(result.mask)} embeddings were not of unit norm and have been normalised"
    if certificate.bound is None:
        yield certificate.method
    else:
        reach = f"no mask that fills the budget exceeds {certificate.bound:.6f}, beyond float32 rounding"
        yield f"{reach}: gap {certificate.gap:.4%} ({certificate.method})"
    for reason, count in result.record["reasons"].items():
        yield f"  {count:>10}  {reason}"
    yield f"{result.timings['total']:.1f} s"


def _list_settings(on: bool) -> None:
    if not on:
        return
    readers: dict[str, type[Settings]] = {"every policy": SelectionConfig}
    for family in (POLICIES, ESTIMATORS):
        readers |= {f"{family.kind} {name}": model for name, model in family.configs().items()}
    readers |= {f"in diversity_options, under {name}": model for name, model in METRICS.configs().items()}
    for reader, model in readers.items():
        if model.model_fields:
            typer.echo("\n".join([f"# {reader}", *lines(defaults(model))]))
    raise typer.Exit()
