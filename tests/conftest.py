"""Shared fixtures: locate test data, and report the tests skipped without it."""

from __future__ import annotations

import copy
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("CHAI_TEST_DATA", ROOT.parent / "shared" / "models"))
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in a shell's background job; child processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Before numpy is loaded. OpenBLAS's threads wait by spinning: on a busy machine a second one makes a product ten times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
_NO_DATA = "no data: "
_required = os.environ.get("CHAI_TEST_REQUIRE_DATA") == "1"
HANG = 1800  # timeout in seconds for one event, only against hangs: no test fails because a machine is slow
EXAMPLES = int(os.environ.get("CHAI_TEST_EXAMPLES", "1"))  # times as many from hypothesis
_ANY_MACHINE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, database=None, print_blob=True, **_ANY_MACHINE)
settings.register_profile("explore", derandomize=False, print_blob=True, **_ANY_MACHINE)
settings.load_profile("same")  # already for the settings of modules that conftest.py files of named folders import


def pytest_configure(config: pytest.Config) -> None:
    """Have hypothesis draw the same examples in every run; others in the long ones, which keep what fails.

    Which of its examples are constants from source code depends on the modules that tests have loaded before: none then.
    """
    long = EXAMPLES > 1 or re.search(r"(?<!not )\bslow\b", config.getoption("markexpr") or "") is not None
    settings.load_profile("explore" if long else "same")
    with suppress(ImportError, AttributeError):  # other versions have no such constants
        from hypothesis.internal.conjecture import providers

        none = providers._local_constants  # the empty ones that it begins with
        if not long:
            providers._get_local_constants = lambda: none


def examples(count: int) -> int:
    """Return the number of hypothesis examples: ``count``, or CHAI_TEST_EXAMPLES times as many."""
    return count * EXAMPLES


def thinned(step: int, *axes: Iterable[Any]) -> list[Any]:
    """Return all combinations of these values as parameters, of which only each ``step``-th is fast; the others are slow.

    Each value of an axis is in a fast one if ``step`` has no factor in common with the lengths of all axes but the first.
    """
    combinations = []
    for i, values in enumerate(product(*axes)):
        marks = [mark for value in values for mark in getattr(value, "marks", ())]
        plain = [value.values[0] if isinstance(value, ParameterSet) else value for value in values]
        combinations.append(pytest.param(*plain, marks=[*marks, *([pytest.mark.slow] if i % step else [])]))
    return combinations


def need_models() -> Path:
    """Return the folder of real models, or skip the test (fail it if CHAI_TEST_REQUIRE_DATA=1)."""
    if not MODELS.is_dir():
        (pytest.fail if _required else pytest.skip)(f"{_NO_DATA}{MODELS} does not exist (set CHAI_TEST_DATA)")
    return MODELS


@pytest.fixture(scope="session")
def models() -> Path:
    """Return the folder of real Caffe models."""
    return need_models()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel built from this checkout."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*pip, "-w", str(folder), str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


_reports: list[str] = []


def report(line: str) -> None:
    """Print a line at the end of the test run."""
    _reports.append(line)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have ``caplog`` see chai's own log alone: asyncio's may tell of another test's garbage."""
    session.config.pluginmanager.getplugin("logging-plugin").caplog_handler.addFilter(logging.Filter("chai"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the lines of a worker process to the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)  # of pytest-xdist, in its workers only
    if output is not None:
        output["reports"] = _reports


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the lines of a worker process."""
    _reports.extend(getattr(node, "workeroutput", {}).get("reports", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _reports:
        terminalreporter.write_line(line)
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if _NO_DATA in str(r.longrepr)]
    terminalreporter.write_line(f"skipped for want of data: {len(skipped)}")
    if skipped:
        terminalreporter.write_line("    CHAI_TEST_REQUIRE_DATA=1 makes them fail")


@pytest.fixture(autouse=True)
def _no_modules_of_files_that_are_gone() -> Iterator[None]:
    """Forget the modules of custom layers in temporary folders: hypothesis reads the files of all modules."""
    yield
    for name in [name for name in sys.modules if name.startswith("chai_custom.")]:
        if ROOT not in Path(getattr(sys.modules[name], "__file__", None) or ROOT / "x").parents:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the user's CHAI_ variables and fetched weights from tests; keep CHAI_TEST_ variables."""
    from chai.env import env
    from chai.limits import limits
    from chai.util import log

    for name in list(os.environ):
        if name.startswith("CHAI_") and not name.startswith("CHAI_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CHAI_CACHE", os.devnull)
    env.cache_clear()
    limits.cache_clear()
    monkeypatch.setattr(log, "_meter", None)  # commands run in this process install their own, and handlers
    logger = logging.getLogger("chai")
    before = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = before[0]
    logger.setLevel(before[1])
    logger.propagate = before[2]
    env.cache_clear()  # fixtures of modules and sessions read the variables between tests
    limits.cache_clear()


@pytest.fixture(autouse=True)
def _random_numbers_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin the numbers of a module's ``RNG`` anew for each test: they do not depend on the tests before it."""
    if (shared := getattr(request.module, "RNG", None)) is not None:
        monkeypatch.setattr(request.module, "RNG", copy.deepcopy(shared))
