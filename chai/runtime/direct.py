"""Direct: the conversions between float32 and codes that write and read a device's memory themselves.

Which ones are, and why others are not, is in docs/architecture.md: codes of the others are arrays of the host (int8, NCHW).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..blob import outermost
from ..offload.schedule import DeviceStep, Pack, Schedule, Step, Unpack

if TYPE_CHECKING:
    from ..devices.placed import PlacedProgram


@dataclass(frozen=True, eq=False, repr=False)
class Direct:
    """The steps from a segment's first direct Pack to its last direct Unpack, which share a set of its Program.

    ``steps``     their numbers, in order: the first claims the set, the last gives it back
    ``packed``    blobs of the direct Packs
    ``unpacked``  of the direct Unpacks
    """

    program: PlacedProgram
    steps: Sequence[int]
    packed: frozenset[str]
    unpacked: frozenset[str]


class Readers:
    """The steps that read and write each blob on the device, or a part of it, or what it is a part of."""

    def __init__(self, schedule: Schedule) -> None:
        self.steps, self._views = schedule.steps, schedule.views
        self._reads: dict[str, set[int]] = {}
        self._writes: dict[str, set[int]] = {}
        self._unpacks = {step.blob: i for i, step in enumerate(self.steps) if isinstance(step, Unpack)}
        for i, step in enumerate(self.steps):
            for users, blobs in ((self._reads, step.reads), (self._writes, step.writes)):
                for side, blob in blobs:
                    if side == "device":
                        users.setdefault(self._base(blob), set()).add(i)

    def _base(self, blob: str) -> str:
        return outermost(blob, self._views).base

    def packs(self, segment: int) -> Iterator[int]:
        """Yield the Packs right before a segment whose codes nothing else reads."""
        for i in reversed(range(segment)):
            step = self.steps[i]
            if not isinstance(step, Pack):
                return
            base = self._base(step.result)
            if self._reads.get(base) == {segment} and self._writes[base] == {i}:
                yield i

    def unpacks(self, segment: int) -> Iterator[int]:
        """Yield the Unpacks of what a segment writes and nothing else reads."""
        for _, blob in self.steps[segment].writes:
            readers = self._reads.get(self._base(blob), ())
            if blob in self._unpacks and all(isinstance(self.steps[reader], Unpack) for reader in readers):
                yield self._unpacks[blob]


def unpacking_at_once(schedule: Schedule) -> Schedule:
    """Return a Schedule of the same steps with each Unpack that may be direct right after its segment.

    So no layer of the host runs while a batch has a set.
    """
    readers = Readers(schedule)
    segments = [i for i, step in enumerate(schedule.steps) if isinstance(step, DeviceStep)]
    after = {i: [*readers.unpacks(i)] for i in segments}
    moved = {i for unpacks in after.values() for i in unpacks}
    steps: list[Step] = []
    for i, step in enumerate(schedule.steps):
        if i not in moved:
            steps += [step, *(schedule.steps[j] for j in after.get(i, ()))]
    return replace(schedule, steps=steps)


def direct(readers: Readers, segment: int, program: PlacedProgram) -> Direct | None:
    """Return the direct conversions of a segment that runs as one Program; None if there are none."""
    steps = readers.steps
    packs = [i for i in readers.packs(segment) if steps[i].writes[0][1] in program.stores]
    unpacks = [i for i in readers.unpacks(segment) if steps[i].reads[0][1] in program.loads]
    if not packs and not unpacks:
        return None
    blobs = [frozenset(blob for i in packs for _, blob in steps[i].writes)]
    blobs.append(frozenset(blob for i in unpacks for _, blob in steps[i].reads))
    return Direct(program, sorted([*packs, segment, *unpacks]), *blobs)
