"""JSON with positions: every error about a file points at its line.

``load`` reads one file and is stricter than Python's own reader, which silently accepts duplicate keys, NaN and numbers
of any length. ``validate`` checks the result against a JSON schema and reports the position of the first violation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ParseError
from ..files import opened
from ..source import Source
from ..suggest import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

Pointer = tuple[str | int, ...]  # path of keys and indices to a value; () is the whole file

BYTES = 1 << 20  # files read here are written by hand; the shipped ones have 12 kB
DEPTH = 16  # nested objects and lists; the shipped ones reach 5
VALUES = 50_000
MAGNITUDE = 1 << 64  # nothing here is wider than a 64-bit word

_BLANK = r"[ \t\r\n]*"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_WORD = r"[A-Za-z0-9_+.-]+"
_STRING = json.JSONDecoder()
_CONSTANTS = {"true": True, "false": False, "null": None}


class Document:
    """A file's ``value`` (dict, list, str, int, float, bool, None) and the position of each part of it.

    Raises ParseError unless the text is exactly one value. It is read again, with positions, for the first error.
    """

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self._source = Source(text, path)
        self.value: Any
        try:
            self.value = _quickly(text)
        except (ValueError, RecursionError):
            self.value = self._reader.value

    @cached_property
    def _reader(self) -> _Reader:
        return _Reader(self.text, self._source)

    def where(self, pointer: Pointer) -> tuple[int, int]:
        """Return line and column, both from 1, of the start of the value."""
        return self._source.where(self._reader.values[pointer][0])

    def error(self, message: str, pointer: Pointer, *, key: bool = False, hint: str | None = None) -> ParseError:
        """Return a ParseError that shows the value at ``pointer``, or the ``key`` before it."""
        start, end = (self._reader.keys if key else self._reader.values)[pointer]
        return self._source.error(message, start, end, hint)


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
    """Return what ``_Reader`` would, in a tenth of its time. Raises ValueError where only that knows what is right."""
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


class _Reader:
    """The ``value`` of a text, with the offsets of start and end of its ``values`` and ``keys``."""

    def __init__(self, text: str, source: Source) -> None:
        self.text = text
        self.at = 0
        self.values: dict[Pointer, tuple[int, int]] = {}
        self.keys: dict[Pointer, tuple[int, int]] = {}
        self._source = source
        self.value = self._run()

    def _run(self) -> Any:
        if self.text.startswith("\ufeff"):
            raise self._error("a byte order mark before the text", hint="save the file as UTF-8 without it")
        value = self._value((), 0)
        if self._next():
            raise self._error(f"expected the end of the file, found {self._found()}")
        return value

    def _next(self) -> str:
        """Return the next character that is not a blank without consuming it; "" at the end."""
        first = self.text[self.at : self.at + 1]
        if first > " " or not first:  # most do not follow a blank
            return first
        blank = re.compile(_BLANK).match(self.text, self.at)
        assert blank is not None
        self.at = blank.end()
        return self.text[self.at : self.at + 1]

    def _found(self) -> str:
        word = re.compile(_WORD).match(self.text, self.at)
        return ascii(word.group()[:40] if word else self.text[self.at]) if self.at < len(self.text) else "its end"

    def _error(self, message: str, hint: str | None = None) -> ParseError:
        word = re.compile(_WORD).match(self.text, self.at)
        return self._source.error(message, self.at, word.end() if word else None, hint)

    def _value(self, pointer: Pointer, depth: int) -> Any:
        first = self._next()
        start = self.at
        if depth > DEPTH:
            raise self._error(f"more than {DEPTH} objects and lists inside each other")
        if len(self.values) >= VALUES:
            raise self._error(f"more than {VALUES:,} values")
        self.values[pointer] = start, start + 1
        value: Any
        if first == "{":
            value = self._object(pointer, depth)
        elif first == "[":
            value = self._list(pointer, depth)
        elif first == '"':
            value = self._string()
        elif first and first in "-0123456789":
            value = self._number()
        else:
            word = re.compile(_WORD).match(self.text, start)
            if word is None or word.group() not in _CONSTANTS:
                raise self._error(f"expected a value, found {self._found()}", _advice(word.group() if word else first))
            value = _CONSTANTS[word.group()]
            self.at = word.end()
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
                line, _ = self._source.where(self.keys[(*pointer, key)][0])
                raise self._source.error(f"key {_show(key)} is here twice (first in line {line})", start, self.at)
            self.keys[(*pointer, key)] = start, self.at
            if self._next() != ":":
                raise self._error(f"expected ':' after the key {_show(key)}, found {self._found()}")
            self.at += 1
            result[key] = self._value((*pointer, key), depth + 1)
        return result

    def _list(self, pointer: Pointer, depth: int) -> list[Any]:
        result: list[Any] = []
        for _ in self._members("]"):
            result.append(self._value((*pointer, len(result)), depth + 1))
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
        found = re.compile(_NUMBER).match(self.text, self.at)
        word = re.compile(_WORD).match(self.text, self.at)
        if found is None or word is None or found.end() != word.end():
            raise self._error(
                f"{self._found()} is not a number of JSON", "decimal digits; no leading zero, sign or hex"
            )
        token = found.group()
        whole = found.group(1) is None and found.group(2) is None
        # int() takes quadratic time; a number with more digits than 2^64 is too large, integer or not
        number = int(token) if whole and len(token) <= 21 else float(token)
        if not abs(number) < MAGNITUDE:
            raise self._error(f"the number {self._found()} is too large")
        self.at = found.end()
        return int(number) if number == int(number) else number  # 1e3 and 100.0 are integers too


def _advice(found: str) -> str | None:
    """Return a hint for a token that is not JSON."""
    if found in ("NaN", "Infinity", "-Infinity"):
        return "JSON has finite numbers only"
    if found.startswith("'"):
        return "strings take double quotes"
    if found.startswith(("/", "#")):
        return "JSON has no comments"
    return did_you_mean(found.lower(), _CONSTANTS, quoted=False)


# -- schemas

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_CHECKED = {
    "$ref", "type", "const", "enum", "minimum", "maximum", "pattern", "minItems", "items",
    "required", "properties", "additionalProperties",
}  # fmt: skip
_WORDS = {"$schema", "$id", "$defs", "title", "description"}


def validate(document: Document, schema: Mapping[str, Any]) -> None:
    """Check a document against a JSON schema (2020-12). Raises ParseError for the first violation.

    Supported: the keywords above, ``const`` and ``enum`` with plain values, and ``$ref`` to "#/$defs/...". Raises ValueError
    for a schema with any other keyword, since ignoring it would accept what it forbids.
    """
    _Validator(document, schema).check(document.value, schema, ())


class _Validator:
    def __init__(self, document: Document, root: Mapping[str, Any]) -> None:
        self.document = document
        self.root = root
        self._known: set[int] = set()  # ids of the schemas whose keywords have been looked at

    def check(self, value: Any, schema: Mapping[str, Any], pointer: Pointer) -> None:
        if id(schema) not in self._known:
            unknown = schema.keys() - _CHECKED - _WORDS
            if unknown:
                raise ValueError(f"schema keywords that are not implemented: {', '.join(sorted(unknown))}")
            self._known.add(id(schema))
        if "$ref" in schema:
            self.check(value, self.root["$defs"][schema["$ref"].removeprefix("#/$defs/")], pointer)
        if "type" in schema and not _is(value, schema["type"]):
            raise self._wrong(pointer, _article(schema["type"]), value)
        if "const" in schema and not _same(value, schema["const"]):
            raise self._wrong(pointer, _show(schema["const"]), value)
        if "enum" in schema and not any(_same(value, e) for e in schema["enum"]):
            expected = "one of " + ", ".join(map(_show, schema["enum"]))
            raise self._wrong(pointer, expected, value, _near(value, schema["enum"]))
        if _is(value, "number"):
            low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
            if not low <= value <= high:
                raise self._wrong(pointer, _bounds(low, high), value)
        elif isinstance(value, str):
            if "pattern" in schema and not re.search(schema["pattern"], value):
                raise self._wrong(pointer, schema.get("description", f"text that matches {schema['pattern']}"), value)
        elif isinstance(value, list):
            if len(value) < schema.get("minItems", 0):
                raise self._wrong(pointer, f"at least {schema['minItems']} items", len(value))
            if "items" in schema:
                for i, item in enumerate(value):
                    self.check(item, schema["items"], (*pointer, i))
        elif isinstance(value, dict):
            self._object(value, schema, pointer)

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], pointer: Pointer) -> None:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is False:  # first: a misspelt key is also a missing one
            for key in value:
                if key not in properties:
                    near = _near(key, [p for p in properties if p not in value])
                    message = f"{_path(pointer)}: unknown key {_show(key)}"
                    hint = near or "keys here: " + ", ".join(properties)
                    raise self.document.error(message, (*pointer, key), key=True, hint=hint)
        for key in schema.get("required", ()):
            if key not in value:
                about = properties.get(key, {}).get("description")
                message = f"{_path(pointer)}: the key {_show(key)} is missing"
                raise self.document.error(message, pointer, hint=f"{key}: {about}" if about else None)
        for key, item in value.items():
            if key in properties:
                self.check(item, properties[key], (*pointer, key))

    def _wrong(self, pointer: Pointer, expected: str, found: Any, hint: str | None = None) -> ParseError:
        return self.document.error(f"{_path(pointer)}: expected {expected}, found {_show(found)}", pointer, hint=hint)


def _is(value: Any, type: str) -> bool:
    return isinstance(value, _TYPES[type]) and (type == "boolean" or not isinstance(value, bool))


def _bounds(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low}"
    return f"at most {high}" if low == -math.inf else f"{low} to {high}"


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)  # JSON's true is not 1


def _near(found: Any, known: Iterable[Any]) -> str | None:
    return did_you_mean(found, [k for k in known if isinstance(k, str)]) if isinstance(found, str) else None


def _article(type: str) -> str:
    name = {"object": "object {...}", "array": "list [...]", "integer": "whole number"}.get(type, type)
    return name if type == "null" else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _article("object" if isinstance(value, dict) else "array")
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _path(pointer: Pointer) -> str:
    """Return a pointer as text: ``tasks.conv.kernel_max``, ``registers.list[3]``; "the file" for the whole file."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in pointer)
    return text.removeprefix(".") or "the file"
