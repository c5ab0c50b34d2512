"""`datamask audit funnel`: where did the documents of a release go?"""

from typing import Annotated

import typer

from datamask_pipeline.audit.funnel import funnel as funnel_of
from datamask_pipeline.audit.funnel import funnel_lines
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console


def funnel(
    release: Annotated[str, typer.Argument(help="A release of the record, e.g. `first`.")],
    as_json: Annotated[bool, typer.Option("--json", help="The whole funnel as one JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Print how many documents and tokens each stage and rule left out, from the crawls to each arm's subset.

    Every level balances: what came in is what was kept and what each rule dropped. A few ids stand beside each rule.

    Example:

        datamask audit funnel first
    """
    store = build_pipeline(config, settings).store
    with plain_console(stderr=True).status("counting"):
        found = funnel_of(store, release)
    print_answer(found, funnel_lines(found), as_json=as_json)
