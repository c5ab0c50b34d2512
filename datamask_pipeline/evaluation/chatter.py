"""Keeps lm-eval's own remarks out of a log. Loads no lm-eval."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_chatter() -> Iterator[None]:
    """Of what lm-eval logs, errors alone until the block ends: what it remarks of a task is advice for its own command."""
    chatter = logging.getLogger("lm_eval")
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        yield
    finally:
        chatter.setLevel(level)
