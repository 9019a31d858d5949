"""Descriptors: named values to bytes and back, by the field tables of a manifest alone.

The same two functions serve every record of an overlay: ``overlay.descriptor`` (one Task) and ``overlay.table``
(requantisation of one channel). A field named ``version`` is not a value: packing writes it, unpacking compares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from operator import index

from .errors import DeviceError
from .overlay import Field, Record

_VERSION = "version"


def pack(record: Record, values: Mapping[str, int]) -> bytes:
    """The bytes of a record; every field needs a value. Raises DeviceError."""
    _check_names(record, values)
    total = 0
    for field in record.fields:
        value = record.version if field.name == _VERSION else index(values[field.name])
        _check_value(record, field, value)
        total |= (value & _mask(field)) << field.position
    return total.to_bytes(record.bytes, "little")


def unpack(record: Record, data: bytes | bytearray | memoryview) -> dict[str, int]:
    """The values in the bytes of a record. Raises DeviceError unless packing them gives the same bytes."""
    if len(data) != record.bytes:
        raise DeviceError(f"{record.name}: expected {record.bytes} bytes, found {len(data)}")
    total = int.from_bytes(data, "little")
    values: dict[str, int] = {}
    for field in record.fields:
        value = (total >> field.position) & _mask(field)
        total &= ~(_mask(field) << field.position)
        if field.signed and value >> (field.width - 1):
            value -= 1 << field.width
        if field.name != _VERSION:
            _check_value(record, field, value)
            values[field.name] = value
        elif value != record.version:
            raise DeviceError(
                f"{record.name}: expected version {record.version}, found {value}",
                hint="it was made for another overlay; compile the network again",
            )
    if total:
        bit = (total & -total).bit_length() - 1
        raise DeviceError(f"{record.name}: bit {bit % 32} of word {bit // 32} is set, but belongs to no field")
    return values


def _mask(field: Field) -> int:
    return (1 << field.width) - 1


def _check_names(record: Record, values: Mapping[str, int]) -> None:
    known = [f.name for f in record.fields if f.name != _VERSION]
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = (f"did you mean {near[0]!r}? " if near else "") + "fields: " + ", ".join(known)
            raise DeviceError(f"{record.name}: there is no field {name!r}", hint=hint)
    missing = [n for n in known if n not in values]
    if missing:
        raise DeviceError(f"{record.name}: no value for {', '.join(missing)}")


def _check_value(record: Record, field: Field, value: int) -> None:
    low, high = field.range
    if not low <= value <= high:
        sign = "signed" if field.signed else "unsigned"
        bits = f"{field.width} bit{'s' if field.width > 1 else ''}, {sign}"
        raise DeviceError(f"{record.name}: {field.name} = {value} is outside {low}..{high} ({bits}): {field.about}")
    if value % field.multiple:
        raise DeviceError(f"{record.name}: {field.name} = {value:#x} is not a multiple of {field.multiple}")
