"""Decode the messages of an ONNX file within the bounds of its walk, by the schema ``proto/onnx.desc``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..blob import Array
from ..parser.schema import FieldType, fields
from ..parser.wire import BYTES, FIXED32, FIXED64, VARINT, Walk, WireField, signed
from ..util.lazy_numpy import np

Fields = dict[str, list[Any]]  # the values of a message by the names of its fields
_WIRES = {"int": VARINT, "float": FIXED32, "string": BYTES, "bytes": BYTES, "message": BYTES}


@cache
def _by_number(message: str) -> dict[int, FieldType]:
    return {field.number: field for field in fields(message, "onnx").values()}


def decode(walk: Walk, message: str, at: int, end: int) -> Fields:
    """Return the fields of a message between two offsets.

    Texts and numbers are values, messages Fields; bytes and repeated numbers are WireFields, as they may be large.
    """
    types, values = _by_number(message), dict[str, list[Any]]()
    for part in walk.fields(at, end):
        if (type := types.get(part.number)) is not None:
            values.setdefault(type.name, []).append(_value(walk, type, part))
    return values


def _value(walk: Walk, type: FieldType, part: WireField) -> Any:
    if type.repeated and type.kind in ("int", "float"):
        return part
    if part.wire != _WIRES[type.kind]:
        raise walk.bad(f"{type.name}: expected {type.kind}, found wire type {part.wire}", part.start)
    if type.kind == "int":
        return signed(part.value)
    if type.kind == "float":
        return struct.unpack("<f", walk.buffer[part.end - 4 : part.end])[0]
    if type.kind == "string":
        return walk.text(part)
    if type.kind == "message":
        return decode(walk, type.message, part.start, part.end)
    return part


def one(values: Fields, name: str, default: Any = None) -> Any:
    """Return the last value of a field, as protobuf does; ``default`` without one."""
    return values[name][-1] if name in values else default


def numbers(walk: Walk, parts: Sequence[WireField], dtype: str, most: int) -> Array:
    """Return the numbers of a repeated field: "<i8" from varints, "<f4" and "<f8" as they are; at most ``most``."""
    arrays = [_run(walk, part, dtype, most) for part in parts]
    total = sum(map(len, arrays))
    if total > most:
        raise walk.bad(f"{total:,} numbers, expected {most:,} at most", parts[0].start)
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _run(walk: Walk, part: WireField, dtype: str, most: int) -> Array:
    if part.wire == VARINT and dtype == "<i8":
        return np.array([part.value], "<u8").view(dtype)
    data = np.frombuffer(walk.buffer[part.start : part.end], np.uint8)
    if part.wire == BYTES and dtype == "<i8":
        return _varints(walk, part, data, most)
    size = int(dtype[-1])
    if part.wire == (FIXED32 if size == 4 else FIXED64) and dtype != "<i8":
        spaced = np.zeros(part.repeats * (size + 1), np.uint8)  # a tag of one byte is before every number but the first
        spaced[: len(data)] = data
        return spaced.reshape(-1, size + 1)[:, :size].copy().view(dtype)[:, 0]
    if part.wire != BYTES or len(data) % size:
        raise walk.bad(f"{len(data):,} bytes are no run of {size}-byte numbers", part.start)
    return data.view(dtype)


def _varints(walk: Walk, part: WireField, data: Array, most: int) -> Array:
    """Return packed varints as int64."""
    ends = np.flatnonzero(data < 128)
    if len(ends) > most:
        raise walk.bad(f"{len(ends):,} numbers, expected {most:,} at most", part.start)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise walk.bad("the file is cut short inside a number", part.start)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.intp)[: len(ends)]
    lengths = ends - starts + 1
    if lengths.max(initial=0) > 10:
        raise walk.bad("a number of more than 10 bytes", part.start)
    values = np.zeros(len(ends), np.uint64)
    for i in range(int(lengths.max(initial=0))):
        longer = lengths > i
        values[longer] |= (data[starts[longer] + i] & 127).astype(np.uint64) << np.uint64(7 * i)
    return values.view(np.int64)
