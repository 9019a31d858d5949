"""Read an XML file as a tree of elements with their places: bounded, without DTD, entities and text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from ...errors import ParseError
from ...util.files import content, decoded
from ...util.source import SourceText

DEPTH = 8  # nested elements; OpenVINO's format has 3
ELEMENTS = 10_000
_DECLARATION = re.compile(rb"\A\s*<\?xml[^>]*\?>")
_ATTRIBUTE = re.compile(r"\s*([^\s=<>/]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_ROOT = b"<files>"  # encloses the file's elements: several may follow each other without an own root


@dataclass(frozen=True)
class Attribute:
    """The value of an attribute, and the range of its text in the file."""

    value: str
    start: int
    end: int


@dataclass
class Element:
    """An element with its attributes and children; ``start`` is the offset of its ``<``."""

    source: SourceText
    name: str
    start: int
    attributes: dict[str, Attribute]
    children: list[Element] = field(default_factory=list)

    def all(self, name: str) -> list[Element]:
        return [child for child in self.children if child.name == name]

    def get(self, name: str, default: str = "") -> str:
        attribute = self.attributes.get(name)
        return default if attribute is None else attribute.value

    @property
    def place(self) -> str:
        """Return path:line."""
        return self.source.place(self.start)

    def error(self, message: str, attribute: str | None = None, hint: str | None = None, shift: int = 0) -> ParseError:
        """Return a ParseError at this element, or at an attribute's value, ``shift`` characters after its start."""
        at = self.attributes.get(attribute or "")
        if at is None:
            return self.source.error(message, self.start, self.start + 1 + len(self.name), hint)
        start = min(at.start + shift, max(at.end - 1, at.start))
        return self.source.error(message, start, at.end, hint)


def read(path: Path) -> list[Element]:
    """Return the outermost elements of a file. Raises ParseError with line and column."""
    text = decoded(content(path, "xml_bytes"), path, "utf-8-sig")
    return _Reader(SourceText(text, str(path))).elements()


class _Reader:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.top: list[Element] = []
        self.open: list[Element] = []
        self.count = 0
        self.passed = 0, 0  # a place of the file, in bytes and in characters
        # the declaration may only be at the start, where the enclosing element is: blanks keep all offsets
        self.data = _DECLARATION.sub(lambda m: re.sub(rb"\S", b" ", m[0]), source.text.encode(), count=1)
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def elements(self) -> list[Element]:
        try:
            self.parser.Parse(_ROOT, False)
            self.parser.Parse(self.data, False)
            self.parser.Parse(b"</files>", True)
        except expat.ExpatError as error:
            self._refuse(error)
        return self.top

    def _refuse(self, error: expat.ExpatError) -> NoReturn:
        at = self._offset(self.parser.ErrorByteIndex)
        mismatched = error.code == expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH]
        if self.open and (mismatched or at >= len(self.source.text)):
            raise self.open[-1].error(f"<{self.open[-1].name}> is not closed") from None
        if self.source.text.startswith("<!", at) or self.source.text.startswith("<!", max(0, at - 2)):
            raise self.source.error("a DTD, or what belongs to one, is not read", at, hint="elements alone") from None
        raise self.source.error(f"no XML: {expat.ErrorString(error.code)}", at) from None

    def _offset(self, index: int) -> int:
        """Return the index of a character, for an index of expat's bytes."""
        index = max(0, min(index - len(_ROOT), len(self.data)))
        before, characters = self.passed if index >= self.passed[0] else (0, 0)
        self.passed = index, characters + len(self.data[before:index].decode(errors="replace"))
        return self.passed[1]

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        if self.parser.CurrentByteIndex < len(_ROOT):
            return
        start = self._offset(self.parser.CurrentByteIndex)
        element = Element(self.source, name, start, self._attributes(start + 1 + len(name), _attributes))
        self.count += 1
        if self.count > ELEMENTS or len(self.open) >= DEPTH:
            what = f"more than {ELEMENTS} elements" if self.count > ELEMENTS else f"more than {DEPTH} nested elements"
            raise element.error(what)
        (self.open[-1].children if self.open else self.top).append(element)
        self.open.append(element)

    def _attributes(self, at: int, values: dict[str, str]) -> dict[str, Attribute]:
        """Return the attributes with their places, which expat does not give."""
        attributes: dict[str, Attribute] = {}
        while len(attributes) < len(values) and (match := _ATTRIBUTE.match(self.source.text, at)):
            start, end = match.span(2 if match[2] is not None else 3)
            attributes[match[1]] = Attribute(values[match[1]], start, end)
            at = match.end()
        return attributes

    def _end(self, _name: str) -> None:
        if self.open:
            self.open.pop()

    def _text(self, text: str) -> None:
        if text.strip():
            blank = len(text) - len(text.lstrip())
            at = self._offset(self.parser.CurrentByteIndex) + blank
            shown = text.split()[0][:40]
            raise self.source.error(
                f"text {shown!r} between the elements", at, at + len(shown), "values are attributes"
            )
