"""A pass that is not the first ones uses the memory of those before: the kernel gives it no page."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from chai.kernels.native.library import library
from tests.conftest import HANG

PASSES, REPETITIONS = 20, 5
CODE = f"""
import json, resource
import numpy as np
import chai

net = chai.Net(ARGUMENTS)
x = np.random.default_rng(0).standard_normal(net.shapes["data"], np.float32)
first = net.forward(x)["prob"].copy()
net.forward(x)
counts = []
for _ in range({REPETITIONS}):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({PASSES}):
        last = net.forward(x)["prob"]
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    if counts[-1] < {PASSES}:
        break
print(json.dumps([min(counts), bool((first == last).all()), "fpga:Convolution" in net.schedule.engines()]))
"""


@pytest.mark.skipif(sys.platform != "linux" or library() is None, reason="measured with Linux and kernels in C")
def test_no_page_after_the_second_pass() -> None:
    """GoogLeNet's first pass takes thousands; less than one per pass leaves room for lists that grow, not for a blob.

    The least of some counts: under memory pressure, or when it balances nodes, the system takes pages away for reasons of
    its own. One thread: the stack of another one grows when it first gets a processor.
    """
    assert faults('"googlenet", device="emulator", batch=1') < PASSES


def faults(arguments: str) -> int:
    """The page faults of so many passes of a network that has these arguments, in a process of their own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    env |= {"CHAI_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    code = CODE.replace("ARGUMENTS", arguments)
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG, check=True
    )
    count, same, on_device = json.loads(ran.stdout)
    assert same
    assert on_device
    return int(count)
