"""Coordinates of spatial layers: where a pixel of one blob lies in another, and the Crop that aligns two blobs.

A layer maps the coordinate x of its top to a*x + b of its bottom's spatial axes, one or more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..blob import Array
from ..errors import UsageError
from ..util.lazy_numpy import np
from .net_spec import Function, Top, layers

_SAME = {
    "AbsVal", "BatchNorm", "Bias", "BNLL", "Dropout", "Eltwise", "ELU", "Exp", "Log", "LRN", "MVN", "Power", "PReLU", "ReLU",
    "Scale", "Sigmoid", "Split", "TanH", "Threshold",
}  # fmt: skip
_MESSAGES = {"Convolution": "convolution_param", "Deconvolution": "convolution_param", "Im2col": "convolution_param"}
_MESSAGES |= {"Pooling": "pooling_param", "Crop": "crop_param"}


class UndefinedMapException(UsageError):
    """A layer without a map between the coordinates of its top and its bottom."""


class AxisMismatchException(UsageError):
    """Maps of different first axes."""


class NotConnected(UsageError, RuntimeError):
    """Two tops without a common origin."""


class NoCrop(UsageError, AssertionError):
    """A crop that is no Crop layer: of another scale, outside of the blob, or between pixels."""


class Map(NamedTuple):
    """x -> scale * x + offset; ``axis`` is the channels' axis, after which the spatial ones are, None for any."""

    axis: int | None
    scale: Array | float
    offset: Array | float


IDENTITY = Map(None, 1.0, 0.0)


def coord_map(fn: Function) -> Map:
    """Return the map from a layer's top to its first bottom. Raises UndefinedMapException if it has none."""
    if fn.type_name in _SAME:
        return IDENTITY
    if fn.type_name not in _MESSAGES:
        raise UndefinedMapException(f"{fn.type_name} has no map between the coordinates of its top and its bottom")
    values: Mapping[str, Any] = fn.params.get(_MESSAGES[fn.type_name], fn.params)
    if fn.type_name == "Crop":
        return Map(values.get("axis", 2) - 1, 1.0, -_numbers(values, "offset", 0))
    legacy = [name for name in values if name.endswith(("_h", "_w"))]
    if legacy:
        raise NoCrop(
            f"{fn.type_name}: {legacy[0]} has no axis", hint="kernel_size=[3, 5] instead of kernel_h and kernel_w"
        )
    if "kernel_size" not in values:
        raise UndefinedMapException(f"{fn.type_name} without kernel_size: its map is not known")
    stride, pad = _numbers(values, "stride", 1), _numbers(values, "pad", 0)
    reach = ((_numbers(values, "kernel_size", 1) - 1) * _numbers(values, "dilation", 1)) / 2
    axis = values.get("axis", 1)
    if fn.type_name == "Deconvolution":
        return Map(axis, stride, reach - pad)
    return Map(axis, 1 / stride, (pad - reach) / stride)


def _numbers(values: Mapping[str, Any], name: str, default: int) -> Array:
    return np.array(values.get(name, default), np.float64, ndmin=1)


def compose(base: Map, following: Map) -> Map:
    """Return the map that applies ``following`` first, then ``base``. Raises AxisMismatchException."""
    axes = {axis for axis in (base[0], following[0]) if axis is not None}
    if len(axes) > 1:
        raise AxisMismatchException(f"spatial axes after {base[0]} cannot be mapped to those after {following[0]}")
    return Map(axes.pop() if axes else None, base[1] * following[1], base[1] * following[2] + base[2])


def inverse(map: Map) -> Map:
    """Return the map in the other direction."""
    return Map(map[0], 1 / map[1], -map[2] / map[1])


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """Return the map between two tops, through a blob that both depend on.

    Raises NotConnected, which is a RuntimeError, if there is none.
    """
    known = _reachable(top_from)
    for top, top_map in _reachable(top_to).items():
        if top in known:
            return compose(top_map, inverse(known[top]))
    raise NotConnected("no map between these tops: are they connected by spatial layers?")


def _reachable(start: Top) -> dict[Top, Map]:
    """Return the maps from a top to itself and to all that it depends on, the nearest first."""
    maps = {start: IDENTITY}
    queue = [start]
    for top in queue:  # grows
        bottoms = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs
        try:
            step = coord_map(top.fn) if bottoms else IDENTITY
        except UndefinedMapException:
            continue
        for bottom in bottoms:
            if bottom not in maps:
                maps[bottom] = compose(maps[top], step)
                queue.append(bottom)
    return maps


def crop(top_from: Top, top_to: Top) -> Any:
    """Return a Crop layer that cuts ``top_from`` to the pixels of ``top_to``.

    Raises NoCrop, which is an AssertionError, if their scales differ or no whole number of pixels lies between them.
    """
    axis, scale, offset = coord_map_from_to(top_from, top_to)
    if not np.all(scale == 1):
        raise NoCrop(f"scale mismatch on crop: {scale}")
    if not np.all(offset <= 0):
        raise NoCrop(f"cannot crop negative offset {-offset}: the blob begins later than the one it is cut to")
    if not np.all(np.round(offset) == offset):
        raise NoCrop(f"cannot crop noninteger offset {-offset}")
    first = 1 if axis is None else axis
    offsets = [int(o) for o in np.atleast_1d(-np.round(offset))]
    return layers.Crop(top_from, top_to, crop_param={"axis": first + 1, "offset": offsets})
