"""What chai bench measures: orders of rounds, peak, roofline, processes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import chai
from chai import plugins
from chai.cli import schema_parts
from chai.cli.bench import arguments
from chai.cli.bench_history import remember
from chai.cli.bench_measure import programs, started
from chai.cli.bench_report import _start
from chai.evaluate.bench import peak, rounds, start
from chai.evaluate.bench.peak import Roof
from chai.evaluate.bench.roofline import Operation, operations, picture, shares
from chai.kernels.native import library
from chai.parser.caffemodel import write_caffemodel
from tests.cli.conforms import differences
from tests.passes.common import network, prototxt

SVG = "{http://www.w3.org/2000/svg}"


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


def test_operations_count_each_number_once(tmp_path: Path) -> None:
    """On the host in float32, on the device in codes; a fully connected layer has one product per weight and image."""
    lines = """
a Convolution data -> a : convolution_param { num_output: 6 kernel_h: 3 kernel_w: 2 }
b Pooling a -> b : pooling_param { pool: MAX kernel_size: 2 stride: 2 }
c InnerProduct b -> c : inner_product_param { num_output: 11 bias_term: false }
"""
    shape = (2, 3, 9, 13)
    sizes = {"data": 2 * 3 * 9 * 13, "a": 2 * 6 * 7 * 12, "b": 2 * 6 * 4 * 6, "c": 2 * 11}
    weights = {"a": 6 * 3 * 3 * 2, "c": 11 * 144}
    macs = {"a": 7 * 12 * 6 * 3 * 3 * 2 * 2, "c": weights["c"] * 2}
    for device, engines in (("float", {"a": "host", "c": "host"}), ("emulator", {"a": "fpga", "c": "host"})):
        net = network(tmp_path, lines, shape, device=device)
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        passes = []
        for _ in range(3):
            net.forward(x)
            passes.append(net.perf)
        found = operations(passes, net.graph, {"data": shape})
        assert [(o.name, o.macs) for o in found] == [*macs.items()]
        for o, (read, bias) in zip(found, (("data", 6), ("b", 0))):
            assert o.engine == engines[o.name]
            assert o.bytes == (4 if o.engine == "host" else 1) * (sizes[read] + weights[o.name] + bias + sizes[o.name])
            assert o.ms == min(step.ms for each in passes for step in each.steps if step.name == o.name)
            assert o.rate == pytest.approx(o.macs / o.ms / 1e6) and o.intensity == o.macs / o.bytes


def test_shares_of_the_peak() -> None:
    """Convolutions by their own sum of a pass, the least of all; everything by the clock around it."""

    def one(*steps: tuple[str, float, int]) -> SimpleNamespace:
        return SimpleNamespace(steps=[SimpleNamespace(type=t, ms=ms, macs=macs) for t, ms, macs in steps])

    passes = [one(("conv", 3.0, 4_000_000), ("Pack", 9.0, 0), ("gemm", 1.0, 1_000_000)), one(("conv", 2.0, 4_000_000))]
    assert shares(passes, 10.0, 4.0) == {"whole": pytest.approx(0.125), "convolutions": pytest.approx(0.5)}  # type: ignore[arg-type]
    assert shares([one(("gemm", 1.0, 1_000_000))], 1.0, 1.0) == {"whole": 1.0}  # type: ignore[arg-type]


def test_the_roofline_is_drawn_to_scale() -> None:
    found = [Operation(f"<{i}>", "conv", "fpga", 10 ** (3 + i), 10**3, 0.01 * 10**i) for i in range(1, 4)]
    drawn = ElementTree.fromstring(picture(found, Roof("avx2", 1000.0, {"memory": 10.0}), "net & all"))
    circles = drawn.findall(f"{SVG}circle")
    across = [float(c.attrib["cx"]) for c in circles]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)  # a decade each
    assert len({c.attrib["cy"] for c in circles}) == 1  # 0.1 GMAC/s all
    peak_line, memory = [line for line in drawn.findall(f"{SVG}line") if line.attrib["stroke"] == "#000"]
    assert (
        peak_line.attrib["y1"] == peak_line.attrib["y2"] == memory.attrib["y2"]
    )  # 10 GB/s meet the peak at 100 MAC/byte
    assert float(memory.attrib["x2"]) == pytest.approx(across[1], abs=0.2)
    assert float(circles[0].attrib["cy"]) > float(peak_line.attrib["y1"])
    words = [text.text for text in drawn.findall(f"{SVG}text")]
    assert "net & all" in words and words[-3:] == ["10.00 ms  <3>", "1.00 ms  <2>", "0.10 ms  <1>"]
    picture([], Roof("avx2", 1.0, {}), "empty")


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs a C compiler")
def test_the_peak_is_of_the_instructions_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    found = peak.peaks()
    assert all(value > 0 for value in found.values())
    used = library.library()
    if used is not None and used.name in found:
        assert peak.roof(True).instructions == used.name
    monkeypatch.setattr(peak, "peaks", dict)
    with pytest.raises(chai.UsageError, match="is not known"):
        peak.roof(True)


def test_no_peak_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(chai.UsageError, match="CC names 'no-such-compiler', which is no command here"):
        peak.peaks()


def test_processes_of_chai_run_the_network_that_was_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its overlay, phase and custom layers are those of the command, not the defaults."""
    plugins.load_shipped()
    for name in ("types", "files", "folders"):  # --custom is for all networks of a process
        monkeypatch.setattr(plugins.REGISTRY, name, getattr(plugins.REGISTRY, name).copy())
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
    for program in programs(args, 1, tmp_path):
        options, *files = program["files"]
        with chai.Net(*files, **json.loads(options)) as net:
            net.forward(np.ones((1, 3, 6, 8), np.float32))
            assert net.overlay is not None and net.overlay.name == "zcu104", program["name"]
            assert [*net.outputs] == ["c"] and net.device.name == "emulator"


def test_a_slow_down_is_of_the_same_circumstances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of another size, device or processor says nothing about this run."""

    def remembered(ms: float, **others: object) -> str:
        run = {"batch": 1, "threads": 1, "ms_per_image": {"chai": {"min": ms}}}
        figures = {"network": "n", "inputs": {"data": [1, 3, 8, 9]}, "device": "float", "overlay": None}
        figures |= {"kernels": "avx2", "processor": "p", "runs": [run], "start": None}
        remember(tmp_path / "h.jsonl", {**figures, **others})
        return capsys.readouterr().err

    assert remembered(2.0) == ""
    for others in ({"inputs": {"data": [1, 3, 80, 90]}}, {"device": "emulator"}, {"processor": "q"}):
        assert remembered(9.0, **others) == ""
    assert "batch 1, 1 thread: 3.00 ms at least, 2.00 ms at" in remembered(3.0)


def test_files_of_the_current_folder_are_no_modules_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file here was run')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(start._ENGINES, "none", "def run(): pass\n")
    assert start.problem(start.Program("none", "none", [], {}, 1), os.environ) is None


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    program = start.Program("chai", "chai", ['{"device": "float"}', str(tmp_path / "none.prototxt")], {}, 1)
    given = start.environment(tmp_path, 3, ("OMP_NUM_THREADS",))
    assert (given["OMP_NUM_THREADS"], given["PYTHONPYCACHEPREFIX"]) == ("3", str(tmp_path))
    del given["PYTHONPYCACHEPREFIX"]  # compiling all of it is slow
    reason = start.problem(program, given)
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
    monkeypatch.setattr(start, "_ENGINES", codes)
    monkeypatch.setattr(start, "_HEAD", "\nimport json\nfiles, shapes, threads, passes = json.loads(sys.argv[1])\n")
    programs = [start.Program(name, name, [], {}, 1)._asdict() for name in codes]
    figures = started(programs, 1, 2, tmp_path / "byte code", True)
    notes = ["no start of late: its process fails: no licence"]
    notes += ["no peak memory of poor: its process fails: MemoryError: too large"]
    assert capsys.readouterr().err.splitlines() == [f"note: {note}" for note in notes]
    assert [*figures] == ["whole", "poor"]
    assert all(each["wall"]["min"] >= each["cpu"]["min"] > 0 for each in figures.values())
    assert figures["whole"]["mb"] > 0 and figures["poor"]["mb"] is None is figures["poor"]["slowest"]
    assert differences(figures, dict[str, schema_parts.BenchStart]) == []
    _start(figures, 1)
    assert " - " in capsys.readouterr().out
