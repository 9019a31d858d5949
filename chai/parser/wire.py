"""Walk protobuf's wire format within a bounded number of steps.

A caffemodel is walked before anything is built from it: the walk takes at most ``limits().wire_fields`` steps and keeps
blob data as offsets into the file. Parsing untrusted bytes with protobuf instead can take 5 GB for a 30 MB file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import ParseError
from ..limits import limits

VARINT, FIXED64, BYTES, OPEN_GROUP, CLOSE_GROUP, FIXED32 = range(6)

Buffer = bytes | mmap.mmap
_CHUNK = 1 << 16  # repeated fields compared at once


class WireField(NamedTuple):
    """One field: for varints ``value`` is the number, else ``start`` and ``end`` are the offsets of its bytes.

    ``repeats`` > 1 is a run of one fixed-size field; the span then covers the whole run, including the tags inside it.
    """

    number: int
    wire: int
    value: int
    start: int
    end: int
    repeats: int = 1


class Walk:
    """Reads the fields of one buffer within a budget of steps."""

    def __init__(self, buffer: Buffer, path: str) -> None:
        self.buffer = buffer
        self.path = path
        self.budget = limits().wire_fields

    def bad(self, message: str, offset: int) -> ParseError:
        return ParseError(f"byte {offset:,}: {message}", path=self.path)

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the unsigned number at ``at`` and the offset after it."""
        buffer = self.buffer
        if at < end and buffer[at] < 128:  # most are
            return buffer[at], at + 1
        value = shift = 0
        start = at
        while True:
            if at >= end:
                raise self.bad("the file is cut short inside a number", start)
            byte = buffer[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (2**64 - 1), at
            shift += 7
            if shift > 63:
                raise self.bad("a number of more than 10 bytes", start)

    def fields(self, at: int, end: int) -> Iterator[WireField]:
        """Yield the fields between two offsets; groups, which Caffe never writes, are skipped."""
        groups: list[int] = []
        while at < end:
            self.budget -= 1
            if self.budget < 0:
                count = limits().wire_fields + 1
                raise self.bad("more fields than a network has: " + limits().exceeded("wire_fields", count), at)
            start = at
            key, at = self.varint(at, end)
            number, wire = key >> 3, key & 7
            if number == 0 or number > 2**29 - 1:
                raise self.bad(f"field number {number} does not exist", start)
            if wire == VARINT:
                value, at = self.varint(at, end)
                field = WireField(number, wire, value, start, at)
            elif wire == BYTES:
                length, at = self.varint(at, end)
                if length > end - at:
                    raise self.bad(f"a field of {length:,} bytes, but only {end - at:,} are left", start)
                field = WireField(number, wire, length, at, at + length)
                at += length
            elif wire in (FIXED32, FIXED64):
                size = 4 if wire == FIXED32 else 8
                if size > end - at:
                    raise self.bad("the file is cut short inside a number", start)
                field = WireField(number, wire, 0, at, at + size)
                at += size
                more = self._repeats(key, size + 1, at, end)
                if more:
                    at += more * (size + 1)
                    field = field._replace(end=at, repeats=1 + more)
            elif wire == OPEN_GROUP:
                groups.append(number)
                if len(groups) > limits().wire_depth:
                    raise self.bad("nested groups: " + limits().exceeded("wire_depth", len(groups)), start)
                continue
            elif wire == CLOSE_GROUP and groups and groups[-1] == number:
                groups.pop()
                continue
            else:
                raise self.bad(f"wire type {wire} has no meaning here", start)
            if not groups:
                yield field
        if groups:
            raise self.bad("the file is cut short inside a group", end)

    def _repeats(self, key: int, stride: int, at: int, end: int) -> int:
        """Return the number of consecutive fixed-size fields with this one-byte key, starting at ``at``."""
        if key > 127 or at >= end or self.buffer[at] != key:
            return 0
        tag, count, most = bytes([key]), 0, (end - at) // stride
        while count < most:
            first = at + count * stride
            keys = self.buffer[first : first + stride * min(_CHUNK, most - count) : stride]
            same = len(keys) - len(keys.lstrip(tag))
            count += same
            if same < len(keys):
                break
        return count

    def text(self, field: WireField) -> str:
        """Return a string field of bounded length."""
        if field.end - field.start > limits().name_length:
            raise self.bad("a name too long: " + limits().exceeded("name_length", field.end - field.start), field.start)
        raw = bytes(self.buffer[field.start : field.end])
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw.decode("latin-1")

    def integers(self, parts: Sequence[WireField], most: int | None = None) -> list[int]:
        """Return the signed integers of a repeated field, packed or not: at most ``most``, by default those of a shape."""
        bound = limits().axes if most is None else most
        numbers: list[int] = []
        for part in parts:
            if part.wire == VARINT:
                numbers.append(signed(part.value))
                continue
            if part.wire != BYTES:
                raise self.bad("expected integers", part.start)
            at = part.start
            while at < part.end and len(numbers) <= bound:
                value, at = self.varint(at, part.end)
                numbers.append(signed(value))
        if len(numbers) > bound:
            axes = "too many axes: " + limits().exceeded("axes", len(numbers))
            raise self.bad(axes if most is None else f"more than {most:,} numbers", parts[0].start)
        return numbers


def signed(value: int) -> int:
    """Return the signed number with the same 64 bits as an unsigned one."""
    return value - 2**64 if value >= 2**63 else value


def varint(value: int) -> bytes:
    """Return an unsigned number encoded as a varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
