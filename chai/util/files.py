"""Files that appear complete or not at all, and how to know one again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete(path: str | Path) -> Iterator[Path]:
    """A path beside ``path`` to write to: it takes that name when the block ends, and is gone when the block raises."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk is met in write, which knows no name
            error.filename = str(path)
        raise


def digest(path: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    from hashlib import sha256

    found = sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()
