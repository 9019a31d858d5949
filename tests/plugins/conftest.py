"""Every test has the shipped types and a cache folder of its own session; what it registers is forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chai.plugins import frame
from chai.plugins.loading import load_shipped
from chai.plugins.registry import REGISTRY, Registry
from tests.conftest import HANG


@pytest.fixture(scope="session")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this session keeps what numba made."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(_clean_environment: None, machine_code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_CACHE", str(machine_code))
    monkeypatch.setattr(frame, "SECOND_RUN", HANG)  # else a slow machine has less exact errors


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    """The global registry."""
    load_shipped()
    known = REGISTRY
    types, files, folders = dict(known.types), dict(known.files), list(known.folders)
    yield known
    known.types, known.files, known.folders = types, files, folders
