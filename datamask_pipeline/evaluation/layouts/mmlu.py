"""MMLU. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import Item, Layout, Row, index_of, text_of, texts_of

_LETTERS = "ABCDEFGHIJ"


class Mmlu(Layout):
    """MMLU: `question, subject, choices, answer` as on the hub, or the columns `A..D` of Hendrycks's CSV."""

    name = "mmlu"
    many_files = True
    hendrycks = True

    def read(self, row: Row) -> Item:
        options = (
            texts_of(row, "choices", at_least=2) if "choices" in row else [text_of(row, x) for x in "ABCD"]
        )
        letters = {letter: place for place, letter in enumerate(_LETTERS[: len(options)])}
        legal = letters | {str(place): place for place in range(len(options))}
        stock = {
            "question": text_of(row, "question"),
            "subject": text_of(row, "subject"),
            "choices": options,
            "answer": index_of(row, "answer", legal),
        }
        return Item(stock, len(options))

    def group(self, row: Row) -> str:
        """The subject: a question is shown examples of its own."""
        return str(row["subject"])


LAYOUT = Mmlu
