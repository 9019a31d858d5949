"""chai run --perf and its file."""

from __future__ import annotations

import csv
import json
from itertools import count
from pathlib import Path

import pytest

from chai.cli import output
from chai.runtime.perf import PerfInfo, Speeds
from chai.util.paths import resource
from tests.cli.conftest import InProcess

IMAGE = sorted(resource("prototxt", "digits_images").glob("*_7.png"))[0]
TEXT = "[INFOx] Total Number of Custom layers : 1\n\n[INFOx] Custom Layer - 1 : classifier\n"


def test_the_reports_on_the_terminal(chai_command) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "--perf", "digits", "-i", IMAGE)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(TEXT) == 1
    assert done.stdout.count("[PERFM]") == 0
    lines = done.stdout.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 1
    assert sum(line.startswith("total ") for line in lines) == 1
    assert sum(" images/second on this machine, " in line for line in lines) == 1


def test_the_file_alone(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf-csv", "own.csv", "-q")
    assert done.returncode == 0, done.stderr
    assert TEXT not in done.stderr
    assert "images/second" not in done.stdout
    with open(tmp_path / "own.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert f"wrote own.csv ({len(rows)} rows)" in done.stderr
    assert [r["layer_name"] for r in rows if r["engine"] == "custom"] == ["classifier"]
    assert [p.name for p in tmp_path.iterdir()] == ["own.csv"]


def test_json_has_all_of_it(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--json", "--perf", "--perf-csv", "t.csv")
    assert done.returncode == 0, done.stderr
    perf = json.loads(done.stdout)["perf"]
    assert sum(s["ms"] for s in perf["shares"].values()) == pytest.approx(perf["total_ms"])
    outside = [perf["feed_ms"], perf["between_ms"]]
    assert perf["total_ms"] == pytest.approx(sum(s["ms"] for s in perf["steps"]) + sum(outside))
    assert [row["median"] for row in perf["rows"]] == [outside[0], *(s["ms"] for s in perf["steps"]), outside[1]]
    assert [c["name"] for c in perf["custom_layers"]] == ["classifier"]
    assert TEXT not in done.stderr
    assert (tmp_path / "t.csv").exists()


def test_a_file_that_cannot_be_written(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf-csv", "no/t.csv")
    assert done.returncode == 2
    assert done.stderr == "error: cannot write no/t.csv: there is no folder 'no'\nhint: mkdir -p no\n"
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_several_passes_on_request(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    options = ("--perf", "--repeat", "4", "--perf-csv", "t.csv")
    done = chai_command("run", "digits", "-i", IMAGE, *options)
    assert done.returncode == 0, done.stderr
    head = next(line for line in done.stdout.splitlines() if line.startswith("step "))
    assert head.split() == ["step", "type", "engine", "ms", "min", "p90", "%", "MACs/s"]
    assert done.stdout.count("(median of 4 passes, min ") == 1 and done.stderr.count(TEXT) == 1
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(float(r["min"]) <= float(r["latency"]) <= float(r["p90"]) for r in rows) and len(rows) > 10


def test_one_speed_is_printed(chai_command) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf", "--repeat", "3")
    lines = done.stdout.splitlines()
    (first,) = (line for line in lines if "device emulator" in line)
    exact = float(lines[-1].split(" ms/image")[0].split()[-1])
    assert float(first.split(" ms/image")[0].split()[-1]) == pytest.approx(
        exact, abs=0.0506
    )  # one digit of three, both rounded
    done = chai_command("run", "digits", "-i", IMAGE, "--json", "--perf", "--repeat", "3")
    report = json.loads(done.stdout)
    assert report["ms_per_image"] == report["perf"]["ms_per_image"] == report["perf"]["wall"]["median"]
    assert report["perf"]["passes"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--repeat", "3"], "--repeat says how many passes --perf and --perf-csv time"),
        (["--repeat", "3", "--trace", "t.json"], "--repeat says how many passes --perf and --perf-csv time"),
        (["--perf", "--repeat", "0"], "argument --repeat: '0': expected a number of at least 1"),
    ],
)
def test_repeats_that_mean_nothing_are_refused(
    options: list[str], words: str, in_process: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process("run", "digits", "-i", IMAGE, *options) == 2
    assert words in capsys.readouterr().err


def test_progress_of_the_passes(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line every ten seconds where stderr is no terminal."""
    clock = count(step=6)
    monkeypatch.setattr(output, "monotonic", lambda: next(clock))
    assert in_process("run", "digits", "-i", IMAGE, "--perf", "--repeat", "5") == 0
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines() if line.startswith("passes: ")] == [
        "passes: 1 of 5",
        "passes: 3 of 5",
    ]


def test_the_speed_without_perf() -> None:
    """The median of the passes, without the first of each size unless there is no other."""
    speeds = Speeds()
    assert speeds.ms_per_image == 0
    speeds.add((2, 3), PerfInfo(wall_ms=100.0, batch=2))
    assert (speeds.ms_per_image, str(speeds)) == (50, "50.0 ms/image in the first pass")
    for ms in (6.0, 10.0, 20.0):
        speeds.add((2, 3), PerfInfo(wall_ms=ms, batch=2))
    speeds.add((1, 3), PerfInfo(wall_ms=900.0, batch=1))
    assert (speeds.ms_per_image, str(speeds)) == (5, "5.0 ms/image")
