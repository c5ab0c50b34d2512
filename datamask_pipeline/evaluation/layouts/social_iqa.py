"""SIQA. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import Item, Layout, Row, index_of, text_of


class SocialIqa(Layout):
    """SIQA: `context, question, answerA..C` with `label` 1..3, or AI2's own `correct` A..C."""

    name = "social_iqa"

    def read(self, row: Row) -> Item:
        fields = ("context", "question", "answerA", "answerB", "answerC")
        stock = {field: text_of(row, field) for field in fields}
        if "label" in row:
            place = index_of(row, "label", {"1": 0, "2": 1, "3": 2})
        else:
            place = index_of(row, "correct", {"A": 0, "B": 1, "C": 2})
        return Item({**stock, "label": str(place + 1)}, 3)


LAYOUT = SocialIqa
