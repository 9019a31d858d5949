"""Find the values of named arguments in the prototxt.

``args={"stride": 2, "mode": "max", "anchors": ()}``   the type of a default is the expected type
``args={"num_output": int}``                           a type instead of a default: required
``args={"params": dict}``                              every field of the layer's ``*_param``, by name
``args={"channels": "I.F"}``                           a size of the first input (I) or top (O): B, F, Y or X

Numbers are taken from float_args in the order of ``args``, strings from string_args. Missing ones are taken from a field
of that name in any ``*_param`` of the layer, of Caffe or of a fork, else from the default. A tuple takes the rest of
float_args.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from ..errors import PluginError
from ..text import number_of
from ..util.lazy_numpy import np

LARGEST = 2**53  # a whole number that float64 has exactly
KINDS = (int, float, bool, str, tuple)
TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_DIM = r"[IO]\.[BFYX]"


def check_declared(args: Any) -> str | None:
    """Return the error in a decorator's named arguments as text, or None."""
    if not isinstance(args, Mapping):
        return f"{args!r}: expected {{name: default}}"
    for name, default in args.items():
        if not isinstance(name, str) or not name.isidentifier():
            return f"{name!r}: expected the name of a parameter"
        kind = default if isinstance(default, type) else type(default)
        numbers = default if isinstance(default, tuple) else ()
        if (default is not dict and kind not in KINDS) or not all(isinstance(n, Real) for n in numbers):
            return f"{name}: {default!r}: expected a number, a text or a tuple of numbers as default, or one of their types"
        if kind is int and default is not int and abs(default) > LARGEST:
            return f"{name}: {default}: expected a whole number up to 2^53"
    return None


def is_size(default: Any) -> bool:
    """Return whether a default is the name of a size, like "I.X"."""
    return isinstance(default, str) and re.fullmatch(_DIM, default) is not None


def size(source: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Return the size with a name like "I.X"; 1 for a missing axis, 0 if the shapes are not known yet."""
    shapes, axis = inputs if source[0] == "I" else outputs, "BFYX".index(source[2])
    if not shapes:
        return 0
    return int(shapes[0][axis]) if axis < len(shapes[0]) else 1


def resolve(
    args: Mapping[str, Any],
    floats: Sequence[float],
    strings: Sequence[str],
    fields: Mapping[str, tuple[Any, ...]],
) -> dict[str, Any]:
    """Return values by name, without sizes ("I.X").

    Raises PluginError (without a layer's name) for a missing or invalid value.
    """
    wanted = {name: default for name, default in args.items() if not is_size(default)}
    numbers: list[Any] = [*floats]
    texts: list[Any] = [*strings]
    values: dict[str, Any] = {}
    for name, default in wanted.items():
        kind = default if isinstance(default, type) else type(default)
        value: Any
        if kind is dict:
            values[name] = _every(name, fields)
            continue
        if kind is tuple:
            value, numbers = (tuple(numbers) or fields.get(name)), []
        else:
            listed = texts if kind is str else numbers
            value = listed.pop(0) if listed else fields.get(name, (None,))[-1]
        if value is None:
            if isinstance(default, type):
                raise PluginError(
                    f"argument {name!r} ({kind.__name__}) is missing",
                    hint=f"give it in xcustom_param ({'string' if kind is str else 'float'}_args, in this order: "
                    f"{', '.join(wanted)}) or as a field {name} of a *_param",
                )
            value = default
        values[name] = _converted(name, value, kind)
    for what, left in (("float_args", numbers), ("string_args", texts)):
        if left and wanted:
            raise PluginError(
                f"{what} has {number_of(len(left), 'value')} too many, found {left[0]!r}",
                hint=f"arguments: {', '.join(wanted)}",
            )
    return values


def _every(name: str, fields: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return all fields by name, a tuple where one is repeated; a compiled network has them as one field of this name."""
    stored = fields.get(name, (None,))[-1]
    if isinstance(stored, dict):
        return {n: tuple(v) if isinstance(v, list) else v for n, v in stored.items()}
    return {n: values[0] if len(values) == 1 else tuple(values) for n, values in fields.items()}


def _converted(name: str, value: Any, kind: type) -> Any:
    try:
        if kind is tuple:
            return np.array([_number(v) for v in value], np.float32)
        if kind is str:
            return str(value)
        if kind is bool:
            return TRUTHS[value.lower()] if isinstance(value, str) else bool(value)
        number = _number(value)
        if kind is int and number != int(number):
            raise ValueError
        return kind(number)
    except (ValueError, OverflowError, TypeError, KeyError):  # a compiled network may have any JSON
        expected = {int: "a whole number", float: "a number", bool: "true or false", tuple: "numbers"}[kind]
        raise PluginError(f"argument {name!r}: expected {expected}, found {value!r}") from None


def _number(value: Any) -> float:
    """Return a number, or the number of a text; as in protobuf, it may end with f."""
    try:
        return float(value)
    except ValueError:
        return float(value.rstrip("fF"))
