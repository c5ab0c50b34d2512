"""Compare: a release's benchmark results, and bits of documents, in one table, with paired differences and a plot."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pydantic

from datamask_pipeline import schema
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.report.comparison import differences, final_rows, mean_score
from datamask_pipeline.report.gold import BITS, gold_figures
from datamask_pipeline.report.objectives import objective_names
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "compare"
VERSION: Final = "8"
#: The baseline where the settings name none and an arm is called so.
USUAL_BASELINE: Final = "random"


class CompareConfig(Settings):
    """How arms are compared."""

    baseline: str | None = pydantic.Field(
        None,
        description="The arm that the others are compared with. Null: arm `random`, or the first where none is called so.",
    )


def baseline_among(config: CompareConfig, arms: Iterable[str]) -> str:
    """The arm that the others are compared with.

    Args:
        config: Names it, or leaves it open.
        arms: The arms as the configuration lists them, one at least.
    """
    names = list(arms)
    if config.baseline is not None:
        return config.baseline
    return USUAL_BASELINE if USUAL_BASELINE in names else names[0]


def compared(config: CompareConfig, recorded: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings by name, as a manifest states them and as they are now; whether the baseline is named does not matter."""
    yield "baseline", recorded["baseline"], baseline_among(config, recorded.get("arms") or [USUAL_BASELINE])


def run(
    config: CompareConfig,
    *,
    store: Store,
    release: str,
    results: Mapping[str, Ref],
    answers: Mapping[str, Ref],
    models: Mapping[str, Ref],
    subsets: Mapping[str, Ref],
    selections: Mapping[str, Ref],
) -> Ref:
    """Put a release's results side by side.

    Args:
        config: The baseline.
        store: The record.
        release: The release's name.
        results: Benchmark results by run name.
        answers: Answers to single questions by run name.
        models: Pretrained models by run name.
        subsets: Subsets by arm.
        selections: Masks by arm.

    Returns:
        All result rows in one part; ``arms``, ``differences`` and ``gold`` in the manifest's metadata.

    Raises:
        ConfigurationError: the baseline arm has no results.
    """
    baseline = baseline_among(config, subsets)
    if baseline not in subsets:
        raise ConfigurationError(
            f"compare.baseline {baseline!r} is no arm of release {release!r}; choose one of: "
            + ", ".join(sorted(subsets))
        )
    inputs: dict[str, Ref | str] = {f"results/{name}": ref for name, ref in results.items()}
    inputs |= {f"answers/{name}": ref for name, ref in answers.items()}
    inputs |= {f"models/{name}": ref for name, ref in models.items()}
    inputs |= {f"subsets/{name}": ref for name, ref in subsets.items()}
    inputs |= {f"selections/{name}": ref for name, ref in selections.items()}
    # Figures are read from manifests, which no content digest covers.
    named = objective_names({arm: store.manifest(ref)["metadata"] for arm, ref in selections.items()})
    figures = [
        _figures(store, arm, subsets[arm], selections[arm], models) | {"objective_of": named[arm]}
        for arm in subsets
    ]
    inputs["figures"] = sha256_text(canonical_json(figures))
    # Runs and arms stand in the table in this order, while inputs are hashed in that of their names.
    settings = {"baseline": baseline, "runs": list(results), "arms": list(subsets)}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    rows = [row for name in results for row in store.read_table(results[name]).to_pylist()]
    part = builder.write_part(
        "results", pa.Table.from_pylist(rows, schema=schema.RESULTS).to_batches(), schema.RESULTS
    )
    final = [row for row in final_rows(rows) if row["headline"]]
    asked = final_rows([row for name in answers for row in store.read_table(answers[name]).to_pylist()])
    compared = differences(asked, baseline=baseline)
    if compared:
        from datamask_pipeline.report.plots import differences_figure, png

        drawn = differences_figure(compared, baseline=baseline, order=subsets)
        builder.write_file("differences.png", png(drawn))
    gold = gold_figures(asked, baseline=baseline)
    arms = [
        row | _scores(row["arm"], final) | {"bits_per_byte": _held_out(gold, row["arm"])} for row in figures
    ]
    return builder.commit(
        [part],
        metadata={
            "baseline": baseline,
            "arms": arms,
            "differences": compared,
            "gold": gold,
        },
    )


def _figures(
    store: Store, arm: str, subset: Ref, selection: Ref, models: Mapping[str, Ref]
) -> dict[str, Any]:
    """What manifests say of an arm."""
    mine = [store.manifest(ref)["metadata"] for name, ref in models.items() if name.split(".")[0] == arm]
    chosen = store.manifest(selection)["metadata"]
    return {
        "arm": arm,
        "documents": subset.rows,
        # By the release's tokenizer: what sources state may be missing, and is counted by tokenizers of theirs.
        "tokens": mine[0]["subset_tokens"] if mine else None,
        "epochs": max(model["epochs"] for model in mine) if mine else None,
        "objective": chosen["objective"],
        "objective_random": chosen["objective_random"],
        "gap": chosen["blocks"][0]["certificate"]["gap"] if len(chosen["blocks"]) == 1 else None,
        "runs": len(mine),
    }


def _held_out(gold: Mapping[str, Any], arm: str) -> float | None:
    """Bits per byte of held-out documents, the mean over an arm's models; ``None``: they were asked none."""
    found: float | None = gold["arms"].get(arm, {}).get(BITS, {}).get(schema.HELD_OUT)
    return found


def _scores(arm: str, final: list[Any]) -> dict[str, Any]:
    """An arm's benchmark scores: means over its architectures and seeds."""
    tasks: dict[str, list[float]] = {}
    for row in final:
        if row["arm"] == arm:
            tasks.setdefault(row["task"], []).append(row["value"])
    return {
        "tasks": {task: sum(values) / len(values) for task, values in sorted(tasks.items())},
        "mean": mean_score(final, arm),
    }
