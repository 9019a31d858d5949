"""chai run --perf and its file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from chai.util.paths import resource

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
    assert sum(line.endswith(" images/second") for line in lines) == 1


def test_the_file_alone(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf-csv", "own.csv", "-q")
    assert done.returncode == 0, done.stderr
    assert TEXT not in done.stderr
    assert "images/second" not in done.stdout
    with open(tmp_path / "own.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert f"wrote own.csv ({len(rows)} steps)" in done.stderr
    assert [r["layer_name"] for r in rows if r["engine"] == "custom"] == ["classifier"]
    assert [p.name for p in tmp_path.iterdir()] == ["own.csv"]


def test_json_has_all_of_it(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--json", "--perf", "--perf-csv", "t.csv")
    assert done.returncode == 0, done.stderr
    perf = json.loads(done.stdout)["perf"]
    assert sum(s["ms"] for s in perf["shares"].values()) == pytest.approx(sum(s["ms"] for s in perf["steps"]))
    assert [c["name"] for c in perf["custom_layers"]] == ["classifier"]
    assert TEXT not in done.stderr
    assert (tmp_path / "t.csv").exists()


def test_a_file_that_cannot_be_written(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf-csv", "no/t.csv")
    assert done.returncode == 74
    assert "no/t.csv" in done.stderr
    assert not list(tmp_path.iterdir())
