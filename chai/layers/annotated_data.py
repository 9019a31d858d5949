"""AnnotatedData: SSD's images with boxes."""

from __future__ import annotations

from ..graph.source import DataSource
from .data import DataParams


class AnnotatedData(DataSource):
    """Like Data, but resize_param sets the size if it is given, as SSD resizes to it."""

    message = "data_param"
    Params = DataParams
