"""A chain in a tree of processes as Dagster's executor makes one: a worker, which forks one step after the other.

`python chaos_tree.py CONFIG SETTINGS` imports all that stages import, once. For each line on standard input, settings as
JSON that win over those, it forks a worker, which runs the release `first`; a step that was killed is tried again twice,
as its retry policy says. What begins and ends is told on standard output, one JSON object a line. A worker's process group
holds its steps.
"""

import contextlib
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

#: Imported inside functions by the stages: torch alone would take seconds in every step.
PRELOADED = (
    "duckdb",
    "jinja2",
    "lm_eval.models.huggingface",
    "matplotlib.pyplot",
    "safetensors.torch",
    "scipy.optimize",
    "sentence_transformers",
    "sklearn.linear_model",
    "tokenizers",
    "torch",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
)
RETRIES = 2


def tell(**values: Any) -> None:
    """One line, in one piece whoever else writes."""
    os.write(1, json.dumps(values).encode() + b"\n")


def forked(work: Callable[[], None]) -> int:
    """A process that does some work and ends; its exit status says how."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def worker(config: str, settings: dict[str, Any]) -> None:
    """Run the release, each step in a process of its own."""
    from datamask_pipeline.pipeline import Pipeline, load_config

    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pipeline = Pipeline(load_config(config, settings))
    tell(worker=os.getpid())
    for stage, key, call in pipeline.steps("first"):
        for attempt in range(RETRIES + 1):
            pid = forked(call)
            tell(step=pid, stage=stage, key=key)
            _, status = os.waitpid(pid, 0)
            if status == 0:
                break
            if attempt == RETRIES or os.WTERMSIG(status) != signal.SIGKILL:
                tell(failed=f"{stage} of {key} ended with status {status}")
                return
    tell(done=True)


def main() -> None:
    """Fork a worker for each line."""
    import importlib

    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # nobody waits for workers here; the system clears them away
    config, settings = sys.argv[1], json.loads(sys.argv[2])
    tell(ready=True)
    for line in sys.stdin:
        forked(functools.partial(worker, config, settings | json.loads(line)))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
