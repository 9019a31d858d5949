"""tools/fuzz.py: a few hundred cases of each kind of file, and a check that failures are reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, report

SMALL = ["upgrade", "npy", "card", "mean", "journal", "list", "overlay", "kernels", "jpeg", "png", "bmp", "ppm"]


def fuzz(folder: Path, cases: int, *kinds: str, seed: int = 0) -> str:
    """The last lines of a run that has found nothing."""
    command = [
        sys.executable,
        str(ROOT / "tools" / "fuzz.py"),
        "--minutes",
        "60",
        "--cases",
        str(cases),
        "--slower",
        "10",
    ]
    command += ["--seed", str(seed), "--found", str(folder), *(word for kind in kinds for word in ("--kind", kind))]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    return done.stdout


def test_damaged_small_files_are_refused_or_read(tmp_path: Path) -> None:
    told = fuzz(tmp_path / "found", 520, *SMALL)
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (\w+)(?=,|\n|$)", told.splitlines()[-1])}
    assert set(counts) == set(SMALL)
    assert min(counts.values()) >= 25
    refused, read = (int(re.search(rf"(\d+) {word}", told)[1]) for word in ("refused", "read"))  # type: ignore[index]
    assert 75 <= read <= 450 <= read + refused  # the damage is neither harmless nor hopeless


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_damaged_files_of_every_kind(tmp_path: Path) -> None:
    told = fuzz(tmp_path / "found", 8000, seed=10_000)
    report(f"tools/fuzz.py: {' '.join(told.split())}")


def test_what_goes_wrong_is_kept_and_is_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import fuzz as tool

    class Worker(tool.Worker):
        def ask(self, path: Path) -> str:
            return "traceback: KeyError: 'x'"

    monkeypatch.setattr(tool, "Worker", Worker)
    argv = ["fuzz.py", "--cases", "1", "--seed", "7", "--kind", "npy", "--found", str(tmp_path / "found")]
    monkeypatch.setattr(sys, "argv", argv)
    assert tool.main() == 1
    assert [file.name for file in (tmp_path / "found").iterdir()] == ["7.npy"]
    assert "case 7: traceback: KeyError" in capsys.readouterr().out
