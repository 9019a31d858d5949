"""Work per layer does not grow with the number of layers: calls of functions are counted, since times depend on the machine."""

from __future__ import annotations

import cProfile
import gc
from pathlib import Path

import pytest

import chai

from .conftest import ROOT

BLOCKS = 4, 16  # 42 and 150 layers
# times as many calls per layer: 3.6 times as many layers would show what grows with their number. Of a plan at most 32 parts and
# 72 Tasks are cut in other ways, and networks of 42 layers have fewer
BOUND, BOUNDS = 1.2, {"compile": 2.8}


def test_calls_per_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of loading, planning, passes, compiling and showing."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from bench_growth import actions, residual

    gc.freeze()  # what other tests have left is not looked through again and again
    counts: list[dict[str, float]] = []
    for blocks in (2, *BLOCKS):  # what is made once in a process is made by the first
        path = tmp_path / f"{blocks}.prototxt"
        path.write_text(residual(blocks))
        layers = len(chai.Net(path, device="float").graph.layers)
        assert layers == 9 * blocks + 6
        counts.append({})
        for name, action in actions(path):
            profile = cProfile.Profile()
            gc.collect()
            gc.disable()  # calls of finalizers are nobody's work here
            try:
                profile.runcall(action)
            finally:
                gc.enable()
            counts[-1][name] = sum(row.callcount for row in profile.getstats()) / layers
    gc.unfreeze()
    capsys.readouterr()
    growth = {name: round(calls / counts[1][name], 2) for name, calls in counts[2].items()}
    assert {name: ratio for name, ratio in growth.items() if ratio > BOUNDS.get(name, BOUND)} == {}
