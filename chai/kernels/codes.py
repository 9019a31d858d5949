"""Codes: requantised bit for bit as ``fixed.requantize``, packed, unpacked and unfolded, in one pass over memory.

All but requantisation runs in C where a library was compiled (``native``). Elsewhere, and for Tasks that it lacks, numpy works on
``BLOCK`` elements at a time, which stay in the cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from .. import fixed
from ..blob import Array, Shape, plain
from ..errors import ModelError
from ..fixed import Format, Quantized, Requantization, requantize
from ..tasks.window import POINT, Window
from ..util.lazy_numpy import np
from .native import library
from .native.library import Library, pointer
from .native.single import KEPT, Single, single
from .native.table import SIZE, Form, Kind

if TYPE_CHECKING:
    from ..tasks.unfold import Unfold

BLOCK = 1 << 15  # elements; their float64 take 256 KiB
RATE = 5  # elements that C converts in a nanosecond, roughly
Scale = tuple[float, int, int, int]  # step, zero point, smallest and largest code


def requantize_sums(sums: Array, bias: Array, r: Requantization, out: Array) -> None:
    """Write out (N, M, H, W) int8 from integer sums (N, M, H, W), bias (M,) int64 and multipliers (M, 1, 1).

    Sums are float32, or float64 and below 2^31, for which multipliers are below 2^17.
    """
    size = sums.shape[2] * sums.shape[3]
    for image, result in zip(sums, out):
        for part in _parts(len(bias), size):
            _to_codes(image[part], bias[part].reshape(-1, 1, 1), r.of(part), result[part])


def add(a: Array, b: Array, factors: tuple[int, int], addend: int, r: Requantization, out: Array) -> None:
    """Write a * factors[0] + b * factors[1] + addend, requantised, to ``out``; all are int8 arrays of one shape."""
    for x, y, result in zip(a, b, out):
        for part in _parts(len(x), x[0].size):
            total = np.multiply(x[part], factors[0], dtype=np.float64)
            total += np.multiply(y[part], factors[1], dtype=np.float64)
            _to_codes(total, addend, r, result[part])


def pack(x: Array, format: Format) -> Array:
    """Return the codes of float32 values: ``format.quantize`` in one pass. Raises ModelError for NaN."""
    if not x.flags.c_contiguous or not format.step or not format.nearest:
        return format.quantize(x)
    if (single := packing(x.shape, format)) is not None:
        nan = np.zeros(1, np.uint8)
        codes = single.run(x, nan).reshape(x.shape)
        return format.quantize(x) if nan[0] else codes
    out = np.empty(x.shape, np.int8)
    # format.quantize says what is wrong
    return out if _floats_to_codes(x.ravel(), format, out.ravel()) else format.quantize(x)


def unpack(codes: Array, format: Format) -> Array:
    """Return the float32 values of codes: ``format.dequantize`` in one pass."""
    single = unpacking(codes.shape, format) if codes.flags.c_contiguous else None
    return format.dequantize(codes) if single is None else single.run(codes).reshape(codes.shape)


def packing(shape: Shape, format: Format) -> Single | None:
    """Return the operation that ``pack`` runs on an array of this shape; None where numpy computes codes."""
    if not format.step or not format.nearest:
        return None
    return _conversion(library.library(), Kind.PACK, shape, (format.step, format.zero, *format.packed))


def unpacking(shape: Shape, format: Format) -> Single | None:
    """Return the operation that ``unpack`` runs on an array of this shape; None where numpy computes numbers."""
    return _conversion(library.library(), Kind.UNPACK, shape, (format.step, format.zero, *format.packed))


def counting(shape: Shape, ends: tuple[int, int]) -> Single | None:
    """Return the operation that counts the codes at one of two ends; None without a library, and for a size beyond it."""
    return _conversion(library.library(), Kind.ENDS, shape, (1.0, 0, *ends))


@lru_cache(maxsize=KEPT)
def _conversion(used: Library | None, kind: int, shape: Shape, scale: Scale) -> Single | None:
    four = (1, 1, 1, 1, *shape[:3], prod(shape[3:]))[-4:] if len(shape) > 3 else (1, 1, 1, 1, *shape)[-4:]
    if used is None or not all(0 < size <= SIZE for size in four):
        return None
    target = (1, 1, 1, 4) if kind == Kind.ENDS else four
    return Single(used, conversion(kind, scale), four, target, (1,) if kind == Kind.PACK else (), prod(four) / RATE)


def conversion(kind: int, scale: Scale, window: Window = POINT) -> Form:
    """Return a conversion between float32 and codes, or a copy of codes, as an operation."""
    step, zero, low, high = scale
    clamp = Requantization(np.ones(1, np.int64), 0, low, high, zero=zero)
    return Form(kind, clamp, window, zeros=(zero,), numbers=(step,))


def unfolded(codes: Array, unfold: Unfold, zero: int) -> Array:
    """Return the unfolded blob of codes (int8, NCHW): the copies of each pixel that taps read, side by side as channels.

    ``zero`` is the code of 0, which padding gets.
    """
    in_c = unfolding(codes.shape, unfold, zero)
    return _unfolded_in_numpy(codes, unfold, zero) if in_c is None else in_c.run(np.ascontiguousarray(codes))


def unfolding(shape: Shape, unfold: Unfold, zero: int) -> Single | None:
    """Return the operation that ``unfolded`` runs on codes of this shape; None without a library."""
    (_, columns), stride, pad, _ = unfold.window
    form = Form(Kind.UNFOLD, window=Window((unfold.rows, columns), stride, pad), zeros=(zero,))
    return single(library.library(), form, shape, unfold.shape(shape))


def _unfolded_in_numpy(codes: Array, unfold: Unfold, zero: int) -> Array:
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


def quantized(weights: Array, steps: Array, bits: int) -> Quantized:
    """Return ``fixed.quantized``; only the last bits of its errors may differ. Raises ModelError as that does."""
    used, size = library.library(), weights[:1].size
    if used is None or weights.dtype != np.float32 or not size:
        return fixed.quantized(weights, steps, bits)
    read, wide = plain(weights), np.ascontiguousarray(steps, np.float64)
    count, largest = len(weights), (1 << (bits - 1)) - 1
    codes, errors = np.empty(weights.shape, np.int8), np.empty(count)
    totals, magnitudes = np.empty(count, np.int64), np.empty(count, np.int64)
    wrong = used.calls.chai_quantize(
        used.number,
        pointer(read),
        ctypes.c_int64(count),
        ctypes.c_int64(size),
        pointer(wide),
        largest,
        pointer(codes),
        pointer(totals),
        pointer(magnitudes),
        pointer(errors),
    )
    if wrong:
        raise ModelError(fixed.NOT_FINITE)
    return Quantized(codes, totals, magnitudes, errors)


def _to_codes(sums: Array, add: Array | int, r: Requantization, out: Array) -> None:
    """Write ``requantize(sums + add)`` to ``out``, in float64 if that is exact; ``sums`` (C, H, W) are integer floats."""
    most = max((int(np.abs(m).max(initial=0)) for m in (r.multiplier, r.negative) if m is not None), default=0)
    # of multipliers: products of 2^49, and a half of a last place, are exact
    bits = 24 if sums.dtype == np.float32 else 17
    if most >> bits or r.shift > 50:
        out[...] = requantize(sums.astype(np.int64) + add, r)
        return
    step = 0.5**r.shift
    low, high = r.low - r.zero, r.high - r.zero  # the zero point is added at the end
    half = 0.5 if low >= 0 else 0.0  # adding a half and truncating rounds half away from zero;
    if r.negative is None:  # with a clamp at 0 no negative value is rounded
        value = sums.astype(np.float64)  # numpy is several times slower for a product of mixed types
        value *= r.multiplier * step
        value += r.multiplier * step * add + half
    else:
        value = sums + np.asarray(add, np.float64)
        value *= np.where(value < 0, r.negative * step, r.multiplier * step)
        value += half
    if not half:
        value += np.copysign(0.5, value)
    np.clip(value, low, high, out=value)
    _store(value, r.zero, out)


def _store(values: Array, zero: int, out: Array) -> None:
    """Write values, truncated, plus a zero point; with one of -128 they are 0 to 255."""
    if zero:
        np.copyto(out.view(np.uint8), values, casting="unsafe")
        out += np.int8(zero)  # wraps around
    else:
        np.copyto(out, values, casting="unsafe")


def _floats_to_codes(x: Array, format: Format, out: Array) -> bool:
    """Write the codes of flat float32 values, ``BLOCK`` at a time; return whether none was NaN.

    The clamp comes first, where it cannot change a code. Adding the largest float32 below 0.5 and truncating rounds half away
    from zero: adding 0.5 would round that number itself to 1.
    """
    low, high = (code - format.zero for code in format.packed)
    half = np.float32(0.5 - 2.0**-25)
    for first in range(0, x.size, BLOCK):
        with np.errstate(all="ignore"):
            near = x[first : first + BLOCK] / np.float32(format.step)
        np.clip(near, np.float32(low - 0.4), np.float32(high + 0.4), out=near)
        near += np.copysign(half, near)
        if np.isnan(near.sum()):
            return False
        _store(near, format.zero, out[first : first + BLOCK])
    return True


def _parts(channels: int, size: int) -> Iterator[slice]:
    """Yield slices of channels of ``size`` elements, with about ``BLOCK`` elements each."""
    step = max(1, BLOCK // max(1, size))
    return (slice(first, min(first + step, channels)) for first in range(0, channels, step))
