"""VTA's test programs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.conftest import _NO_DATA, _required
from tests.vectors import VECTORS


@pytest.fixture(scope="session")
def programs() -> Mapping[str, np.ndarray]:
    """The 48 programs with their results, or a skip (a failure under CHAI_TEST_REQUIRE_DATA=1)."""
    path = VECTORS / "vta_programs.npz"
    if not path.is_file():
        (pytest.fail if _required else pytest.skip)(f"{_NO_DATA}{path} does not exist (set CHAI_TEST_VECTORS)")
    with np.load(path) as arrays:
        return dict(arrays)
