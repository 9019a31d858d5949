"""Read and write the card of a network: the TOML file next to its prototxt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..detect.head import head_of
from ..detect.labels import SETS
from ..errors import ParseError, UsageError
from ..images.preprocess import LARGEST, LETTERBOX, OPTIONS, Preprocess
from ..util.data.dataclass_io import restore
from ..util.files import content, decoded
from ..util.lazy_numpy import np
from .card import Card, Published

_TABLE = r"\s*\[\s*preprocess\s*\]"
DEPTH = 32  # parts of a dotted key, in whose number TOML's reader takes quadratic time
_DEEP = rf"""(?<![\w"'-])[\w"'-]+(?:[ \t]*\.[ \t]*[\w"'-]+){{{DEPTH}}}"""

DIGESTS = {"sha256": 64, "sha1": 40, "md5": 32}  # hexadecimal digits
_WEIGHTS = ("of", "file", "urls", *DIGESTS, "size", "source", "from")
_FILE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.caffemodel"  # a name, never a path


def card_text(path: Path) -> str:
    """Return the text of a card; "" if there is no such file. Raises ParseError."""
    return decoded(content(path, "card_bytes"), path) if path.is_file() else ""


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    try:
        if re.search(_DEEP, text):
            raise ValueError(f"a key of more than {DEPTH} parts")
        table: dict[str, Any] = tomllib.loads(text)
        repr(table)  # fails, as messages would, for a number in hexadecimal with more digits than Python writes
        return table
    except (ValueError, RecursionError) as error:  # ValueError: also a number with more digits than Python reads
        raise ParseError(f"this is no TOML: {error}", path=str(path)) from error


def read_card(prototxt: str | Path) -> Card:
    """Return the card NAME.toml next to NAME.prototxt, an empty one if there is none. Raises ParseError."""
    path = Path(prototxt).with_suffix(".toml")
    return parse_card(card_text(path), path)


def parse_card(text: str, path: Path) -> Card:
    """Read a card from its text; ``path`` is named in errors. Raises ParseError."""
    table = _toml(text, path)
    unknown = [k for k in table if k not in ("title", "labels", "preprocess", "detect", "weights")]
    if unknown:
        raise ParseError(
            f"unknown key {unknown[0]!r}; expected title, labels, [preprocess], [detect] or [weights]", path=str(path)
        )
    labels = table.get("labels", [])
    labels = list(SETS[labels]) if isinstance(labels, str) and labels in SETS else labels
    if not isinstance(labels, list) or not all(isinstance(x, str) for x in labels):
        raise ParseError(f"labels: expected a list of texts, or {' or '.join(SETS)}", path=str(path))
    try:
        detect = head_of(table["detect"]) if "detect" in table else None
    except UsageError as error:
        raise ParseError(error.message, path=str(path), hint=error.hint) from error
    return Card(
        str(table.get("title", "")),
        tuple(labels),
        _preprocess(table.get("preprocess"), path),
        from_table(table["weights"], path) if "weights" in table else None,
        detect,
    )


def with_preprocess(text: str, how: Preprocess, path: Path, comment: str = "") -> str:
    """Replace the [preprocess] table of a card; every other line of ``text`` stays. Raises ParseError if it cannot be done.

    A card cannot hold a mean image, so it is left out; ``comment`` may say where it is.
    """
    values = dict(_values(how)) or ({"scale": "1.0"} if how.chosen else {})  # else the prototxt's would be read
    block = [f"{key} = {value}\n" for key, value in values.items()]
    if comment:
        block.insert(0, f"# {comment}\n")
    lines = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if re.match(_TABLE, line)), len(lines))
    after = next((i for i in range(first + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
    before = "".join(lines[:first])
    if before and first == len(lines):
        before = before.rstrip("\n") + "\n\n"
    table = "".join(["[preprocess]\n", *block]) if block else ""
    gap = "\n" if table and after < len(lines) else ""
    card = before + table + gap + "".join(lines[after:])
    expected = {**_toml(text, path), **_toml(table, path)}
    if not table:
        expected.pop("preprocess", None)
    try:
        replaced = _toml(card, path) == expected
    except ParseError:  # it has two tables now
        replaced = False
    if not replaced:
        raise ParseError(
            "its preprocessing cannot be replaced: expected [preprocess] and a line for each key", path=str(path)
        )
    return card


def _values(how: Preprocess) -> Iterator[tuple[str, str]]:
    for key in OPTIONS:
        value = getattr(how, key)
        if key == "mean":
            value = () if isinstance(value, np.ndarray) else tuple(map(float, np.atleast_1d(value)))
        if value == getattr(Preprocess, key):
            continue
        if isinstance(value, str):
            yield key, f'"{value}"'
        else:
            yield key, repr(float(value)) if isinstance(value, (int, float)) else str(list(value))


def _preprocess(table: Any, path: Path) -> Preprocess:
    if table is None:
        return Preprocess()
    if not isinstance(table, Mapping):
        raise ParseError("preprocess: expected a table, [preprocess]", path=str(path))
    options: dict[str, Any] = {}
    for key, value in table.items():
        if key not in OPTIONS:
            raise ParseError(f"[preprocess] has no key {key!r}; expected {', '.join(OPTIONS)}", path=str(path))
        numbers = value if isinstance(value, list) else [value]
        word = key == "channels" or value == LETTERBOX
        if not word and not all(type(n) in (int, float) and abs(n) <= LARGEST for n in numbers):
            raise ParseError(f"{key}: expected numbers, found {str(value)[:80]}", path=str(path))
        if key == "raw_scale" and isinstance(value, list):
            raise ParseError(f"{key}: expected one number, found {str(value)[:80]}", path=str(path))
        several = key in ("resize", "crop", "mean") or isinstance(value, list)
        options[key] = value if word else tuple(numbers) if several else float(value)
    try:
        return Preprocess().with_options(**options)
    except UsageError as error:
        raise ParseError(error.message, path=str(path), hint=error.hint) from error


def from_table(table: Any, path: Path) -> Published:
    """Return the [weights] table of the card at ``path``. Raises ParseError; nothing is fetched without a digest."""

    def wrong(text: str) -> ParseError:
        return ParseError(f"[weights] {text}", path=str(path))

    if not isinstance(table, Mapping):
        raise ParseError("weights: expected a table, [weights]", path=str(path))
    for key in table:
        if key not in _WEIGHTS:
            raise wrong(f"has no key {key!r}; expected {', '.join(_WEIGHTS)}")
    stated = [name for name in DIGESTS if name in table]
    # "from" is a word of Python
    values = {key.replace("from", "where"): value for key, value in table.items() if key not in stated}
    if stated:
        values |= {"algorithm": stated[0], "digest": str(table[stated[0]])}
    published = restore(Published, values, lambda place, text: wrong(f"{place[1:].replace('where', 'from')}: {text}"))
    strange = [url for url in published.urls if not url.startswith(("http://", "https://")) or not url.isprintable()]
    if strange:
        raise wrong(f"urls: expected http or https, found {strange[0]!r}")
    if published.size is not None and published.size < 1:
        raise wrong(f"size: expected a number of bytes, found {published.size}")
    if "of" in table:
        if len(table) > 1:
            raise wrong("of: the card of the other network is used as a whole; it takes no other key")
        return published
    if not re.fullmatch(_FILE, published.file):
        raise wrong(f"file: expected a name that ends in .caffemodel, found {published.file!r}")
    for name in stated:
        if not re.fullmatch(f"[0-9a-f]{{{DIGESTS[name]}}}", str(table[name])):
            raise wrong(f"{name}: expected {DIGESTS[name]} hexadecimal digits, found {table[name]!r}")
    if published.urls and not (stated and published.source):
        raise wrong("urls: a digest (" + ", ".join(DIGESTS) + ") and its source belong to them")
    return published
