"""File layout of an artifact: a short prefix, a JSON header whose values are checked, and sections that are read on demand.

    offset  bytes
    0       8       b"\\x89chai\\r\\n\\x1a"
    8       4       version of this layout, little endian
    12      4       CRC-32 of the header
    16      8       bytes of the header, little endian
    24              the header: one JSON object, UTF-8
                    sections in the order of the header, each aligned to ALIGNMENT, to the end of the file

The header's key "sections" is {name: {"offset", "bytes", "crc"}}; all other keys belong to the writer. Bytes between
sections are zero. Same content, same bytes: nothing here depends on time, path or machine.

Checksums detect accidents, not attacks: the reader of a section must validate its content.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from ..blob import Array, show
from ..errors import ParseError
from ..limits import limits
from ..overlay.weights import ByteSource
from ..util.data.dataclass_io import restore
from ..util.files import opened_file
from ..util.lazy_numpy import np
from ..util.rounding import round_up

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"\x89chai\r\n\x1a"
VERSION = 6
DIGITS = 300  # of a whole number in the header, so that it has a float64
ALIGNMENT = 64  # bytes; a cache line, and enough for any element type
PREFIX = struct.Struct("<8sIIQ")
T = TypeVar("T")
Bad = Callable[..., ParseError]  # an error of the file, from a message and perhaps a hint
BUFFER = 1 << 16  # bytes that are read at once for a checksum; new pages for more take longer than more calls


class Section(ByteSource):
    """Bytes of the file: mapped, or read into a buffer where they would be copied anyway."""

    def __init__(self, file: _File, begin: int, size: int) -> None:
        self._file, self._begin, self.bytes = file, begin, size

    @property
    def mapped(self) -> memoryview:
        """Read-only view of the mapping; pages that are read count as memory of this process."""
        return self._file.mapped(self._begin, self.bytes) if self.bytes else memoryview(b"")

    @property
    def content(self) -> bytes:
        """A copy of the whole section."""
        data = bytearray(self.bytes)
        self.read(data)
        return bytes(data)

    def read(self, out: Any, offset: int = 0) -> None:
        """Fill ``out``, a writable buffer, with the bytes from ``offset`` on. Raises ParseError if they are missing."""
        if offset + len(out) > self.bytes or not self._file.read(self._begin + offset, memoryview(out).cast("B")):
            raise ParseError("the file was cut short while it was in use", path=self._file.path)


@dataclass(eq=False, repr=False, slots=True)
class Artifact:
    """An opened file: its header without "sections", and the sections. ``close`` is called when they are not read any more.

    Methods that read and check header values raise ParseError with the file's name.
    """

    path: str
    header: dict[str, Any]
    sections: Mapping[str, Section]
    close: Callable[[], None]

    def error(self, message: str, hint: str | None = None) -> ParseError:
        return ParseError(message, path=self.path, hint=hint or "compile it again: chai compile")

    def get(self, key: str, kind: Any, default: Any = None) -> Any:
        """Return a header value, or its ``default``, after checking its ``kind``.

        That is a type, [kind], {str: kind} or {"key": kind, ...}. Raises ParseError, also for a missing value without default.
        """
        value = self.header.get(key, default)
        if value is None and key not in self.header:
            raise self.error(f"header: {key!r} is missing")
        return self.of(value, kind, key)

    def of(self, value: Any, kind: Any, where: str) -> Any:
        """Return ``value`` after checking its ``kind`` as ``get`` does; ``where`` is its place in the header."""
        if type(value) is kind:
            return value
        if isinstance(kind, type):
            raise self.error(f"header: {where}: expected {kind.__name__}, found {repr(value)[:40]}")
        items: Iterable[Any]
        kinds: Iterable[Any]
        if isinstance(kind, list):
            if type(value) is not list:
                raise self.error(f"header: {where}: expected a list")
            items, kinds = value, repeat(kind[0])
        elif str in kind:
            if type(value) is not dict:
                raise self.error(f"header: {where}: expected an object")
            items, kinds = value.values(), repeat(kind[str])
        else:
            if type(value) is not dict or not kind.keys() <= value.keys():
                raise self.error(f"header: {where}: expected an object with {', '.join(kind)}")
            items, kinds = map(value.__getitem__, kind), kind.values()
        for item, inner in zip(items, kinds):
            if type(item) is not inner:
                self.of(item, inner, where)
        return value

    def restore(self, cls: type[T], value: Any, where: str) -> T:
        """Return a value of type ``cls``, such as a dataclass, from JSON; ``where`` is its place in the header."""
        return restore(cls, value, lambda place, text: self.error(f"{where}{place}: {text}"))

    def array(self, entry: Mapping[str, Any]) -> Array:
        """Return a float32 array as a view of the section "weights"."""
        shape = tuple(self.of(entry.get("shape"), [int], "array"))
        offset = self.of(entry.get("offset"), int, "array")
        data = memoryview(self.section("weights").mapped)  # of its own: arrays of numpy 1.21 crash if it is released
        size = 4 * math.prod(shape)
        if any(d < 0 for d in shape) or offset % 64 or offset < 0 or offset + size > len(data):
            raise self.error("header: an array lies outside the section 'weights'")
        try:
            array: Array = np.frombuffer(data, np.float32, math.prod(shape), offset).reshape(shape)
        except ValueError as error:  # it is empty, but for one 0 too large
            raise self.error(f"header: an array of {show(shape)}: {error}") from error
        return array

    def section(self, name: str) -> Section:
        """Return a section. Raises ParseError if it is missing."""
        if name not in self.sections:
            raise self.error(f"section {name!r} is missing")
        return self.sections[name]


def write(path: str | Path, header: Mapping[str, Any], sections: Mapping[str, Any]) -> None:
    """Write an artifact. ``sections`` are bytes or C-contiguous arrays."""
    views = {name: memoryview(data) for name, data in sections.items()}
    blocks = {name: view.cast("B") if len(view) else memoryview(b"") for name, view in views.items()}
    # the header contains the offsets and its length would change them: they count from the first section
    table, end = {}, 0
    for name, block in blocks.items():
        table[name] = {"offset": end, "bytes": block.nbytes, "crc": zlib.crc32(block)}
        end = round_up(end + block.nbytes, ALIGNMENT)
    whole = {**header, "sections": table}
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode("utf-8")
    with open(path, "wb") as file:
        file.write(PREFIX.pack(MAGIC, VERSION, zlib.crc32(text), len(text)))
        file.write(text)
        for block in blocks.values():
            file.write(bytes(round_up(file.tell(), ALIGNMENT) - file.tell()))
            file.write(block)


def read(path: str | Path) -> Artifact:
    """Open an artifact. Raises ParseError for a file that ``write`` cannot have written; OSError passes.

    Sections stay in the file and cost no memory until they are read. Truncating the file while it is mapped kills the
    process, as with any mapped file.
    """
    with opened_file(path) as file:
        prefix = file.read(PREFIX.size)
        bad = partial(ParseError, path=str(path), hint="compile it again: chai compile")
        if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
            raise bad("this is no chai artifact", hint="chai compile NET WEIGHTS -o NET.chai makes one")
        _, version, crc, length = PREFIX.unpack(prefix)
        if version != VERSION:
            hint = "update chai" if version > VERSION else "compile it again: chai compile"
            raise bad(f"format version {version}, this chai reads {VERSION}", hint=hint)
        if length > limits().header_bytes:
            raise bad("header: " + limits().exceeded("header_bytes", length))
        text = file.read(length)
        if len(text) != length:
            raise bad(f"the file ends inside its header ({len(text):,} of {length:,} bytes)")
        if zlib.crc32(text) != crc:
            raise bad("its header is damaged (checksum)")
        size = file.seek(0, 2)
        header = _header(text, bad)
        table = header.pop("sections", None)
        begin = round_up(PREFIX.size + length, ALIGNMENT)
        spans = _spans(table, size - begin, bad)
        file.seek(PREFIX.size + length)
        buffer = memoryview(bytearray(BUFFER))
        for name, (offset, count, wanted) in spans.items():
            if any(file.read(begin + offset - file.tell())):
                raise bad(f"the bytes before section {name!r} are not zero")
            if _crc(file, count, buffer) != wanted:
                raise bad(f"section {name!r} is damaged (checksum)")
        opened = _File(str(path), file.fileno())
    sections = {name: Section(opened, begin + offset, count) for name, (offset, count, _) in spans.items()}
    return Artifact(str(path), header, sections, opened.close)


class _File:
    """An open file, closed with the last reference to one of its sections, or before."""

    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.number = os.dup(number)
        self._views: list[memoryview] = []  # of the whole file, then of sections

    def __del__(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def close(self) -> None:
        """Close it, and release its views. Arrays of those keep the mapping until the last of them is gone."""
        self.__del__()
        while self._views:
            with suppress(BufferError):  # there are such arrays
                self._views.pop().release()

    def mapped(self, begin: int, size: int) -> memoryview:
        """Return a view of a mapping of the file."""
        if not self._views:
            self._views.append(memoryview(mmap.mmap(self.number, 0, access=mmap.ACCESS_READ)))
        self._views.append(self._views[0][begin : begin + size])
        return self._views[-1]

    def read(self, offset: int, out: memoryview) -> bool:
        """Fill ``out``; return False if the file ends first."""
        while len(out):
            got = os.preadv(self.number, [out], offset)
            if not got:
                return False
            out, offset = out[got:], offset + got
        return True


def _crc(file: BinaryIO, count: int, buffer: memoryview) -> int:
    """Return the CRC-32 of the next bytes. They are read, not mapped, so that they do not count as process memory."""
    crc = 0
    # a file that was truncated in the meantime has another checksum
    while count and (got := file.readinto(buffer[:count])):  # type: ignore[attr-defined]
        crc, count = zlib.crc32(buffer[:got], crc), count - got
    return crc


def _header(text: bytes, bad: Bad) -> dict[str, Any]:
    def number(word: str) -> float:
        if not math.isfinite(float(word)):
            raise ValueError(f"{word} is no number")
        return float(word)

    def whole(word: str) -> int:
        if len(word) > DIGITS:
            raise ValueError(f"the number {word[:40]!r} is too large")
        return int(word)

    numbers: dict[str, Any] = {"parse_constant": number, "parse_float": number, "parse_int": whole}
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, **numbers)
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise bad(f"header: {error}") from error
    except RecursionError:
        raise bad("header: nested too deeply") from None
    if not isinstance(value, dict):
        raise bad("header: expected an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object from its keys and values, as ``object_pairs_hook`` of json. Raises ValueError for a key twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _spans(table: Any, size: int, bad: Bad) -> dict[str, tuple[int, int, int]]:
    """Return (offset, bytes, crc) of each section: in order, aligned, without gaps, to the end of the file."""
    if not isinstance(table, dict):
        raise bad("header: sections are missing")
    spans = {name: _span(name, entry, bad) for name, entry in table.items()}
    spans = dict(sorted(spans.items(), key=lambda item: item[1][:2]))
    end = last = 0
    for name, (offset, count, _) in spans.items():
        if offset != end:
            raise bad(f"header: section {name!r} begins at {offset}, expected {end}")
        last, end = offset + count, round_up(offset + count, ALIGNMENT)
        if last > size:
            raise bad(f"the file ends inside section {name!r} ({size - offset:,} of {count:,} bytes)")
    if spans and last != size:
        raise bad(f"{size - last:,} bytes after the last section")
    return spans


def _span(name: str, entry: Any, bad: Bad) -> tuple[int, int, int]:
    if isinstance(entry, dict) and sorted(entry) == ["bytes", "crc", "offset"]:
        offset, count, crc = entry["offset"], entry["bytes"], entry["crc"]
        if all(type(v) is int and 0 <= v < 1 << 48 for v in (offset, count, crc)):
            return offset, count, crc
    raise bad(f"header: section {name!r}: expected offset, bytes and crc")
