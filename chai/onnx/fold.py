"""Compute nodes whose inputs are constants, with numpy: shapes, indices, and weights that other constants make up.

``Shape`` of a blob is a constant, too, so that whole chains of Shape, Gather, Concat and arithmetic fold away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from inspect import signature
from math import prod
from typing import Any

from ..blob import Array
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .constants import TYPES
from .node import OnnxNode
from .refusal import Refused

Fold = Callable[..., Any]  # (node, *arrays) -> an array, or a list of one per output
_signature = cache(signature)
_SIZES = {"Shape", "Size"}
_REDUCTIONS = {f"Reduce{name}": name.lower() for name in ("Sum", "Prod", "Min", "Max", "Mean")}
_OPTIONAL = {"Clip", "Slice", "Split", "Squeeze", "Dropout", *_REDUCTIONS}  # may have inputs that are left out
_VIEWS = {"Identity", "Dropout", "Expand", "Slice", "Squeeze", "Unsqueeze", "Split"}  # take no memory of their own


def foldable(operator: str) -> bool:
    """Return whether constants can be put through an operator."""
    return operator in _FOLDS or operator in _SIZES


def fold(node: OnnxNode) -> list[Array] | None:
    """Return the outputs of a node that has only constant inputs; None if layers have to compute it."""
    if node.operator in _SIZES:
        return [_shape(node)]
    function = _FOLDS.get(node.operator)
    if function is None or not all(node.is_constant(i) for i, name in enumerate(node.inputs) if name):
        return None
    missing = next((i for i, name in enumerate(node.inputs) if not name), None)
    if missing is not None and (missing == 0 or node.operator not in _OPTIONAL):
        raise Refused(f"input {missing} is missing")
    arrays = [node.draft.constants[name].array() if name else None for name in node.inputs]
    if node.operator not in _VIEWS:
        node.draft.claim(sum(array.size for array in arrays if array is not None))
    try:
        _signature(function).bind(node, *arrays)
    except TypeError:
        raise Refused(f"{number_of(len(arrays), 'input')}, of which it takes another number") from None
    try:
        with np.errstate(all="ignore"):
            results = function(node, *arrays)
    except (ValueError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise Refused(f"its constants do not fit together: {error}") from None
    return [np.asarray(result) for result in results] if isinstance(results, list) else [np.asarray(results)]


def _shape(node: OnnxNode) -> Array:
    shape = node.shape()
    if node.operator == "Size":
        return np.array(prod(shape), np.int64)
    start, end = node.attributes.integer("start", 0), node.attributes.integer("end", len(shape))
    return np.array(shape[start:end], np.int64)


def _constant(node: OnnxNode) -> Any:
    names = node.attributes.names()
    if not names:
        raise Refused("it has no value")
    if "value" in names:
        constant = node.attributes.tensor("value")
        return [] if constant is None else constant.array()
    value = node.attributes.value(names[0])
    if isinstance(value, str) or (isinstance(value, tuple) and value and isinstance(value[0], str)):
        raise Refused("texts are not computed with")
    return np.array(value, np.float32 if "float" in names[0] else np.int64)


def _constant_of_shape(node: OnnxNode, shape: Array) -> Array:
    sizes = _sizes(shape)
    constant = node.attributes.tensor("value")
    value = np.zeros(1, np.float32) if constant is None else constant.array()
    return np.broadcast_to(value.reshape(-1)[0], sizes)  # takes no memory


def _identity(node: OnnxNode, x: Array, *_: Array) -> Array:
    node.only_output()
    return x


def _cast(node: OnnxNode, x: Array, like: Array | None = None) -> Array:
    number = node.attributes.integer("to", 0)
    if like is None and number not in TYPES:
        raise Refused(f"it casts to type {number}")
    dtype = like.dtype if like is not None else np.dtype(TYPES[number][0] if number != 16 else "float32")
    return x.astype(dtype)


def _binary(function: Callable[[Array, Array], Any]) -> Fold:
    def compute(node: OnnxNode, x: Array, y: Array) -> Any:
        node.draft.claim(_product(np.broadcast_shapes(x.shape, y.shape)))
        return np.asarray(function(x, y))

    return compute


def _of_numpy(name: str) -> Callable[..., Any]:
    return lambda *arrays: getattr(np, name)(*arrays)


def _divided(x: Array, y: Array) -> Any:
    if x.dtype.kind == "f":
        return x / y
    if not y.all():
        raise Refused("a whole number is divided by 0")
    quotient = np.abs(x) // np.abs(y)  # towards 0
    return (quotient * np.sign(x) * np.sign(y)).astype(x.dtype)


def _power(x: Array, y: Array) -> Any:
    return np.power(x, y.astype(x.dtype) if x.dtype.kind == "f" else y).astype(x.dtype)


def _remainder(node: OnnxNode, x: Array, y: Array) -> Any:
    of_c = x.dtype.kind == "f" or node.attributes.integer("fmod", 0)  # with the sign of x, not of y
    return _binary(_of_numpy("fmod" if of_c else "mod"))(node, x, y)


def _unary(function: Callable[[Array], Any]) -> Fold:
    return lambda _, x: np.asarray(function(x)).astype(x.dtype)


OF_TWO = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
}  # fmt: skip
_OF_ONE = {
    "Neg": "negative", "Abs": "abs", "Floor": "floor", "Ceil": "ceil", "Round": "rint", "Sqrt": "sqrt", "Exp": "exp",
    "Log": "log", "Reciprocal": "reciprocal", "Sign": "sign",
}  # fmt: skip


def _extreme(node: OnnxNode, *arrays: Array) -> Array:
    extreme = _binary(np.minimum if node.operator == "Min" else np.maximum)
    return reduce(partial(extreme, node), arrays)


def _clip(node: OnnxNode, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    least = low if low is not None else node.attributes.number("min")
    most = high if high is not None else node.attributes.number("max")
    x = x if least is None else np.maximum(x, np.asarray(least, x.dtype))
    return x if most is None else np.minimum(x, np.asarray(most, x.dtype))


def _where(node: OnnxNode, condition: Array, x: Array, y: Array) -> Array:
    node.draft.claim(_product(np.broadcast_shapes(condition.shape, x.shape, y.shape)))
    return np.where(condition, x, y)


def _range(node: OnnxNode, start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (array.reshape(-1)[0].item() for array in (start, limit, delta))
    if not step:
        raise Refused("a range with steps of 0")
    count = max(0, -int((first - last) // step))
    node.draft.claim(count)
    numbers: Array = np.arange(count) * step + first
    return numbers.astype(start.dtype)


def _gather(node: OnnxNode, data: Array, indices: Array) -> Array:
    axis = node.axis(node.attributes.integer("axis", 0), data.ndim)
    node.draft.claim(indices.size * _product(data.shape[:axis] + data.shape[axis + 1 :]))
    taken: Array = np.take(data, indices.astype(np.int64), axis)
    return taken


def _slice(node: OnnxNode, data: Array, *_: Array) -> Array:
    starts, ends, axes, steps = slices(node, data.ndim)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        places = taken(start, end, step, data.shape[axis])
        index[axis] = slice(places.start, places.stop if places.stop >= 0 else None, step)
    return data[tuple(index)]


def slices(node: OnnxNode, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return starts, ends, axes and steps of a Slice: attributes before opset 10, constants after it."""
    starts, ends = node.integers("starts", 1) or [], node.integers("ends", 2) or []
    axes = [node.axis(axis, rank) for axis in node.integers("axes", 3) or range(len(starts))]
    steps = node.integers("steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise Refused("starts, ends, axes and steps do not fit together")
    return starts, ends, axes, steps


def taken(start: int, end: int, step: int, size: int) -> range:
    """Return the places of an axis that a slice takes: Python's, but a start before the axis is its first place."""
    return range(*slice(max(start, -size), end, step).indices(size))


def unsqueezed(node: OnnxNode, shape: Sequence[int]) -> list[int]:
    """Return a shape with the new axes of an Unsqueeze."""
    axes = node.integers("axes", 1) or []
    rank, sizes = len(shape) + len(axes), list(shape)
    places = sorted({node.axis(axis, rank) for axis in axes})
    if len(places) != len(axes):
        raise Refused("an axis is named twice")
    for place in places:
        sizes.insert(place, 1)
    return sizes


def squeezed(node: OnnxNode, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the axes that a Squeeze drops, in order."""
    axes = node.integers("axes", 1)
    if axes is None:
        axes = [i for i, size in enumerate(shape) if size == 1]
    return tuple(sorted({node.axis(axis, len(shape)) for axis in axes}))


def reshape_target(node: OnnxNode, shape: Sequence[int]) -> list[int]:
    """Return the shape that a Reshape asks for, without zeros: they copy an axis unless ``allowzero``."""
    target = node.integers("shape", 1)
    if target is None:
        raise Refused("its shape is missing")
    if node.attributes.integer("allowzero", 0):
        if 0 in target:
            raise Refused("a blob without numbers")
        return target
    if any(size == 0 and i >= len(shape) for i, size in enumerate(target)):
        raise Refused(f"its shape {target} copies an axis that its input does not have")
    return [shape[i] if size == 0 else size for i, size in enumerate(target)]


def flat_axis(node: OnnxNode, rank: int) -> int:
    """Return the first axis of the second part that a Flatten makes; ``rank`` if that has none."""
    axis: int = node.attributes.integer("axis", 1)
    return axis if axis == rank else node.axis(axis, rank)


def _tile(node: OnnxNode, x: Array, repeats: Array) -> Array:
    node.draft.claim(x.size * _product(_sizes(repeats)))
    return np.tile(x, _sizes(repeats))


def _split(node: OnnxNode, x: Array, *_: Array) -> list[Array]:
    axis = node.axis(node.attributes.integer("axis", 0), x.ndim)
    return np.split(x, np.cumsum(pieces(node, x.shape[axis]))[:-1], axis)


def pieces(node: OnnxNode, size: int) -> list[int]:
    """Return the sizes of the pieces of a Split: as given, or equal, the last smaller."""
    count = node.attributes.integer("num_outputs", len(node.record.outputs))
    sizes = node.integers("split", 1)
    if sizes is None:
        each = ceil_div(size, max(count, 1))
        sizes = [each] * (count - 1) + [size - each * (count - 1)]
    if len(sizes) != len(node.record.outputs) or sum(sizes) != size or min(sizes) < 1:
        raise Refused(f"pieces of {sizes} of an axis of {size} for {number_of(len(node.record.outputs), 'output')}")
    return sizes


def _reduced(function: str) -> Fold:
    def compute(node: OnnxNode, x: Array, *_: Array) -> Any:
        axes = node.integers("axes", 1)
        if not axes and node.attributes.integer("noop_with_empty_axes", 0):
            return x
        along = tuple(node.axis(axis, x.ndim) for axis in axes) if axes else None
        keep = bool(node.attributes.integer("keepdims", 1))
        return np.asarray(getattr(np, function)(x, axis=along, keepdims=keep)).astype(x.dtype)

    return compute


def _sizes(array: Array) -> tuple[int, ...]:
    """Return the numbers of an array as a shape. Raises Refused for floats and negative numbers."""
    if array.dtype.kind not in "iub":
        raise Refused(f"a shape of {array.dtype} numbers")
    sizes = tuple(map(int, array.reshape(-1).tolist()))
    _product(sizes)
    return sizes


def _product(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape. Raises Refused for a negative size."""
    if min(shape, default=0) < 0:
        raise Refused(f"a negative size in {list(shape)}")
    return prod(map(int, shape))


_FOLDS: dict[str, Fold] = {
    **{operator: _binary(_of_numpy(name)) for operator, name in OF_TWO.items()},
    **{operator: _unary(_of_numpy(name)) for operator, name in _OF_ONE.items()},
    **{operator: _reduced(name) for operator, name in _REDUCTIONS.items()},
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    **dict.fromkeys(("Identity", "Dropout"), _identity),
    **dict.fromkeys(("Max", "Min"), _extreme),
    "Clip": _clip,
    "Concat": lambda node, *arrays: np.concatenate(arrays, node.attributes.integer("axis", 0)),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _binary(_divided),
    "Expand": lambda _, x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, _sizes(shape))),
    "Flatten": lambda node, x: x.reshape(prod(x.shape[: flat_axis(node, x.ndim)]), -1),
    "Gather": _gather,
    "Mod": _remainder,
    "NonZero": lambda _, x: np.array(np.nonzero(x), np.int64),
    "Not": lambda _, x: np.logical_not(x),
    "Pow": _binary(_power),
    "Range": _range,
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Reshape": lambda node, x, *_: x.reshape(reshape_target(node, x.shape)),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": lambda node, x, *_: np.squeeze(x, squeezed(node, x.shape)),
    "Tile": _tile,
    "Transpose": lambda node, x: np.asarray(x.transpose(node.attributes.integers("perm")), order="C"),
    "Unsqueeze": lambda node, x, *_: x.reshape(unsqueezed(node, x.shape)),
    "Where": _where,
}
