"""The cache of compiled simulations. Nothing is compiled here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from chai.devices.rtlsim import building
from chai.env import env


def test_what_a_killed_compilation_left_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def build(text: str, folder: Path, command: Sequence[str]) -> Path:
        (folder / "design.so").write_text(text)
        return folder / "design.so"

    monkeypatch.setattr(building, "missing", lambda: None)
    monkeypatch.setattr(building, "compiler", lambda: ["c++"])
    monkeypatch.setitem(building.SIMULATORS, "cxxrtl", build)
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path))
    env.cache_clear()
    try:
        path = building.library("one", "cxxrtl")
        other = building.library("other", "cxxrtl")
        path.unlink()
        stale = path.parent / f".{path.stem}-killed"
        stale.mkdir()
        (stale / "half.o").write_text("half")
        assert building.library("one", "cxxrtl") == path
    finally:
        env.cache_clear()
    assert path.read_text() == "one" and other.read_text() == "other"
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".lock", ".lock", ".so", ".so"]
