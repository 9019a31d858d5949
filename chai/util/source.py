"""The text of a file, and positions in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property

from ..errors import ParseError


class SourceText:
    """The text of one file and its name. ``encoding`` restores the file's bytes from it."""

    def __init__(self, text: str, path: str, encoding: str = "utf-8") -> None:
        self.text = text
        self.path = path
        self.encoding = encoding

    @cached_property
    def _lines(self) -> list[int]:
        """The offset of each line."""
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def where(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def place(self, offset: int) -> str:
        """Return path:line of an offset."""
        return f"{self.path}:{self.where(offset)[0]}"

    def error(
        self, message: str, start: int, end: int | None = None, hint: str | None = None, layer: str | None = None
    ) -> ParseError:
        """Return a ParseError that shows the text from ``start`` to ``end``."""
        line, column = self.where(min(start, len(self.text)))
        text = self.text[self._lines[line - 1] :].split("\n", 1)[0].rstrip("\r")
        shift = max(0, column - 60)  # long lines: keep the position in view
        shown = re.sub(r"[^ -~]", "?", text[shift : shift + 76].replace("\t", " "))
        width = max(1, min((end or start + 1) - start, len(shown) - (column - 1 - shift)))
        gutter = f"{line:5d} | "
        excerpt = f"{gutter}{shown}\n{' ' * (len(gutter) - 2)}| {' ' * (column - 1 - shift)}{'^' * width}"
        return ParseError(message, path=self.path, line=line, column=column, excerpt=excerpt, hint=hint, layer=layer)


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return a text after edits (start, end, replacement), which do not overlap; in any order."""
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join(pieces) + text[at:]
