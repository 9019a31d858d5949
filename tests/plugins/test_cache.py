"""Cached machine code is a pickle, which can run any code: load it only from a folder that only this user can write."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.env import env
from chai.plugins import compiling
from chai.util.log import warn_once

from .common import DATA, compiles, frame, one

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX owners and modes")
OTHER = 12345
LAYER = """
import chai
@chai.custom("mine")
def mine(x):
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = 2 * x.in_ptrs[0][i]
"""


class Payload:
    """What a stranger would put into the cache."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def fresh(folder: Path) -> Any:
    """A network whose layer is compiled as in a new process, or taken from the disk."""
    (folder / "mine.py").write_text(LAYER)
    net = one(folder, custom=dict(chai.plugins.loading.registry_of(folder / "mine.py").types))
    assert np.array_equal(net.forward(DATA)["y"], 2 * DATA)
    return frame(net).compiled.dispatcher


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one layer, in whose index a stranger's program is."""
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "home" / "cache"))
    env.cache_clear()
    compiling._dispatchers.clear()
    warn_once.cache_clear()
    assert sum(fresh(tmp_path).stats.cache_misses.values()) == 1
    (index,) = (tmp_path / "home" / "cache").rglob("*.nbi")
    import numba

    with index.open("wb") as file:
        pickle.dump(numba.__version__, file)
        pickle.dump(Payload(tmp_path / "was run"), file)
    compiling._dispatchers.clear()
    return tmp_path / "home" / "cache"


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _give_away(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, OTHER, -1)


CASES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "folder writable by others": ("", lambda p: p.chmod(0o777), "is writable by others (mode 0777)"),
    "file writable by others": ("**/*.nbi", lambda p: p.chmod(0o666), "is writable by others (mode 0666)"),
    "folder of another user": ("numba", _give_away, f"belongs to user {OTHER}, not to this one"),
    "file of another user": ("**/*.nbi", _give_away, f"belongs to user {OTHER}, not to this one"),
    "linked folder": ("numba", _link, "is a link"),
    "linked file": ("**/*.nbi", _link, "is a link"),
    "parent in which others may rename": ("..", lambda p: p.chmod(0o777), "which it is in, is writable by others"),
}


@compiles
def test_a_program_in_this_users_own_cache_is_run(cache: Path, tmp_path: Path) -> None:
    """That is what remains, and SECURITY.md says so: it shows that the cases below are about something."""
    fresh(tmp_path)
    assert (tmp_path / "was run").exists()


@compiles
@pytest.mark.parametrize("case", CASES)
def test_what_others_could_have_written_is_not_read(
    cache: Path, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says why, and the layer is compiled in memory."""
    pattern, change, words = CASES[case]
    (path,) = cache.glob(pattern) if "*" in pattern else [Path(os.path.normpath(cache / pattern))]
    change(path)
    with caplog.at_level(logging.WARNING, "chai.custom"):
        dispatcher = fresh(tmp_path)
    assert not (tmp_path / "was run").exists()
    assert not dispatcher.stats.cache_path
    (message,) = [r.getMessage() for r in caplog.records if "compiled in memory" in r.getMessage()]
    assert str(path) in message and words in message


def test_the_reason_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    for _ in range(2):
        warn_once("chai.custom", "x is a link")
    assert len(caplog.records) == 1


@compiles
def test_a_new_cache_is_private(cache: Path) -> None:
    folders = [cache, *(p for p in cache.glob("numba/*")), cache / "numba"]
    assert len(folders) == 3 and {f.stat().st_mode & 0o777 for f in folders} == {0o700}


@compiles
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "zeros"])
def test_a_damaged_file_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, damage: str
) -> None:
    """As a power cut leaves files that were renamed before they were on the disk."""
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    env.cache_clear()
    compiling._dispatchers.clear()
    assert fresh(tmp_path).stats.cache_misses
    (file,) = (tmp_path / "cache").rglob(f"*.{kind}")
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "zeros": bytes(len(whole))}[damage])
    compiling._dispatchers.clear()
    assert fresh(tmp_path).stats.cache_misses
    assert f"{file.parent} is damaged: the function is compiled again" in caplog.text
    caplog.clear()
    compiling._dispatchers.clear()
    stats = fresh(tmp_path).stats
    assert sum(stats.cache_hits.values()) == 1 and not stats.cache_misses
    assert not caplog.text
