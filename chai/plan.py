"""Plan: where each blob lies in one buffer on the device, for one batch.

Pure data. A blob is alive from its first writer to its last reader, counted in Tasks; blobs that are never alive
together share bytes. A part (a branch of a concat, a piece of a slice) has no bytes of its own: it lies in the planes
of the whole, and lives as long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .errors import ModelError
from .memory import Placed, blob_bytes, share
from .schedule import Convert, DeviceStep, Schedule

if TYPE_CHECKING:
    from .graph import Shape
    from .overlay import Layout, Overlay


@dataclass(frozen=True)
class Plan:
    """``blobs`` by id; ``peak`` bytes of the buffer; ``total`` bytes if no two blobs shared any."""

    blobs: Mapping[str, Placed]
    peak: int
    total: int

    def at(self, base: int) -> dict[str, Placed]:
        """The same blobs in a buffer that begins at address ``base``: offsets become addresses."""
        return {blob: replace(placed, offset=base + placed.offset) for blob, placed in self.blobs.items()}


def plan(schedule: Schedule, shapes: Mapping[str, Shape], overlay: Overlay, keep: Collection[str] = ()) -> Plan:
    """Offsets for all blobs that Packs, Unpacks, Tasks and layers on codes read or write.

    ``keep`` are blobs that someone reads after the last step; those that are not on the device do not matter.
    The steps have to run in order. Raises ModelError for a blob that is read before it is written, and for parts that do
    not fit their whole.
    """
    whole = {blob: _whole(blob, schedule.places) for blob in _blobs(schedule)}
    layout = overlay.layout
    for blob, (parent, first) in whole.items():
        if parent != blob:
            _check_part(blob, first, parent, shapes, layout)
    lives = _lives(schedule, {blob: parent for blob, (parent, _) in whole.items()}, keep)
    sizes = {blob: blob_bytes(shapes[blob], layout) for blob in lives}
    offsets, peak = share(lives, sizes)
    blobs = {blob: Placed(offsets[blob], sizes[blob]) for blob in lives}
    for blob, (parent, first) in whole.items():
        if parent != blob:
            blobs[blob] = Placed(offsets[parent], blob_bytes(shapes[blob], layout), parent, first)
    return Plan(blobs, peak, sum(sizes.values()))


def moments(schedule: Schedule) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """(index of the step, blobs read, blobs written) on the device, one moment per Convert, Task or layer on codes."""
    for i, step in enumerate(schedule.steps):
        if isinstance(step, Convert):
            yield (i, (), (step.blob,)) if step.kind == "Pack" else (i, (step.blob,), ())
        elif isinstance(step, DeviceStep):
            for task in step.tasks:
                yield i, task.inputs, (task.output,)
        elif step.codes:
            yield i, step.layer.bottoms, step.layer.tops


def _blobs(schedule: Schedule) -> dict[str, None]:
    """Every blob that is read or written, and what it is a part of, in order of first use."""
    found: dict[str, None] = {}
    for _, reads, writes in moments(schedule):
        for blob in (*reads, *writes):
            found[blob] = None
            while blob in schedule.places:
                blob = schedule.places[blob][0]
                found[blob] = None
    return found


def _whole(blob: str, places: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """The outermost blob that a blob is a part of, itself if of none; and its first channel there."""
    first = 0
    while blob in places:
        blob, offset = places[blob]
        first += offset
    return blob, first


def _check_part(blob: str, first: int, whole: str, shapes: Mapping[str, Shape], layout: Layout) -> None:
    part, around = shapes[blob], shapes[whole]
    if first % layout.channels_per_word:
        raise ModelError(
            f"blob {blob!r} begins at channel {first} of {whole!r}, which is not a multiple of {layout.channels_per_word}"
        )
    if (part[0], *part[2:]) != (around[0], *around[2:]) or first + part[1] > around[1]:
        raise ModelError(f"blob {blob!r} {part} does not fit {whole!r} {around} from channel {first} on")


def _lives(schedule: Schedule, whole: Mapping[str, str], keep: Collection[str]) -> dict[str, tuple[int, int]]:
    """First and last moment of every blob that is no part. What a Task reads is alive together with what it writes."""
    lives: dict[str, tuple[int, int]] = {}
    moment = 0
    for moment, (_, reads, writes) in enumerate(moments(schedule)):
        for blob in reads:
            if whole[blob] not in lives:
                raise ModelError(f"blob {blob!r} is read on the device before anything has written it")
            lives[whole[blob]] = lives[whole[blob]][0], moment
        for blob in writes:
            lives[whole[blob]] = lives.get(whole[blob], (moment,))[0], moment
    for blob in keep:
        if blob in whole:
            lives[whole[blob]] = lives[whole[blob]][0], moment
    return lives
