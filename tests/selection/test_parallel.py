"""Workers: parts in order, and memory that does not grow with their number."""

import subprocess
import sys

import pytest
import torch

from datamask_pipeline.selection.parallel import Workers


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_vector_is_filled_from_its_spans(num_workers):
    spans = [(start, min(start + 7, 40)) for start in range(0, 40, 7)]
    with Workers(num_workers) as workers:
        whole = workers.fill(lambda span: torch.arange(*span, dtype=torch.float64), spans, 40)
        none = workers.fill(lambda span: torch.arange(*span), [], 0)
    assert torch.equal(whole, torch.arange(40, dtype=torch.float64))
    assert len(none) == 0


FILL = """
import torch
from datamask_pipeline.selection.parallel import Workers

def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024

half, vector = torch.ones(8192, 768, dtype=torch.float16), torch.ones(768)

def part(span):
    rows = half.float()
    return (rows @ vector).double() + (rows * rows).sum(1).double()

spans = [(start, start + 8192) for start in range(0, 8192 * 80, 8192)]
with Workers(2) as workers:
    workers.fill(part, spans[:8], 8192 * 8)
    before = peak()
    workers.fill(part, spans, 8192 * 80)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_parts_do_not_hold_on_to_the_memory_of_their_chunks():
    done = subprocess.run([sys.executable, "-c", FILL], capture_output=True, text=True, check=True)
    # 80 chunks take 48 MiB of temporaries each; were the parts kept, it would be 2 GiB.
    assert float(done.stdout) < 800
