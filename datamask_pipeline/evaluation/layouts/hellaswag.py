"""HellaSwag. Knows no file and no model."""

import re

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, index_of, text_of, texts_of

# What follows the last sentence end or WikiHow mark of a context, if it begins in lower case: `ctx_b`.
_OPEN_END = re.compile(r"^(?P<a>.*(?:[.!?;:\"')\]]))\s+(?P<b>[a-z][^.!?]*)$", re.DOTALL)


class HellaSwag(Layout):
    """HellaSwag: `activity_label, ctx_a, ctx_b, endings, label`, or `ctx` alone, cut where `ctx_b` begins.

    The stock task capitalises `ctx_b`, so the place of the cut shows in the prompt.
    """

    name = "hellaswag"

    def read(self, row: Row) -> Item:
        endings = texts_of(row, "endings", at_least=2)
        if "ctx_a" in row and "ctx_b" in row:
            start, rest = text_of(row, "ctx_a"), row["ctx_b"] or ""
            if not isinstance(rest, str):
                raise BadRow(f"field 'ctx_b' is {type(rest).__name__}, not text")
        else:
            context = text_of(row, "ctx")
            match = _OPEN_END.match(context)
            start, rest = (match["a"], match["b"]) if match else (context, "")
        stock = {
            "activity_label": text_of(row, "activity_label"),
            "ctx_a": start,
            "ctx_b": rest,
            "endings": endings,
            "label": str(index_of(row, "label", {str(place): place for place in range(len(endings))})),
        }
        return Item(stock, len(endings))


LAYOUT = HellaSwag
