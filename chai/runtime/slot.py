"""Slot: one batch in flight, and what the passes that keep the same blobs have in common."""

from __future__ import annotations

from _thread import allocate_lock
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..blob import Array
from ..graph import Graph
from .times import BlobLog, ModelledTime, RunTimes, Steps, Times

if TYPE_CHECKING:
    from ..devices.base import Program
    from ..driver.memory import BlobSet
    from ..images.pictures import Feed
    from ..offload.schedule import Blobs, Side
    from .direct import Direct
    from .lanes import Pipeline
    from .renewing import Written


@dataclass(eq=False, repr=False, slots=True)
class StepBlobs:
    """Blobs that a step reads and writes, and the Programs that it runs, the same in all passes that keep the same blobs.

    ``reads``   blobs of other steps
    ``written`` blobs that exist after it
    ``dropped`` blobs that are gone after it, of those that no other step reads
    ``shared``  blobs that other steps read, too: dropped after the last of them
    ``tops``    of a segment: those that are parts of larger blobs and are read outside, or dumped; each with its layer's name
    ``direct``  the conversions and the segment that it is one of; it ``claims`` their set before, or ``gives`` it back after
    """

    reads: Blobs
    written: Blobs
    dropped: Blobs = ()
    shared: Blobs = ()
    tops: tuple[tuple[str, str], ...] = ()
    programs: tuple[Program, ...] = ()
    direct: Direct | None = None
    claims: Direct | None = None
    gives: Direct | None = None


Run = Callable[["Slot", StepBlobs], RunTimes]  # of a step, on a batch


class Kept:
    """The common part of all passes that keep the same ``blobs``: their steps, and the use of each.

    ``reads``      how often each blob is read that several steps read
    ``peak``       bytes of blobs alive at once, where they are the same in every pass; None before the first
    ``pipelines``  of passes in several threads, by the number of batches in flight
    """

    def __init__(self, blobs: frozenset[str], steps: Sequence[tuple[Run, StepBlobs]]) -> None:
        self.blobs, self.steps, self.uses = blobs, steps, [use for _, use in steps]
        reads = Counter(read for use in self.uses for read in use.reads)
        self.reads = {read: count for read, count in reads.items() if count > 1 and read[1] not in blobs}
        for use in self.uses:
            use.shared = tuple([read for read in use.reads if read in self.reads])
            alone = [read for read in use.reads if reads[read] == 1 and read[1] not in blobs]
            use.dropped = (*alone, *use.dropped)
        self.peak: int | None = None
        self.pipelines: dict[int, Pipeline] = {}


class LazyBlobs(Mapping[str, "Array"]):
    """Blobs of a finished batch by id, in float32, or how to get them. That is done when a blob is read first: few are."""

    def __init__(self, blobs: dict[str, Array | Callable[[], Array]]) -> None:
        self._blobs = blobs

    def __getitem__(self, blob: str) -> Array:
        floats = self._blobs[blob]
        if callable(floats):
            floats = self._blobs[blob] = floats()
        return floats

    def __contains__(self, blob: object) -> bool:
        return blob in self._blobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


class Slot:
    """One batch in flight: its blobs on the host (float32, or Pictures to be packed) and on the device (codes), by blob id.

    A blob is dropped after its last reader, unless it is to be kept; ``left`` counts the readers of those that have
    several. ``log`` is for the peak of memory, None if that is known. ``feed`` is the milliseconds before the first
    step, ``between`` the time within steps that no row counts. ``written`` is what custom layers wrote for this batch; those
    that did so before it took ``before`` milliseconds. ``sets`` are those that it has of Programs' memory, until
    it gives each back, or ``lease`` is empty.
    """

    def __init__(
        self,
        feeds: Mapping[str, Feed],
        kept: Kept,
        started: float,
        log: BlobLog | None,
        written: Written,
    ) -> None:
        self.host: dict[str, Any] = dict(feeds)
        self.codes: dict[str, Array] = {}
        self.sides: dict[Side, dict[str, Array]] = {"host": self.host, "device": self.codes}
        self.kept, self.left = kept, dict(kept.reads)
        self.started, self.feed, self.between = started, 0.0, 0.0
        self.runs: list[RunTimes] = []
        self.log, self.fed = log, 0
        self.converted = self.saturated = 0  # codes, counted in the host's lane
        self.written, self.before = written, 0.0
        self.lease: list[object] = [self.started]
        self.sets: dict[Direct, BlobSet] = {}
        self._lock = allocate_lock()
        for blob, feed in feeds.items():
            self.fed += feed.nbytes
            if log is not None:
                log.add(("host", blob), self.host[blob])

    def claim(self, wake: Callable[[], object], direct: Direct) -> bool:
        """Return whether the batch has a set for these steps; if not, ``wake`` is called when there may be one."""
        used = direct.program.claim(self.lease, wake)
        if used is not None:
            self.sets[direct] = used
        return used is not None

    def wait_for(self, direct: Direct) -> None:
        """Claim a set for these steps; wait until there is one."""
        self.sets[direct] = direct.program.wait_for(self.lease)

    def give_back(self, direct: Direct) -> None:
        used = self.sets.pop(direct)
        used.lease = ()
        direct.program.given_back(used)

    def give_all_back(self) -> None:
        """Give all sets back, of a batch that ends early too."""
        self.lease.clear()
        while self.sets:
            direct, used = self.sets.popitem()
            direct.program.given_back(used)

    def done(self, use: StepBlobs, run: RunTimes, begin: float) -> float:
        """Finish a step that began at ``begin``: note its times, and drop the blobs that it was the last to read.

        Return when that is done.
        """
        sides, log = self.sides, self.log
        with self._lock:  # host and device steps of one batch may end at the same time
            dropped = use.dropped
            if use.shared:
                dropped = (*dropped, *filter(self._has_been_read, use.shared))
            if log is not None:
                for name in use.written:
                    if (array := sides[name[0]].get(name[1])) is not None:
                        log.add(name, array)
                log.drop(dropped)
            for side, blob in dropped:
                sides[side].pop(blob, None)
            self.runs.append(run)
            end = perf_counter()
            self.between += (end - begin) * 1000 - sum(run.ms)
        return end

    def _has_been_read(self, name: tuple[Side, str]) -> bool:
        """Count a reader of a blob that has several; return whether it was the last."""
        self.left[name] -= 1
        return not self.left[name]

    def times(self, end: float, batch: int, graph: Graph, emulation: ModelledTime | None = None) -> Times:
        """Return the times of a pass over so many images, whose last step had ended at ``end``."""
        total = self.fed + sum([run.rows.bytes for run in self.runs])
        steps, peak, composed = Steps(self.runs), self.log or self.kept.peak or 0, graph.composed
        codes = self.converted, self.saturated
        now = perf_counter()
        wall, between = (now - self.started) * 1000 + self.before, self.between + self.before + (now - end) * 1000
        return Times(steps, wall, batch, peak, total, self.feed, between, composed, *codes, emulation)
