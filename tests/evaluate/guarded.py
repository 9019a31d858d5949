"""The digits network after a custom layer that kills its process on some inputs, and waits for the test on others."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from chai.util.paths import resource
from tests.conftest import HANG

KILLS, FREEZES, RAISES = 1001.0, 1002.0, 1003.0
WAITS = 2000.0  # and the number of the image
GUARD = f"""
import os, signal, time
from pathlib import Path
import chai

@chai.custom("guard", jit=False)
def guard(x):
    time.sleep(PAUSE)
    given = x.in_ptrs[0]
    if (given == {KILLS}).any():
        os.kill(os.getpid(), signal.SIGKILL)
    if (given == {FREEZES}).any():
        os.kill(os.getpid(), signal.SIGSTOP)
    if (given == {RAISES}).any():
        raise ValueError("this one I do not like")
    if (given >= {WAITS}).any():
        Path(FOLDER, f"waiting-{{given.max() - {WAITS}:.0f}}").write_text(str(os.getpid()))
        while not Path(FOLDER, "go").exists():
            time.sleep(0.01)
    x.out_ptrs[0][:] = given

@guard.shape
def shape(x):
    return [x.input_dims[0]]
"""
FIRST = 'layer {\n  name: "conv1/3x3"'
LAYER = 'layer { name: "guard" type: "guard" bottom: "data" top: "guarded" user_defined_layer: true }\n\n'


def guarded(folder: Path, count: int, marks: dict[int, float] | None = None, pause: float = 0.0) -> list[str | Path]:
    """Arguments of ``chai evaluate`` for ``count`` images in one .npy; ``marks`` has what some of them say.

    An image that says WAITS takes until there is a file ``go``.
    """
    text = resource("prototxt", "digits.prototxt").read_text()
    text = text.replace('bottom: "data"', 'bottom: "guarded"').replace(FIRST, LAYER + FIRST)
    (folder / "net.prototxt").write_text(text)
    (folder / "guard.py").write_text(GUARD.replace("PAUSE", str(pause)).replace("FOLDER", repr(str(folder))))
    inputs = np.random.default_rng(7).random((count, 1, 8, 8), np.float32)
    for image, mark in (marks or {}).items():
        inputs[image, 0, 0, 0] = mark + image * (mark == WAITS)
    np.save(folder / "images.npy", inputs)
    weights = resource("prototxt", "digits.caffemodel")
    return [folder / "net.prototxt", weights, "--custom", folder / "guard.py", "--images", folder / "images.npy"]


def records(journal: Path) -> dict[int, dict[str, Any]]:
    """What a journal has of each image, each of them once."""
    entries = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert len({r["image"] for r in entries}) == len(entries)
    return {r["image"]: r for r in entries}


def waiting(folder: Path, image: int) -> int:
    """The process in which an image waits."""
    file = folder / f"waiting-{image}"
    return int(until(lambda: file.exists() and file.read_text(), "no process waits"))


def stopped(pid: int) -> bool:
    """Whether all of a process is held by SIGSTOP."""
    states = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # of a thread that has just ended
            states.append(task.read_text().rpartition(")")[2].split()[0])
    return {*states} == {"T"}


def stop(pid: int) -> None:
    """Stop a process, and wait until it is."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stopped(pid), "it goes on")


def until(condition: Any, what: str, seconds: float = HANG) -> Any:
    """What ``condition`` gives when it first gives something."""
    end = monotonic() + seconds
    while not (value := condition()):
        assert monotonic() < end, what
        sleep(0.005)
    return value


def lines(journal: Path) -> int:
    """How many it has so far."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0
