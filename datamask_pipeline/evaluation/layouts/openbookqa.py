"""OpenBookQA. Knows no file and no model."""

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, labelled_choices


class OpenBookQA(Layout):
    """OpenBookQA: `question_stem` as on the hub, or AI2's own `question{stem, choices[{text, label}]}`."""

    name = "openbookqa"

    def read(self, row: Row) -> Item:
        question = row.get("question")
        if "question_stem" not in row and isinstance(question, dict):
            options = question.get("choices") or []
            if not isinstance(options, list) or not all(isinstance(option, dict) for option in options):
                raise BadRow("field 'choices' of 'question' is no list of pairs 'text' and 'label'")
            row = {
                **row,
                "question_stem": question.get("stem"),
                "choices": {key: [option.get(key) for option in options] for key in ("text", "label")},
            }
        return labelled_choices(row, "question_stem")


LAYOUT = OpenBookQA
