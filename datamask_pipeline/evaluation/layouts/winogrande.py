"""WinoGrande. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, index_of, text_of


class WinoGrande(Layout):
    """WinoGrande: `sentence` with one blank `_`, `option1`, `option2`, `answer` 1 or 2."""

    name = "winogrande"

    def read(self, row: Row) -> Item:
        stock = {field: text_of(row, field) for field in ("sentence", "option1", "option2")}
        _, blank, after = stock["sentence"].partition("_")
        if not blank or not after.strip():
            raise BadRow("field 'sentence' has no blank '_' with text behind it")
        if "_" in after:
            raise BadRow("field 'sentence' has more than one blank '_'")
        return Item({**stock, "answer": str(index_of(row, "answer", {"1": 1, "2": 2}))}, 2)


LAYOUT = WinoGrande
