"""Codes of an unfolded blob: the copies of each pixel that a convolution's taps read, side by side as channels."""

from __future__ import annotations

from ..blob import Array, Shape
from ..tasks.unfold import Unfold
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .native.library import library
from .native.single import Single, single
from .native.table import Form, Kind


def unfolded(codes: Array, unfold: Unfold, zero: int) -> Array:
    """Return the unfolded blob of codes (int8, NCHW); ``zero`` is the code of 0, which padding gets."""
    in_c = unfolding(codes.shape, unfold, zero)
    return _in_numpy(codes, unfold, zero) if in_c is None else in_c.run(np.ascontiguousarray(codes))


def unfolding(shape: Shape, unfold: Unfold, zero: int) -> Single | None:
    """Return the operation that ``unfolded`` runs on codes of this shape; None without a library."""
    (_, columns), stride, pad, _ = unfold.window
    form = Form(Kind.UNFOLD, window=Window((unfold.rows, columns), stride, pad), zeros=(zero,))
    return single(library(), form, shape, unfold.shape(shape))


def _in_numpy(codes: Array, unfold: Unfold, zero: int) -> Array:
    """Do the same without a library.

    Columns are first sorted by their remainder modulo the stride, so that every run that is copied is contiguous.
    """
    n, c = codes.shape[:2]
    (_, columns), (down, right), (above, left), _ = unfold.window
    shape = unfold.shape(codes.shape)
    height, width = shape[2:]
    across = width + ceil_div(columns, right)
    rows = (height - 1) * down + unfold.rows
    ordered = np.full((right, n, c, rows, across), zero, np.int8)
    for phase in range(right):
        first = (left - phase + right - 1) // right  # the first padded column of this remainder that is in the image
        seen = codes[:, :, : max(rows - above, 0), first * right + phase - left :: right][..., : max(across - first, 0)]
        ordered[phase, :, :, above : above + seen.shape[2], first : first + seen.shape[3]] = seen
    out = np.empty(shape, np.int8)
    parts = out.reshape(n, unfold.rows, columns, c, height, width)
    images, channels, lines, one = ordered.strides[1:]
    for j in range(columns):
        taps = np.lib.stride_tricks.as_strided(
            ordered[j % right, ..., j // right :],
            (n, unfold.rows, c, height, width),
            (images, lines, channels, down * lines, one),
            writeable=False,
        )
        parts[:, :, j] = taps
    return out
