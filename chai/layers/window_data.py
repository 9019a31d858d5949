"""WindowData: image windows from a list (R-CNN)."""

from __future__ import annotations

from ..graph.source import DataSource
from .data import DataParams


class WindowData(DataSource):
    """Its first top becomes an input; crop_size, if given, is its height and width."""

    message = "window_data_param"
    Params = DataParams
