"""One seed, one mask, bit for bit: whatever the number of workers and of the libraries' own threads."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, sys
import numpy as np
from datamask_pipeline import select_documents
from datamask_pipeline.families import METRICS
draws = np.random.default_rng(0)
rows = draws.standard_normal((600, 96)).astype(np.float32) + 0.3
rows[:200] = rows[200:400] + 0.1
quality = draws.standard_normal(600)
tokens = np.random.default_rng(1).integers(20, 400, 600)
workers = int(sys.argv[1])
few = {"num_steps": 6, "num_restarts": 1, "num_kicks": 2}
if sys.argv[2] == "quick":
    metrics, others = ["Pair_simi", "DiSF_uncentred", "Facility"], []
else:
    metrics = [name for name in METRICS.names() if name not in ("Pair_simi", "DiSF_uncentred", "Facility")]
    raw = {"diversity": "DiSF", "normalisation": "none"}
    others = [
        {"num_documents": 12, **raw, **few},
        {"dtype": "bfloat16", **raw, **few},
        {"diversity": {"Facility": 1, "Pair_simi": 1}, **few},
        {"num_tokens": 9_000, "diversity": "Pair_simi", "token_counts": tokens},
        {"num_tokens": 9_000, "diversity": "Facility", "token_counts": tokens},
        {"diversity": "Facility", "diversity_options": {"Facility": {"exact_rows": 1, "num_landmarks": 200}}},
        {"policy": "policy_gradient", "num_epochs": 20, "num_rollouts": 8},
        {"policy": "policy_gradient", "estimator": "counterfactual", "num_epochs": 20, **raw},
        {"policy": "greedy", "diversity": "DiSF_uncentred"},
        {"policy": "semdedup"},
        {"policy": "gist"},
        {"policy": "partitioned_greedy", "diversity": "Pair_graph"},
    ]
runs = [{"diversity": name, "gap_tolerance": 0.0, **few} for name in metrics] + others
for settings in runs:
    result = select_documents(rows, quality, num_workers=workers, chunk_rows=256, seed=5, **settings)
    parts = [result.mask, result.logits, result.marginals.quality_N, result.marginals.diversity_N]
    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]
    print(digest, result.objective.value.hex(), result.certificate.bound, {**settings, "token_counts": ...})
"""


def outcome(part: str, threads: int, workers: int) -> list[str]:
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", SCRIPT, str(workers), part]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("part", "number"), [("quick", 3), ("others", 16)])
def test_threads_do_not_change_a_bit(part: str, number: int) -> None:
    alone = outcome(part, threads=1, workers=1)
    assert len(alone) == number
    assert outcome(part, threads=3, workers=4) == alone
