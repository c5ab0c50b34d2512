"""`datamask audit`: questions to the record."""

from typing import Annotated, Any

import typer

from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.contamination import contamination
from datamask_pipeline.cli.diff import diff
from datamask_pipeline.cli.external import external
from datamask_pipeline.cli.flip import flip
from datamask_pipeline.cli.funnel import funnel
from datamask_pipeline.cli.impact import impact
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline, is_configured
from datamask_pipeline.cli.prove import prove
from datamask_pipeline.cli.sql import sql
from datamask_pipeline.cli.status import status
from datamask_pipeline.cli.takedown import takedown
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.cli.training_content import training_content
from datamask_pipeline.compliance.purged import purged_lines, purged_story
from datamask_pipeline.errors import UnknownDocumentError
from datamask_pipeline.pipeline.differences import other_settings_of_masks
from datamask_pipeline.pipeline.order import masks_made

app = typer.Typer(
    help="Ask the record: why is a document in, or out, and is all as it says?", no_args_is_help=True
)
app.command("prove")(prove)
app.command("flip")(flip)
app.command("takedown")(takedown)
app.command("external")(external)
app.command("impact")(impact)
app.command("diff")(diff)
app.command("funnel")(funnel)
app.command("status")(status)
app.command("sql")(sql)
app.command("training-content")(training_content)
app.command("contamination")(contamination)


@app.callback()
def audit() -> None:
    """Ask the record."""


@app.command("why")
def why(
    document: Annotated[str, typer.Argument(help="A document's id as in the crawl, e.g. '<urn:uuid:...>'.")],
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole story as one JSON object.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Include the document's text.")] = False,
    deep: Annotated[
        bool | None,
        typer.Option(
            "--deep/--quick",
            help="Read what needs a pass over a release: ranks of scores, cuts by quality, the nearest chosen documents. "
            "By default where a release has at most 100 000 documents to select from.",
        ),
    ] = None,
) -> None:
    """Print a document's whole story: where it came from, its scores, and every arm's decision.

    Needs no Dagster: the story is read from the record alone, and what is read of it is checked byte by byte. Exit
    status 1 for an unknown id, and for bytes that are not those that were written.

    Example:

        datamask audit why '<urn:uuid:0f5b...>' --json
    """
    pipeline = build_pipeline(config, settings)
    pipeline.store.refuse_missing()
    made = masks_made(pipeline) if is_configured(config, settings) else None
    with plain_console(stderr=True).status("reading the record"):
        try:
            story = document_story(pipeline.store, document, with_text=text, deep=deep, made=made)
        except UnknownDocumentError:
            if not (purges := purged_story(pipeline.store, document)):
                raise
            return _print_purged(document, purges, as_json=as_json)
    print_answer(story, story_lines(story), as_json=as_json)
    if is_configured(config, settings):
        store = pipeline.store
        arms = [arm for release in story["releases"] for arm in release["arms"]]
        masks = [store.manifest_at(arm["selection_artefact"]) for arm in arms]
        for line, of in other_settings_of_masks(pipeline, masks).items():
            typer.echo(f"not as configured: {line} ({', '.join(of)})", err=True)


def _print_purged(document: str, purges: list[dict[str, Any]], *, as_json: bool) -> None:
    found = {"id": document, "purged": purges}
    print_answer(found, [f"document {document}", *purged_lines(purges)], as_json=as_json)
