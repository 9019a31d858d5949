"""How many threads may compute: the environment, the processors of this thread, and control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from chai.env import env
from chai.errors import UsageError
from chai.kernels.native import threads


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without limits, read anew in the test and after it; of six processors."""
    for name in ("CHAI_THREADS", *(f"{name}_NUM_THREADS" for name in threads.LIBRARIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.setattr(threads, "GROUP", Path("/nowhere"))
    for cached in (env, threads.threads):
        cached.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for cached in (env, threads.threads):
        cached.cache_clear()


def test_a_pinned_thread_does_not_count_for_the_others(fresh: pytest.MonkeyPatch) -> None:
    """It may be the first that runs a network: the count is for the whole process."""
    fresh.setattr(os, "sched_getaffinity", lambda pid: set(range(6)) if pid == os.getpid() else {0}, raising=False)
    assert threads.threads() == 6


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, 6),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "4,2"}, 6),  # a list for nested levels is OpenMP's own matter
        ({"MKL_NUM_THREADS": "0"}, 1),
        ({"OMP_NUM_THREADS": "99"}, 6),
        ({"OMP_NUM_THREADS": "1", "CHAI_THREADS": "5"}, 5),
        ({"CHAI_THREADS": "0"}, 6),
        ({"OMP_NUM_THREADS": "1" * 4301}, 6),  # more digits than int() takes
    ],
)
def test_threads_are_those_that_the_environment_allows(
    fresh: pytest.MonkeyPatch, variables: dict[str, str], wanted: int
) -> None:
    for name, value in variables.items():
        fresh.setenv(name, value)
    assert threads.threads() == wanted


@pytest.mark.parametrize("value", ["-1", "two", "1.5"])
def test_a_wrong_number_of_threads_is_an_error(fresh: pytest.MonkeyPatch, value: str) -> None:
    fresh.setenv("CHAI_THREADS", value)
    with pytest.raises(UsageError, match=f"CHAI_THREADS is '{value}'; expected a number"):
        threads.threads()


def test_an_endless_number_of_threads_is_an_error_that_names_the_variable(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("CHAI_THREADS", "1" * 4301)
    with pytest.raises(UsageError, match=r"CHAI_THREADS is '1{37}\.\.\.'; expected a number"):
        threads.threads()


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 6),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, 6),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 6),
        ({"cpu/cpu.cfs_quota_us": "1\n", "cpu/cpu.cfs_period_us": "0\n"}, 6),
    ],
)
def test_a_control_group_limits_them(
    fresh: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], wanted: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    fresh.setattr(threads, "GROUP", tmp_path)
    assert threads.processors() == wanted
