"""Codes of an unfolded blob: the copies of each pixel that a convolution's taps read, side by side as channels."""

from __future__ import annotations

from ..blob import Array, Shape
from ..tasks.unfold import Unfold
from ..tasks.window import Window
from ..util.lazy_numpy import np
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
    """Do the same without a library."""
    n, c = codes.shape[:2]
    (_, columns), (down, right), (above, left), _ = unfold.window
    shape = unfold.shape(codes.shape)
    height, width = shape[2:]
    padded = np.full((n, c, (height - 1) * down + unfold.rows, (width - 1) * right + columns), zero, np.int8)
    inside = padded[:, :, above : above + codes.shape[2], left : left + codes.shape[3]]
    inside[...] = codes[:, :, : inside.shape[2], : inside.shape[3]]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (unfold.rows, columns), (2, 3))[:, :, ::down, ::right]
    return np.ascontiguousarray(windows.transpose(0, 4, 5, 1, 2, 3)).reshape(shape)
