"""Options that several commands share. Knows the configuration and no stage."""

from typing import Annotated, Any

import typer
import yaml

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.chain import Progress

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
        help="Change one setting, e.g. `-s select.lamb=0.3` or `-s store=/data/record`. Repeatable.",
    ),
]
ReleaseOption = Annotated[
    str | None, typer.Option("--release", "-r", help="One release; by default every one configured.")
]


def build_pipeline(
    config: str | None, settings: list[str] | None, progress: Progress | None = None
) -> Pipeline:
    """The chain that the shared options describe."""
    return Pipeline(load_config(config, parse_settings(settings)), progress=progress)


def parse_settings(settings: list[str] | None) -> dict[str, Any]:
    """``KEY=VALUE`` pairs, the values read as YAML.

    Raises:
        ConfigurationError: there is no ``=`` in one of them.
    """
    values = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--set {setting!r} is not KEY=VALUE, e.g. select.lamb=0.3")
        values[key] = yaml.safe_load(value)
    return values


def releases_of(pipeline: Pipeline, release: str | None) -> list[str]:
    """The release asked for, or all that are configured."""
    return [release] if release else list(pipeline.config.releases)
