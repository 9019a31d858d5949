"""Libraries of simulated hardware are kept from run to run, in pytest's own cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chai.env import env


@pytest.fixture(scope="session")
def _libraries(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.cache.mkdir("chai-rtl"))


@pytest.fixture(scope="session", autouse=True)
def _cache_of_fixtures(_libraries: Path) -> Iterator[None]:
    """For fixtures of larger scopes, which come before those of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHAI_CACHE", str(_libraries))
        env.cache_clear()
        yield
    env.cache_clear()


@pytest.fixture(autouse=True)
def _cache(_libraries: Path, _clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_CACHE", str(_libraries))
    env.cache_clear()
