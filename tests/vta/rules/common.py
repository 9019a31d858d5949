"""What the rules share: their list, and bytes for small images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..by_hand import UOP, Image, Machine, uop

IDENTITY = np.eye(16, dtype=np.int8)
LANES = list(range(1, 17))
ZEROS = [0] * 16
RULES: list[Callable[[Machine], None]] = []


def rule(test: Callable[[Machine], None]) -> Callable[[Machine], None]:
    RULES.append(test)
    return test


def entry(value: int) -> list[int]:
    return [value] * 16


def copied(image: Image, count: int = 16) -> Image:
    """Let micro-op i be for accumulator i, input i and weights 0."""
    return image.put(UOP, 0, [uop(i, i) for i in range(count)])
