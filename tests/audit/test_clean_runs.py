"""No false alarm: what every metric, policy and kind of budget leaves in the record is proved, bounds included."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from many_arms import ARMS

from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.pipeline import Pipeline


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arm", ARMS)
def test_a_clean_run_is_proved(many_arms: Callable[..., Pipeline], arm: str) -> None:
    findings = list(prove_record(many_arms(arm).store, "first", arm))
    if arm == "clusters":  # lists that may miss neighbours
        (missed,) = findings
        assert missed.kind == "cannot tell"
        assert "may miss some" in missed.problem
    else:
        assert [finding.line() for finding in findings] == []


PROVE = """
import json, sys, torch
torch.set_num_threads(int(sys.argv[2]))
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.storage import Store
arms = sys.argv[3:]
print(json.dumps([found.line() for arm in arms for found in prove_record(Store(sys.argv[1]), "first", arm)]))
"""


@pytest.mark.slow
def test_another_process_with_more_threads_proves_the_same(many_arms: Callable[..., Pipeline]) -> None:
    threads = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    arms = ["disf", "facility", "facility_quotas", "tokens"]
    command = [sys.executable, "-c", PROVE, many_arms(*arms).store.root, "3", *arms]
    done = subprocess.run(command, env=os.environ | threads, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
