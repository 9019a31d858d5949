"""Append-only progress log that survives a kill: one JSON line per record, on the disk within a second."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

from ...errors import ParseError, UsageError
from ..files import named, opened_file

Record = dict[str, Any]
SCHEMA = "chai.journal/2"
BEGIN = b'{"schema": "chai.journal/'
SYNC = 1.0  # seconds between two fsyncs


class Journal:
    """A file of JSON lines with checksums: first the run, then Records in the order of ``add``, one per ``key``.

    ``run``      everything that the numbers depend on, by name. Raises UsageError if the file belongs to another run, or
                 if another process is writing it
    ``restart``  discard the file's content
    ``records``  the records in the file by key. An incomplete last line is ignored
    """

    def __init__(self, path: str | Path, run: Mapping[str, Any], restart: bool = False, key: str = "image") -> None:
        self.path, self.key = path, key
        self.records: dict[Any, Record] = {}
        self._synced = monotonic()
        try:
            with suppress(FileNotFoundError):
                opened_file(path).close()
        except (ParseError, IsADirectoryError):
            raise UsageError(f"journal {path}: this is no file", hint="name another") from None
        self._file = open(path, "a+b")  # noqa: SIM115
        with named(path):
            try:
                self._lock()
                self._known()
                if restart:
                    self._file.truncate(0)
                self._read(json.loads(json.dumps(run)))
            except BaseException:
                self._file.close()
                raise

    def add(self, records: Sequence[Record]) -> None:
        """Append records; they are on the disk within a second, or when the Journal is closed."""
        with named(self.path):
            self._file.write(b"".join(map(_line, records)))
            self._file.flush()
            if monotonic() - self._synced > SYNC:
                self._sync()

    def close(self) -> None:
        """Write everything to the disk and close the file."""
        with named(self.path):
            self._sync()
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = monotonic()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"journal {self.path}: another process is writing it"
            raise UsageError(message, hint="wait for it, or name another journal") from None

    def _known(self) -> None:
        """Check that this file is a journal, which may be truncated. Raises ParseError."""
        self._file.seek(0)
        head = self._file.read(len(BEGIN))
        if not BEGIN.startswith(head):
            message = "this is no journal of chai"
            raise ParseError(message, path=str(self.path), line=1, column=1, hint="name another file")

    def _read(self, run: Mapping[str, Any]) -> None:
        self._file.seek(0)
        end = number = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break  # incomplete line
            end += len(line)
            content = self._parse(line, number)
            if number == 1:
                self._check(content, run)
            elif content[self.key] in self.records:
                raise self._error(f"{self.key} {content[self.key]} is here twice", number)
            else:
                self.records[content[self.key]] = content
        self._file.truncate(end)
        if end == 0:
            self._file.write(_line({"schema": SCHEMA, **run}))
            self._file.flush()

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or (number > 1 and not isinstance(content.get(self.key), (int, str))):
            raise self._error("this is no line of a journal", number)
        if number == 1 and content.get("schema") != SCHEMA:
            raise self._error(f"expected schema {SCHEMA}, found {content.get('schema')!r}", 1)
        crc = content.pop("crc", None)
        if crc != _crc(content):
            raise self._error("this line was changed (checksum)", number)
        return content

    def _check(self, first: Mapping[str, Any], run: Mapping[str, Any]) -> None:
        differ = sorted(part for part in {*first, *run} - {"schema"} if first.get(part) != run.get(part))
        if differ:
            message = f"journal {self.path} is of another run: its {', '.join(differ)} differ"
            raise UsageError(message, hint="name another file, or start this one over with --restart")

    def _error(self, message: str, line: int) -> ParseError:
        return ParseError(message, path=str(self.path), line=line, column=1, hint="--restart starts it over")


def _line(content: Mapping[str, Any]) -> bytes:
    """Return a line with the checksum of its content."""
    return json.dumps({**content, "crc": _crc(content)}).encode() + b"\n"


def _crc(content: Mapping[str, Any]) -> int:
    return crc32(json.dumps(content).encode())
