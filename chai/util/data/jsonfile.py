"""JSON with positions: every error about a file points at its line.

``load`` reads one file and is stricter than Python's own reader, which silently accepts duplicate keys, NaN and numbers
of any length.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ParseError
from ..files import opened

if TYPE_CHECKING:
    from pathlib import Path

    from .positions import Pointer, Reader

BYTES = 1 << 20  # files read here are written by hand; the shipped ones have 12 kB
DEPTH = 16  # nested objects and lists; the shipped ones reach 5
VALUES = 50_000


class Document:
    """A file's ``value`` (dict, list, str, int, float, bool, None) and the position of each part of it.

    Raises ParseError unless the text is exactly one value. It is read again, with positions, for the first error.
    """

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.value: Any
        try:
            self.value = _quickly(text)
        except (ValueError, RecursionError):
            self.value = self._reader.value

    @cached_property
    def _reader(self) -> Reader:
        from .positions import Reader  # few files need it

        return Reader(self.text, self.path, DEPTH, VALUES)

    def where(self, pointer: Pointer) -> tuple[int, int]:
        """Return line and column, both from 1, of the start of the value."""
        return self._reader.source.where(self._reader.values[pointer][0])

    def error(self, message: str, pointer: Pointer, *, key: bool = False, hint: str | None = None) -> ParseError:
        """Return a ParseError that shows the value at ``pointer``, or the ``key`` before it."""
        start, end = (self._reader.keys if key else self._reader.values)[pointer]
        return self._reader.source.error(message, start, end, hint)


def load(path: str | Path) -> Document:
    """Return the file at ``path``. Raises ParseError unless it is one bounded JSON value in UTF-8, or OSError."""
    return parse(read(path), path)


def parse(text: str, path: str | Path) -> Document:
    """Return the JSON value of a file's text. Raises ParseError unless it is exactly one."""
    return Document(text, str(path))


def read(path: str | Path) -> str:
    """Return the text of a file. Raises ParseError unless it is of bounded size and UTF-8, or OSError."""
    with opened(path) as file:
        data = file.read(BYTES + 1)
    if len(data) > BYTES:
        raise ParseError(f"the file is larger than {BYTES:,} bytes", path=str(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before.rpartition(b"\n")[2].decode("utf-8")) + 1
        raise ParseError(
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            path=str(path),
            line=before.count(b"\n") + 1,
            column=column,
            hint="save the file as UTF-8",
        ) from None


def _quickly(text: str) -> Any:
    """Return what ``Reader`` would, in a tenth of its time. Raises ValueError where only that knows what is right."""
    if "\\u" in text or text.count("{") + text.count("[") + text.count(",") >= VALUES:
        raise ValueError("surrogates and limits are the reader's")
    text.encode()  # raises for half a surrogate pair
    value = json.loads(text, object_pairs_hook=unique, parse_int=_whole, parse_float=_whole, parse_constant=_whole)
    return _shallow(value, DEPTH)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object from its keys and values, as ``object_pairs_hook`` of json. Raises ValueError for a key twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _whole(token: str) -> int | float:
    """Return a number; one without a fraction is an integer, as 1e3 and 100.0. Raises ValueError for a large one."""
    number = float(token) if len(token) > 15 or not token.lstrip("-").isdecimal() else int(token)
    if not abs(number) < 1 << 53:
        raise ValueError("a number may be too large")
    return int(number) if number == int(number) else number


def _shallow(value: Any, depth: int) -> Any:
    """Return a value, which is safely below the limit of objects and lists inside each other. Raises ValueError."""
    if depth < 1:
        raise ValueError("perhaps too deep")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, (dict, list)):
            _shallow(item, depth - 1)
    return value
