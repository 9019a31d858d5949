"""Text from files on its way to people: names, paths and messages are shown, nothing in them is obeyed.

``visible`` is the one place where that happens. ``tell`` prints through it, ``chai.util.log`` logs through it, ``ChaiError``
and every ``repr`` use it, tables and HTML call it for each cell. Colour is added afterwards. (ruff's T201 keeps other
modules from printing.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from typing import TextIO

_JOINERS = "\u200c\u200d"  # letters of Persian and of Indian scripts take their form from these
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # ASCII and fullwidth


def visible(text: str) -> str:
    """Return ``text`` in one line, with control, bidirectional and other invisible characters as escapes.

    Letters, marks and blanks of every script stay as they are.
    """
    return text if text.isprintable() else "".join(c if _harmless(c) else repr(c)[1:-1] for c in text)


def _harmless(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or category(character) == "Zs"


def encodable(text: str, file: TextIO) -> str:
    """Return ``text`` with escapes for the characters that the encoding of ``file`` does not have."""
    if text.isascii():
        return text
    encoding = file.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def tell(file: TextIO, *lines: str) -> None:
    """Print each of ``lines`` to ``file`` as one line, made ``visible``."""
    for line in lines:
        print(encodable(visible(line), file), file=file)


def csv_cell(text: str) -> str:
    """Return text for a cell of a CSV file; a spreadsheet would run one that begins like a formula, so it gets a quote."""
    shown = visible(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
