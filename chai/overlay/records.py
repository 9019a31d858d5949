"""Convert records, such as descriptors, from named values to bytes and back by a manifest's field tables.

The same two functions serve every record of an overlay: ``overlay.descriptor`` (one Task) and ``overlay.table``
(requantisation of one channel). A field named ``version`` is not a value: packing writes it, unpacking compares it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import index

from ..blob import Array
from ..errors import DeviceError
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.suggest import did_you_mean
from .sections import BitField, Record


def pack(record: Record, values: Mapping[str, int]) -> bytes:
    """Return the bytes of a record; every field needs a value. Raises DeviceError."""
    _check_names(record, values)
    total = record.version_bits
    for name, field in record.values.items():
        value = index(values[name])
        low, high = field.range
        if not low <= value <= high or value % field.multiple:
            _check_value(record.name, field, value)
        total |= (value & field.mask) << field.position
    return total.to_bytes(record.bytes, "little")


def unpack(record: Record, data: bytes | bytearray | memoryview) -> dict[str, int]:
    """Return the values in a record's bytes. Raises DeviceError unless packing them gives the same bytes."""
    if len(data) != record.bytes:
        raise DeviceError(f"{record.name}: expected {record.bytes} bytes, found {len(data)}")
    total = int.from_bytes(data, "little")
    if total & record.version_mask != record.version_bits:
        version = next(total >> field.position & field.mask for field in record.fields if field.name == "version")
        raise DeviceError(
            f"{record.name}: expected version {record.version}, found {version}",
            hint="it was made for another overlay; compile the network again",
        )
    values: dict[str, int] = {}
    for name, position, mask, sign, multiple in record.places:
        value = total >> position & mask
        if value & sign:
            value -= mask + 1
        if value % multiple:  # any other value fits if its bits do
            _check_value(record.name, record.values[name], value)
        values[name] = value
    total &= record.unused
    if total:
        bit = (total & -total).bit_length() - 1
        raise DeviceError(f"{record.name}: bit {bit % 32} of word {bit // 32} is set, but belongs to no field")
    return values


def pack_rows(record: Record, columns: Mapping[str, Array]) -> bytes:
    """Pack many records at once: one int64 column (n,) per field. Bytes and errors equal those of ``pack`` per row."""
    _check_names(record, columns)
    count = len(next(iter(columns.values())))
    words = np.empty((count, record.bytes // 4), "<u4")
    words[...] = _row(record, record.version_bits)
    for name, field in record.values.items():
        column = np.asarray(columns[name], np.int64)
        _check_column(record, field, column)
        column = column & field.mask if field.width < 64 else column
        for word, shift in field.words:
            words[:, word] |= _shifted(column, -shift).astype(np.uint32)
    return words.tobytes()


def unpack_rows(record: Record, data: bytes | memoryview) -> dict[str, Array]:
    """Unpack many records at once into int64 columns (n,), with the checks of ``unpack`` per row."""
    if len(data) % record.bytes:
        raise DeviceError(f"{record.name}: {len(data)} bytes are no whole number of records of {record.bytes}")
    words = np.frombuffer(data, "<u4").reshape(-1, record.bytes // 4)
    strange = (words & _row(record, record.unused | record.version_mask)) != _row(record, record.version_bits)
    if strange.any():
        i = int(strange.any(1).argmax())
        try:
            unpack(record, data[i * record.bytes : (i + 1) * record.bytes])  # which says what is wrong
        except DeviceError as error:
            raise DeviceError(f"record {i} of the {error.message}", hint=error.hint) from error
    columns: dict[str, Array] = {}
    for name, field in record.values.items():
        columns[name] = column = values_of(words, field)
        if field.multiple > 1 or field.range[1] >= 1 << 63:  # any other value fits if its bits do
            _check_column(record, field, column)
    return columns


def values_of(words: Array, field: BitField) -> Array:
    """Return the values of a field in the words (n, words of a record) of records, int64 (n,)."""
    if len(field.words) == 1:
        bits = words[:, field.word] << (32 - field.bit - field.width)
        short: Array = (bits.view("<i4") if field.signed else bits) >> (32 - field.width)
        return short.astype(np.int64)
    column: Array = np.zeros(len(words), np.int64)
    for word, shift in field.words:
        column |= _shifted(words[:, word].astype(np.int64), shift)
    if field.width < 64:
        column &= field.mask
        column -= (column >> (field.width - 1) << field.width) * field.signed
    return column


def _row(record: Record, bits: int) -> Array:
    """Return the words of one record with these bits."""
    return np.frombuffer(bits.to_bytes(record.bytes, "little"), "<u4")


def _shifted(bits: Array, right: int) -> Array:
    moved: Array = bits >> right if right >= 0 else bits << -right
    return moved


def _check_column(record: Record, field: BitField, column: Array) -> None:
    low, high = field.range
    if not column.size or (field.multiple == 1 and low <= column.min() and column.max() <= high):
        return
    wrong = (column < low) | (column > high) | (column % field.multiple != 0)
    if wrong.any():
        i = int(wrong.argmax())
        _check_value(f"record {i} of the {record.name}", field, int(column[i]))


def _check_names(record: Record, values: Collection[str]) -> None:
    known = record.values
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known, listed="fields")
            raise DeviceError(f"{record.name}: there is no field {name!r}", hint=hint)
    if len(values) < len(known):
        raise DeviceError(f"{record.name}: no value for {', '.join(n for n in known if n not in values)}")


def _check_value(record: str, field: BitField, value: int) -> None:
    low, high = field.range
    if not low <= value <= high:
        sign = "signed" if field.signed else "unsigned"
        bits = f"{number_of(field.width, 'bit')}, {sign}"
        raise DeviceError(f"{record}: {field.name} = {value} is outside {low}..{high} ({bits}): {field.about}")
    if value % field.multiple:
        raise DeviceError(f"{record}: {field.name} = {value:#x} is not a multiple of {field.multiple}")
