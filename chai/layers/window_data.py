"""WindowData: image windows from a list (R-CNN)."""

from __future__ import annotations

from .data import Data


class WindowData(Data):
    """Its first top becomes an input; crop_size, if given, is its height and width."""

    message = "window_data_param"
