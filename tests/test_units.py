"""Random networks of what overlays' later units run: each Task of a pass against its definition, and a compiled file.

pytest -m slow tests/test_units.py        2,000 of them
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.env import env
from tests.conftest import examples
from tests.passes.common import network
from tests.units import INPUT, UnitNet

FAST, SLOW, AT_ONCE = 50, examples(2000), 50
KINDS = {"conv", "pool", "eltwise", "affine", "copy", "upsample", "interleave", "lrn", "depthwise"}
DATA = np.random.default_rng(0).uniform(-1, 1, INPUT).astype(np.float32)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Each network would warn that it has no formats of its own."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def tight(folder: Path) -> Path:
    """A manifest with so few words of input that some convolutions are taken apart."""
    manifest = json.loads(overlays.load().path.read_text())
    manifest["buffers"]["input"]["depth"] = 96
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return path


def check(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Compare each Task with its definition, all at once with that, and a compiled file; return the kinds of Task."""
    overlay = tight(folder) if seed % 4 == 0 else overlays.load().path
    lines = str(UnitNet(seed))
    answers = []
    for checked in ("1", "0"):
        monkeypatch.setenv("CHAI_CHECK", checked)
        env.cache_clear()
        net = network(folder, lines, INPUT, device="emulator", overlay=overlay)
        answers.append(net.forward(DATA))
    save(net, folder / "net.chai")
    with chai.Net(folder / "net.chai", overlay=overlay) as compiled:
        answers.append(compiled.forward(DATA))
    for blob, values in answers[0].items():
        assert np.isfinite(values).all() and all(other[blob].tobytes() == values.tobytes() for other in answers[1:]), (
            seed,
            blob,
        )
    monkeypatch.undo()
    env.cache_clear()
    return Counter(task.kind for step in net.schedule.segments for task in step.tasks)


def some(folder: Path, first: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    return sum((check(folder, seed, monkeypatch) for seed in range(first, first + AT_ONCE)), Counter[str]())


@pytest.mark.parametrize("first", range(0, FAST, AT_ONCE))
def test_each_task_equals_its_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    kinds = some(tmp_path, first, monkeypatch)
    assert {*kinds} == KINDS and min(kinds.values()) > 2


def test_a_network_has_what_it_is_for() -> None:
    types = Counter(type for seed in range(FAST) for type in UnitNet(seed).types)
    assert len(types) >= 22, types
    assert {"Deconvolution", "DepthToSpace", "Mul", "Upsample", "LRN", "PReLU", "Slice", "Concat", "Pad"} <= {*types}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FAST, FAST + SLOW, AT_ONCE))
def test_thousands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    assert {*some(tmp_path, first, monkeypatch)} == KINDS
