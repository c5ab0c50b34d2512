"""`datamask audit funnel`: where did the documents of a release go?"""

from typing import Annotated

import typer

from datamask_pipeline.audit.funnel import funnel as funnel_of
from datamask_pipeline.audit.funnel import funnel_lines
from datamask_pipeline.audit.left_over import left_over
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline, is_configured
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.pipeline.order import masks_made


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
    pipeline = build_pipeline(config, settings)
    pipeline.store.refuse_missing()
    left = left_over(pipeline.store, masks_made(pipeline) if is_configured(config, settings) else None)
    with plain_console(stderr=True).status("counting"):
        found = funnel_of(pipeline.store, release, left)
    print_answer(found, funnel_lines(found), as_json=as_json)
