"""Published files: weights in a network's card, and bitstreams; with addresses and digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ParseError

DIGESTS = {"sha256": 64, "sha1": 40, "md5": 32}  # hexadecimal digits
_KEYS = ("of", "file", "urls", *DIGESTS, "size", "source", "from")
_FILE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.caffemodel"  # a name, never a path


@dataclass(frozen=True)
class Published:
    """Weights or a bitstream published by a third party. Without ``urls`` chai cannot fetch it: the user stores the file.

    ``of``         name of the network whose card describes the same file; all else is then empty
    ``file``       the published name, which the file has in the cache
    ``urls``       http or https, tried in order
    ``algorithm``  "sha256", or "sha1" or "md5" if no better one is published; of the whole file
    ``digest``     hexadecimal, lower case
    ``size``       bytes, or None if not published
    ``source``     source of digest and size
    ``where``      where users can get the file if it cannot be fetched
    """

    of: str = ""
    file: str = ""
    urls: tuple[str, ...] = ()
    algorithm: str = ""
    digest: str = ""
    size: int | None = None
    source: str = ""
    where: str = ""

    def describe(self) -> str:
        """Return size and digest, if known, in one line."""
        size = f"{self.size:,} bytes" if self.size else ""
        return ", ".join(filter(None, [size, f"{self.algorithm} {self.digest}" if self.digest else ""]))


def from_table(table: Any, path: Path) -> Published:
    """Return the [weights] table of the card at ``path``. Raises ParseError; nothing is fetched without a digest."""

    def wrong(text: str) -> ParseError:
        return ParseError(f"[weights] {text}", path=str(path))

    if not isinstance(table, Mapping):
        raise ParseError("weights: expected a table, [weights]", path=str(path))
    for key, value in table.items():
        if key not in _KEYS:
            raise wrong(f"has no key {key!r}; expected {', '.join(_KEYS)}")
        if key == "urls":
            if not isinstance(value, list) or not all(isinstance(u, str) for u in value):
                raise wrong(f"urls: expected a list of texts, found {value!r}")
            strange = [u for u in value if not u.startswith(("http://", "https://")) or not u.isprintable()]
            if strange:
                raise wrong(f"urls: expected http or https, found {strange[0]!r}")
        elif key == "size":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise wrong(f"size: expected a number of bytes, found {value!r}")
        elif not isinstance(value, str):
            raise wrong(f"{key}: expected a text, found {value!r}")
    if "of" in table:
        if len(table) > 1:
            raise wrong("of: the card of the other network is used as a whole; it takes no other key")
        return Published(of=table["of"])
    if not re.fullmatch(_FILE, table.get("file", "")):
        raise wrong(f"file: expected a name that ends in .caffemodel, found {table.get('file', '')!r}")
    stated = [name for name in DIGESTS if name in table]
    for name in stated:
        if not re.fullmatch(f"[0-9a-f]{{{DIGESTS[name]}}}", table[name]):
            raise wrong(f"{name}: expected {DIGESTS[name]} hexadecimal digits, found {table[name]!r}")
    if table.get("urls") and not (stated and table.get("source")):
        raise wrong("urls: a digest (" + ", ".join(DIGESTS) + ") and its source belong to them")
    return Published(
        file=table["file"],
        urls=tuple(table.get("urls", ())),
        algorithm=stated[0] if stated else "",
        digest=table[stated[0]] if stated else "",
        size=table.get("size"),
        source=table.get("source", ""),
        where=table.get("from", ""),
    )
