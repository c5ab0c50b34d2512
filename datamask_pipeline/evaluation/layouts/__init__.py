"""The layouts in which question sets are published, brought into the columns of lm-eval's stock tasks.

Knows no file and no model: a row in, an item or a reason out. A layout tells variants apart by their
columns, never by a path. A new one is a function here, named by a task's YAML.
"""

from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.evaluation.layouts import answers, choices, kqapro, race
from datamask_pipeline.evaluation.layouts.base import Layout

_LAYOUTS: dict[str, Layout] = {
    "arc": Layout(choices.arc),
    "hellaswag": Layout(choices.hellaswag),
    "kqapro": Layout(kqapro.kqapro, kqapro.draw_distractors),
    "mmlu": Layout(choices.mmlu),
    "nq_open": Layout(answers.nq_open),
    "openbookqa": Layout(choices.openbookqa),
    "piqa": Layout(choices.piqa),
    "race": Layout(race.race, race.group_by_article),
    "social_iqa": Layout(choices.social_iqa),
    "triviaqa": Layout(answers.triviaqa),
    "winogrande": Layout(choices.winogrande),
}


def layout_named(name: str) -> Layout:
    """The layout a task's YAML names.

    Raises:
        UnknownNameError: There is none of that name.
    """
    if name not in _LAYOUTS:
        raise UnknownNameError("question layout", name, _LAYOUTS)
    return _LAYOUTS[name]
