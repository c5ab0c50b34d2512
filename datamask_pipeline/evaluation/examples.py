"""Which solved examples stand before which question: drawn by lm-eval's own samplers, as a stock run would draw them.

Knows no file and no model. A question's examples do not depend on how many others are asked.
"""

from collections.abc import Sequence
from typing import Any

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark
from datamask_pipeline.evaluation.layouts.base import Item, Row


def drawn_examples(
    asked: Sequence[Item],
    split: Sequence[Item],
    pool: Sequence[Item],
    shots: int,
    *,
    benchmark: Benchmark,
    seed: int,
) -> list[list[Row]]:
    """The examples of each question out of a split of their own.

    lm-eval draws for one question of the split after the other, from one generator, so those that are not asked use it
    up too.

    Args:
        asked: The questions.
        split: Every item of the split that they were chosen from.
        pool: Every row of the examples' split, in its order.
        shots: Examples before each question.
        benchmark: Names the sampler.
        seed: Of the generator; lm-eval's own default is 1234.

    Raises:
        InputError: There are too few of them.
    """
    from lm_eval.api.samplers import get_sampler

    layout = benchmark.make_layout()
    pools = _by_group(pool, benchmark)
    samplers: dict[str, Any] = {}
    for group in sorted({layout.group(item.row) for item in asked}):
        _check_number(len(pools.get(group, [])), shots + benchmark.spares_question, benchmark, group)
        samplers[group] = get_sampler(benchmark.sampler)(pools[group], rnd=seed)
    rows = {item.place: item.row for item in split}
    wanted = {item.place for item in asked}
    drawn: dict[int, list[Row]] = {}
    for place in range(1 + max(wanted)):
        row = rows.get(place, {})  # a row that was refused is drawn for all the same
        group = layout.group(row) if row else ""
        if group in samplers and (place in wanted or benchmark.sampler != "first_n"):
            found = samplers[group].sample(shots, eval_doc=row if benchmark.spares_question else None)
            drawn[place] = [_other(pools[group], example, row) for example in found]
    return [drawn[item.place] for item in asked]


def first_examples(
    asked: Sequence[Item], pool: Sequence[Item], shots: int, *, benchmark: Benchmark
) -> list[list[Row]]:
    """The first ones of the question's own group, such as MMLU's subject; the pool holds no question that is asked.

    Raises:
        InputError: A group has too few of them.
    """
    layout, pools = benchmark.make_layout(), _by_group(pool, benchmark)
    for group in sorted({layout.group(item.row) for item in asked}):
        _check_number(len(pools.get(group, [])), shots, benchmark, group)
    return [pools[layout.group(item.row)][:shots] for item in asked]


def _by_group(pool: Sequence[Item], benchmark: Benchmark) -> dict[str, list[Row]]:
    layout, pools = benchmark.make_layout(), dict[str, list[Row]]()
    for item in pool:
        pools.setdefault(layout.group(item.row), []).append(item.row)
    return pools


def _other(pool: Sequence[Row], example: Row, question: Row) -> Row:
    """The example drawn; the next one that differs where it is the very question, whose answer it would tell."""
    if example != question:
        return example
    place = pool.index(example)
    return next((row for row in [*pool[place:], *pool[:place]] if row != question), example)


def _check_number(found: int, needed: int, benchmark: Benchmark, group: str = "") -> None:
    if found < needed:
        of = f" of {group!r}" if group else ""
        raise InputError(
            f"task {benchmark.task!r} has {found} solved examples{of} left where {needed} are needed",
            remedy="lower shots, or name files with more in demonstration_files",
        )
