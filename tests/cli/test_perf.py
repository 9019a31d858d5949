"""chai run --perf in each of its forms."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from chai.paths import resource

IMAGE = sorted(resource("prototxt", "digits_images").glob("*_7.png"))[0]
TEXT = "[INFOx] Total Number of Custom layers : 1\n\n[INFOx] Custom Layer - 1 : classifier\n"


@pytest.mark.parametrize(("form", "text", "table"), [(None, 1, 1), ("text", 1, 0), ("table", 0, 1)])
def test_forms_on_the_terminal(chai_command, form: str | None, text: int, table: int) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf", *([form] if form else []))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(TEXT) == text
    assert done.stdout.count("[PERFM]") == 0
    lines = done.stdout.splitlines()
    assert sum(line.startswith("step ") for line in lines) == table
    assert sum(line.startswith("total ") for line in lines) == table
    assert sum(line.endswith(" images/second") for line in lines) == table


def test_csv_has_chaidnns_name_unless_one_is_given(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for args, name in ((["--perf", "csv"], "layerwise_latency.csv"), (["--perf-csv", "own.csv", "-q"], "own.csv")):
        done = chai_command("run", "digits", "-i", IMAGE, *args)
        assert done.returncode == 0, done.stderr
        assert TEXT not in done.stderr
        assert "images/second" not in done.stdout
        with open(tmp_path / name, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert f"wrote {name} ({len(rows)} steps)" in done.stderr
        assert [r["layer_name"] for r in rows if r["engine"] == "custom"] == ["classifier"]
        (tmp_path / name).unlink()
        assert not list(tmp_path.iterdir())


def test_json_has_all_of_it(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--json", "--perf", "text", "--perf-csv", "t.csv")
    assert done.returncode == 0, done.stderr
    perf = json.loads(done.stdout)["perf"]
    assert sum(s["ms"] for s in perf["shares"].values()) == pytest.approx(sum(s["ms"] for s in perf["steps"]))
    assert [c["name"] for c in perf["custom_layers"]] == ["classifier"]
    assert TEXT not in done.stderr
    assert (tmp_path / "t.csv").exists()


def test_a_network_behind_perf_is_no_form(chai_command) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "--perf", "digits", "-i", IMAGE)
    assert done.returncode == 2
    assert "argument --perf: 'digits': expected text, table, csv or nothing; NET goes before --perf" in done.stderr


def test_a_file_that_cannot_be_written(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("run", "digits", "-i", IMAGE, "--perf-csv", "no/t.csv")
    assert done.returncode == 74
    assert "no/t.csv" in done.stderr
    assert not list(tmp_path.iterdir())
