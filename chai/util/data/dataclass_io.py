"""Convert records, which are dataclasses or named tuples, to JSON and back, checking annotations, ranges and choices.

A dataclass's field may have metadata: ``within`` (low, high) for a number or a tuple of them, ``choice`` for allowed values.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
# where (as in ".list[3].name", "" for the whole) and what is wrong -> an error
Refuse = Callable[[str, str], Exception]
_PLAIN = bool, int, float, str
_LARGEST = sys.float_info.max  # float() of a larger integer is an error


def plain(value: Any) -> Any:
    """Return a value of records, tuples, numbers and strings as JSON types. Fields at their default are omitted."""
    if _is_record(value) and not isinstance(value, type):
        values = ((name, getattr(value, name), default) for name, default, _ in _fields(type(value)))
        return {name: plain(v) for name, v, default in values if v != default}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


def restore(cls: type[T], value: Any, refuse: Refuse) -> T:
    """Return a value of type ``cls`` from JSON: lists become tuples, and integers become floats where declared.

    Missing keys take their defaults. Raises the error that ``refuse`` returns for an unknown key, a wrong type, or a value
    outside the range or choices that its field declares.
    """
    result: T = _restored(cls, value, "", refuse)
    return result


def problem(metadata: Mapping[str, Any], value: Any) -> str | None:
    """Return why a value is outside the range or choices of its field; None if it is inside."""
    if "within" in metadata:
        low, high = metadata["within"]
        if not low <= value <= high:
            return f"{str(value)[:60]} is outside {low} .. {high}"
    elif isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, found {value}"
    allowed = metadata.get("choice")
    if allowed and value not in allowed:
        return f"{value} is not implemented, only {', '.join(allowed)}"
    return None


def _is_record(value: Any) -> bool:
    return is_dataclass(value) or hasattr(value, "_field_defaults")


def _fields(cls: Any) -> list[tuple[str, Any, Mapping[str, Any]]]:
    """Return name, default and metadata of each field."""
    if is_dataclass(cls):
        return [(f.name, f.default, f.metadata) for f in fields(cls)]
    return [(name, cls._field_defaults.get(name, MISSING), {}) for name in cls._fields]


def _restored(cls: Any, value: Any, where: str, refuse: Refuse) -> Any:
    """Return a value of type ``cls``, which is in JSON at the place ``where``."""
    if type(value) is cls:  # most are
        return value
    if _is_record(cls):
        return _record(cls, value, where, refuse)
    origin, inside = get_origin(cls), get_args(cls)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        others = [kind for kind in inside if kind is not type(None)]
        alike = [kind for kind in others if (get_origin(kind) is tuple) == isinstance(value, (list, tuple))]
        return _restored((alike or others)[0], value, where, refuse)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise refuse(where, f"expected a list, found {_short(value)}")
        kinds = inside[:1] * len(value) if inside[-1] is Ellipsis else inside
        if len(kinds) != len(value):
            raise refuse(where, f"expected {len(kinds)} values, found {len(value)}")
        return tuple(_restored(kind, item, f"{where}[{i}]", refuse) for i, (kind, item) in enumerate(zip(kinds, value)))
    if cls is float and isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return float(value)
    if cls is Any or (cls not in _PLAIN and isinstance(value, cls)):
        return value
    raise refuse(where, f"expected {getattr(cls, '__name__', cls)}, found {_short(value)}")


def _record(cls: Any, value: Any, where: str, refuse: Refuse) -> Any:
    if not isinstance(value, Mapping):
        raise refuse(where, f"expected an object, found {_short(value)}")
    members, values = _members(cls), {}
    for name, item in value.items():
        place = f"{where}.{str(name)[:40]}"
        if name not in members:
            raise refuse(place, "unknown key")
        kind, metadata = members[name]
        values[name] = content = _restored(kind, item, place, refuse)
        for each in content if type(content) is tuple else (content,):
            if metadata or isinstance(each, float):
                text = None if each is None or _is_record(each) else problem(metadata, each)
                if text:
                    raise refuse(place, text)
    try:
        return cls(**values)
    except TypeError as error:  # a key is missing
        raise refuse(where, str(error)) from error


@lru_cache(maxsize=256)
def _members(cls: Any) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Return the type and metadata of each field."""
    hints = get_type_hints(cls)
    return {name: (hints[name], metadata) for name, _, metadata in _fields(cls)}


def _short(value: Any) -> str:
    return repr(value)[:60]
