"""Kernels in C: operations of one table, which one call runs (docs/kernels.md): the emulator's Tasks, and layers in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...blob import Array
    from .single import Single


class Native:
    """A layer in C: ``single`` on the numbers of its bottoms, two at most, and on ``parameters``, which it reads where they are.

    Without ``single`` its top has the numbers of its bottoms side by side, in each of ``parts`` equal parts; in 0 parts it is its
    bottom, in the same memory.
    """

    __slots__ = ("parameters", "parts", "single")

    def __init__(self, single: Single | None, parameters: tuple[Array, ...] = (), parts: int = 0) -> None:
        self.single, self.parameters, self.parts = single, parameters, parts


class Link:
    """A layer of a chain, and the blobs that it reads and writes."""

    __slots__ = ("native", "reads", "writes")

    def __init__(self, native: Native, reads: tuple[str, ...], writes: tuple[str, ...]) -> None:
        self.native, self.reads, self.writes = native, reads, writes
