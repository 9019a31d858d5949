"""Files: bounded reads, atomic writes, locks, and digests."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO

from ..errors import ParseError, UsageError
from ..limits import limits
from .suggest import nearest

if TYPE_CHECKING:
    from pathlib import Path

BYTES = 1 << 20  # of a file that is written by hand; the shipped ones have 12 kB


def path_of(path: str | Path) -> str | Path:
    """Return the path of a file. Raises UsageError for what is none: a number would be an open file of the process."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"expected the path of a file, found {type(path).__name__}", hint="text, or a pathlib.Path")
    return path


@contextmanager
def complete(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; it is renamed to ``path`` at the end, or removed on an error.

    A link is followed: what it points to is replaced, not the link.
    """
    from pathlib import Path

    path = Path(path_of(path))
    target = link_target(path)
    part = incomplete(target)
    with named(path, part):
        try:
            yield part
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def named(path: str | Path, part: Path | None = None) -> Iterator[None]:
    """Put a file's name into errors of writing it: those of a full disk have no name, those of ``part`` a temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, part, str(part)):
            error.filename = str(path)
        raise


def link_target(path: Path) -> Path:
    """Return the file that a link points to, which may not be there yet; else the path itself."""
    return path.parent / os.path.realpath(path) if path.is_symlink() else path


def incomplete(path: Path) -> Path:
    """Return a new name beside ``path`` for a file until it is complete; no other process or thread writes that one.

    A long name is cut, as systems take names of up to 255 bytes. The first time in a folder, files that killed processes have
    left there are removed.
    """
    _clean(str(path.parent))
    return path.with_name(f"{path.name[:50]}.{_processes()}.{os.getpid()}.{os.urandom(4).hex()}.part")


@cache
def _clean(folder: str) -> None:
    """Remove what killed processes have left in a folder, once in each process."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if _is_orphan(name):
                os.unlink(os.path.join(folder, name))


@cache
def _processes() -> str:
    """Return a mark for the processes that this one sees by their numbers, since this boot; "" if the system does not say."""
    from zlib import crc32  # few commands write a file

    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{crc32((boot.read() + os.readlink('/proc/self/ns/pid')).encode()):08x}"
    except OSError:
        return ""


def _is_orphan(name: str) -> bool:
    """Return whether a file was incomplete when its process ended; False if another process has that number by now."""
    *_, mark, process, _, end = ("", "", "", *name.split("."))
    if end != "part" or not mark or mark != _processes() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another user's, or no process's
        return False
    return False


@contextmanager
def locked(path: Path, waiting: Callable[[], object] | None = None) -> Iterator[None]:
    """Lock a file, made if it is not there, for one process during the block. The system unlocks it if that process dies.

    ``waiting()`` is called before waiting for another process.
    """
    import fcntl

    with open(path, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def opened(path: str | Path, pipe: bool = True) -> BinaryIO:
    """Open a file to read, without waiting for the writer of a pipe: a pipe without one is empty.

    Raises ParseError for what may have no end, a device or a file of the system, as ``/proc/kmsg``, and unless ``pipe`` for a
    pipe: it can be read only once.
    """
    file = open(path_of(path), "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    status = os.fstat(file.fileno())
    regular = stat.S_ISREG(status.st_mode) and (status.st_size > 0 or _is_empty(file.fileno()))
    if not (regular or (pipe and stat.S_ISFIFO(status.st_mode))):
        file.close()
        raise ParseError("this is a pipe or a device, expected a file", path=str(path), hint="save it to a file first")
    os.set_blocking(file.fileno(), True)
    return file


def _is_empty(number: int) -> bool:
    """Return whether an open file whose size is 0 is empty. One of the system may have bytes, or wait for some."""
    try:
        return not os.pread(number, 1, 0)
    except OSError:
        return False


def opened_file(path: str | Path) -> BinaryIO:
    """Open a file that is read in parts or mapped. Raises ParseError for a pipe or device."""
    return opened(path, pipe=False)


def content(path: str | Path, limit: str) -> bytes:
    """Read a whole file or pipe. Raises ParseError if it is longer than the limit of that name."""
    with opened(path) as file:
        return rest(file, limit, str(path))


def text(path: str | Path, limit: str) -> str:
    """Read a text file. Raises ParseError if it is longer than the limit of that name, or has a zero byte, as no text has."""
    data = content(path, limit)
    if (at := data.find(0)) >= 0:
        raise ParseError(f"this is no text: byte {at} is 0", path=str(path), hint="expected lines of text in UTF-8")
    return data.decode("utf-8-sig", "replace")


def handwritten(path: str | Path, times: int = 1) -> str:
    """Return the text of a file, which may be ``times`` as large as one that is written by hand.

    Raises ParseError unless it is of that size and UTF-8, or OSError.
    """
    most = times * BYTES
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ParseError(f"the file is larger than {most:,} bytes", path=str(path))
    return decoded(data, path)


def decoded(data: bytes, path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a file's bytes, in UTF-8 or with "utf-8-sig". Raises ParseError with line and column."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]  # utf-8-sig counts after the byte order mark
        column = len(before.rpartition(b"\n")[2].decode("utf-8")) + 1
        message = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise ParseError(
            message, path=str(path), line=before.count(b"\n") + 1, column=column, hint="save the file as UTF-8"
        ) from None


def rest(file: BinaryIO, limit: str, path: str) -> bytes:
    """Read the rest of an open file. Raises ParseError if the file is longer than the limit of that name."""
    most = getattr(limits(), limit)
    size = os.fstat(file.fileno()).st_size
    data = b"" if size > most else file.read(most + 1)
    if max(size, len(data)) > most:
        raise ParseError(limits().exceeded(limit, max(size, len(data))) + " bytes", path=path)
    return data


def obstacle(path: Path, folder: bool = False) -> str:
    """Return why ``path`` cannot be written, or "". With ``folder`` it may also be a folder."""
    path = link_target(path)
    if path.is_dir():
        reason = "" if folder else "is a folder"
    elif path.exists() and not path.is_file():
        reason = "is no regular file"
    elif not path.parent.is_dir():
        reason = f"there is no folder {str(path.parent)!r}"
    else:
        path, reason = path.parent, ""
    return reason or ("" if os.access(path, os.W_OK | os.X_OK) else f"folder {str(path)!r} cannot be written to")


def in_its_place(path: Path) -> str:
    """Return a hint for a file that is not there: where a link points, a similar name in its folder, else the folder."""
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)!r}"
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    inside = path.parent.iterdir() if os.access(path.parent, os.R_OK) else ()
    others = {other.stem: other for other in inside if other.suffix == path.suffix}
    near = nearest(path.stem, others)
    return f"did you mean {others[near[0]]}?" if near else f"looked in {path.parent.absolute()}"


def digest(*paths: str | Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file in hexadecimal, or of several, one after the other, as if they were one.

    Raises ParseError if they are larger than any file that chai reads.
    """
    import hashlib

    checksum, size = hashlib.new(algorithm, usedforsecurity=False), 0
    for path in paths:
        with opened_file(path) as file:
            size += os.fstat(file.fileno()).st_size
            if size > limits().weight_bytes:
                raise ParseError(limits().exceeded("weight_bytes", size) + " bytes", path=str(path))
            while block := file.read(1 << 20):
                checksum.update(block)
    return checksum.hexdigest()


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    for name in ("_sha2", "_sha256"):  # Python's own, from 3.12 on and before: hashlib loads OpenSSL, which takes 2 ms
        with suppress(ImportError):
            return str(import_module(name).sha256(data).hexdigest())
    return str(import_module("hashlib").sha256(data).hexdigest())
