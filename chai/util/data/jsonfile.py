"""JSON with positions: every error about a file points at its line.

``load`` reads one file and is stricter than Python's own reader, which silently accepts duplicate keys, NaN and numbers
of any length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...errors import ParseError
from ..files import handwritten
from ..source import SourceText
from ..suggest import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

DEPTH = 16  # nested objects and lists; the shipped ones reach 5
VALUES = 50_000

Pointer = tuple[str | int, ...]  # path of keys and indices to a value; () is the whole file

MAGNITUDE = 1 << 64  # nothing here is wider than a 64-bit word

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z0-9_+.-]+")
_STRING = json.JSONDecoder()
_CONSTANTS = {"true": True, "false": False, "null": None}


class Document:
    """The ``value`` of a text (dict, list, str, int, float, bool, None), with start and end of its ``values`` and ``keys``.

    Raises ParseError unless it is exactly one value, with at most VALUES inside it, DEPTH of them inside each other;
    ``times`` as many in a file that a program writes.
    """

    def __init__(self, text: str, path: str, times: int = 1) -> None:
        self.text, self._most = text, times * VALUES
        self.source = SourceText(text, path)
        self.at = 0
        self.values: dict[Pointer, tuple[int, int]] = {}
        self.keys: dict[Pointer, tuple[int, int]] = {}
        if text.startswith("\ufeff"):
            raise self._error("a byte order mark before the text", hint="save the file as UTF-8 without it")
        self.value = self._value((), 0)
        if self._next():
            raise self._error(f"expected the end of the file, found {self._found()}")

    def error(self, message: str, pointer: Pointer, *, key: bool = False, hint: str | None = None) -> ParseError:
        """Return a ParseError that shows the value at ``pointer``, or the ``key`` before it."""
        start, end = (self.keys if key else self.values)[pointer]
        return self.source.error(message, start, end, hint)

    def _next(self) -> str:
        """Return the next character that is not a blank without consuming it; "" at the end."""
        blank = _BLANK.match(self.text, self.at)
        assert blank is not None
        self.at = blank.end()
        return self.text[self.at : self.at + 1]

    def _word(self) -> str:
        """Return the word that is next, without consuming it; "" if there is none."""
        word = _WORD.match(self.text, self.at)
        return word.group() if word else ""

    def _found(self) -> str:
        return ascii(self._word()[:40] or self.text[self.at]) if self.at < len(self.text) else "its end"

    def _error(self, message: str, hint: str | None = None) -> ParseError:
        return self.source.error(message, self.at, self.at + len(self._word()), hint)

    def _value(self, pointer: Pointer, depth: int) -> Any:
        first = self._next()
        start = self.at
        if depth > DEPTH:
            raise self._error(f"more than {DEPTH} objects and lists inside each other")
        if len(self.values) >= self._most:
            raise self._error(f"more than {self._most:,} values")
        self.values[pointer] = start, start + 1
        value: Any
        if first == "{":
            value = self._object(pointer, depth)
        elif first == "[":
            value = [self._value((*pointer, i), depth + 1) for i, _ in enumerate(self._members("]"))]
        elif first == '"':
            value = self._string()
        elif first and first in "-0123456789":
            value = self._number()
        else:
            word = self._word()
            if word not in _CONSTANTS:
                raise self._error(f"expected a value, found {self._found()}", _advice(word or first))
            value = _CONSTANTS[word]
            self.at += len(word)
        self.values[pointer] = start, self.at
        return value

    def _object(self, pointer: Pointer, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for first in self._members("}"):
            if first != '"':
                raise self._error(f"expected a key in double quotes, found {self._found()}", _advice(first))
            start = self.at
            key = self._string()
            if key in result:
                line, _ = self.source.where(self.keys[(*pointer, key)][0])
                raise self.source.error(f"key {quoted(key)} is here twice (first in line {line})", start, self.at)
            self.keys[(*pointer, key)] = start, self.at
            if self._next() != ":":
                raise self._error(f"expected ':' after the key {quoted(key)}, found {self._found()}")
            self.at += 1
            result[key] = self._value((*pointer, key), depth + 1)
        return result

    def _members(self, closing: str) -> Iterable[str]:
        """Yield the first character of each member, which the caller consumes; brackets and commas are consumed here."""
        self.at += 1
        first = self._next()
        if first == closing:
            self.at += 1
            return
        while True:
            yield first
            mark = self._next()
            if mark not in (",", closing):  # or "", the end of the file
                raise self._error(f"expected ',' or '{closing}', found {self._found()}")
            self.at += 1
            if mark == closing:
                return
            first = self._next()
            if first == closing:
                raise self._error(f"expected a value between the comma and '{closing}'", "JSON takes no trailing comma")

    def _string(self) -> str:
        try:
            value, end = _STRING.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            raise self._error(
                error.msg[0].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
            ) from None
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise self._error("this string has half a surrogate pair, which is no character")
        self.at = end
        return str(value)

    def _number(self) -> int | float:
        number_match = _NUMBER.match(self.text, self.at)
        if number_match is None or number_match.group() != self._word():
            raise self._error(
                f"{self._found()} is not a number of JSON", "decimal digits; no leading zero, sign or hex"
            )
        token = number_match.group()
        whole = number_match.group(1) is None and number_match.group(2) is None
        # int() takes quadratic time; a number with more digits than 2^64 is too large, integer or not
        number = int(token) if whole and len(token) <= 21 else float(token)
        if not abs(number) < MAGNITUDE:
            raise self._error(f"the number {self._found()} is too large")
        self.at = number_match.end()
        return int(number) if number == int(number) else number  # 1e3 and 100.0 are integers too


def load(path: str | Path, times: int = 1) -> Document:
    """Return the file at ``path``, which may be ``times`` as large as one that is written by hand.

    Raises ParseError unless it is one bounded JSON value in UTF-8, or OSError.
    """
    return Document(handwritten(path, times), str(path), times)


def _advice(token: str) -> str | None:
    """Return a hint for a token that is not JSON."""
    if token in ("NaN", "Infinity", "-Infinity"):
        return "JSON has finite numbers only"
    if token.startswith("'"):
        return "strings take double quotes"
    if token.startswith(("/", "#")):
        return "JSON has no comments"
    return did_you_mean(token.lower(), _CONSTANTS, quoted=False)


def quoted(value: Any) -> str:
    """Return a value as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
