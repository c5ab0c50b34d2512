"""Every question is scored with lm-eval's prompts, and with the answer that is right."""

from pathlib import Path

from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.gold import scored_questions
from datamask_pipeline.evaluation.questions import prepare_questions


def test_every_benchmark_is_scored_with_its_prompts_and_its_right_answer(
    documents: list[tuple[str, str]], tmp_path: Path
) -> None:
    config = EvaluateConfig(questions_per_task=5)
    sets = prepare_questions(config, tmp_path / "questions", documents)
    found = scored_questions(sets, tmp_path / "work", config)
    assert [question.task for question in found] == sorted(
        (question.task for question in found), key=[item.benchmark.task for item in sets].index
    )
    rows = {item.benchmark.task: item.num_questions for item in sets}
    for task, number in rows.items():
        mine = [question for question in found if question.task == task]
        assert len(mine) == len({question.question_id for question in mine}) == number
        open_ended = task in ("nq_open", "triviaqa")
        assert all((len(question.pairs) == 1) == open_ended for question in mine)
        if task == "winogrande":  # the contexts differ, what follows them does not
            assert all(len({answer for _, answer in question.pairs}) == 1 for question in mine)
        elif not open_ended:
            assert all(len({prompt for prompt, _ in question.pairs}) == 1 for question in mine)
            assert len({question.gold for question in mine}) > 1
