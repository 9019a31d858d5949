"""Interp: bilinear resizing of a map."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np


class Interp(Layer):
    """Corners are aligned: zoom_factor z turns size into (size - 1) * z + 1, shrink_factor s into (size - 1) / s + 1.

    A single factor has priority over height and width, and these over both factors; full_zoom_factor (Synopsys) comes last
    and gives size * z.
    """

    fork = "hszhao/PSPNet"

    @dataclass(frozen=True)
    class Params:
        """shrink_factor and zoom_factor, or height and width, or full_zoom_factor; pads are at most 0 and crop the bottom."""

        height: int | None = within(1, SIZE)
        width: int | None = within(1, SIZE)
        zoom_factor: int | None = within(1, SIZE)
        shrink_factor: int | None = within(1, SIZE)
        pad_beg: int = within(-SIZE, 0, 0)
        pad_end: int = within(-SIZE, 0, 0)
        full_zoom_factor: int | None = within(1, SIZE)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, *old = self.spatial(bottoms[0])
        p = self.params
        size = [d + p.pad_beg + p.pad_end for d in old]
        if min(size) < 1:
            raise self.wrong(f"pad_beg {p.pad_beg} and pad_end {p.pad_end} leave nothing of {show(tuple(old))}")
        zoom, shrink = p.zoom_factor, p.shrink_factor
        if p.height and p.width and bool(zoom) == bool(shrink):
            return ((n, c, p.height, p.width),)
        if zoom or shrink:
            size = [(d - 1) // (shrink or 1) + 1 for d in size]
            return ((n, c, *((d - 1) * (zoom or 1) + 1 for d in size)),)
        if not p.full_zoom_factor:
            raise self.wrong("the new size is missing", hint="height and width, zoom_factor or shrink_factor")
        return ((n, c, *(d * p.full_zoom_factor for d in size)),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, begin = bottoms[0], -self.params.pad_beg
        out = self.shapes(x.shape)[0][2:]
        h, w = (d + self.params.pad_end for d in x.shape[2:])
        return (resize(x[:, :, begin:h, begin:w], out),)


def resize(x: Array, out: Shape) -> Array:
    """Resize x (N, C, H, W) to (N, C, *out), linearly: pixel i samples i * (size - 1) / (new size - 1), or 0 if new size is 1."""
    for axis, new in ((2, out[0]), (3, out[1])):
        old = x.shape[axis]
        place = np.arange(new, dtype=np.float32) * np.float32((old - 1) / (new - 1) if new > 1 else 0)
        first = np.minimum(place.astype(np.intp), old - 1)
        weight = (place - first).reshape(-1, *(1,) * (3 - axis)).astype(np.float32)
        x = (1 - weight) * np.take(x, first, axis) + weight * np.take(x, np.minimum(first + 1, old - 1), axis)
    return x
