"""Passes that are planned again: a layer may give its tops other sizes than its pass was planned for, as those in Python do.

A pass ends where a layer did so. It is planned for these sizes and runs again, but for custom layers, which may have a state:
what they wrote already is what they write in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from ..blob import Array, Shape
from ..errors import ShapeError
from ..graph import Layer

T = TypeVar("T")


class Resized(ShapeError):
    """The tops of a layer are not of the sizes that its pass was planned for."""


class Shown(NamedTuple):
    """Tops that a custom layer wrote, in float32 and without a ReLU that is part of it; and the milliseconds it took."""

    tops: tuple[Array, ...]
    ms: float


class Written:
    """Tops that custom layers wrote for a batch, by layer: they do not run again for it.

    ``noted``  the layers whose tops are kept; those of layers that gave other sizes are kept, too
    ``shown``  in float32
    ``codes``  of layers that ran on codes
    ``sizes``  of the tops of layers that gave other sizes
    """

    def __init__(self, noted: frozenset[str] = frozenset()) -> None:
        self.noted = noted
        self.shown: dict[str, Shown] = {}
        self.codes: dict[str, tuple[Array, ...]] = {}
        self.sizes: dict[str, tuple[Shape, ...]] = {}


class Renewing:
    """The layers of a network whose tops may have other sizes in each pass. ``happened``: in some pass they had."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        custom = [layer for layer in layers if layer.engine == "custom"]
        # of one layer alone there is none beside the one that renews
        again = len(custom) > 1 and any(layer.renews for layer in custom)
        self._noted = frozenset(layer.name for layer in custom) if again else frozenset[str]()
        self.happened = False

    def batch(self) -> Written:
        """Return what is written for a batch: nothing yet."""
        return Written(self._noted)

    def planned(self, run: Callable[[], T]) -> T:
        """Return what ``run`` returns, which plans a pass and runs it: again after each layer that gave other sizes."""
        try:
            return run()
        except Resized:
            self.happened = True
        return self.planned(run)


class Taken(Iterator[tuple[T, Written]]):
    """The batches of a stream, each with what is written for it. Those that did not finish can run again.

    ``feeds`` yields at least one; ``first`` is what is written for that one.
    """

    def __init__(self, feeds: Iterator[T], renewing: Renewing, first: Written) -> None:
        self._feeds, self._renewing = feeds, renewing
        self._first: Written | None = first
        self._unfinished = deque[tuple[T, Written]]()
        self._error: Exception | None = None  # of ``feeds``

    def __next__(self) -> tuple[T, Written]:
        try:
            feed = next(self._feeds)
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise
        batch = feed, self._first or self._renewing.batch()
        self._first = None
        self._unfinished.append(batch)
        return batch

    def finished(self) -> None:
        """Forget the first batch, which finished."""
        self._unfinished.popleft()

    def rest(self) -> Iterator[tuple[T, Written]]:
        """Yield the batches that did not finish, then those that were not taken; raise the error of ``feeds`` in its place."""
        while self._unfinished:
            yield self._unfinished.popleft()
        if self._error is not None:
            raise self._error
        for batch in self:
            self.finished()  # before it runs: alone
            yield batch
