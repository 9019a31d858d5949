"""Run a network on both simulators of an accelerator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import chai
from chai.devices.rtlsim import program
from chai.overlay import Overlay


def check_agreement(monkeypatch: pytest.MonkeyPatch, overlay: Overlay, forward: Callable[[], chai.Net]) -> int:
    """Compare every blob, and the cycles since the reset, after a pass on each; return the cycles."""
    ran = []
    for simulator in ("verilator", "cxxrtl"):
        monkeypatch.setattr(program, "fastest", lambda name=simulator: name)
        program.accelerator.cache_clear()
        ran.append((forward().blobs, program.accelerator(overlay).simulation.now))
    program.accelerator.cache_clear()
    (blobs, cycles), (others, other_cycles) = ran
    assert cycles == other_cycles
    assert blobs.keys() == others.keys()
    assert [blob for blob in blobs if not np.array_equal(blobs[blob], others[blob])] == []
    return cycles
