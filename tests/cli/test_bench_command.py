"""The command chai bench, in processes of its own: it sets the threads before numpy is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from tests.cli.conforms import checked
from tests.cli.conftest import InProcess, Run
from tests.conftest import HANG
from tests.passes.common import prototxt


def as_json(done: CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return checked(json.loads(done.stdout), "chai.bench/5")


def test_bench_of_a_compiled_network(chai_command: Run, tmp_path: Path) -> None:
    save(chai.Net("digits", calibrate=np.ones((3, 1, 8, 8), np.float32), batch=3), tmp_path / "digits.chai")
    done = chai_command("bench", "digits.chai", "--rounds", "2", "--json")
    report = as_json(done)
    assert (report["network"], report["device"]) == ("digits-inception", "emulator")
    (run,) = report["runs"]
    assert run["batch"] == 3 and run["ms_per_image"].keys() == {"chai"} and "no peer" in done.stderr
    done = chai_command("bench", "digits.chai", "--rounds", "2", "--batch", "2,1", "--json")
    assert [run["batch"] for run in as_json(done)["runs"]] == [2, 1]
    assert done.stderr.count("no peer") == 1
    assert "--batch does nothing for digits.chai" in chai_command("show", "digits.chai", "--batch", "2").stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ("MemoryError()", 70, "error: out of memory"),
        ("RuntimeError('odd')", 70, "error: a fault in chai: RuntimeError: odd"),
        ("OSError(28, 'No space left', 'x')", 74, "error: x: No space left"),
        ("FileNotFoundError(2, 'No such file', 'x.no')", 2, "error: there is no file 'x.no'"),
        ("chai.UsageError('wrong')", 2, "error: wrong"),
        ("KeyboardInterrupt()", 130, ""),
    ],
)
def test_the_process_that_measures_ends_as_a_command(error: str, code: int, line: str, tmp_path: Path) -> None:
    program = f"import chai, sys\nfrom chai.cli.bench_measure import apart\ndef work(): raise {error}\n"
    program += "sys.exit(apart(work, 1, True)[0])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANG, check=False)
    assert (done.returncode, done.stderr.partition("\n")[0]) == (code, line)


def test_bench_alone_and_against_opencv(chai_command: Run) -> None:
    command = ["bench", "digits", "--rounds", "2", "--json"]
    alone = as_json(chai_command(*command, "--against", "none"))["runs"][0]
    assert set(alone["ms_per_image"]) == {"chai"}
    assert alone["ratio"] == alone["difference"] == {} and alone["measurable"]
    done = chai_command(*command, "--against", "all", "--threads", "1,2", "--batch", "3")
    whole = as_json(done)
    assert [(run["threads"], run["batch"]) for run in whole["runs"]] == [(1, 3), (2, 3)]
    assert [run["spin"] is None for run in whole["runs"]] == [True, False]
    assert [run["measurable"] for run in whole["runs"]] == [True, whole["runs"][1]["spin"]["min"] >= 1.8]
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: no ")]
    assert len(notes) == ("opencv" not in whole["runs"][0]["ratio"])  # once for both runs
    assert done.stderr.count("note: peers compute classifier as a layer of Caffe's own") == 1
    check_ratios(whole["runs"])


def check_ratios(runs: list[dict[str, Any]]) -> None:
    """Each peer has its time as a multiple of chai's, and outputs that are close."""
    for run in runs:
        assert run["ratio"].keys() == run["ms_per_image"].keys() - {"chai"}
        for name, ratio in run["ratio"].items():
            for key, value in ratio.items():
                own, other = (run["ms_per_image"][side][key] for side in ("chai", name))
                assert value == pytest.approx(other / own)
            assert run["difference"][name] < (0.1 if "int8" in name else 1e-4)


def test_bench_of_starts(chai_command: Run) -> None:
    report = as_json(
        chai_command(
            *["bench", "digits", "--rounds", "1", "--against", "none", "--device", "emulator", "--start", "--json"]
        )
    )
    assert report["start"].keys() == {"chai, .chai", "chai, Caffe files"}
    for each in report["start"].values():
        assert each["cpu"]["min"] > 0 and each["wall"]["min"] > 0 and each["mb"] > 10 and each["slowest"] >= 1


@pytest.mark.parametrize("words", ["--int8", "--peak", "--all", "--roofline r.svg", "--history=h.jsonl"])
def test_an_option_that_another_command_has_names_it(
    in_process: InProcess, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert in_process("bench", "digits", *words.split()) == 2
    assert f"{words.split()[0].split('=')[0]} is an option of python -m tools.bench" in capsys.readouterr().err


def test_a_peer_that_another_command_has_names_it(in_process: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("bench", "digits", "--against", "openvino") == 2
    assert "'openvino' is none of opencv, all, none; more: python -m tools.bench" in capsys.readouterr().err


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


def test_more_threads_than_anything_runs_with(in_process: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("bench", "nosuch", "--threads", "1,9999") == 2
    assert "--threads 9999: expected at most 256" in capsys.readouterr().err
