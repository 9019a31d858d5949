"""Keep what was compiled in the user's cache, under a digest of everything that went into it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from ...env import env
from ...util.files import locked
from .tools import HARNESS, compiler, release, run


def kept(suffix: str, make: Callable[[Path], Path], *parts: str) -> Path:
    """Return the path of the file for these parts; ``make`` makes it in an empty folder and returns its path, once."""
    name = sha256("\0".join(parts).encode()).hexdigest()[:32]
    target = Path(env().cache, "rtl", f"{name}{suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock")):  # one process compiles a library, the others find it
        if not target.is_file():
            aside = f".{target.stem}-"
            for stale in target.parent.glob(f"{aside}*"):  # of a process that was killed
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=aside, dir=target.parent) as folder:
                os.replace(make(Path(folder)), target)
    return target


def forget(suffix: str, most: int) -> None:
    """Delete the oldest files of a suffix, until there are ``most``."""
    files = {path: path.stat().st_mtime_ns for path in Path(env().cache, "rtl").glob(f"*{suffix}")}
    for path in sorted(files, key=files.__getitem__)[: max(0, len(files) - most)]:
        path.unlink(missing_ok=True)


def compiled(command: Sequence[str], source: Path, headers: Sequence[str], tool: str = "") -> str:
    """Return the object of a source that is the same for each design; ``tool`` is the version that the source is of."""

    def make(folder: Path) -> Path:
        run([*command, *headers, "-c", str(source), "-o", "part.o"], folder)
        return folder / "part.o"

    texts = (path.read_text() for path in sorted(HARNESS.iterdir()))
    return str(kept(".o", make, *command, *headers, str(source), release(compiler()), tool, *texts))
