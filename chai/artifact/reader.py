"""Typed access to the values of an artifact's header, and to the arrays it refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from math import prod
from typing import Any, TypeVar

from ..blob import Array, show
from ..errors import ParseError
from ..util.data.dataclass_io import restore
from ..util.lazy_numpy import np
from . import container

T = TypeVar("T")


class Reader:
    """Checked reading of one artifact. All methods raise ParseError with the file's name."""

    def __init__(self, artifact: container.Artifact) -> None:
        self.artifact = artifact
        self.header = artifact.header

    def error(self, message: str, hint: str | None = None) -> ParseError:
        """Return a ParseError that names the file."""
        return self.artifact.error(message, hint)

    def get(self, key: str, kind: Any) -> Any:
        """Return a header value after checking its ``kind``: a type, [kind], {str: kind} or {"key": kind, ...}."""
        if key not in self.header:
            raise self.error(f"header: {key!r} is missing")
        return self.of(self.header[key], kind, key)

    def of(self, value: Any, kind: Any, where: str) -> Any:
        """Return ``value`` after checking its ``kind`` as ``get`` does; ``where`` is its place in the header."""
        if type(value) is kind:
            return value
        if isinstance(kind, type):
            raise self.error(f"header: {where}: expected {kind.__name__}, found {repr(value)[:40]}")
        items: Iterable[Any]
        kinds: Iterable[Any]
        if isinstance(kind, list):
            if type(value) is not list:
                raise self.error(f"header: {where}: expected a list")
            items, kinds = value, repeat(kind[0])
        elif str in kind:
            if type(value) is not dict:
                raise self.error(f"header: {where}: expected an object")
            items, kinds = value.values(), repeat(kind[str])
        else:
            if type(value) is not dict or not kind.keys() <= value.keys():
                raise self.error(f"header: {where}: expected an object with {', '.join(kind)}")
            items, kinds = map(value.__getitem__, kind), kind.values()
        for item, inner in zip(items, kinds):
            if type(item) is not inner:
                self.of(item, inner, where)
        return value

    def restore(self, cls: type[T], value: Any, where: str) -> T:
        """Return a value of type ``cls``, such as a dataclass, from JSON; ``where`` is its place in the header."""
        return restore(cls, value, lambda place, text: self.error(f"{where}{place}: {text}"))

    def array(self, entry: Mapping[str, Any]) -> Array:
        """Return a float32 array as a view of the section "weights"."""
        shape = tuple(self.of(entry.get("shape"), [int], "array"))
        offset = self.of(entry.get("offset"), int, "array")
        data = self.section("weights").mapped
        size = 4 * prod(shape)
        if any(d < 0 for d in shape) or offset % 64 or offset < 0 or offset + size > len(data):
            raise self.error("header: an array lies outside the section 'weights'")
        try:
            array: Array = np.frombuffer(data, np.float32, prod(shape), offset).reshape(shape)
        except ValueError as error:  # it is empty, but for one 0 too large
            raise self.error(f"header: an array of {show(shape)}: {error}") from error
        return array

    def section(self, name: str) -> container.Section:
        """Return a section. Raises ParseError if it is missing."""
        if name not in self.artifact.sections:
            raise self.error(f"section {name!r} is missing")
        return self.artifact.sections[name]
