"""Devices, and what a tensor costs: thresholds of the C library are a process's own, so that has one."""

import subprocess
import sys

import pytest
import torch

from datamask_pipeline.hardware import device_of_place

_PROGRAM = """
import resource, sys
import torch
from datamask_pipeline.hardware import freed_pages_kept

def faults():
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(2**24)  # 64 MiB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun

def held():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

torch.set_num_threads(1)
with freed_pages_kept():
    faults()
    within, most = min(faults() for _ in range(5)), held()  # where the heap has no room, now and then a page is new
print(within, faults(), most - held())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's thresholds")
def test_freed_pages_are_kept_inside_and_given_back_afterwards() -> None:
    told = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    within, afterwards, given_back = map(int, told.stdout.split())
    pages = 10 * 2**26 // 4096
    assert within < pages / 100
    assert (
        afterwards > pages / 2 or afterwards > 10 * 2**26 // 2**21 / 2
    )  # of 4 KiB, or of 2 MiB where they are huge
    assert (
        given_back > 2**24
    )  # some 2**27 with one C library, 2**25 with another; nothing where it is not done


def test_processes_are_dealt_out_among_a_machines_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = [str(device_of_place(name, 3)) for name in ("cuda", "cuda:0", "cpu")]
    assert found == ["cuda:1", "cuda:0", "cpu"]
