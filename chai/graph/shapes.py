"""Bound the shapes that a blob may have."""

from __future__ import annotations

from math import prod

from ..blob import Shape, show
from ..limits import limits


def shape_problem(shape: Shape) -> str | None:
    """Return why no top has this shape; None if one may have it."""
    bound = limits()
    if len(shape) > bound.axes:
        return f"top of {len(shape)} axes; " + bound.exceeded("axes", len(shape))
    if min(shape, default=0) < 0:
        return f"top of shape {show(shape)}: a size is negative"
    elements = prod(filter(None, shape))  # an empty array has a largest size, too
    if elements > bound.blob_elements:
        return f"top of shape {show(shape)}: " + bound.exceeded("blob_elements", elements)
    return None
