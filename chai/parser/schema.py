"""The schema of Caffe's files, from ``proto/caffe.desc``, in a private descriptor pool.

The pool is private so that another ``caffe.proto`` in the same process never collides with ours, and a descriptor
set, unlike generated code, is read by every protobuf from 3.20 on.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

from ..util.paths import resource
from .wire import Walk

_INTEGERS = {
    1: False,
    3: False,
    5: False,
    15: False,
    16: False,
    17: False,
    18: False,
    4: True,
    6: True,
    7: True,
    13: True,
}  # FieldDescriptor types
_SMALL = {5, 7, 13, 15, 17}


class FieldType(NamedTuple):
    """One field: ``kind`` is int, float, bool, string, bytes, enum or message."""

    name: str
    number: int
    kind: str
    repeated: bool
    low: int
    high: int
    enum: dict[str, int]
    message: str
    default: Any


@lru_cache(maxsize=1)
def pool() -> Any:
    """Return the private DescriptorPool holding caffe.proto."""
    from google.protobuf import descriptor_pool

    own = descriptor_pool.DescriptorPool()
    data = resource("proto", "caffe.desc").read_bytes()
    for file in Walk(data, "caffe.desc").fields(0, len(data)):  # a FileDescriptorSet, field 1 repeated
        own.AddSerializedFile(data[file.start : file.end])  # avoids importing descriptor_pb2, a third of the start
    return own


@cache
def message_class(name: str) -> Any:
    """Return the protobuf class of a message, e.g. ``NetParameter``."""
    from google.protobuf import message_factory

    descriptor = pool().FindMessageTypeByName(f"caffe.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool()).GetPrototype(descriptor)  # protobuf 3


@lru_cache(maxsize=1)
def enum_values() -> dict[str, int]:
    """Return the values of top-level enums by name: TRAIN and TEST."""
    file = pool().FindFileContainingSymbol("caffe.NetParameter")
    return {v.name: v.number for enum in file.enum_types_by_name.values() for v in enum.values}


@cache
def fields(message: str) -> dict[str, FieldType]:
    """Return the fields of a message by name."""
    return {f.name: _field(f) for f in pool().FindMessageTypeByName(f"caffe.{message}").fields}


def _field(f: Any) -> FieldType:
    repeated = f.is_repeated if hasattr(f, "is_repeated") else f.label == f.LABEL_REPEATED
    low = high = 0
    if f.type in (1, 2):
        kind = "float"
    elif f.type == f.TYPE_BOOL:
        kind = "bool"
    elif f.type == f.TYPE_STRING:
        kind = "string"
    elif f.type == f.TYPE_BYTES:
        kind = "bytes"
    elif f.type == f.TYPE_ENUM:
        kind = "enum"
    elif f.message_type is not None:
        kind = "message"
    else:
        kind = "int"
        bits = 32 if f.type in _SMALL else 64
        low, high = (0, 2**bits - 1) if _INTEGERS[f.type] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    enum = {v.name: v.number for v in f.enum_type.values} if kind == "enum" else {}
    default: Any = () if repeated else None if kind == "message" else f.default_value
    if kind == "enum" and not repeated:
        default = next(name for name, number in enum.items() if number == f.default_value)
    return FieldType(
        f.name, f.number, kind, repeated, low, high, enum, f.message_type.name if kind == "message" else "", default
    )
