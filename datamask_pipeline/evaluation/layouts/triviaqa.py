"""TriviaQA. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, text_of, texts_of


class TriviaQa(Layout):
    """TriviaQA: `question`, `answer{value, aliases}`; the value is always among the accepted texts."""

    name = "triviaqa"

    def read(self, row: Row) -> Item:
        answer = row.get("answer")
        if not isinstance(answer, dict):
            raise BadRow("field 'answer' is missing or has no 'value' and 'aliases'")
        value = text_of(answer, "value")
        aliases = texts_of(answer, "aliases") if answer.get("aliases") else []
        accepted = aliases if value in aliases else [value, *aliases]
        return Item(
            {"question": text_of(row, "question"), "answer": {"value": value, "aliases": accepted}}, 0
        )


LAYOUT = TriviaQa
