"""The schemas of Caffe's and ONNX's files, from ``proto/caffe.desc`` and ``proto/onnx.desc``.

Reading a prototxt needs the fields of messages only, which are read here: importing protobuf for them would take a
quarter of the time of ``chai show``. Messages to write are protobuf's own, from a private pool, so that another
``caffe.proto`` in the same process never collides with ours. A descriptor set, unlike generated code, is read by every
protobuf from 3.20 on.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, lru_cache
from typing import Any, NamedTuple

from ..util.paths import resource
from .wire import Walk, WireField

# FieldDescriptorProto.Type of google/protobuf/descriptor.proto; all others are integers
_KINDS = {1: "float", 2: "float", 8: "bool", 9: "string", 11: "message", 12: "bytes", 14: "enum"}
_UNSIGNED = {4, 6, 7, 13}
_SMALL = {5, 7, 13, 15, 17}  # 32 bits
_REPEATED = 3  # FieldDescriptorProto.Label


class FieldType(NamedTuple):
    """One field: ``kind`` is int, float, bool, string, bytes, enum or message; ``low`` and ``high`` bound an int."""

    name: str
    number: int
    kind: str
    repeated: bool
    low: int
    high: int
    enum: dict[str, int]
    message: str


@cache
def message_class(name: str) -> Any:
    """Return the protobuf class of a message, e.g. ``NetParameter``. Raises KeyError if there is none."""
    from google.protobuf import message_factory

    descriptor = _pool().FindMessageTypeByName(f"caffe.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool()).GetPrototype(descriptor)  # protobuf 3


def enum_class(name: str) -> Any:
    """Return protobuf's names and numbers of a top-level enum, e.g. ``Phase``. Raises KeyError if there is none."""
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

    return EnumTypeWrapper(_pool().FindEnumTypeByName(f"caffe.{name}"))


@lru_cache(maxsize=1)
def _pool() -> Any:
    from google.protobuf import descriptor_pool

    own, schema = descriptor_pool.DescriptorPool(), _schema()
    own.AddSerializedFile(schema.data[schema.file.start : schema.file.end])  # avoids importing descriptor_pb2
    return own


@cache
def fields(message: str, file: str = "caffe") -> dict[str, FieldType]:
    """Return the fields of a message by name. Raises KeyError if there is no such message in the schema of that file."""
    schema = _schema(file)
    types = (schema.field(part) for part in schema.parts(schema.messages[message])[2])
    return {each.name: each for each in types}


@cache
def _schema(file: str = "caffe") -> _Schema:
    return _Schema(resource("proto", f"{file}.desc").read_bytes(), file)


class _Schema:
    """The one file of a FileDescriptorSet. Numbers are those of descriptor.proto: 1 is the name of everything."""

    def __init__(self, data: bytes, package: str) -> None:
        self.data = data
        self.package = f".{package}."
        self.walk = Walk(data, f"{package}.desc")
        self.walk.budget = len(data)  # the limits are for files from strangers
        self.file = next(self.walk.fields(0, len(data)))
        self.messages = {self._name(message): message for message in self.parts(self.file)[4]}

    def parts(self, whole: WireField) -> dict[int, list[WireField]]:
        """Return the fields of a record by number."""
        by_number = defaultdict(list)
        for part in self.walk.fields(whole.start, whole.end):
            by_number[part.number].append(part)
        return by_number

    def text(self, field: WireField) -> str:
        return self.data[field.start : field.end].decode()

    def values(self, enum: WireField) -> dict[str, int]:
        """Return the numbers of an EnumDescriptorProto by name."""
        parts = map(self.parts, self.parts(enum)[2])
        return {self.text(part[1][0]): self.walk.integers(part[2])[0] for part in parts}

    def field(self, description: WireField) -> FieldType:
        """Return the type of a field from its FieldDescriptorProto."""
        parts = self.parts(description)
        number = parts[5][0].value
        kind = _KINDS.get(number, "int")
        low = high = 0
        if kind == "int":
            bits = 32 if number in _SMALL else 64
            low, high = (0, 2**bits - 1) if number in _UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        type = self.text(parts[6][0]).removeprefix(self.package) if kind in ("enum", "message") else ""
        name, place, repeated = self.text(parts[1][0]), parts[3][0].value, parts[4][0].value == _REPEATED
        values = self.values(self._enum(type)) if kind == "enum" else {}
        return FieldType(name, place, kind, repeated, low, high, values, type if kind == "message" else "")

    def _enum(self, name: str) -> WireField:
        """Return the enum of a name: Phase, or PoolingParameter.PoolMethod inside its message."""
        message, _, own = name.rpartition(".")
        enums = self.parts(self.messages[message])[4] if message else self.parts(self.file)[5]
        return next(enum for enum in enums if self._name(enum) == own)

    def _name(self, record: WireField) -> str:
        return self.text(next(part for part in self.walk.fields(record.start, record.end) if part.number == 1))
