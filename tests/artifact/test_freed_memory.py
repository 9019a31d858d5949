"""A pass of a compiled network uses the memory of those before, though its process has read no weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from chai.artifact.save import save
from chai.kernels.native.library import library
from tests.passes.common import network
from tests.runtime.test_page_faults import PASSES, faults

LRN = "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL }"  # on the host


@pytest.mark.skipif(sys.platform != "linux" or library() is None, reason="measured with Linux and kernels in C")
def test_no_page_after_the_second_pass_of_a_compiled_network(tmp_path: Path) -> None:
    """Its process has freed nothing as large as its blobs: of itself, glibc would return them to the system each time."""
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
    assert faults(repr(str(tmp_path / "net.chai"))) < PASSES
