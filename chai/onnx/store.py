"""The bytes of an ONNX file and of the files beside it that hold its larger tensors."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ParseError
from ..limits import limits
from ..parser.mistaken import HEAD, ONNX, WHOLE_FILE, recognise
from ..parser.wire import Buffer
from ..util.files import opened_file


class ModelBytes:
    """Reads pieces of a model: of a file, or of bytes. ``path`` is its name in messages."""

    def __init__(self, source: str | Path | bytes) -> None:
        self._data = source if isinstance(source, bytes) else None
        self.path = "<bytes>" if isinstance(source, bytes) else str(source)
        self._others: set[str] = set()  # paths of files with external data

    @property
    def files(self) -> list[str]:
        """Return the paths of the model and, sorted, of the files with its external data, as far as they were checked."""
        return [self.path, *sorted(self._others)]

    @contextmanager
    def mapped(self) -> Iterator[Buffer]:
        """Yield the whole model, mapped if it is a file. Raises ParseError if it is empty, too large, or something else."""
        if self._data is not None:
            self._check(self._data[:HEAD], len(self._data))
            yield self._data
            return
        with opened_file(self.path) as file:
            head, size = file.read(HEAD), file.seek(0, 2)
            self._check(head, size)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
                yield buffer

    def _check(self, head: bytes, size: int) -> None:
        if not size:
            raise ParseError("the file is empty, expected an ONNX model", path=self.path)
        if size > limits().weight_bytes:
            raise ParseError(limits().exceeded("weight_bytes", size) + " bytes", path=self.path)
        kind = recognise(head, "")
        if kind and kind[0] != ONNX:
            raise ParseError(f"this is {kind[0]}, expected an ONNX model", path=self.path, hint=kind[1])

    def read(self, offset: int, size: int) -> bytes:
        if self._data is not None:
            return self._data[offset : offset + size]
        return self.piece(self.path, offset, size)

    def piece(self, path: str, offset: int, size: int) -> bytes:
        with opened_file(path) as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise ParseError("the file became shorter while it was read", path=path)
        return data

    def beside(self, location: str, offset: int, size: int) -> str:
        """Return the path of a file with external data, after checking it. Raises ParseError.

        It is a regular file in the model's own folder or below; no part of the path may be a link.
        """
        where = f"external data {location[:200]!r}"
        if self._data is not None:
            raise ParseError(f"{where}: a model from bytes has no folder", path=self.path, hint="load it from its file")
        parts = location.split("/")
        if not location or "\0" in location or "\\" in location or any(part in ("", ".", "..") for part in parts):
            what = f"{where}: expected a path below the model's folder, without '..' and links"
            raise ParseError(what, path=self.path)
        path = os.path.dirname(self.path) or "."
        for part in parts:
            path = os.path.join(path, part)
            try:
                mode = os.lstat(path).st_mode
            except (OSError, ValueError):
                hint = f"it belongs next to the model, as {os.path.join('.', location)}"
                raise ParseError(f"{where}: there is no such file", path=self.path, hint=hint) from None
            if stat.S_ISLNK(mode):
                raise ParseError(f"{where}: {part!r} is a link", path=self.path, hint="put the file itself there")
        if not stat.S_ISREG(mode):
            raise ParseError(f"{where}: this is no file", path=self.path)
        length = os.stat(path).st_size
        if offset < 0 or size > length - offset:
            what = f"{where}: {size:,} bytes from byte {offset:,}, but the file has {length:,}"
            raise ParseError(what, path=self.path, hint=WHOLE_FILE)
        self._others.add(path)
        return path
