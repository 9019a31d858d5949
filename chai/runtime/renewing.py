"""Layers whose tops may have another size in each pass: those in Python that load data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ..graph import Layer

T = TypeVar("T")


class Renewing:
    """The layers of a network that renew the sizes of their tops; with any of them passes run one at a time."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self._layers = [layer for layer in layers if layer.renews]

    def __bool__(self) -> bool:
        return bool(self._layers)

    def begin(self) -> bool:
        """Begin a pass: determine the sizes of their tops; return whether one changed."""
        changed = [layer.renewed() for layer in self._layers]
        return any(changed)

    def begun(self, feeds: Iterable[T]) -> Iterator[T]:
        """Yield the feeds of passes, and begin each."""
        for feed in feeds:
            self.begin()
            yield feed
