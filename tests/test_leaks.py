"""10,000 passes and 100 networks leak nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact.save import save

from .conftest import ROOT, report

IMAGE = np.ones((1, 1, 8, 8), np.float32)
USES: dict[str, Callable[[chai.Net], object]] = {
    "nothing": lambda net: None,
    "a pass": lambda net: net.forward(data=IMAGE),
    "its times": lambda net: (net.forward(data=IMAGE), repr(net.perf)),
    "a stream": lambda net: [*net.stream({"data": IMAGE} for _ in range(3))],
    "an abandoned stream": lambda net: next(net.stream({"data": IMAGE} for _ in range(3))),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("device", ["emulator", "float", "compiled"])
def test_a_dropped_network_is_freed_at_once(tmp_path: Path, device: str, use: str) -> None:
    """Without ``close``, and without the garbage collector: after many loads it may never look where networks are."""
    gc.collect()
    gc.disable()
    try:
        net = chai.Net("digits", device="float" if device == "float" else "emulator")
        if device != "float":
            net.calibrate(data=IMAGE)
        if device == "compiled":
            save(net, tmp_path / "digits.chai")
            net = chai.Net(tmp_path / "digits.chai")
        USES[use](net)
        layers = [weakref.ref(layer) for layer in net.graph.layers]
        del net
        assert [layer() for layer in layers if layer() is not None] == []
    finally:
        gc.enable()


def leaks(forwards: int, networks: int) -> list[str]:
    command = [
        sys.executable,
        str(ROOT / "tools" / "leaks.py"),
        "--forwards",
        str(forwards),
        "--networks",
        str(networks),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_threads_and_files_are_given_back() -> None:
    lines = leaks(40, 4)
    assert len(lines) == 9
    assert all(line.endswith("ok") for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_passes_and_a_hundred_networks_leave_nothing() -> None:
    for line in leaks(10_000, 100):
        report(line)
