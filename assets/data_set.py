"""The asset of a published data set: made when somebody asks for it and names the place, never by the chain itself."""

from collections.abc import Iterator

import dagster as dg
import pydantic

from assets import partitions
from assets.factory import OWNERS, RETRIES
from assets.partitions import partition_of, record_key
from datamask_pipeline.audit.prove_data_set import prove_data_set
from datamask_pipeline.audit.publishable import publishable
from datamask_pipeline.errors import DataMaskError, StorageError
from datamask_pipeline.pipeline import PipelineConfig
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.settings import validated
from datamask_pipeline.storage.reaching import file_system_of, reaching
from resources import PipelineResource

ASSET, CHECK = "published_data_set", "files_are_as_the_manifest_says"
#: Raised when the same subset and settings make other bytes.
VERSION = "1"


class Publishing(dg.Config):
    """Where the data set goes, and how; `datamask release` has the same options."""

    to: str = pydantic.Field(description="Folder or fsspec URL that does not exist yet.")
    license: str = pydantic.Field(
        description="Licence of the data set as the hub spells it; refused where a constituent forbids it."
    )
    source_license: str | None = pydantic.Field(
        None, description="Licence of the source; by default `source.license` of the configuration."
    )
    license_column: str | None = pydantic.Field(
        None, description="Column of the source with each document's licence."
    )
    columns: list[str] = pydantic.Field([], description="Further columns of the source to carry along.")
    ids_only: bool = pydantic.Field(False, description="Publish crawl, id and content hash only.")
    max_documents: int | None = pydantic.Field(None, description="Most documents in a file.")
    max_bytes: int = pydantic.Field(
        500_000_000, description="Most bytes of a file's rows, before compression."
    )
    seed: int | None = pydantic.Field(
        None, description="Random order by this seed; null keeps canonical order."
    )
    stale: bool = pydantic.Field(
        False, description="Publish a subset even though something it was made from was made again since."
    )

    def settings(self, source_license: str | None) -> PublishConfig:
        """The same as `datamask release` makes of its options.

        Raises:
            ConfigurationError: a setting is wrong.
        """
        return validated(
            PublishConfig,
            {
                "licence": self.license,
                "source_licence": self.source_license or source_license,
                "licence_column": self.license_column,
                "columns": tuple(self.columns),
                "ids_only": self.ids_only,
                "max_documents": self.max_documents,
                "max_bytes": self.max_bytes,
                "seed": self.seed,
            },
        )


def data_set_definitions(config: PipelineConfig) -> dg.Definitions:
    """The asset, its check and its job."""

    @dg.asset(
        name=ASSET,
        deps=["fineweb_mask"],
        partitions_def=partitions.of_scope("arm", config),
        group_name="publishing",
        kinds={"parquet", "huggingface"},
        owners=OWNERS,
        code_version=VERSION,
        retry_policy=RETRIES,
        description="One arm's subset as a data set of its own: shards, card, Croissant and manifest with a root digest.",
        check_specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=ASSET,
                blocking=True,
                description="Every file has the bytes and SHA-256 that the manifest states, and no other lies there.",
            )
        ],
    )
    def published_data_set(
        context: dg.AssetExecutionContext, config: Publishing, pipeline: PipelineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        chain = pipeline.pipeline()
        try:
            release, arm = record_key(partition_of(context))
            asked = config.settings(chain.config.source.license)
            settings = publishable(chain.store, release, arm, asked, even_stale=config.stale)
            done = publish(chain.store, release, arm, config.to, settings)
            fs, path = file_system_of(config.to, chain.store.options_for(config.to), setting="to")
            with reaching(fs, config.to):
                findings = [finding.line() for finding in prove_data_set(fs, path.rstrip("/"), done.root)]
        except StorageError:
            raise
        except DataMaskError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        yield dg.MaterializeResult(
            metadata={
                "location": dg.MetadataValue.path(done.place),
                "root digest": done.root,
                "dagster/row_count": done.documents,
                "files": done.shards,
                "settings": dg.MetadataValue.json(settings.model_dump(mode="json")),
            },
            data_version=dg.DataVersion(done.root),
            check_results=[
                dg.AssetCheckResult(
                    passed=not findings,
                    check_name=CHECK,
                    metadata={"findings": dg.MetadataValue.json(findings)},
                )
            ],
        )

    job = dg.define_asset_job(
        "publish_job",
        selection=dg.AssetSelection.assets(ASSET),
        description="Publish one arm's subset as a data set.",
    )
    return dg.Definitions(assets=[published_data_set], jobs=[job])
