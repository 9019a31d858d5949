"""A pass that is not the first ones uses the memory of those before: the kernel gives it no page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from chai.artifact.save import save
from chai.kernels.native.library import library
from tests.conftest import HANG
from tests.passes.common import network

LRN = "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 k: 2 }"
PASSES = 20
CODE = f"""
import json, resource
import numpy as np
import chai

net = chai.Net("googlenet", device="emulator", batch=1)
x = np.random.default_rng(0).standard_normal(net.shapes["data"], np.float32)
first = net.forward(x)["prob"].copy()
net.forward(x)
faults = -resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({PASSES}):
    last = net.forward(x)["prob"]
faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(json.dumps([faults, bool((first == last).all()), "fpga:Convolution" in net.schedule.engines()]))
"""


def run(code: str) -> list[int]:
    """What a process of its own prints; its allocator is set by nothing but itself."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    env |= {"CHAI_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG, check=True
    )
    numbers: list[int] = json.loads(ran.stdout)
    return numbers


@pytest.mark.skipif(sys.platform != "linux" or library() is None, reason="measured with Linux and kernels in C")
def test_no_page_after_the_second_pass() -> None:
    """GoogLeNet's first pass takes thousands; less than one per pass leaves room for lists that grow, not for a blob.

    One thread: the stack of another one grows when it first gets a processor.
    """
    faults, same, on_device = run(CODE)
    assert same
    assert on_device
    assert faults < PASSES


@pytest.mark.skipif(sys.platform != "linux" or library() is None, reason="measured with Linux and kernels in C")
def test_no_page_in_a_process_that_has_read_no_weights(tmp_path: Path) -> None:
    """A compiled network: its process has freed nothing as large as its blobs, so that the allocator would keep nothing."""
    lines = f"""
a Convolution data -> a : convolution_param {{ num_output: 32 kernel_size: 3 pad: 1 }}
b LRN a -> b : {LRN}
c Convolution b -> c : convolution_param {{ num_output: 32 kernel_size: 3 pad: 1 }}
d LRN c -> d : {LRN}
e Pooling d -> prob : pooling_param {{ pool: MAX kernel_size: 3 }}
"""
    x = np.zeros((1, 3, 97, 103), np.float32)
    with network(tmp_path, lines, x.shape, device="emulator", calibrate=x + 1) as net:
        save(net, tmp_path / "net.chai")
    code = CODE.replace(
        'chai.Net("googlenet", device="emulator", batch=1)', f"chai.Net({str(tmp_path / 'net.chai')!r})"
    )
    faults, same, on_device = run(code)
    assert same
    assert on_device
    assert faults < PASSES
