"""Types of a blob's array and shape, and their display."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

Shape = tuple[int, ...]


def show(shape: Shape) -> str:
    """Return a shape as text: 1x3x224x224; () is a scalar."""
    return "x".join(map(str, shape)) if shape else "scalar"


def count(shape: Shape) -> int:
    """Return the number of elements."""
    return prod(shape)
