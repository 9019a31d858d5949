"""Lookup: a table of 256 codes, through which the codes of a Task go after their clamp: any function of one number."""

from __future__ import annotations

from collections.abc import Callable

from ..blob import Array
from ..errors import ModelError
from ..fixed import Format
from ..util.lazy_numpy import np
from .copy import Copy
from .target import Target
from .unsupported import Unsupported

Function = Callable[[Array], Array]
SHAPE = 1, 1, 1, 256  # of the numbers that a function is asked for
HINT = "elementwise=True declares that each number of its top depends on the same number of its bottom alone"


def lookup_of(function: Function, source: Format, target: Format) -> Array:
    """Return the codes of ``target`` for the codes -128 to 127 of ``source``, int8 (256,).

    Each is that of ``function`` (float32 to float32, element by element) as the host would unpack, compute and pack it:
    clamp(round(function(x * step) / step)). Codes outside of ``source``'s range, which nothing writes, have the value of the
    nearest one in it. Raises Unsupported for a number that has no value (NaN), ModelError for a function that depends on
    more than one number.
    """
    low, high = source.range
    x = source.dequantize(np.clip(np.arange(-128, 128), low, high)).reshape(SHAPE)
    with np.errstate(all="ignore"):  # as in a pass
        y = _checked(function, x)
    unknown = np.isnan(y)
    if unknown.any():
        raise Unsupported(f"its value for {x[unknown][0]:g}, which its input's format {source} has, is not a number")
    return target.quantize(y).reshape(-1)


def _checked(function: Function, x: Array) -> Array:
    """Return a function's values, computed twice: in another shape and order the same numbers have the same values."""
    y = np.asarray(function(x), np.float32)
    if y.shape != x.shape:
        raise ModelError(f"is no function of one number: from {x.shape} it makes {y.shape}", hint=HINT)
    order = np.random.default_rng(1).permutation(x.size)
    again = np.asarray(function(np.ascontiguousarray(x.reshape(-1)[order].reshape(1, 4, 8, 8))), np.float32).reshape(-1)
    wrong = again.view(np.int32) != y.reshape(-1)[order].view(np.int32)
    # vector and scalar code of a function may differ in the last bits
    wrong &= ~np.isclose(again, y.reshape(-1)[order], rtol=1e-5, atol=1e-6, equal_nan=True)
    if wrong.any():
        value, first, second = x.reshape(-1)[order][wrong][0], y.reshape(-1)[order][wrong][0], again[wrong][0]
        raise ModelError(f"is no function of one number: for {value:g} it gives {first:g}, then {second:g}", hint=HINT)
    return y


def lone(function: Function, blobs: tuple[str, str], origin: tuple[str, ...], target: Target) -> Copy:
    """Return the Copy from a blob to another whose codes go through the table of a function of one number."""
    source, result = (target.formats[blob] for blob in blobs)
    if not source.step or not result.step:
        raise Unsupported(f"the format of its {'output' if source.step else 'input'} has no steps: every value is 0")
    return Copy(blobs[:1], blobs[1], origin, 0, None, lookup=lookup_of(function, source, result))
