"""What Dagster checks of a release's index."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from datamask_pipeline import duck
from datamask_pipeline.stages import copies, embed, pool


def every_eligible_document_stands_once(artefact: Artefact) -> Verdict:
    """The eligible candidates that are no near-copies, each in its position: none missing, none more."""
    candidates = artefact.neighbour(pool.STAGE)
    wanted = f"SELECT position, crawl, id FROM {artefact.sql(candidates, 'position, crawl, id, eligible')} WHERE eligible"
    if "copies" in artefact.manifest["inputs"]:
        near_copies = artefact.sql(artefact.neighbour(copies.STAGE), "position, near_copy_of")
        wanted += f" AND position NOT IN (SELECT position FROM {near_copies} WHERE near_copy_of IS NOT NULL)"
    rows, positions, apart = artefact.query(
        f"""
        SELECT count(i.position), count(DISTINCT i.position),
            count(*) FILTER (i.id IS DISTINCT FROM c.id OR i.crawl IS DISTINCT FROM c.crawl)
        FROM {artefact.sql(columns="position, crawl, id")} AS i
        FULL JOIN ({wanted}) AS c ON c.position = i.position
        """
    )
    measured = {
        "rows": rows,
        "positions": positions,
        "rows that are not the candidate of their position": apart,
    }
    return Verdict(rows == positions and apart == 0, measured)


def every_row_leads_to_its_vector(artefact: Artefact) -> Verdict:
    """The shard and row of each document are those of its own vector."""
    store = artefact.pipeline.store
    refs = {
        crawl: artefact.neighbour(embed.STAGE, crawl)
        for crawl in artefact.pipeline.release_crawls(artefact.release)
    }
    places = ", ".join(
        f"({crawl_order}, {part_order}, {duck.literal(crawl)}, {duck.literal(name)})"
        for crawl_order, (crawl, ref) in enumerate(refs.items())
        for part_order, name in enumerate(store.part_names(ref))
    )
    return artefact.finds_no(
        "rows that lead to another document's vector",
        f"""
        SELECT count(*) FROM {artefact.sql(columns="crawl, id, shard, row")} AS i
        LEFT JOIN (VALUES {places}) AS p (artefact_order, part_order, crawl, shard)
        ON p.crawl = i.crawl AND p.shard = i.shard
        LEFT JOIN {duck.parts_sql(store, list(refs.values()), "id")} AS e
        ON e.artefact_order = p.artefact_order AND e.part_order = p.part_order AND e.part_row = i.row
        WHERE e.id IS DISTINCT FROM i.id
        """,
    )


SHOWN = {
    "release_index": Shown(
        blocking=(
            rows_in_are_kept_plus_dropped,
            every_eligible_document_stands_once,
            every_row_leads_to_its_vector,
        )
    )
}
