"""Show untrusted text from files (names, paths, messages) without letting control characters take effect, and numbers of things.

Only ``visible`` does the former: ``tell`` and ``chai.util.log`` print through it, ``ChaiError`` and every ``repr`` use it,
tables and HTML call it for each cell. Colour is added afterwards. (ruff's T201 keeps other modules from printing.)
"""

from __future__ import annotations

TYPE_CHECKING = False  # ``chai --help`` needs this module, and typing would take half of its time
if TYPE_CHECKING:
    from typing import TextIO

_JOINERS = "\u200c\u200d"  # these change the form of letters in Persian and Indian scripts
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # ASCII and fullwidth


def visible(text: str) -> str:
    """Return ``text`` in one line, with control, bidirectional and other invisible characters as escapes.

    Letters, marks and spaces of every script are unchanged.
    """
    return text if text.isprintable() else "".join(c if _harmless(c) else repr(c)[1:-1] for c in text)


def _harmless(character: str) -> bool:
    from unicodedata import category  # most text is printable, and needs no table of all characters

    return character.isprintable() or character in _JOINERS or category(character) == "Zs"


def encodable(text: str, file: TextIO) -> str:
    """Return ``text`` with escapes for characters that the encoding of ``file`` lacks."""
    if text.isascii():
        return text
    encoding = file.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def in_ascii(text: str) -> str:
    """Return ``text`` made ``visible``, with escapes for all characters outside ASCII."""
    return visible(text).encode("ascii", "backslashreplace").decode()


def number_of(count: int | str, what: str) -> str:
    """Return a count with its noun, whose singular is ``what``: "1 image", "2 images", "3 axes"."""
    if str(count) == "1":
        return f"1 {what}"
    if what.endswith("is"):
        return f"{count} {what[:-2]}es"
    return f"{count} {what}{'es' if what.endswith(('s', 'x', 'ch')) else 's'}"


def tell(file: TextIO, *lines: str) -> None:
    """Print each of ``lines`` to ``file`` as one line, made ``visible``."""
    for line in lines:
        print(encodable(visible(line), file), file=file)


def csv_cell(text: str) -> str:
    """Return text for a CSV cell. Text that starts like a formula gets a quote, as a spreadsheet would execute it."""
    shown = visible(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
