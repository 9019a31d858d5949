"""Layers that only move codes, which an overlay runs as convolutions with a single 1 for each output: channels, and borders."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from ..blob import Array, Shape
from ..graph import Arithmetic, Layer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import POINT, Window
from ..util.lazy_numpy import np
from ._window import conv_refused

Sides = tuple[tuple[int, int], tuple[int, int]]  # rows before and after, columns before and after; below 0: removed


def picks(overlay: Overlay) -> bool:
    """Return whether an overlay runs such convolutions: chai's array, with an arithmetic that changes no code there."""
    if overlay.own is not None:
        return False
    from ..tasks.arithmetic import arithmetic  # float networks need no Tasks

    return arithmetic(overlay).picks


def channels_refused(layer: Layer, overlay: Overlay, bottom: Shape, channels: int) -> str | None:
    """Return why the overlay cannot write so many channels of a bottom in any order; None if it can."""
    return conv_refused(layer, overlay, POINT, (channels, 1), bottom)


def pick_channels(layer: Layer, target: Arithmetic, bottom: str, top: str, channels: Sequence[int] | Array) -> Task:
    """Return the Task that writes these channels of a bottom."""
    taps = np.zeros((len(channels), target.shapes[bottom][1], 1, 1), np.int8)
    taps[np.arange(len(channels)), np.asarray(channels)] = 1
    return target.pick(layer, bottom, top, taps, POINT, 1)


def writing(layer: Layer, top: str) -> Layer:
    """Return a copy of a layer with another top."""
    other = copy(layer)
    other.tops = (top,)
    return other


def stepping(factor: int) -> Window:
    """Return the window over one square of pixels after the other."""
    return Window((factor, factor), (factor, factor), (0, 0))


def pick_place(
    layer: Layer, target: Arithmetic, blobs: tuple[str, str], window: Window, place: tuple[int, int]
) -> Task:
    """Return the Task that writes the pixels of the first blob at a row and a column of each window to the second."""
    channels = target.shapes[blobs[0]][1]
    taps = np.zeros((channels, 1, *window.kernel), np.int8)
    taps[:, 0, place[0], place[1]] = 1
    return target.pick(layer, *blobs, taps, window, channels)


def border_refused(layer: Layer, overlay: Overlay, bottom: Shape, sides: Sides) -> str | None:
    """Return why the overlay cannot add or remove these rows and columns of a bottom; None if it can."""
    window, _ = _bordered(sides)
    return conv_refused(layer, overlay, window, (bottom[1], bottom[1]), bottom)


def pick_pixels(layer: Layer, target: Arithmetic, sides: Sides) -> Task:
    """Return the Task that adds rows and columns of zeros to the bottom, or removes some."""
    return pick_place(layer, target, (layer.bottoms[0], layer.tops[0]), *_bordered(sides))


def _bordered(sides: Sides) -> tuple[Window, tuple[int, int]]:
    """Return the window of a convolution whose one tap, at the place returned too, adds or removes pixels."""
    pad = [max(0, *pair) for pair in sides]
    kernel = [2 * p + 1 - before - after for p, (before, after) in zip(pad, sides)]
    window = Window((kernel[0], kernel[1]), (1, 1), (pad[0], pad[1]))
    return window, (pad[0] - sides[0][0], pad[1] - sides[1][0])
