"""PIQA. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import Item, Layout, Row, index_of, text_of


class Piqa(Layout):
    """PIQA: `goal, sol1, sol2, label` with label 0 or 1."""

    name = "piqa"

    def read(self, row: Row) -> Item:
        stock = {field: text_of(row, field) for field in ("goal", "sol1", "sol2")}
        return Item({**stock, "label": index_of(row, "label", {"0": 0, "1": 1})}, 2)


LAYOUT = Piqa
