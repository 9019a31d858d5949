"""Parse protobuf text format into a tree with positions.

chai has its own scanner because protobuf's silently drops unknown fields, fails at the first enum value of a fork,
and loses comments and positions. The tree keeps the offset of every field, so errors can point at its line, and the
source can be edited in place.

Accepted, as by protobuf: ``#`` comments, ``{}`` or ``<>``, optional ``,`` or ``;`` after a field, ``[a, b]`` lists,
adjacent strings, single quotes, hexadecimal and octal integers, ``2.0f``, ``.5``, spaces between sign and number.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import ParseError
from ..limits import limits
from ..util.files import opened, rest
from ..util.source import SourceText
from .mistaken import HEAD, refuse

_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\r\n\f\v]+ | \#[^\n]*)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
  | (?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*" | '[^'\\\n]*(?:\\.[^'\\\n]*)*')
  | (?P<mark>[{}<>\[\]:,;-])
    """,
    re.VERBOSE,
)
# Few files need these two: re compiles them when they are used, and keeps them.
_EXTENSION = r"\[[ \t]*[\w.\-/]+[ \t]*\]"
_ESCAPE = r"(?s)\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)"
_LETTERS = dict(zip("ntrabfv\\'\"?", "\n\t\r\a\b\f\v\\'\"?"))
_CLOSES = {"{": "}", "<": ">"}
# the first line of a quantised prototxt, which names the weights that its formats belong to
STAMP = re.compile(r"\A# chai quantize: [^\n]*sha256 ([0-9a-f]{64})[^\n]*\r?\n")


@dataclass(eq=False, slots=True)
class Scalar:
    """A value as written: ``kind`` is name, number or string; ``text`` includes the sign, or is the string's content."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Block:
    """A message: its fields in order, braces included in the span."""

    fields: list[TextField]
    start: int
    end: int


@dataclass(eq=False, slots=True)
class TextField:
    """``name: value``; ``start`` is the offset of the name. A list gives one TextField per item."""

    name: str
    start: int
    value: Scalar | Block


def read_source(path: str | Path) -> SourceText:
    """Return the text of a file. Raises ParseError if it is too large or not text, OSError if it cannot be read."""
    path = Path(path)
    with opened(path) as file:
        head = file.read(HEAD)
        refuse(head, path, "the text of a network")
        _refuse_binary(head, path)
        data = head + rest(file, "text_bytes", str(path))
    _refuse_binary(data, path)
    encoding = "utf-8-sig" if data.startswith(BOM_UTF8) else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin-1"  # comments in another encoding: one character per byte keeps the offsets
        text = data.decode(encoding)
    return SourceText(text, str(path), encoding)


def _refuse_binary(data: bytes, path: Path) -> None:
    if b"\0" in data:
        what = f"this is a binary file (byte {data.index(0)} is zero), expected the text of a network"
        raise ParseError(what, path=str(path), hint="the first file is the .prototxt, the second the .caffemodel")


def stamp(weights: str, digest: str, note: str) -> str:
    """Return the STAMP without a newline. It is ASCII even if the file name is not."""
    name = weights.encode("ascii", "backslashreplace").decode()
    return f"# chai quantize: {note}; weights sha256 {digest} {name}"


def stamped(text: str) -> str | None:
    """Return the SHA-256 of the weights that a network's text requires; None if it names none."""
    stamp = STAMP.match(text)
    return stamp.group(1) if stamp else None


def parse(source: SourceText) -> Block:
    """Return the tree of a text; of a solver that contains its network (``net_param``), the network's.

    Raises ParseError at the first syntax error.
    """
    tree = _Parser(source).run()
    networks = [field.value for field in tree.fields if field.name == "net_param" and isinstance(field.value, Block)]
    return networks[0] if len(networks) == 1 else tree


def layers_of(
    source: SourceText, tree: Block, places: Mapping[str, str | None] | None = None
) -> Iterator[tuple[str, int, Block]]:
    """Yield the name, start and message of each layer in the text of a network.

    With ``places``, path:line by name, only of layers that are there: another one of that name is of another phase.
    """
    for field in tree.fields:
        layer = field.value
        if field.name not in ("layer", "layers") or not isinstance(layer, Block):
            continue
        for name in (inner.value for inner in layer.fields if inner.name == "name"):
            if isinstance(name, Scalar) and (places is None or places.get(name.text) == source.place(name.start)):
                yield name.text, field.start, layer


class _Parser:
    """Parser with one token of lookahead: ``kind``, ``token``, ``start`` and ``end`` describe the next token."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.at = 0
        self.tokens = self.values = 0
        self._next()

    def run(self) -> Block:
        return Block(self._fields("", 0), 0, len(self.source.text))

    def _next(self) -> None:
        text, at = self.source.text, self.at
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                if text[at] in "\"'":
                    raise self.source.error("this string has no closing quote on its line", at)
                raise self.source.error(f"unexpected character {text[at]!r}", at)
            self.tokens += 1
            if self.tokens > limits().text_tokens:
                raise self.source.error("too long: " + limits().exceeded("text_tokens", self.tokens), at)
            kind, stop = match.lastgroup, match.end()
            if kind != "skip":
                if kind == "number" and stop < len(text) and (text[stop].isalnum() or text[stop] in "_."):
                    raise self.source.error("a number runs into other characters", at, stop + 1)
                self.kind, self.token, self.start, self.end, self.at = kind, match.group(), at, stop, stop
                return
            at = stop
        self.kind, self.token, self.start, self.end, self.at = "end", "end of file", at, at, at

    def _is(self, marks: str) -> bool:
        return self.kind == "mark" and self.token in marks

    def _wrong(self, message: str) -> ParseError:
        return self.source.error(f"{message}, found {self.token!r}", self.start, self.end)

    def _fields(self, closing: str, depth: int) -> list[TextField]:
        fields: list[TextField] = []
        while True:
            if self.kind == "name" or self._is("["):
                name, start = self.token if self.kind == "name" else self._extension_name(), self.start
                self._next()
                self._value(fields, name, start, depth)
            elif self._is(",;") and fields:
                self._next()
            elif (closing and self._is(closing)) or (self.kind == "end" and not closing):
                return fields
            elif self.kind == "end":
                raise self.source.error(f"the file ends inside a message: {closing!r} is missing", self.start)
            else:
                raise self._wrong(f"expected a field name{f' or {closing!r}' if closing else ''}")

    def _extension_name(self) -> str:
        match = re.compile(_EXTENSION).match(self.source.text, self.start)
        if match is None:
            raise self._wrong("expected a field name")
        self.at = match.end()
        return match.group().replace(" ", "").replace("\t", "")

    def _value(self, fields: list[TextField], name: str, start: int, depth: int) -> None:
        colon = self._is(":")
        if colon:
            self._next()
        if self._is("["):
            self._list(fields, name, start, depth)
        elif self._is("{<"):
            fields.append(TextField(name, start, self._block(depth)))
        elif colon:
            fields.append(TextField(name, start, self._scalar(name)))
        else:
            raise self._wrong(f"expected ':' or '{{' after {name!r}")

    def _list(self, fields: list[TextField], name: str, start: int, depth: int) -> None:
        self._next()
        if self._is("]"):
            self._next()
            return
        while True:
            item = self._block(depth) if self._is("{<") else self._scalar(name)
            fields.append(TextField(name, start, item))
            if not self._is("],"):
                raise self._wrong(f"expected ',' or ']' in the list of {name!r}")
            last = self._is("]")
            self._next()
            if last:
                return

    def _block(self, depth: int) -> Block:
        self._count()
        start = self.start
        if depth >= limits().text_depth:
            deep = limits().exceeded("text_depth", depth + 1)
            raise self.source.error(f"messages nested {depth + 1} deep: {deep}", start)
        closing = _CLOSES[self.token]
        self._next()
        fields = self._fields(closing, depth + 1)
        end = self.end
        self._next()
        return Block(fields, start, end)

    def _scalar(self, name: str) -> Scalar:
        self._count()
        start, sign = self.start, ""
        if self._is("-"):
            sign = "-"
            self._next()
            if self.kind not in ("number", "name"):
                raise self.source.error(f"expected a number after '-', found {self.token!r}", start, self.end)
        if self.kind == "string":
            parts = []
            while self.kind == "string":  # adjacent strings are one
                parts.append(self._unquote(self.token, self.start))
                end = self.end
                self._next()
            return Scalar("string", b"".join(parts).decode("utf-8", "replace"), start, end)
        if self.kind not in ("name", "number"):
            raise self._wrong(f"expected a value for {name!r}")
        value = Scalar(self.kind, sign + self.token, start, self.end)
        self._next()
        return value

    def _count(self) -> None:
        self.values += 1
        if self.values > limits().text_values:
            excess = limits().exceeded("text_values", self.values)
            raise self.source.error(f"too many values: {excess}", self.start)

    def _unquote(self, quoted: str, start: int) -> bytes:
        """Return the bytes of a quoted string: octal and hex escapes are single bytes, all else is UTF-8."""
        inside = quoted[1:-1]
        parts: list[bytes] = []
        at = 0
        for escape in re.finditer(_ESCAPE, inside) if "\\" in inside else ():
            parts.append(inside[at : escape.start()].encode())
            parts.append(self._escape(escape.group(1), start + 1 + escape.start()))
            at = escape.end()
        parts.append(inside[at:].encode())
        return b"".join(parts)

    def _escape(self, code: str, start: int) -> bytes:
        if code in _LETTERS:
            return _LETTERS[code].encode()
        if code[0] in "01234567" and int(code, 8) < 256:
            return bytes([int(code, 8)])
        if code[0] in "xX" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[0] in "uU" and len(code) > 1:
            point = int(code[1:], 16)
            if point > 0x10FFFF or 0xD800 <= point < 0xE000:
                raise self.source.error(f"escape '\\{code}' is no character", start, start + 1 + len(code))
            return chr(point).encode()
        raise self.source.error(f"unknown escape '\\{code}' in a string", start, start + 1 + len(code))
