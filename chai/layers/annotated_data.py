"""AnnotatedData: SSD's images with boxes."""

from __future__ import annotations

from .data import Data


class AnnotatedData(Data):
    """Like Data, but resize_param sets the size if it is given, as SSD resizes to it."""
