"""CHaiDNN's vectors: what its hardware source gives for whole layers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import _NO_DATA, ROOT, _required

VECTORS = Path(os.environ.get("CHAI_TEST_VECTORS", ROOT.parent / "shared" / "vectors"))
Vector = tuple[dict[str, Any], Mapping[str, np.ndarray]]


@pytest.fixture(scope="session")
def vectors() -> dict[str, list[Vector]]:
    """(facts, arrays) by kind, or a skip (a failure under CHAI_TEST_REQUIRE_DATA=1); an array is read when it is asked for."""
    if not VECTORS.is_dir():
        (pytest.fail if _required else pytest.skip)(f"{_NO_DATA}{VECTORS} does not exist (set CHAI_TEST_VECTORS)")
    by_kind: dict[str, list[Vector]] = {}
    for path in sorted(VECTORS.glob("*.json")):
        facts = json.loads(path.read_text())
        if "kind" in facts:
            by_kind.setdefault(facts["kind"], []).append((facts, np.load(path.with_suffix(".npz"))))
    return by_kind
