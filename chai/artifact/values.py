"""Convert dataclasses to JSON and back by reflection; values are checked on the way back as the parser checks them."""

from __future__ import annotations

import math
import types
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import ModelError


def plain(value: Any) -> Any:
    """Return a value of dataclasses, tuples, numbers and strings as JSON types. Fields at their default are omitted."""
    if is_dataclass(value) and not isinstance(value, type):
        given = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: plain(v) for f, v in given if v != f.default}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def restore(cls: Any, value: Any, where: str) -> Any:
    """Return the value of type ``cls`` from the result of ``plain``. Raises ModelError that names ``where``."""
    if is_dataclass(cls):
        return _dataclass(cls, value, where)
    origin, inside = get_origin(cls), get_args(cls)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        return restore(next(i for i in inside if i is not type(None)), value, where)
    if origin is tuple:
        return _tuple(inside, value, where)
    if cls is float and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if cls is Any or (cls in (int, str, bool) and type(value) is cls):
        return value
    raise ModelError(f"{where}: expected {getattr(cls, '__name__', cls)}, found {_shown(value)}")


def _tuple(inside: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ModelError(f"{where}: expected a list, found {_shown(value)}")
    kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else list(inside)
    if len(kinds) != len(value):
        raise ModelError(f"{where}: expected {len(kinds)} values, found {len(value)}")
    return tuple(restore(kind, v, f"{where}[{i}]") for i, (kind, v) in enumerate(zip(kinds, value)))


def _dataclass(cls: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ModelError(f"{where}: expected an object, found {_shown(value)}")
    known = {f.name: f for f in fields(cls)}
    given = {}
    for name, item in value.items():
        if name not in known:
            raise ModelError(f"{where}: unknown key {name[:40]!r}")
        made = restore(_hints(cls)[name], item, f"{where}.{name}")
        _check(known[name].metadata, made, f"{where}.{name}")
        given[name] = made
    try:
        return cls(**given)
    except TypeError as error:
        raise ModelError(f"{where}: {error}") from error


def _check(metadata: Any, value: Any, where: str) -> None:
    """Check the ranges and choices that ``params`` declares."""
    items = value if isinstance(value, tuple) else (value,)
    low, high = metadata.get("within", (-math.inf, math.inf))
    allowed = metadata.get("choice")
    for item in items:
        if item is None or is_dataclass(item):
            continue
        if isinstance(item, (int, float)) and not low <= item <= high:
            raise ModelError(f"{where}: {item} is outside {low} .. {high}")
        if allowed and item not in allowed:
            raise ModelError(f"{where}: {_shown(item)}, expected one of {', '.join(allowed)}")


@lru_cache(maxsize=256)
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _shown(value: Any) -> str:
    return repr(value)[:60]
