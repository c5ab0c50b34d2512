"""Every column of every asset has a description and says which columns it comes from."""

import dagster as dg

from assets.column_lineage import ORIGINS, column_lineage
from datamask_pipeline import schema
from datamask_pipeline.pipeline import FLOW

TABLES = {output.asset: output.table for stage in FLOW for output in stage.makes if output.table}


def test_the_lineage_names_assets_and_columns_that_there_are() -> None:
    assert set(ORIGINS) == set(TABLES)
    for asset, origins in ORIGINS.items():
        stage, _ = FLOW.maker(asset)
        # A subset's texts are told by the crawl, its vectors by what was asked of them: any asset before may be named.
        before = {output.asset for each in FLOW.until(stage.name) for output in each.makes} - {asset}
        own = {*TABLES[asset].columns.names, schema.NUM_NEAR_COPIES.name}
        assert {name for name in origins if not name.endswith("*")} <= own
        for name, dep in ((name, dep) for name, origin in origins.items() for dep in origin.split()):
            source, _, column = dep.partition(".")
            known = {*TABLES[source].columns.names, schema.NUM_NEAR_COPIES.name, "score_*"}
            assert source in before, f"{asset}.{name} from {dep}"
            assert (column or "score_*") in known, f"{asset}.{name} from {dep}"


def test_what_no_column_tells_is_told_by_source_settings_or_step() -> None:
    """Only these; a new column of a computed table has to say where it comes from."""
    untold = {
        asset: {name for name in table.columns.names if not ORIGINS[asset].get(name)}
        for asset, table in TABLES.items()
        if asset not in ("crawl_documents", "rejected_documents", "takedown_requests", "question_texts")
    }
    assert {asset: names for asset, names in untold.items() if names} == {
        "quality_scores": {"scorer", "scale_min", "scale_max", "model", "revision"},
        "learning_curve": {"step", "learning_rate", "block"},
        "fineweb_mask": {"release", "arm"},
        "subset_redundancy": {"near_copy_cosine", "coverage_documents"},
        "ngram_answers": {"release", "arm", "task", "question_id", "gold_bytes"},
        "pretrained_model": {"step", "learning_rate"},
        "benchmark_results": set(schema.RESULTS.names) - {"checkpoint", "value", "stderr", "num_truncated"},
        "benchmark_answers": set(schema.ANSWERS.names)
        - {"checkpoint", "value", "gold_bits", "gold_probability"},
    }


def test_stars_stand_for_every_score() -> None:
    lineage = column_lineage("selection_mask", ["quality"], lambda _: ["id", "score_a", "score_b"])
    assert [dep.column_name for dep in lineage.deps_by_column["quality"]] == ["score_a", "score_b"]


def test_every_asset_shows_descriptions_and_lineage(dagster_run) -> None:
    made = [output.asset for stage in dagster_run.pipeline.config.stages() for output in stage.makes]
    assert len(made) > 10
    for asset in (asset for asset in made if asset in TABLES):
        event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey(asset))
        assert event is not None, asset
        metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
        columns = metadata["dagster/column_schema"].columns
        assert all(column.description for column in columns), asset
        assert set(metadata["dagster/column_lineage"].deps_by_column) == {column.name for column in columns}


def test_a_score_comes_from_vectors_only_where_it_was_made_of_them(dagster_run) -> None:
    """Rules read texts alone, whatever other scorers read."""
    event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey("quality_scores"))
    lineage = event.asset_materialization.metadata["dagster/column_lineage"].value.deps_by_column
    for column in ("score", "reason"):
        origins = [(dep.asset_key.to_user_string(), dep.column_name) for dep in lineage[column]]
        assert origins == [("crawl_documents", "text")]


def test_small_plots_stand_on_the_pages(dagster_run) -> None:
    def latest(asset: str) -> dict[str, object]:
        event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey(asset))
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}

    plane = str(latest("comparison_report")["quality (upwards) and diversity of the arms"])
    assert plane.startswith("![quality and diversity (")
    assert len(plane) < 1_000, "longer ones are shown by a click alone"
    subset = latest("fineweb_mask")
    assert str(subset["quality after"]).count("|") == 2
    assert set("▁▂▃▄▅▆▇█") & set(str(subset["tokens before"]))
