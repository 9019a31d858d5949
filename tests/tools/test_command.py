"""The command python -m tools.bench, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import chai
from tests.cli.conforms import NAMES, differences
from tests.cli.test_bench_command import check_ratios
from tests.conftest import ROOT
from tools.bench import figures
from tools.bench.engines import ENGINES
from tools.bench.roofline import Operation

NAMES |= vars(figures) | {"Operation": Operation}


def bench(*words: object) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.bench", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def as_json(done: CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    assert content["schema"] == figures.Figures.schema
    assert differences({k: v for k, v in content.items() if k not in ("schema", "chai")}, figures.Figures) == []
    return content


def test_every_engine_that_is_installed_is_timed(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    words = ["digits", "--rounds", "2", "--json", "--history", history, "--against", "all"]
    done = bench(*words, "--threads", "1,2", "--batch", "3")
    runs = as_json(done)["runs"]
    missing = [name for name in ENGINES if name not in runs[0]["ratio"]]
    notes = [line.split(":")[1].strip() for line in done.stderr.splitlines() if line.startswith("note: no ")]
    assert notes == [f"no {name}" for name in missing]  # once for both runs
    assert [run["peak"] for run in runs] == [None, None]
    check_ratios(runs)
    (line,) = [json.loads(line) for line in history.read_text().splitlines()]
    assert line["runs"] == runs


def test_all_figures(tmp_path: Path) -> None:
    """Peak and roofline need a C compiler; without one the command says so."""
    drawing = tmp_path / "r.svg"
    words = ["digits", "--rounds", "1", "--against", "none", "--device", "emulator", "--json", "--roofline", drawing]
    done = bench(*words)
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        assert done.returncode == 2 and "there is no C compiler" in done.stderr
        return
    (run,) = as_json(done)["runs"]
    assert run["share"].keys() == {"whole", "convolutions"} and run["peak"]["products"] > 0
    with chai.Net("digits", device="float", batch=1) as net:
        net.forward(np.zeros((1, 1, 8, 8), np.float32))
        assert sum(each["macs"] for each in run["operations"]) == sum(step.macs for step in net.perf.steps)
    assert f"wrote {drawing}" in done.stderr and drawing.read_text().count("<circle") == len(run["operations"])


def test_the_peak_is_of_this_computer() -> None:
    done = bench(
        "digits", "--device", "vtasim", "--overlay", "vta-z7020", "--rounds", "1", "--peak", "--against", "none"
    )
    assert done.returncode == 2
    assert "the peak is of this computer's processor, not of device vtasim" in done.stderr


@pytest.mark.parametrize("content", [b"[]", b'{"schema": "chai.tools.bench/2"}', b"\xff", b"[" * 9999])
def test_a_history_of_something_else_is_refused_before_anything_is_measured(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "h.jsonl").write_bytes(content)
    done = bench("nosuch", "--history", tmp_path / "h.jsonl")
    assert done.returncode == 2 and "h.jsonl: a line is none of this benchmark" in done.stderr
