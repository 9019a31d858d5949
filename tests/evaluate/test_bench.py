"""What chai bench measures: orders of rounds, and processes."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.cli.bench import ENGINES, BenchStart, _start, arguments
from chai.cli.bench_measure import Measurement, started
from chai.evaluate.bench import rounds, start
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.loading import load_shipped
from chai.plugins.registry import REGISTRY
from tests.cli.conforms import differences
from tests.passes.common import prototxt


@pytest.mark.parametrize("count", range(1, 10))
def test_each_follows_each_other_one_equally_often(count: int) -> None:
    number = count * (1 + count % 2)
    orders = [rounds.order(count, i) for i in range(number)]
    assert all(sorted(order) == [*range(count)] for order in orders)
    places = Counter(place for order in orders for place in enumerate(order))
    assert {*places.values()} == {number // count} and len(places) == count**2
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert len(follows) == count * (count - 1) and len({*follows.values()}) == (count > 1)


def test_programs_run_in_those_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several threads each waits for the one before, and its second pass counts."""
    calls: list[str] = []
    programs = [lambda: calls.append("a"), lambda: calls.append("b"), lambda: calls.append("c")]
    assert [len(each) for each in rounds.timed(programs, range(4), 1)] == [4, 4, 4]
    assert calls == [*"abc", *"bca", *"cab", *"cba"]
    calls.clear()
    monkeypatch.setattr(rounds, "settle", lambda: calls.append("-"))
    assert [len(each) for each in rounds.timed(programs, range(1, 2), 2)] == [1, 1, 1]
    assert calls == [*"-bb-cc-aa"]


def test_waiting_for_threads_ends_when_they_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    used, slept = iter([0.0, 0.005, 0.010, 0.0104, 0.1]), []
    monkeypatch.setattr(rounds, "process_time", lambda: next(used))
    monkeypatch.setattr(rounds, "sleep", slept.append)
    rounds.settle()
    assert len(slept) == 3


def test_noise_and_ratios() -> None:
    assert rounds.noise([3.0]) == 0
    assert rounds.noise([1, 1, 9, 2, 2, 2]) == pytest.approx(1.0)
    assert rounds.noise([2, 2, 1, 1]) == pytest.approx(1.0)
    assert rounds.ratios([6, 2, 5], [4, 1, 2]) == {"median": 2.5, "min": 2.0}


def test_threads_that_do_the_work_of_one_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock says how long one and three threads take, in turn."""
    for least, reached in ((1.0, True), (1.2, False)):
        spin = rounds.Spin(3)
        clock = iter([0.0, 1.0, 0.0, least, *[0.0, 1.0, 0.0, 4.0] * 2])
        monkeypatch.setattr(rounds, "perf_counter", lambda: next(clock))  # noqa: B023
        for _ in range(3):
            spin()
        assert spin.speedup == pytest.approx({"min": 3 / least, "median": 3 / 4}) and spin.reached == reached


def test_processes_of_chai_run_the_network_that_was_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its overlay, phase and custom layers are those of the command, not the defaults."""
    load_shipped()
    for name in ("types", "files", "folders"):  # --custom is for all networks of a process
        monkeypatch.setattr(REGISTRY, name, getattr(REGISTRY, name).copy())
    lines = """
a Convolution data -> a : convolution_param { num_output: 5 kernel_size: 3 }
b Twice a -> b : user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 5 top_dim: 4 top_dim: 6 }
c ReLU b -> c : include { phase: TRAIN }
"""
    (tmp_path / "net.prototxt").write_text(prototxt(lines, (1, 3, 6, 8)))
    code = "import chai\n@chai.custom('Twice', jit=False)\ndef twice(x): x.out_ptrs[0][:] = 2 * x.in_ptrs[0]\n"
    (tmp_path / "twice.py").write_text(code)
    weights = np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype(np.float32)
    blobs = [("a", "Convolution", [weights, np.zeros(5, np.float32)])]
    write_caffemodel(tmp_path / "net.caffemodel", "net", blobs)
    words = [
        *map(str, (tmp_path / "net.prototxt", tmp_path / "net.caffemodel")),
        "--custom",
        str(tmp_path / "twice.py"),
    ]
    words += ["--device", "emulator", "--overlay", "zcu104", "--phase", "TRAIN", "--against", "none", "--quiet"]
    parser = argparse.ArgumentParser()
    arguments(parser)
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args(words)
    args.typed = {}
    for program in Measurement(args, ENGINES, 1, tmp_path).programs():
        options, *files = program["words"]
        with chai.Net(*files, **json.loads(options)) as net:
            net.forward(np.ones((1, 3, 6, 8), np.float32))
            assert net.overlay is not None and net.overlay.name == "zcu104", program["name"]
            assert [*net.outputs] == ["c"] and net.device.name == "emulator"


def test_files_of_the_current_folder_are_no_modules_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file here was run')\n")
    monkeypatch.chdir(tmp_path)
    assert start.problem(start.MeasuredProgram("none", "def run(): pass\n", [], {}, 1), os.environ) is None


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    program = start.MeasuredProgram("chai", start.CHAI, ['{"device": "float"}', str(tmp_path / "none.prototxt")], {}, 1)
    environment = start.environment(tmp_path, 3, ("OMP_NUM_THREADS",))
    assert (environment["OMP_NUM_THREADS"], environment["PYTHONPYCACHEPREFIX"]) == ("3", str(tmp_path))
    del environment["PYTHONPYCACHEPREFIX"]  # compiling all of it is slow
    reason = start.problem(program, environment)
    assert reason is not None and "there is no file" in reason


def test_a_process_that_fails_late_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One fails from its second process on, one in its 100 passes; the figures of the third are whole."""
    codes = {
        "whole": "def run(): pass",
        "late": f"from pathlib import Path\nplace = Path({str(tmp_path)!r}, 'count')\n"
        "def run():\n    count = place.exists()\n    place.touch()\n    if count: raise SystemExit('no licence')",
        "poor": "def run():\n    if passes > 1: raise MemoryError('too large')",
    }
    monkeypatch.setattr(start, "_HEAD", "\nimport json\nwords, shapes, threads, passes = json.loads(sys.argv[1])\n")
    programs = [start.MeasuredProgram(name, code, [], {}, 1)._asdict() for name, code in codes.items()]
    figures = started(programs, 1, 2, tmp_path / "byte code", True)
    notes = ["no start of late: its process fails: no licence"]
    notes += ["no peak memory of poor: its process fails: MemoryError: too large"]
    assert capsys.readouterr().err.splitlines() == [f"note: {note}" for note in notes]
    assert [*figures] == ["whole", "poor"]
    assert all(each["wall"]["min"] >= each["cpu"]["min"] > 0 for each in figures.values())
    assert figures["whole"]["mb"] > 0 and figures["poor"]["mb"] is None is figures["poor"]["slowest"]
    assert differences(figures, dict[str, BenchStart]) == []
    _start(figures, 1)
    assert " - " in capsys.readouterr().out
