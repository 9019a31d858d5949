"""The fixture that runs one layer."""

from __future__ import annotations

import pytest

from .common import Run, run_in


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """``run(type, body, *bottoms, weights=(), tops=1)``; hypothesis may call it for many examples of one test."""
    return run_in(tmp_path_factory.mktemp("layer"))
