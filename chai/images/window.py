"""PictureWindow: the part of a picture that a network's input shows."""

from __future__ import annotations

from typing import NamedTuple


class PictureWindow(NamedTuple):
    """Left, top, right and bottom of an input in pixels of its picture, and the picture's width and height.

    It reaches beyond a picture that was given borders.
    """

    left: float = 0.0
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0
    width: float = 1.0
    height: float = 1.0


UNIT = PictureWindow()


def whole(width: float, height: float) -> PictureWindow:
    """Return the window of an input that shows a picture of this size as it is."""
    return PictureWindow(0.0, 0.0, float(width), float(height), float(width), float(height))
