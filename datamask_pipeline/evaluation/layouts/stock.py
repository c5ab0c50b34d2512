"""Rows of a data set as a task of lm-eval takes them: the columns are its own, and so is what makes questions of them.

Knows no file and no model. Prompts, answers and `process_docs` are lm-eval's; a row that they make nothing of is refused.
"""

import json
from typing import Any

from pydantic import Field

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.chatter import no_chatter
from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, LeftOut, Row
from datamask_pipeline.settings import Settings


class StockConfig(Settings):
    """Which task."""

    definition: str = Field(description="Its YAML, by its path below lm-eval's tasks.")


class Stock(Layout):
    """Any task's own columns."""

    name = "stock"
    Config = StockConfig

    def __init__(self, config: Settings | None = None) -> None:
        super().__init__(config)
        self._definition: dict[str, Any] | None = None
        self._task: Any = None

    def read(self, row: Row) -> Item:
        documents = self._documents([row])
        if not documents:
            raise LeftOut("lm-eval's process_docs leaves it out")
        if len(documents) > 1:
            raise BadRow(f"lm-eval's process_docs makes {len(documents)} questions of it")
        (document,) = documents
        try:
            json.dumps(document)
        except TypeError as error:
            raise BadRow(f"holds something other than texts, numbers and lists: {error}") from error
        return Item(document, self._num_choices(document), source=row)

    def finish(self, items: list[Item], seed: int) -> list[Item]:
        """The items as they are.

        Raises:
            InputError: The task's `process_docs` makes other questions of all rows than of each, so that what a question is
                depends on which others are there, or on chance; or it cannot take them together.
        """
        del seed
        try:
            together = self._documents([item.source or {} for item in items])
        except BadRow as error:
            raise InputError(
                f"the rows cannot be taken together: {error}",
                file=self.config.definition,
                remedy="write all values of a column in one type, or leave out columns that the task does not read",
            ) from error
        if together != [item.row for item in items]:
            raise InputError(
                "lm-eval's process_docs makes other questions of the split than of each of its rows; such a task cannot be "
                "asked",
                file=self.config.definition,
                remedy="leave the task out",
            )
        return items

    def _documents(self, rows: list[Row]) -> list[Row]:
        """What `process_docs` makes of rows.

        Raises:
            BadRow: It cannot make anything of them.
        """
        process = self._stated().get("process_docs")
        if process is None:
            return rows
        import datasets

        shown = datasets.are_progress_bars_disabled()
        datasets.disable_progress_bars()
        try:
            return [dict(document) for document in process(datasets.Dataset.from_list(rows))]
        except Exception as error:
            raise BadRow(f"lm-eval's process_docs fails: {_told(error)}") from error
        finally:
            if not shown:
                datasets.enable_progress_bars()

    def _num_choices(self, document: Row) -> int:
        """Choices of a question that lm-eval can ask; 0: it is an open one.

        Raises:
            BadRow: It cannot, or none of the choices is right.
        """
        from datamask_pipeline.evaluation.answers import gold_place, open_answer

        try:
            task = self._built(document)
            if not task.multiple_input and not isinstance(task.doc_to_text(document), str):
                raise BadRow("its prompt is no text")
            if task.OUTPUT_TYPE != "multiple_choice":
                if not open_answer(task, document).strip():
                    raise BadRow("its answer is empty")
                return 0
            number, place = len(task.doc_to_choice(document)), gold_place(task, document)
        except BadRow:
            raise
        except Exception as error:
            raise BadRow(f"lm-eval makes no question of it: {_told(error)}") from error
        if number < 2 or not 0 <= place < number:
            raise BadRow(f"the right one of {number} choices would be number {place}, counted from 0")
        return number

    def _stated(self) -> dict[str, Any]:
        """lm-eval's definition with its functions; importing them runs lm-eval's code of the task."""
        if self._definition is None:
            from lm_eval.tasks._yaml_loader import load_yaml

            from datamask_pipeline.evaluation.stock import stock_file

            self._definition = load_yaml(stock_file(self.config.definition))
        return self._definition

    def _built(self, document: Row) -> Any:
        """lm-eval's task; it looks at a first document to learn what kind it is."""
        if self._task is None:
            import datasets
            from lm_eval.api.task import ConfigurableTask

            first = datasets.DatasetDict({"questions": datasets.Dataset.from_list([document])})
            splits = dict.fromkeys(("training_split", "validation_split", "fewshot_split", "process_docs"))
            ours = splits | {
                "test_split": "questions",
                "custom_dataset": lambda **_: first,
                "fewshot_config": None,
            }
            stated = {key: value for key, value in self._stated().items() if key != "tag"}
            with no_chatter():
                self._task = ConfigurableTask(config=stated | ours)
        return self._task


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


LAYOUT = Stock
