"""A process that helps with the shards of one stage; it reads its job, as JSON, from standard input."""

import json
import sys

from datamask_pipeline.pipeline.crew import work

if __name__ == "__main__":
    work(json.load(sys.stdin))
