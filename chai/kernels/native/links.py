"""Layers in float32 as the library computes them, alone or one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...blob import Array
    from .single import Single


class Native(NamedTuple):
    """A layer in C: ``single`` on the numbers of its bottoms, two at most, and on ``parameters``, which it reads where they are.

    Without ``single`` its top has the numbers of its bottoms side by side, in each of ``parts`` equal parts; in 0 parts it is its
    bottom, in the same memory.
    """

    single: Single | None
    parameters: tuple[Array, ...] = ()
    parts: int = 0


class Link(NamedTuple):
    """A layer of a chain, and the blobs that it reads and writes."""

    native: Native
    reads: tuple[str, ...]
    writes: tuple[str, ...]
