"""A process that helps with the shards of one stage; it reads its job, a line of JSON, from standard input.

It ends with the run that started it, however that ends: else it would go on, for as long as a shard is missing, after
a run that somebody has stopped.
"""

import json
import os
import sys
from threading import Thread

from datamask_pipeline.pipeline.crew import work


def _end_with_the_run() -> None:
    """Nothing more is ever sent: what ends the wait is the end of the run."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    job = json.loads(sys.stdin.readline())
    Thread(target=_end_with_the_run, daemon=True).start()
    work(job)
