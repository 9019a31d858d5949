"""Descriptors: packing is the inverse of unpacking, and nothing else is accepted."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.errors import DeviceError
from chai.overlay import load
from chai.overlay.records import pack, pack_rows, unpack, unpack_rows
from chai.overlay.sections import BitField, Record
from tests.conftest import examples

OVERLAY = load("pynq-z2")
RECORDS = [OVERLAY.descriptor, OVERLAY.table]
FEW = settings(max_examples=examples(40))  # each draws a number for each of some 80 fields
SMALL = Record(
    "small",
    3,
    12,
    "little",
    (
        BitField("version", 0, 0, 8, False, "version"),
        BitField("code", 0, 9, 4, True, "a signed code"),
        BitField("address", 1, 0, 64, False, "an address", 64),
    ),
)


def values_of(record: Record) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({f.name: value_of(f) for f in record.fields if f.name != "version"})


def value_of(field: BitField) -> st.SearchStrategy[int]:
    """Any value in range, the ends of the range more often."""
    low, high = (-(-field.range[0] // field.multiple), field.range[1] // field.multiple)
    return (st.integers(low, high) | st.sampled_from([low, high])).map(lambda v: v * field.multiple)


def zeros(record: Record) -> dict[str, int]:
    return {f.name: 0 for f in record.fields if f.name != "version"}


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
@FEW
@given(data=st.data())
def test_unpacking_gives_back_what_was_packed(record: Record, data: st.DataObject) -> None:
    values = data.draw(values_of(record))
    packed = pack(record, values)
    assert len(packed) == record.bytes
    assert unpack(record, packed) == values


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
@FEW
@given(data=st.data())
def test_a_field_touches_its_own_bits_only(record: Record, data: st.DataObject) -> None:
    before = data.draw(values_of(record))
    field = data.draw(st.sampled_from([f for f in record.fields if f.name != "version"]))
    changed = {**before, field.name: data.draw(value_of(field))}
    words = [struct.unpack(f"<{record.bytes // 4}I", pack(record, v)) for v in (before, changed)]
    differing = {i for i, pair in enumerate(zip(*words)) if pair[0] != pair[1]}
    assert differing <= set(range(field.word, field.word + -(-field.width // 32)))
    for i in differing:
        bits = ((1 << min(field.width, 32)) - 1) << field.bit
        assert (words[0][i] ^ words[1][i]) & ~bits == 0


def test_the_bytes_of_one_record_by_hand() -> None:
    packed = pack(SMALL, {"code": -3, "address": 0x1_8000_0040})
    assert packed == bytes([3, 0b1101 << 1, 0, 0, 0x40, 0, 0, 0x80, 1, 0, 0, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"code": 8}, "small: code = 8 is outside -8..7 (4 bits, signed): a signed code"),
        ({"code": -9}, "small: code = -9 is outside -8..7"),
        ({"address": -64}, "address = -64 is outside 0..18446744073709551615 (64 bits, unsigned)"),
        ({"address": 1 << 64}, "address = 18446744073709551616 is outside"),
        ({"address": 72}, "small: address = 0x48 is not a multiple of 64"),
        ({"adress": 0}, "small: there is no field 'adress' (hint: did you mean 'address'? fields: code, address)"),
        ({"version": 3}, "there is no field 'version'"),
    ],
)
def test_values_that_do_not_fit_are_named(change: dict[str, int], message: str) -> None:
    with pytest.raises(DeviceError) as error:
        pack(SMALL, {"code": 0, "address": 0, **change})
    assert message in str(error.value)


def test_missing_values_are_named() -> None:
    with pytest.raises(DeviceError, match="small: no value for code, address"):
        pack(SMALL, {})


def test_only_whole_numbers_are_packed() -> None:
    with pytest.raises(TypeError):
        pack(SMALL, {"code": 1.5, "address": 0})  # type: ignore[dict-item]


@pytest.mark.parametrize("record", [*RECORDS, SMALL], ids=lambda r: r.name)
def test_another_version_is_refused(record: Record) -> None:
    packed = pack(replace(record, version=record.version + 1), zeros(record))
    if any(f.name == "version" for f in record.fields):
        with pytest.raises(DeviceError, match=f"expected version {record.version}, found {record.version + 1}"):
            unpack(record, packed)
    else:
        assert unpack(record, packed) == zeros(record)


def test_bits_of_no_field_must_be_zero() -> None:
    packed = bytearray(pack(SMALL, zeros(SMALL)))
    packed[3] = 0x10
    with pytest.raises(DeviceError, match="bit 28 of word 0 is set, but belongs to no field"):
        unpack(SMALL, packed)


def test_the_length_and_the_alignment_are_checked() -> None:
    packed = pack(SMALL, zeros(SMALL))
    with pytest.raises(DeviceError, match="expected 12 bytes, found 11"):
        unpack(SMALL, packed[:-1])
    with pytest.raises(DeviceError, match="address = 0x1 is not a multiple of 64"):
        unpack(SMALL, packed[:4] + b"\1" + packed[5:])


@given(data=st.binary(min_size=SMALL.bytes, max_size=SMALL.bytes))
def test_whatever_is_accepted_packs_to_the_same_bytes(data: bytes) -> None:
    try:
        values = unpack(SMALL, data)
    except DeviceError:
        return
    assert pack(SMALL, values) == data


@given(st.data())
def test_many_rows_at_once_are_the_rows_one_by_one(data: st.DataObject) -> None:
    """Fields that cross words, signed ones, multiples and a version: columns against single records."""
    fields = (
        BitField("version", 0, 0, 4, False, ""),
        BitField("wide", 0, 5, 40, True, ""),
        BitField("aligned", 1, 20, 9, False, "", 8),
        BitField("one", 2, 31, 1, True, ""),
    )
    record = Record("table", 3, 12, "little", fields)
    rows = data.draw(
        st.lists(
            st.tuples(
                st.integers(-(1 << 39), (1 << 39) - 1), st.integers(0, 63).map(lambda v: 8 * v), st.integers(-1, 0)
            ),
            min_size=1,
            max_size=5,
        )
    )
    names = ("wide", "aligned", "one")
    columns = {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}
    packed = b"".join(pack(record, dict(zip(names, row))) for row in rows)
    assert pack_rows(record, columns) == packed
    back = unpack_rows(record, packed)
    assert {name: column.tolist() for name, column in back.items()} == {n: c.tolist() for n, c in columns.items()}
    bit = data.draw(st.integers(0, 8 * len(packed) - 1))  # any flipped bit: the same answer, or the same refusal
    flipped = bytearray(packed)
    flipped[bit // 8] ^= 1 << bit % 8
    i = bit // 8 // record.bytes
    try:
        wanted = unpack(record, bytes(flipped[i * record.bytes : (i + 1) * record.bytes]))
    except DeviceError as error:
        with pytest.raises(DeviceError, match=f"record {i} of the ") as caught:
            unpack_rows(record, bytes(flipped))
        assert error.message in caught.value.message
    else:
        unpacked = unpack_rows(record, bytes(flipped))
        assert {name: int(column[i]) for name, column in unpacked.items()} == wanted


def test_a_row_with_a_number_beyond_int64_is_refused() -> None:
    """Columns are int64: 2^63 and more would be negative there."""
    record = Record(
        "table", 0, 12, "little", (BitField("one", 0, 0, 32, False, ""), BitField("wide", 1, 0, 64, False, ""))
    )
    rows = [pack(record, {"one": 7, "wide": wide}) for wide in (1 << 63, (1 << 63) - 1)]
    assert unpack_rows(record, rows[1])["wide"].tolist() == [(1 << 63) - 1]
    with pytest.raises(DeviceError, match="wide"):
        unpack_rows(record, rows[1] + rows[0])
