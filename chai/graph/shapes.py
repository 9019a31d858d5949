"""Bound the shapes that a blob may have."""

from __future__ import annotations

from math import prod

from ..blob import Shape, show
from ..limits import limits
from .layer import Layer


def check_shape(layer: Layer, shape: Shape) -> None:
    """Refuse the shape of a top with negative, overflowing or far too large sizes. Raises ShapeError."""
    bound = limits()
    if len(shape) > bound.axes:
        raise layer.wrong(f"top of {len(shape)} axes; " + bound.exceeded("axes", len(shape)))
    if min(shape, default=0) < 0:
        raise layer.wrong(f"top of shape {show(shape)}: a size is negative")
    elements = prod(filter(None, shape))  # an empty array has a largest size, too
    if elements > bound.blob_elements:
        raise layer.wrong(f"top of shape {show(shape)}: " + bound.exceeded("blob_elements", elements))
