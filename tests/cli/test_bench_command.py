"""The command chai bench, in processes of its own: it sets the threads before numpy is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from tests.cli.conforms import checked
from tests.cli.conftest import InProcess, Run
from tests.passes.common import prototxt


def as_json(done: CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return checked(json.loads(done.stdout), "chai.bench/3")


def test_bench_of_a_compiled_network(chai_command: Run, tmp_path: Path) -> None:
    save(chai.Net("digits", calibrate=np.ones((3, 1, 8, 8), np.float32), batch=3), tmp_path / "digits.chai")
    done = chai_command("bench", "digits.chai", "--rounds", "2", "--json")
    found = as_json(done)
    assert (found["network"], found["device"]) == ("digits-inception", "emulator")
    (run,) = found["runs"]
    assert run["batch"] == 3 and run["ms_per_image"].keys() == {"chai"} and "no peer" in done.stderr
    done = chai_command("bench", "digits.chai", "--rounds", "2", "--batch", "2,1", "--json")
    assert [run["batch"] for run in as_json(done)["runs"]] == [2, 1]
    assert done.stderr.count("no peer") == 1
    assert "--batch does nothing for digits.chai" in chai_command("show", "digits.chai", "--batch", "2").stderr


def test_bench_alone_and_against_peers(chai_command: Run, tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    command = ["bench", "digits", "--rounds", "2", "--json", "--history", history]
    alone = as_json(chai_command(*command, "--against", "none"))["runs"][0]
    assert set(alone["ms_per_image"]) == {"chai"}
    assert alone["ratio"] == alone["difference"] == {} and alone["measurable"]
    done = chai_command(*command, "--against", "all", "--int8", "--threads", "1,2", "--batch", "3")
    whole = as_json(done)
    assert [(run["threads"], run["batch"]) for run in whole["runs"]] == [(1, 3), (2, 3)]
    assert [run["spin"] is None for run in whole["runs"]] == [True, False]
    assert [run["measurable"] for run in whole["runs"]] == [True, whole["runs"][1]["spin"]["min"] >= 1.8]
    peers = ["opencv", "onnxruntime", "onnxruntime int8", "openvino", "openvino int8", "ncnn", "ncnn int8"]
    missing = [name for name in peers if name not in whole["runs"][0]["ratio"]]
    notes = [line.split(":")[1].strip() for line in done.stderr.splitlines() if line.startswith("note: no ")]
    assert notes == [f"no {name}" for name in missing]  # once for both runs
    assert done.stderr.count("note: peers compute classifier as a layer of Caffe's own") == 1
    for run in whole["runs"]:
        assert run["ratio"].keys() == {*peers} - {*missing} == run["ms_per_image"].keys() - {"chai"}
        for name, ratio in run["ratio"].items():
            for key, value in ratio.items():
                own, other = (run["ms_per_image"][side][key] for side in ("chai", name))
                assert value == pytest.approx(other / own)
            assert run["difference"][name] < (0.1 if "int8" in name else 1e-4)
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert [line["runs"] for line in lines] == [[alone], whole["runs"]]


def test_bench_with_all_figures(chai_command: Run, tmp_path: Path) -> None:
    """Peak and roofline need a C compiler; without one the command says so."""
    command = ["bench", "digits", "--rounds", "1", "--against", "none", "--device", "emulator", "--json"]
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        done = chai_command(*command, "--roofline", "r.svg")
        assert done.returncode == 2 and "there is no C compiler" in done.stderr
        return
    done = chai_command(*command, "--start", "--roofline", "r.svg")
    found = as_json(done)
    (run,) = found["runs"]
    assert run["share"].keys() == {"whole", "convolutions"} and run["peak"]["products"] > 0
    with chai.Net("digits", device="float", batch=1) as net:
        net.forward(np.zeros((1, 1, 8, 8), np.float32))
        assert sum(each["macs"] for each in run["operations"]) == sum(step.macs for step in net.perf.steps)
    assert found["start"].keys() == {"chai, .chai", "chai, Caffe files"}
    for each in found["start"].values():
        assert each["cpu"]["min"] > 0 and each["wall"]["min"] > 0 and each["mb"] > 10 and each["slowest"] >= 1
    assert "wrote r.svg" in done.stderr and (tmp_path / "r.svg").read_text().count("<circle") == len(run["operations"])


def test_bench_keeps_its_rounds_if_the_network_has_no_batch_of_one(chai_command: Run, tmp_path: Path) -> None:
    """--start takes one image: its failure is the exit code, and the passes are printed."""
    lines = "a Reshape data -> a : reshape_param { shape { dim: 2 dim: 105 } }"
    (tmp_path / "two.prototxt").write_text(prototxt(lines, (2, 3, 5, 7)))
    words = ["two.prototxt", "--batch", "2", "--rounds", "1", "--against", "none"]
    done = chai_command("bench", *words, "--start", "--json")
    assert done.returncode == 65 and "layer 'a' (Reshape): 1x3x5x7" in done.stderr, done.stderr
    content = json.loads(done.stdout)
    assert content["runs"][0]["ms_per_image"]["chai"]["min"] > 0 and content["start"] is None


def test_bench_on_another_overlay(chai_command: Run) -> None:
    command = ["bench", "digits", "--rounds", "1", "--against", "none", "--overlay", "vta-z7020"]
    content = as_json(chai_command(*command, "--device", "vtasim", "--json"))
    assert (content["device"], content["overlay"]) == ("vtasim", "vta-z7020")
    done = chai_command(*command)
    assert done.returncode == 2 and "--overlay does nothing on device float, which has no overlay" in done.stderr


@pytest.mark.parametrize("content", [b"[]", b'{"schema": "chai.bench/3"}', b"\xff", b"[" * 9999])
def test_a_history_of_something_else_is_refused_before_anything_is_measured(
    in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "h.jsonl").write_bytes(content)
    assert in_process("bench", "nosuch", "--history", tmp_path / "h.jsonl") == 2
    assert "h.jsonl: a line is none of chai bench" in capsys.readouterr().err


def test_more_threads_than_anything_runs_with(in_process: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("bench", "nosuch", "--threads", "1,9999") == 2
    assert "--threads 9999: expected at most 256" in capsys.readouterr().err
