"""Compare the JSON that a command printed with its dataclass: keys and types, all the way down."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import chai
from chai.cli import COMMANDS
from chai.cli.output import Schema
from chai.offload.partition import SegmentSplit
from chai.runtime.perf import Spread

NAMES = {"Shape": tuple[int, ...], "Spread": Spread, "SegmentSplit": SegmentSplit}  # imported for type checkers only


def subclasses(of: type[Schema]) -> list[type[Schema]]:
    return [s for c in of.__subclasses__() for s in (c, *subclasses(c))]


for command in COMMANDS:
    import_module(f"chai.cli.{command}")
import_module("chai.cli.video")  # of chai run
SCHEMAS = {c.schema: c for c in subclasses(Schema) if "schema" in vars(c) and c.__module__.startswith("chai.")}


def is_object(kind: Any) -> bool:
    return is_dataclass(kind) or is_typeddict(kind) or (isinstance(kind, type) and hasattr(kind, "_fields"))


def hints(kind: Any) -> dict[str, Any]:
    """Types of the keys of a dataclass, NamedTuple or TypedDict."""
    kinds = get_type_hints(kind, localns=NAMES)
    return {f.name: kinds[f.name] for f in fields(kind)} if is_dataclass(kind) else kinds


def differences(value: Any, kind: Any, place: str = "") -> list[str]:
    """Where a JSON value is not of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        each = [differences(value, arg, place) for arg in args]
        return [] if [] in each else min(each, key=len)
    if origin is Literal:
        return [] if value in args else [f"{place}: {value!r} is none of {args}"]
    if is_object(kind):
        if not isinstance(value, dict):
            return [f"{place}: {type(value).__name__} instead of {kind.__name__}"]
        keys = hints(kind)
        needed = getattr(kind, "__required_keys__", keys.keys())
        faults = [f"{place}.{key}: missing" for key in needed - value.keys()]
        faults += [f"{place}.{key}: not in {kind.__name__}" for key in value.keys() - keys.keys()]
        return faults + [d for k in keys.keys() & value.keys() for d in differences(value[k], keys[k], f"{place}.{k}")]
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
    assert content["chai"] == chai.__version__
    assert differences({k: v for k, v in content.items() if k not in ("schema", "chai")}, SCHEMAS[schema]) == []
    return content


def described(kind: Any) -> Any:
    """Describe a type in JSON: an object of its keys, a list of its item, {"*": value} of a mapping, or a name."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        each = [described(arg) for arg in args]
        return each[0] if len(each) == 1 else {"any of": each}
    if origin is Literal:
        return type(args[0]).__name__
    if is_object(kind):
        return {key: described(hint) for key, hint in hints(kind).items()}
    if origin is dict:
        return {"*": described(args[1])}
    if origin in (list, tuple):
        return [described(args[0])]
    return {type(None): "null", Any: "any"}.get(kind) or getattr(kind, "__name__", str(kind))


def changes(before: Any, now: Any, place: str = "") -> list[str]:
    """List the keys that were removed or have another type; keys that were added are no change."""
    if isinstance(before, dict) and isinstance(now, dict) and "any of" not in before:
        gone = [f"{place}.{key}: removed" for key in before if key not in now]
        return gone + [c for key in before if key in now for c in changes(before[key], now[key], f"{place}.{key}")]
    if isinstance(before, dict) and isinstance(now, dict) and len(before["any of"]) == len(now.get("any of", ())):
        return [c for b, n in zip(before["any of"], now["any of"]) for c in changes(b, n, place)]
    if isinstance(before, list) and isinstance(now, list):
        return changes(before[0], now[0], f"{place}[]")
    return [] if before == now else [f"{place}: {before} is now {now}"]
