"""RACE: passages with questions of four options.

Knows no file and no model.
"""

import ast

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, index_of, text_of, texts_of

_LETTERS = {"A": 0, "B": 1, "C": 2, "D": 3}


class Race(Layout):
    """RACE: `article` and a list `problems` as lm-eval reads it, or one question a row."""

    name = "race"

    def read(self, row: Row) -> Item:
        article = text_of(row, "article")
        problems = row.get("problems", [row])
        if isinstance(problems, str):
            try:
                problems = ast.literal_eval(problems)
            except (SyntaxError, ValueError) as error:
                raise BadRow("field 'problems' is no list") from error
        if not isinstance(problems, list) or not problems:
            raise BadRow("field 'problems' is no list, or empty")
        return _item(article, [_problem(problem) for problem in problems])

    def finish(self, items: list[Item], seed: int) -> list[Item]:
        """Join the questions on one article: the stock task asks the last, the others stand answered before it.

        Order is that of the rows, so `seed` has nothing to choose.
        """
        grouped: dict[str, list[Item]] = {}
        for item in items:
            grouped.setdefault(item.row["article"], []).append(item)
        return [
            _item(
                article,
                [problem for part in parts for problem in ast.literal_eval(part.row["problems"])],
                num_rows=len(parts),
                place=parts[0].place,
            )
            for article, parts in grouped.items()
        ]


def _problem(problem: object) -> Row:
    if not isinstance(problem, dict):
        raise BadRow(
            f"field 'problems' holds {type(problem).__name__}, not questions with options and answer"
        )
    options = texts_of(problem, "options", at_least=4)
    if len(options) != 4:
        raise BadRow(f"field 'options' has {len(options)} entries, not 4")
    index_of(problem, "answer", _LETTERS)
    return {
        "question": text_of(problem, "question"),
        "options": options,
        "answer": str(problem["answer"]).strip(),
    }


def _item(article: str, problems: list[Row], *, num_rows: int = 1, place: int = 0) -> Item:
    return Item({"article": article, "problems": repr(problems)}, 4, num_rows, place)


LAYOUT = Race
