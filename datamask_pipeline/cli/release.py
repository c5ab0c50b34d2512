"""`datamask release`: publishes a subset as a data set. Knows the record and the folder's options; no format."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline, is_configured
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.settings import validated


def release(
    name: Annotated[str, typer.Argument(metavar="RELEASE", help="The release of crawls, e.g. `first`.")],
    licence: Annotated[
        str,
        typer.Option(
            "--license",
            help="Licence of the data set, as the Hugging Face hub spells it, e.g. odc-by; `other` leaves each document "
            "its own. Refused where the licence of something in it forbids it.",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Folder or fsspec URL, e.g. s3://bucket/name; not there yet. A URL of the record's own scheme is opened "
            "with its `storage_options`.",
        ),
    ] = None,
    arm: Annotated[
        str | None, typer.Option("--arm", help="The arm whose subset it is; needed where there are several.")
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            "--push", metavar="OWNER/NAME", help="Upload it to this data set of the hub, in one commit."
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign",
            metavar="KEY",
            help="Sign the folder with this elliptic-curve key (PEM), into FOLDER.sig.",
        ),
    ] = None,
    source_licence: Annotated[
        str | None,
        typer.Option(
            "--source-license",
            help="Licence of the source; by default `source.license` of the configuration, or what is known of it.",
        ),
    ] = None,
    licence_column: Annotated[
        str | None,
        typer.Option("--license-column", help="Column of the source with each document's licence."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Further columns of the source, with commas between.")
    ] = None,
    ids_only: Annotated[
        bool, typer.Option("--ids-only", help="Crawl, id and content hash of each document, no text.")
    ] = False,
    max_documents: Annotated[
        int | None, typer.Option("--max-documents", help="Most documents in a file.")
    ] = None,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", help="Most bytes of a file's rows, before compression.")
    ] = 500_000_000,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Random order by this seed; canonical order by default.")
    ] = None,
    stale: Annotated[
        bool,
        typer.Option(
            "--stale",
            help="Publish a subset even though something it was made from was made again since; the card says so.",
        ),
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Publish a release's subset as a data set: Parquet files, card, Croissant, manifest with its root digest.

    A subset that was made with other settings than those of a configuration given is refused, with what differs. The
    data set opens with `datasets.load_dataset`, pandas and DuckDB. Keep the root digest elsewhere: it stands for every byte.

    Example:

        datamask release first --arm datamask --license odc-by --to fineweb-mask
    """
    if to is None and push is None:
        raise ConfigurationError("give --to, a folder or URL, or --push, a data set of the hub, or both")
    if sign is not None and (to is None or "://" in to):
        raise ConfigurationError("--sign signs a folder on this machine; give it by --to")
    from datamask_pipeline.audit.publishable import publishable, refuse_other_settings
    from datamask_pipeline.publish.config import PublishConfig
    from datamask_pipeline.publish.dataset import publish
    from datamask_pipeline.publish.push import check_repository, push_folder

    if push is not None:
        check_repository(push)
    if sign is not None:
        from datamask_pipeline.publish.sign import check_key, sign_folder

        check_key(sign)

    pipeline = build_pipeline(config, settings)
    wanted = validated(
        PublishConfig,
        {
            "licence": licence,
            "source_licence": source_licence or pipeline.config.source.license,
            "licence_column": licence_column,
            "columns": tuple(filter(None, (columns or "").split(","))),
            "ids_only": ids_only,
            "max_documents": max_documents,
            "max_bytes": max_bytes,
            "seed": seed,
        },
    )
    store = pipeline.store
    store.refuse_missing()
    if is_configured(config, settings):
        refuse_other_settings(pipeline, name, arm)
    wanted = publishable(store, name, arm, wanted, even_stale=stale)
    with tempfile.TemporaryDirectory() as scratch, plain_console(stderr=True).status("publishing"):
        published = publish(store, name, arm, to or str(Path(scratch) / "data_set"), wanted)
        if sign is not None:
            sign_folder(Path(published.place), sign)
        if push is not None:
            push_folder(published.place, push, options=store.options_for(published.place))
    typer.echo(f"{published.documents} documents in {published.shards} files")
    if to is not None:
        typer.echo(f"duckdb -c \"SELECT count(*) FROM '{published.place}/data/*.parquet'\"")
    if push is not None:
        typer.echo(f"pushed to {push}")
    typer.echo(f"root {published.root}")
