"""InC: consecutive steps of a pass in C, as one table that runs in one call: conversions, segments and layers in float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain as chained, groupby
from time import perf_counter
from typing import TYPE_CHECKING

from ...blob import Array, Shape
from ...kernels.native import Link
from ...kernels.native.chain import NativeChain
from ...kernels.native.library import library
from ..slot import Slot, StepBlobs
from ..times import BlobLog, Rows, RunTimes
from . import ChainMemory, PreparedStep, name_of
from .layers import short_of_memory

if TYPE_CHECKING:
    from ...offload.schedule import Side

Name = tuple["Side", str]  # of a blob, on its side
Member = tuple[PreparedStep, StepBlobs]
Group = Sequence[tuple[Member, list[Link]]]  # steps that follow each other, and what they are in C


def in_c(
    members: Sequence[Member],
    kept: Collection[str],
    fed: Collection[str],
    shapes: Mapping[Side, Mapping[str, Shape]],
    memory: ChainMemory,
    whole: bool = False,
) -> Iterator[Member]:
    """Yield the steps of passes that keep these blobs, those in C that follow each other as one.

    Inputs that are ``fed`` as pictures are packed apart. ``shapes`` are those of blobs on either side. The peak of memory is
    that of steps one by one, or with the ``whole`` memory of a chain.
    """
    apart = [not {blob for _, blob in use.reads}.isdisjoint(fed) for _, use in members]
    linked = [((step, use), [] if alone else step.links(use)) for (step, use), alone in zip(members, apart)]
    keys = [(i if step.large or not links else -1, step.images) for i, ((step, _), links) in enumerate(linked)]
    last = {read: i for i, (_, use) in enumerate(members) for read in use.reads}
    last.update(((side, blob), len(members)) for side in shapes for blob in kept)
    for _, places in groupby(range(len(members)), keys.__getitem__):
        numbers = [*places]
        needed = {read for read, i in last.items() if i > numbers[-1]}
        yield from _together([linked[i] for i in numbers], needed, shapes, memory, whole)


def _together(
    group: Group,
    needed: Collection[Name],
    shapes: Mapping[Side, Mapping[str, Shape]],
    memory: ChainMemory,
    whole: bool,
) -> Iterator[Member]:
    """Yield steps that follow each other as one, if C computes something there; others read the blobs that are ``needed``."""
    used = library()
    links = [*chained.from_iterable(links for _, links in group)]
    if used is None or not any(link.native.single or link.native.program for link in links):
        yield from (member for member, _ in group)
        return
    names = {name: _name(name) for link in links for name in (*link.reads, *link.writes)}
    sizes = {name: shapes[side][blob] for name, (side, blob) in names.items()}
    if (images := group[0][0][0].images) > 1:
        sizes = {name: (1, *shape[1:]) for name, shape in sizes.items()}
    kept = {name for name, each in names.items() if each in needed}
    for link in links:
        if link.native.program is not None:
            link.native.program.rest()  # the chain has memory of its own
    chain = NativeChain(used, links, sizes, kept, {name for name, (side, _) in names.items() if side == "device"})
    step = InC(chain, group, images, None if whole else needed, memory)
    yield step, StepBlobs(tuple([names[name] for name in chain.reads]), ())


def _name(name: str) -> Name:
    """Return the blob that ``name_of`` has this name for."""
    side, _, blob = name.partition(" ")
    return "host" if side == "host" else "device", blob


class InC(PreparedStep):
    """A group of steps as one chain, which runs for each of several ``images``.

    Others read the blobs that are ``needed``; None if the peak of memory has the chain's in place of its blobs.
    """

    def __init__(
        self, chain: NativeChain, group: Group, images: int, needed: Collection[Name] | None, memory: ChainMemory
    ) -> None:
        self._chain, self._images, self._needed, self._memory = chain, images, needed, memory
        self._members = [member for member, _ in group]
        self._noting = [step for step, _ in self._members if step.notes]
        self._converted = sum([step.converted for step in self._noting])
        self._reads = [(name, *_name(name)) for name in chain.reads]
        self._writes = [*map(_name, chain.writes)]
        layers = [step.layer for (step, _), links in group for _ in links]
        packed = [(layer, link.native.packed) for layer, link in zip(layers, chain.links)]
        self._packed = [(layer, each) for layer, arrays in packed if layer is not None for each in arrays]
        self._last = next((layer for layer in reversed(layers) if layer is not None), None)
        self.rows = Rows(row for step, _ in self._members for row in step.rows.steps)

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        begin, sides = perf_counter(), slot.sides
        blobs = {name: sides[side][blob] for name, side, blob in self._reads}
        try:
            for layer, packed in self._packed:
                if layer.lent:
                    packed.write()
            memory = self._memory.take(self._chain)
            arrays, times = self._chain.run(blobs, memory, self._images)
        except MemoryError as error:
            if self._last is None:
                raise
            raise short_of_memory(self._last) from error
        if self._noting:
            slot.converted += self._converted
            if any(noted := self._chain.notes(memory)):
                notes = iter(noted)
                for step in self._noting:
                    step.noted(notes, slot)
        self._memory.put(memory)
        for (side, blob), array in zip(self._writes, arrays):
            sides[side][blob] = array
        if slot.log is not None:
            self._log(slot.log, blobs, arrays)
        return RunTimes(self.rows, times, (begin - slot.started) * 1000)

    def _log(self, log: BlobLog, read: Mapping[str, Array], written: Sequence[Array]) -> None:
        """Note the blobs inside as if each step had arrays of its own, so that the peak is that of steps one by one."""
        if self._needed is None:
            log.note(id(self), id(self), self._chain.size)
        else:
            last = {name: i for i, (_, use) in enumerate(self._members) for name in (*use.reads, *use.written)}
            for i, (_, use) in enumerate(self._members):
                for name in use.written:
                    log.note(name, *self._chain.owner(name_of(*name), read))
                log.drop(name for name, end in last.items() if end == i and name not in self._needed)
                log.drop(use.dropped)
        for name, array in zip(self._writes, written):
            log.add(name, array)
        log.drop([id(self)])
