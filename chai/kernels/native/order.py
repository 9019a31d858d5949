"""Give the blobs of a table of operations memory, and its operations an order in which several threads may run them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...overlay.layout import share
from .table import Table


@dataclass(eq=False, repr=False, slots=True)
class OperationBlobs:
    """The blobs of an operation: those it reads, the one it writes ("" for none), and which of its channels."""

    reads: tuple[str, ...]
    writes: str
    channels: range

    @property
    def blobs(self) -> tuple[str, ...]:
        """Return the blobs that it reads or writes, one of them perhaps twice."""
        return (*self.reads, self.writes) if self.writes else self.reads


def arena(
    uses: Iterable[OperationBlobs], bytes_of: Callable[[str], int], outside: Collection[str] = ()
) -> tuple[dict[str, int], int]:
    """Return the offset of each blob in one piece of memory, and its size; blobs never used at the same time share bytes.

    Blobs that are ``outside`` have memory of their own.
    """
    lives: dict[str, tuple[int, int]] = {}
    for moment, use in enumerate(uses):
        for blob in use.blobs:
            if blob not in outside:
                lives[blob] = lives.get(blob, (moment,))[0], moment
    return share(lives, {blob: bytes_of(blob) for blob in lives})


def order(table: Table, uses: Iterable[OperationBlobs], places: Mapping[str, tuple[int, int]]) -> None:
    """Note in each operation of a table how many of the first ones have to be complete before it, see ``after``."""
    for operation, count in zip(table, after(uses, places)):
        operation.after = count


def after(uses: Iterable[OperationBlobs], places: Mapping[str, tuple[int, int]]) -> Iterator[int]:
    """Yield for each operation how many of the first ones have to be complete before it.

    It waits for the writers of what it reads, for the readers of what it overwrites, and for all users of a blob that had
    the bytes of its own before. ``places`` are the bytes (first, end) of each blob in memory; no two that share some are in use
    at once.
    """
    present: list[tuple[int, int, str]] = []  # places of blobs of which no other one has had all bytes since
    predecessors: dict[str, int] = {}  # operations up to the last user of the bytes that a blob has now
    last: dict[str, int] = {}  # operations up to the last one that reads or writes it
    readers: dict[str, int] = {}  # operations up to the last one that reads it, or writes it
    writers: dict[str, int] = {}
    parts: dict[str, list[tuple[range, int]]] = {}
    for i, use in enumerate(uses, 1):
        blobs = use.blobs
        for blob in blobs:
            if blob not in predecessors:
                start, end = places[blob]
                old = [place for place in present if place[0] < end and place[1] > start]
                predecessors[blob] = max((last[name] for _, _, name in old), default=0)
                present = [place for place in present if place[0] < start or place[1] > end]
                present.append((start, end, blob))
        needs = [*map(predecessors.__getitem__, blobs), *(writers.get(blob, 0) for blob in use.reads)]
        if use.writes:
            needs.append(readers.get(use.writes, 0))
            before = parts.setdefault(use.writes, [])
            needs += [end for channels, end in before if _overlap(channels, use.channels)]
            before.append((use.channels, i))
            writers[use.writes] = i
        yield max(needs, default=0)
        last.update(dict.fromkeys(blobs, i))
        readers.update(dict.fromkeys(use.reads, i))


def _overlap(a: range, b: range) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)
