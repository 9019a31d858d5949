"""Running the command as users do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chai import cli
from tests.conftest import HANG

from .forked import Forked

Run = Callable[..., "subprocess.CompletedProcess[str]"]


InProcess = Callable[..., int]


@pytest.fixture
def in_process() -> InProcess:
    """Return a function that runs a command in this process and folder, and returns the exit code."""
    return lambda *args: cli.main([*map(str, args)])


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """A process that runs commands."""
    process = Forked()
    yield process
    process.close()


@pytest.fixture
def chai_command(tmp_path: Path, forked: Forked) -> Run:
    """``chai_command("show", "lenet")`` in an empty folder; environment variables as keywords.

    With such, and for ``bench``, a Python of its own: what it reads when it starts may depend on them, or be the point.
    """

    def run(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CHAI_")}
        environment = {**clean, "COLUMNS": "80", "CHAI_CACHE": str(tmp_path / "cache"), **env}
        if not env and args[:1] != ("bench",):
            return forked.run([*map(str, args)], tmp_path, environment)
        return subprocess.run(
            [sys.executable, "-m", "chai", *map(str, args)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=HANG,
            check=False,
        )

    return run
