"""What Dagster shows of the questions that documents are held against."""

from assets.checks import Shown

SHOWN = {"question_texts": Shown()}
