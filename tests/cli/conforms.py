"""Compare the JSON that a command printed with its dataclass: keys and types, all the way down."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from chai.cli import schemas
from chai.report.layer_rows import LayerRow

NAMES = {**vars(schemas), "LayerRow": LayerRow, "Shape": tuple[int, ...]}


def subclasses(of: type[schemas.Schema]) -> list[type[schemas.Schema]]:
    return [s for c in of.__subclasses__() for s in (c, *subclasses(c))]


SCHEMAS = {c.schema: c for c in subclasses(schemas.Schema) if "schema" in vars(c)}


def hints(kind: Any) -> dict[str, Any]:
    """Types of the keys of a dataclass or TypedDict."""
    found = get_type_hints(kind, localns=NAMES)
    return {f.name: found[f.name] for f in fields(kind)} if is_dataclass(kind) else found


def differences(value: Any, kind: Any, place: str = "") -> list[str]:
    """Where a JSON value is not of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        each = [differences(value, arg, place) for arg in args]
        return [] if [] in each else min(each, key=len)
    if is_dataclass(kind) or is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{place}: {type(value).__name__} instead of {kind.__name__}"]
        keys = hints(kind)
        needed = keys.keys() if is_dataclass(kind) else kind.__required_keys__
        found = [f"{place}.{key}: missing" for key in needed - value.keys()]
        found += [f"{place}.{key}: not in {kind.__name__}" for key in value.keys() - keys.keys()]
        return found + [d for k in keys.keys() & value.keys() for d in differences(value[k], keys[k], f"{place}.{k}")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{place}: no object"]
        return [d for k, v in value.items() for d in differences(v, args[1], f"{place}[{k}]")]
    if origin in (list, tuple):
        if not isinstance(value, list):
            return [f"{place}: no array"]
        return [d for i, v in enumerate(value) for d in differences(v, args[0], f"{place}[{i}]")]
    right = type(value) in ((int, float) if kind is float else (kind,))
    return [] if right else [f"{place}: {type(value).__name__} instead of {getattr(kind, '__name__', kind)}"]


def checked(content: dict[str, Any], schema: str) -> dict[str, Any]:
    assert content["schema"] == schema
    assert differences({k: v for k, v in content.items() if k != "schema"}, SCHEMAS[schema]) == []
    return content
