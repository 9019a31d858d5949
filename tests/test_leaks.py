"""10,000 passes and 100 networks leak nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import ROOT, report


def leaks(forwards: int, networks: int) -> list[str]:
    command = [
        sys.executable,
        str(ROOT / "tools" / "leaks.py"),
        "--forwards",
        str(forwards),
        "--networks",
        str(networks),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_threads_and_files_are_given_back() -> None:
    lines = leaks(40, 4)
    assert len(lines) == 9
    assert all(line.endswith("ok") for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_passes_and_a_hundred_networks_leave_nothing() -> None:
    for line in leaks(10_000, 100):
        report(line)
