"""A program in memory: what is written, flushed, started and read back, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chai.blob import View
from chai.codegen.memory_map import FIXED, INPUT, OUTPUT, PROGRAM, WORK
from chai.driver.memory import BlobSet, place
from chai.kernels import device_blobs


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blobs do what the kernels do for those of a real layout."""
    monkeypatch.setattr(device_blobs, "store", lambda codes, blob: blob.store(codes))
    monkeypatch.setattr(device_blobs, "fetch", lambda blob, out: blob.fetch(out))


class RecordedBlob:
    """Codes in a region, from its beginning."""

    def __init__(self, recorder: Recorder, name: str, memory: np.ndarray, first: int) -> None:
        self.recorder, self.name, self.memory, self.first = recorder, name, memory, first

    def store(self, codes: np.ndarray) -> None:
        self.memory[: codes.size] = codes.ravel()
        self.recorder.calls.append(("store", self.name))

    def fetch(self, out: np.ndarray) -> None:
        out[...] = self.memory[: out.size].reshape(out.shape)
        self.recorder.calls.append(("load", self.name, self.first))


class Recorder:
    """A segment and its buffers in one: codes go in and out of ``bytes``, and ``calls`` has every step."""

    shapes = {"in": (2, 3, 1, 1), "other": (2, 1, 1, 1), "out": (2, 5, 1, 1)}
    wanted = [("out", 1, 3)]
    written = [INPUT]
    read = [OUTPUT]
    addresses = {FIXED: 4096, INPUT: 8192, OUTPUT: 12288, WORK: 16384}
    own = addresses.keys()

    def __init__(self, tasks: int = 1, inputs: tuple[str, ...] = ("in",)) -> None:
        self.regions = SimpleNamespace(given=[*inputs])
        self.tasks = [object()] * tasks
        self.bytes = {region: np.zeros(8, np.uint8) for region in self.addresses}
        self.calls: list[Any] = []

    def fix(self, base: Any, out: np.ndarray) -> None:
        assert base == self.addresses and out is self.bytes[FIXED]
        self.calls.append("fix")

    def relocate(self, base: Any, out: np.ndarray) -> None:
        assert base == self.addresses and out is self.bytes[PROGRAM]
        self.calls.append("relocate")

    def blob(self, name: str, memory: Any, first: int = 0, channels: int | None = None) -> RecordedBlob:
        return RecordedBlob(self, name, memory[OUTPUT if name == "out" else INPUT], first)

    def flush(self, regions: Any) -> None:
        self.calls.append(("flush", sorted(regions)))

    def invalidate(self, regions: Any) -> None:
        self.calls.append(("invalidate", sorted(regions)))

    def free(self) -> None:
        self.calls.append("free")

    def start(self) -> str:
        self.bytes[OUTPUT][:] = 2 * self.bytes[INPUT]
        self.calls.append("start")
        return "ended"


def made(**options: Any) -> tuple[Recorder, BlobSet]:
    recorder: Any = Recorder(**options)
    return recorder, BlobSet(recorder, recorder)


def test_what_the_host_does_not_write_is_flushed_once() -> None:
    """Else lines that are dirty would be written over results later."""
    recorder: Any = Recorder()
    place(recorder, recorder)
    assert recorder.calls == ["fix", ("flush", [FIXED, OUTPUT, WORK])]


def test_of_a_further_set_nothing_is_touched_that_the_first_has_too() -> None:
    """The accelerator may be working on it."""
    recorder: Any = Recorder()
    recorder.own = (PROGRAM, INPUT, OUTPUT)
    recorder.bytes[PROGRAM] = np.zeros(8, np.uint8)
    place(recorder, recorder)
    assert recorder.calls == ["relocate", ("flush", [OUTPUT, PROGRAM])]


def test_a_run_flushes_before_it_starts_and_invalidates_before_it_reads() -> None:
    recorder, used = made()
    codes = np.arange(1, 7, dtype=np.int8).reshape(2, 3, 1, 1)
    blobs = {"in": codes}
    assert used.run(blobs, {}, recorder.start) == "ended"
    assert recorder.calls == [
        ("store", "in"),
        ("flush", [INPUT]),
        "start",
        ("invalidate", [OUTPUT]),
        ("load", "out", 1),
    ]
    assert np.array_equal(blobs["out"][:, 1:4], 2 * codes)


def test_what_the_host_converts_in_place_is_neither_stored_nor_loaded() -> None:
    """Flushed and invalidated it is all the same."""
    recorder, used = made(inputs=("in", "other"))
    blobs = {"in": np.zeros((2, 3, 1, 1), np.int8)}
    used.run(blobs, {}, recorder.start, {"other"}, {"out"})
    assert recorder.calls == [("store", "in"), ("flush", [INPUT]), "start", ("invalidate", [OUTPUT])]
    assert [*blobs] == ["in"]


def test_without_tasks_nothing_starts() -> None:
    recorder, used = made(tasks=0)
    assert used.run({"in": np.zeros((2, 3, 1, 1), np.int8)}, {}, recorder.start) is None
    assert "start" not in recorder.calls


def test_a_view_is_loaded_into_its_whole() -> None:
    recorder, used = made()
    blobs = {"in": np.ones((2, 3, 1, 1), np.int8), "whole": np.zeros((2, 7, 1, 1), np.int8)}
    used.run(blobs, {"out": View("whole", 2)}, recorder.start)
    assert blobs["whole"][:, :, 0, 0].tolist() == [[0, 0, 0, 2, 2, 2, 0]] * 2


def test_a_free_set_refers_to_no_memory() -> None:
    recorder, used = made()
    used.blob("out")
    used.free()
    assert recorder.calls == ["free"]
    assert not used.stores and not used.loads and not used.blobs
