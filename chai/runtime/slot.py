"""Slot: one batch in flight, and what the passes that keep the same blobs have in common."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .host.memory import Alive
from .times import RunTimes

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..devices.base import Program
    from ..fixed import Format
    from ..images.pictures import Feed
    from ..offload.schedule import Blobs, Side
    from .measuring import Written

NOTHING: Written = MappingProxyType({})  # that layers wrote before a pass


@dataclass(eq=False, slots=True)
class StepBlobs:
    """Blobs that a step reads and writes, and the Programs that it runs, the same in all passes that keep the same blobs.

    ``dropped`` blobs that no other step reads
    ``shared``  blobs that other steps read, too: dropped after the last of them
    ``written`` blobs that exist after it
    ``tops``    those of a segment that are parts of larger blobs and read outside, or dumped; each with its layer's name
    """

    dropped: Blobs
    shared: Blobs
    written: Blobs
    tops: tuple[tuple[str, str], ...] = ()
    programs: tuple[Program, ...] = ()


class Kept:
    """The common part of all passes that keep the same blobs, and the use of each step.

    ``reads``   how often each blob is read that several steps read
    ``peak``    bytes of blobs alive at once, where they are the same in every pass; None before the first
    """

    def __init__(self, blobs: frozenset[str], reads: Mapping[tuple[Side, str], int], uses: Sequence[StepBlobs]) -> None:
        self.blobs, self.reads, self.uses = blobs, reads, uses
        self.peak: int | None = None


class Decoded(Mapping[str, "Array"]):
    """The kept blobs of a finished batch by id, in float32. Codes become numbers when a blob is read first: few are."""

    def __init__(self, slot: Slot, formats: Mapping[str, Format], shapes: Mapping[str, Shape]) -> None:
        self._floats = {blob: slot.host[blob] for blob in slot.kept.blobs if blob in slot.host}
        self._codes = {blob: slot.codes[blob] for blob in slot.kept.blobs if blob in slot.codes}
        self._formats, self._shapes = formats, shapes

    def __getitem__(self, blob: str) -> Array:
        if (floats := self._floats.get(blob)) is None:
            codes = self._codes[blob].reshape(self._shapes[blob])
            floats = self._floats[blob] = self._formats[blob].dequantize(codes)
        return floats

    def __contains__(self, blob: object) -> bool:
        return blob in self._floats or blob in self._codes

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._floats, *self._codes)))

    def __len__(self) -> int:
        return len(self._floats.keys() | self._codes.keys())


class Slot:
    """One batch in flight: its blobs on the host (float32, or Pictures to be packed) and on the device (codes), by blob id.

    A blob is dropped after its last reader, unless it is to be kept; ``left`` counts the readers of those that have
    several. ``alive`` measures the peak of memory, None if it is known. ``feed`` is the milliseconds before the first
    step, ``between`` the time within steps that no row counts. ``shown`` is what custom layers wrote for this batch already;
    those that do not run again for it took ``before`` milliseconds.
    """

    def __init__(
        self,
        feeds: Mapping[str, Feed],
        kept: Kept,
        started: float,
        alive: Alive | None,
        shown: Written = NOTHING,
    ) -> None:
        self.host: dict[str, Any] = dict(feeds)
        self.codes: dict[str, Array] = {}
        self.sides: dict[Side, dict[str, Array]] = {"host": self.host, "device": self.codes}
        self.kept, self.left = kept, dict(kept.reads)
        self.started, self.feed, self.between = started, 0.0, 0.0
        self.runs: list[RunTimes] = []
        self.alive, self.fed = alive, 0
        self.converted = self.saturated = 0  # codes, counted in the host's lane
        self.shown, self.before = shown, 0.0
        self._lock = allocate_lock()
        for blob, feed in feeds.items():
            self.fed += feed.nbytes
            if alive is not None:
                alive.add(("host", blob), self.host[blob])

    def done(self, use: StepBlobs, run: RunTimes, begin: float) -> None:
        """Finish a step that began at ``begin``: note its times, and drop the blobs that it was the last to read."""
        with self._lock:  # host and device steps of one batch may end at the same time
            if self.alive is not None:
                for name in use.written:
                    if (array := self.sides[name[0]].get(name[1])) is not None:
                        self.alive.add(name, array)
            for name in use.dropped:
                self._drop(name)
            for name in use.shared:
                self.left[name] -= 1
                if not self.left[name]:
                    self._drop(name)
            self.runs.append(run)
            self.between += (perf_counter() - begin) * 1000 - sum(run.ms)

    def _drop(self, name: tuple[Side, str]) -> None:
        side, blob = name
        if self.alive is not None:
            self.alive.drop(name)
        self.sides[side].pop(blob, None)
