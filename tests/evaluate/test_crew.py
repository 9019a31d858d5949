"""Every image once, whatever becomes of workers and batches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from chai.errors import ChaiError, DeviceError
from chai.evaluate.workers import processes
from chai.evaluate.workers.dispatch import Part, batches, drive
from chai.evaluate.workers.job import Place
from tests.conftest import examples
from tests.evaluate.guarded import until

IMAGES: list[Place] = [(i, f"/photos/{i}.png", None) for i in range(23)]


class Unreliable:
    """A crew that loses batches as told, kills on some images always, answers out of order and twice."""

    def __init__(self, losses: Sequence[bool], deadly: frozenset[int], order: Sequence[int]) -> None:
        self.losses, self.deadly, self.order = iter(losses), deadly, iter(order)
        self.out: list[Part] = []
        self.given: list[Part] = []

    def room(self) -> int:
        return 3 - len(self.out)

    def give(self, part: Part) -> None:
        assert self.room() > 0
        self.out.append(part)
        self.given.append(part)

    def wait(self) -> list[tuple[Part, dict[str, Any]]]:
        part = self.out.pop(next(self.order, 0) % len(self.out))
        if self.deadly.intersection(place[0] for place in part) or next(self.losses, False):
            return [(part, {"lost": "gone"})]
        answer = {"records": [{"image": place[0]} for place in part]}
        return [(part, answer), (part, answer)]  # the second is a copy's

    def close(self) -> None:
        pass


@settings(max_examples=examples(100))
@given(
    st.lists(st.booleans(), max_size=8),
    st.frozensets(st.integers(0, 22), max_size=3),
    st.lists(st.integers(0, 2)),
    st.integers(1, 9),
    st.sets(st.integers(0, 22), max_size=22),
)
def test_each_image_is_counted_once(
    losses: list[bool], deadly: frozenset[int], order: list[int], size: int, before: set[int]
) -> None:
    crew, seen = Unreliable(losses, deadly, order), list[dict[str, Any]]()
    drive(crew, batches(IMAGES, size, before), seen.extend, proven=True)
    assert Counter(r["image"] for r in seen) == Counter(set(range(23)) - before)
    reported = {r["image"] for r in seen if "error" in r}
    assert deadly - before <= reported
    if not losses:
        assert reported == deadly - before
    tried = Counter(place[0] for part in crew.given for place in part)
    assert all(tried[i] <= 4 for i in range(23))  # never for ever


def test_one_accident_is_not_held_against_a_batch() -> None:
    crew, seen = Unreliable([True, True, True], frozenset(), [0]), list[dict[str, Any]]()
    drive(crew, batches(IMAGES, 4), seen.extend, proven=True)
    assert not [r for r in seen if "error" in r]


def test_batches_are_those_of_a_run_from_the_beginning() -> None:
    parts = batches(IMAGES, 5, {0, 1, 2, 3, 4, 7, 22})
    assert [[place[0] for place in part] for part in parts] == [
        [5, 6, 8, 9],
        [10, 11, 12, 13, 14],
        [15, 16, 17, 18, 19],
        [20, 21],
    ]


def test_where_nothing_works_it_ends() -> None:
    with pytest.raises(ChaiError, match="no batch comes back: gone"):
        drive(Unreliable([], frozenset(range(23)), []), batches(IMAGES, 2), lambda records: None)


def test_a_refusal_is_raised_as_it_was() -> None:
    class Refusing(Unreliable):
        def wait(self) -> list[tuple[Part, dict[str, Any]]]:
            error = {"kind": "DeviceError", "message": "no board", "hint": "plug it in", "layer": None, "excerpt": ""}
            return [(self.out.pop(), {"refused": error})]

    with pytest.raises(DeviceError, match=r"^no board \(hint: plug it in\)$"):
        drive(Refusing([], frozenset(), []), batches(IMAGES, 2), lambda records: None)


# -- processes

MANY: Part = tuple((i, f"/photos/{i:08}.png", None) for i in range(4000))  # more than a pipe takes
DEAF = "import os, time; os.write(1, b'\\n'); time.sleep(1000)"  # reads nothing
PATIENT = """import json, os, sys
sys.stdin.readline()
for line in sys.stdin:
    os.write(1, json.dumps({"records": [{"image": place[0]} for place in json.loads(line)]}).encode() + b"\\n")"""


class AnyJob:
    """What these workers do not read."""

    def to_json(self) -> dict[str, Any]:
        return {}


def started(monkeypatch: pytest.MonkeyPatch, code: str, jobs: int) -> processes.Processes:
    monkeypatch.setattr(processes, "command", lambda module: [sys.executable, "-c", code])
    return processes.Processes(AnyJob(), jobs)  # type: ignore[arg-type]


def test_a_worker_that_ends_before_it_has_read_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {*threading.enumerate()}
    crew = started(monkeypatch, DEAF, 1)
    crew.give(MANY)
    assert crew.wait() == []  # a heartbeat
    (worker,) = crew.workers
    worker.process.kill()
    os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    assert until(crew.wait, "nothing is lost") == [(MANY, {"lost": "its worker ended by SIGKILL"})]
    assert crew.room() == 1
    crew.close()
    until(lambda: {*threading.enumerate()} <= before, "a thread is left")


def test_batches_larger_than_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {*threading.enumerate()}
    crew, seen = started(monkeypatch, PATIENT, 2), list[dict[str, Any]]()
    drive(crew, [MANY[:1500], MANY[1500:3900], MANY[3900:]], seen.extend)
    assert sorted(record["image"] for record in seen) == list(range(4000))
    crew.close()
    until(lambda: {*threading.enumerate()} <= before, "a thread is left")


def test_a_worker_whose_parent_is_gone_ends_without_a_word() -> None:
    """As after kill -9, between two heartbeats: it notices when it sends an answer."""
    code = "from chai.evaluate.workers import worker\nworker.BEAT = 1800\nworker.main()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"\n"
        process.stdout.close()
        process.stdin.write(b"{}\n[]\n")
        process.stdin.flush()
        assert process.stderr.read() == b""
    assert process.returncode == 1
