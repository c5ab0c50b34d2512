"""Options that several commands share. Knows the configuration and no stage."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from datamask_pipeline.cli.damaged import remember
from datamask_pipeline.cli.pairs import parse_pairs
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.chain import Progress
from datamask_pipeline.pipeline.config import CONFIG_VARIABLE
from datamask_pipeline.pipeline.order import told, wanted_releases
from datamask_pipeline.printable import inert

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME|FILE",
        help="A packaged configuration (see `datamask config list`) or a YAML file; by default what "
        "DATAMASK_CONFIG names, or else `demo`.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Change one setting, its value in YAML, e.g. -s select.lamb=0.3, -s store=/data/record, or, quoted for the "
        "shell, -s 'score.scorers=\\[rules, probe]'. A new arm has to name its policy: "
        "-s 'arms.NAME={policy: random}'. Repeatable.",
    ),
]
ReleaseOption = Annotated[
    str | None, typer.Option("--release", "-r", help="One release; by default every one configured.")
]

#: Settings that say where a record is and how it is reached.
_PLACE: Final = ("store", "storage_options")


def build_pipeline(
    config: str | None, settings: list[str] | None, progress: Progress | None = None
) -> Pipeline:
    """The chain that the shared options describe."""
    pipeline = Pipeline(load_config(config, parse_pairs(settings)), progress=progress)
    remember(pipeline.store)
    return pipeline


def is_configured(config: str | None, settings: list[str] | None) -> bool:
    """Whether the user gave a configuration, and not only the place of a record."""
    named = config or os.environ.get(CONFIG_VARIABLE)
    return bool(named) or any(key.partition(".")[0] not in _PLACE for key in parse_pairs(settings))


def called_again(words: str, config: str | None, settings: list[str] | None) -> str:
    """A command line for another command of the same configuration, its options as they were given.

    Args:
        words: The command with what stands before its options, quoted for the shell.
        config: The option `-c`.
        settings: The options `-s`; what may hold a secret is left out of them.
    """
    options = ["-c", config] if config else []
    for pair in settings or []:
        options += ["-s", f"{pair.partition('=')[0]}=..." if "storage_options" in pair else pair]
    return " ".join([_program(), words, *map(shlex.quote, options)])


def _program() -> str:
    """This program as a shell finds it here: by its name, or else by its path."""
    path = Path(sys.argv[0])
    found = shutil.which("datamask")
    if found is not None and (path.name != "datamask" or Path(found).resolve() == path.resolve()):
        return "datamask"
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


def releases_of(pipeline: Pipeline, release: str | None, *, new: bool = False) -> list[str]:
    """The release asked for, or all that the configuration asks for (`wanted_releases`); of a rolling one what it made.

    Where there is none, what becomes of each is told on standard error.

    Args:
        pipeline: The chain.
        release: What was asked for.
        new: Those too that rolling releases would make now.
    """
    configured = pipeline.config.releases.get(release or "")
    if release and (configured is None or configured.every is None):
        return [release]
    found = wanted_releases(pipeline, of=release or None, new=new)
    if not found:
        for line in told(pipeline):
            typer.echo(inert(line), err=True)
    return found
