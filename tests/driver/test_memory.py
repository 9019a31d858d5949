"""A chain in memory: what is written, flushed, started and read back, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from chai.blob import View
from chai.codegen.memory_map import FIXED, INPUT, OUTPUT
from chai.driver.memory import place, run


class Recorder:
    """A segment and its buffers in one: codes go in and out of ``bytes``, and ``calls`` has every step."""

    shapes = {"in": (2, 3, 1, 1), "out": (2, 5, 1, 1)}
    regions = SimpleNamespace(given=["in"])
    wanted = [("out", 1, 3)]
    written = [INPUT]
    read = [OUTPUT]
    addresses = {FIXED: 4096, INPUT: 8192, OUTPUT: 12288}

    def __init__(self, tasks: int) -> None:
        self.tasks = [object()] * tasks
        self.bytes = {region: np.zeros(8, np.uint8) for region in self.addresses}
        self.calls: list[Any] = []

    def fix(self, base: Any, out: np.ndarray) -> None:
        assert base == self.addresses and out is self.bytes[FIXED]
        self.calls.append("fix")

    def store(self, blob: str, codes: np.ndarray, memory: Any) -> None:
        memory[INPUT][: codes.size] = codes.ravel()
        self.calls.append(("store", blob))

    def load(self, blob: str, first: int, out: np.ndarray, memory: Any) -> None:
        out[...] = memory[OUTPUT][: out.size].reshape(out.shape)
        self.calls.append(("load", blob, first))

    def flush(self, regions: Any) -> None:
        self.calls.append(("flush", sorted(regions)))

    def invalidate(self, regions: Any) -> None:
        self.calls.append(("invalidate", sorted(regions)))

    def start(self) -> str:
        self.bytes[OUTPUT][:] = 2 * self.bytes[INPUT]
        self.calls.append("start")
        return "ended"


def test_what_the_host_does_not_write_is_flushed_once() -> None:
    """Else lines that are dirty would be written over results later."""
    recorder = Recorder(tasks=1)
    place(recorder, recorder)  # type: ignore[arg-type]
    assert recorder.calls == ["fix", ("flush", [FIXED, OUTPUT])]


def test_a_run_flushes_before_it_starts_and_invalidates_before_it_reads() -> None:
    recorder = Recorder(tasks=1)
    codes = np.arange(1, 7, dtype=np.int8).reshape(2, 3, 1, 1)
    blobs = {"in": codes}
    assert run(recorder, recorder, blobs, {}, recorder.start) == "ended"  # type: ignore[arg-type]
    assert recorder.calls == [
        ("store", "in"),
        ("flush", [INPUT]),
        "start",
        ("invalidate", [OUTPUT]),
        ("load", "out", 1),
    ]
    assert np.array_equal(blobs["out"][:, 1:4], 2 * codes)


def test_without_tasks_nothing_starts() -> None:
    recorder = Recorder(tasks=0)
    assert run(recorder, recorder, {"in": np.zeros((2, 3, 1, 1), np.int8)}, {}, recorder.start) is None  # type: ignore[arg-type]
    assert "start" not in recorder.calls


def test_a_view_is_loaded_into_its_whole() -> None:
    recorder = Recorder(tasks=1)
    blobs = {"in": np.ones((2, 3, 1, 1), np.int8), "whole": np.zeros((2, 7, 1, 1), np.int8)}
    run(recorder, recorder, blobs, {"out": View("whole", 2)}, recorder.start)  # type: ignore[arg-type]
    assert blobs["whole"][:, :, 0, 0].tolist() == [[0, 0, 0, 2, 2, 2, 0]] * 2
