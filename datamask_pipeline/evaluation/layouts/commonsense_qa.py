"""CommonsenseQA. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, labelled_choices


class CommonsenseQa(Layout):
    """CommonsenseQA: `question`, `choices{text, label}` of five, `answerKey`."""

    name = "commonsense_qa"

    def read(self, row: Row) -> Item:
        item = labelled_choices(row, "question")
        if (labels := item.row["choices"]["label"]) != list("ABCDE"):
            raise BadRow(f"field 'choices' has the labels {', '.join(labels)}, not A to E")
        return item


LAYOUT = CommonsenseQa
