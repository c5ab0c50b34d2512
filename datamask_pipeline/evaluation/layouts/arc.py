"""ARC. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import Item, Layout, Row, labelled_choices


class Arc(Layout):
    """ARC: `question`, `choices{text, label}`, `answerKey`."""

    name = "arc"

    def read(self, row: Row) -> Item:
        return labelled_choices(row, "question")


LAYOUT = Arc
