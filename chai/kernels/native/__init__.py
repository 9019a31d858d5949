"""Kernels in C: operations of one table, which one call runs (docs/kernels.md): the emulator's Tasks, and layers in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...blob import Array, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from .packed import ChannelTable, PackedFilters
    from .program import NativeProgram
    from .single import Single


@dataclass(eq=False, repr=False, slots=True)
class NativeLayer:
    """A step in C: ``single`` on the numbers of its bottoms, two at most, and on ``parameters``, which it reads where they are.

    ``packed`` are those of them that are to be written first. ``scaled`` returns the layer with a ChannelTable instead of its
    bias, and perhaps a ReLU. ``program`` are Tasks in place of a ``single``.

    Without both its top has the numbers of its bottoms side by side, in each of ``parts`` equal parts; in 0 parts it is its
    bottom, in the same memory.
    """

    single: Single | None
    parameters: tuple[Array, ...] = ()
    parts: int = 0
    packed: tuple[PackedFilters | ChannelTable, ...] = ()
    scaled: Callable[[ChannelTable, bool], NativeLayer] | None = None
    program: NativeProgram | None = None

    def run(self, x: Array) -> Array:
        """Return the numbers of its top for those of its only bottom, a new array: of a layer with a ``single``."""
        assert self.single is not None
        for each in self.packed:
            each.write()
        return self.single.run(plain(x), *map(plain, self.parameters))


@dataclass(eq=False, repr=False, slots=True)
class Link:
    """A step of a chain, and the blobs that it reads and writes; one that counts something writes none.

    It has so many ``rows`` of times; none if its time is a part of the last row before.
    """

    native: NativeLayer
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    rows: int = 1
