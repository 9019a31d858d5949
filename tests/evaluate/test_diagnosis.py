"""What the outputs of a copy say of a memory port; boards that fail are in tests/devices/pynq."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chai import overlay
from chai.evaluate import diagnosis

SHAPE = 1, 12, 4, 6  # a full plane of 8 channels, and one of 4


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda codes: np.roll(codes, 8), True),
        (lambda codes: codes + (np.arange(12)[:, None, None] == 9), False),  # after the last full plane
        (lambda codes: codes ^ (np.arange(codes.size).reshape(SHAPE) == 50), False),
    ],
    ids=["all pixels elsewhere", "the last channels", "one bit"],
)
def test_whether_words_have_moved(change: Any, expected: bool) -> None:
    codes = np.random.default_rng(0).integers(-128, 127, SHAPE).astype(np.int8)
    copy: Any = SimpleNamespace(probe=SimpleNamespace(expected=codes), outputs=[change(codes).astype(np.int8)])
    assert diagnosis.moved(overlay.load(), copy) is expected
