"""AnnotatedData: SSD's images with boxes."""

from __future__ import annotations

from ._source import DataSource
from .data import DataParams


class AnnotatedData(DataSource):
    """Like Data; SSD resizes to resize_param, which stands for the size when it is given."""

    message = "data_param"
    Params = DataParams
