"""The steps of a Schedule, prepared once to run on many batches: each takes a Slot, and returns its times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...graph import Layer
from ...kernels.native import Link
from ...offload.schedule import Side
from ..slot import Slot, StepBlobs
from ..times import Rows, RunTimes


class PreparedStep:
    """A step that is ready to run on many batches.

    ``rows``   its times
    ``layer``  the one that it runs on the host
    ``notes``  whether its links note something
    ``converted``  how many codes they count
    """

    rows: Rows
    layer: Layer | None = None
    notes = False
    converted = 0

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        """Run it on the blobs of a batch."""
        raise NotImplementedError

    def links(self, use: StepBlobs) -> list[Link] | None:
        """Return it in C, with the names of ``name_of``; None if that is not all of it, or blobs are large."""
        del use
        return None

    def noted(self, notes: Iterator[int], slot: Slot) -> None:
        """Take over what its links have noted, in order. It may be left out where all of it is 0."""


def name_of(side: Side, blob: str) -> str:
    """Return the name of a blob on its side in a chain."""
    return f"{side} {blob}"


def names_of(side: Side, blobs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of blobs on a side."""
    return tuple([name_of(side, blob) for blob in blobs])
