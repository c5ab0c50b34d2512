"""Totals of tokens where a source does not state every document's: the sum of those stated, and how many are not.

Knows no table. Every total of the audit is told by this rule: one document without a count makes no sum unknown, and no sum
stands without a word about the documents that it leaves out.
"""

from typing import Final

#: Two SQL aggregates of a column `token_count`: the sum of those stated, and how many are not.
TOTALS_SQL: Final = "coalesce(sum(token_count), 0)::BIGINT, count(*) - count(token_count)"


def in_words(tokens: int | None, without: int) -> str:
    """A total as a phrase.

    Args:
        tokens: The sum of those stated; ``None``: an earlier version kept none.
        without: Documents that it leaves out, as their length is not stated.
    """
    if tokens is None:
        return "an unknown number of tokens"
    return f"{tokens:,} tokens" + (f" and {without:,} of unknown length" if without else "")
