"""What Dagster checks and shows of an arm's n-gram model."""

from assets.checks import Artefact, Shown, Verdict
from assets.metadata import Metadata, scalars


def bits_are_of_the_arm(artefact: Artefact) -> Verdict:
    """Every row is the arm's, has bits above 0 and a share of 0 to 1 or none; no question stands twice."""
    arm = artefact.ref.key.partition("/")[2].replace("'", "''")
    (wrong,) = artefact.query(f"""
        SELECT count(*) FILTER (NOT coalesce(
            arm = '{arm}' AND gold_bits > 0 AND isfinite(gold_bits) AND gold_bytes > 0
            AND coalesce(gold_probability BETWEEN 0 AND 1, true), false))
        FROM {artefact.sql()}
    """)
    (twice,) = artefact.query(f"SELECT count(*) - count(DISTINCT (task, question_id)) FROM {artefact.sql()}")
    return Verdict(
        wrong == 0 and twice == 0, {"rows with wrong figures": wrong, "rows that repeat one": twice}
    )


def _headline(artefact: Artefact) -> Metadata:
    found = {f"bits per byte {task}": value for task, value in artefact.found["bits_per_byte"].items()}
    return scalars(found, *found)


SHOWN = {
    "ngram_answers": Shown(
        blocking=(bits_are_of_the_arm,), numbers=("documents", "tokens", "trigrams"), headline=_headline
    )
}
