"""PlacedProgram: a Program in a memory of the device's, where the host converts blobs from and to float32.

A *set* is what one batch needs: the blobs that host and device exchange, and the program for their addresses. Constants, and
blobs between Tasks, exist once. With two sets the host writes one while the device works on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ..blob import Array, View
from ..codegen.memory_map import Buffers, HostBlobs
from ..driver.memory import NONE, BlobSet, NoRoom, place
from ..errors import DeviceError
from ..overlay import Overlay
from ..util.lazy_numpy import np
from ..util.log import logger
from ..util.rounding import round_up
from ..util.sharing import Mutex, forgets, in_layer
from .base import Program, Ran

log = logger("chai.devices")

PAGE = 4096  # bytes
RETRY = 0.05  # seconds until a thread looks for a free set again: an exception of a signal handler can prevent that it is woken


def check_hardware(overlay: Overlay) -> None:
    """Raise DeviceError for an overlay that is only emulated."""
    if overlay.emulated:
        raise DeviceError(f"overlay {overlay.name} exists on the emulator alone", hint="--device emulator")


class SimulatedBuffers:
    """A region per array of the host, which a simulation reads and writes, too; further ones of a program come after ``end``.

    ``first``  address of the first region; ``gap``  bytes between two
    """

    first, gap = 1 << 20, 0

    def __init__(self, sizes: Mapping[int, int], before: SimulatedBuffers | None = None) -> None:
        self.own = sizes.keys()
        self.bytes: dict[int, Array] = {**before.bytes} if before else {}
        self.addresses: dict[int, int] = {**before.addresses} if before else {}
        self.end: int = before.end if before else self.first
        for region, size in sizes.items():
            self.bytes[region] = np.zeros(size, np.uint8)
            self.fill(self.bytes[region])
            self.addresses[region] = self.end
            self.end += round_up(size, PAGE) + self.gap
        if before:
            before.end = self.end

    def fill(self, data: Array) -> None:
        """Write into a new region what is there before the first run."""

    def flush(self, regions: Collection[int]) -> None:
        """Do nothing: there is no cache."""

    def invalidate(self, regions: Collection[int]) -> None:
        """Do nothing: there is no cache."""

    def free(self) -> None:
        """Release the bytes."""
        self.bytes.clear()


class PlacedProgram(Program):
    """A segment, in memory from the first run to ``close`` or a failure. A device has ``_memory`` and ``_start``.

    A batch that has a set needs nothing else but the host's and the device's time until it gives the set back: it waits for
    no other set, and runs no layer. So to wait for a set ends. A thread that runs a layer does not wait, since a batch may
    need that thread, or that layer: it gets a further set.

    ``failures``  how many runs did not end well, each of which took the memory with it
    """

    def __init__(self, segment: HostBlobs, views: Mapping[str, View]) -> None:
        self.segment, self.views = segment, views
        shapes = segment.shapes
        self.stores = frozenset(blob for blob in segment.regions.given if len(shapes[blob]) == 4)
        self.loads = frozenset(
            blob
            for blob, first, channels in segment.wanted
            if len(shapes[blob]) == 4 and (first, channels) == (0, shapes[blob][1])
        )
        self.failures = 0
        self._sets: list[BlobSet] = []
        self._count = 1
        self._waiting: list[Callable[[], object]] = []  # what wakes those who wait for a set
        self._claiming = Mutex()  # of all three
        forgets(self)

    def _memory(self, sizes: Mapping[int, int], before: Any) -> Buffers:
        """Return a set's buffers of these ``sizes``; all others are those of the set ``before``. Raises NoRoom."""
        raise NotImplementedError

    def _check(self, memory: Any) -> None:
        """Check a program that was placed in memory, before its first run. Raises DeviceError."""

    def _start(self, memory: Any) -> float | None:
        """Run the program in a set's memory, alone, to its end; return the milliseconds that the device counted, if it does."""
        raise NotImplementedError

    def run_in(
        self, used: BlobSet, blobs: dict[str, Array], packed: Collection[str] = NONE, unpacked: Collection[str] = NONE
    ) -> Ran:
        """Run every Task as ``run`` does, in a claimed set, where ``packed`` inputs are; ``unpacked`` outputs stay there."""
        try:
            return Ran(None, used.run(blobs, self.views, partial(self._start, used.memory), packed, unpacked))
        except BaseException:
            self.failed()
            raise

    def run(self, blobs: dict[str, Array]) -> Ran:
        lease: list[object] = [self]
        used = None
        try:
            used = self.wait_for(lease)
            return self.run_in(used, blobs)
        finally:
            lease.clear()
            if used is not None:
                self.given_back(used)

    def reserve(self, count: int) -> None:
        """Prepare so many sets, where there is room for them."""
        with self._claiming:
            self._count = max(self._count, count)
            if self._sets:
                self._grow()

    def claim(self, lease: Collection[object], wake: Callable[[], object] | None = None) -> BlobSet | None:
        """Return a set, free again when ``lease`` is empty; None if there is none: ``wake`` is called when that may be over.

        Raises DeviceError.
        """
        with self._claiming:
            if not self._sets:
                self._sets.append(self._placed())
                self._grow()
            used = next((one for one in self._sets if not one.lease), None)
            if used is None and in_layer():
                used = self._placed()
                self._sets.append(used)
            if used is not None:
                used.lease = lease
            elif wake is not None:
                self._waiting.append(wake)
            return used

    def wait_for(self, lease: Collection[object]) -> BlobSet:
        """Return a set as ``claim`` does, when there is one."""
        woken: SimpleQueue[None] = SimpleQueue()
        while (used := self.claim(lease, partial(woken.put, None))) is None:
            with suppress(Empty):
                woken.get(timeout=RETRY)
        return used

    def given_back(self, used: BlobSet) -> None:
        """Wake those who wait for a set, after the lease of ``used`` has ended."""
        with self._claiming:
            if used.retired and not used.lease:
                used.free()
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def close(self) -> None:
        self.release()

    def failed(self) -> None:
        """Release its memory after a run that did not end well."""
        self.failures += 1
        self.release()

    def release(self) -> None:
        """Release its memory: sets that a batch has, when it gives them back."""
        with self._claiming:
            sets, self._sets = self._sets, []
            for one in sets:
                one.retired = True
                if not one.lease:
                    one.free()

    def forget(self) -> None:
        """In a forked process: drop all sets if a thread of the parent, which does not exist here, has one."""
        self._waiting = []
        if any(one.lease for one in self._sets):
            sets, self._sets = self._sets, []
            for one in sets:
                one.free()

    def _grow(self) -> None:
        """Add sets up to their number, as far as there is room."""
        while len(self._sets) < self._count:
            one, more = (sum(sizes.values()) / 1e6 for sizes in (self.segment.sizes, self.segment.further))
            try:
                self._sets.append(self._placed())
            except NoRoom as error:
                count, self._count = self._count, len(self._sets)
                words = "host and device do not overlap, with %d of %d sets of blobs: %s"
                log.info(words, self._count, count, error.message)
            else:
                log.info("%.2f MB of the device's memory, %.2f before the second set of blobs", one + more, one)

    def _placed(self) -> BlobSet:
        """Return a new set with the program in it."""
        first = self._sets[0].memory if self._sets else None
        memory = self._memory(self.segment.further if first else self.segment.sizes, first)
        try:
            place(self.segment, memory)
            self._check(memory)
            return BlobSet(self.segment, memory)
        except BaseException:  # nothing runs there
            memory.free()
            raise
