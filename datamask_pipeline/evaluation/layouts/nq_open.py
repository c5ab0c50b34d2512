"""Natural Questions, open. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import Item, Layout, Row, text_of, texts_of


class NqOpen(Layout):
    """NQ-open: `question`, `answer` a list of accepted texts (or one text)."""

    name = "nq_open"

    def read(self, row: Row) -> Item:
        answer = row.get("answer")
        answers = [text_of(row, "answer")] if isinstance(answer, str) else texts_of(row, "answer")
        return Item({"question": text_of(row, "question"), "answer": answers}, 0)


LAYOUT = NqOpen
