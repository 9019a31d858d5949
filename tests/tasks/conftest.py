"""CHaiDNN's vectors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import _NO_DATA, ROOT, _required

VECTORS = Path(os.environ.get("CHAI_TEST_VECTORS", ROOT.parent / "shared" / "vectors"))
Vector = tuple[dict[str, Any], dict[str, np.ndarray]]


@pytest.fixture(scope="session")
def vectors() -> dict[str, list[Vector]]:
    """(facts, arrays) by kind, or a skip (a failure under CHAI_TEST_REQUIRE_DATA=1)."""
    if not VECTORS.is_dir():
        (pytest.fail if _required else pytest.skip)(f"{_NO_DATA}{VECTORS} does not exist (set CHAI_TEST_VECTORS)")
    found: dict[str, list[Vector]] = {}
    for path in sorted(VECTORS.glob("*.json")):
        facts = json.loads(path.read_text())
        if facts.get("kind") in ("conv", "pack_unpack"):
            with np.load(path.with_suffix(".npz")) as arrays:
                names = ("x", "w", "th_params", "qw", "qb", "scale", "y", "y_exact_arith", "acc18")
                names += ("f", "ideal_packed", "unpack_in", "unpack_ideal")
                found.setdefault(facts["kind"], []).append((facts, {n: arrays[n] for n in names if n in arrays}))
    return found
