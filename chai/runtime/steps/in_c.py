"""InC: consecutive steps of a Schedule in C, as one table that runs in one call: conversions, segments and layers in float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain as chained
from time import perf_counter

from ...blob import Array, Shape
from ...kernels.native import Link
from ...kernels.native.chain import NativeChain
from ...kernels.native.library import library
from ...offload.schedule import Side
from ..host.layer import short_of_memory
from ..host.memory import BlobLog, ChainMemory
from ..slot import Slot, StepBlobs
from ..times import Rows, RunTimes
from . import PreparedStep, name_of

Name = tuple[Side, str]  # of a blob, on its side
Member = tuple[PreparedStep, StepBlobs]
Group = Sequence[tuple[Member, list[Link]]]  # steps that follow each other, and what they are in C


def in_c(
    members: Sequence[Member],
    kept: Collection[str],
    fed: Collection[str],
    shapes: Mapping[Side, Mapping[str, Shape]],
    memory: ChainMemory,
) -> Iterator[Member]:
    """Yield the steps of passes that keep these blobs, those in C that follow each other as one.

    Inputs that are ``fed`` as pictures are packed apart. ``shapes`` are those of blobs on either side.
    """
    group: list[tuple[Member, list[Link]]] = []
    for i, (step, use) in enumerate(members):
        links = step.links(use) if {blob for _, blob in use.reads}.isdisjoint(fed) else None
        if links is not None:
            group.append(((step, use), links))
        if group and (links is None or i == len(members) - 1):
            later = members[i:] if links is None else ()
            needed = {read for _, other in later for read in other.reads}
            needed.update((side, blob) for side in shapes for blob in kept)
            yield from _together(group, needed, shapes, memory)
            group = []
        if links is None:
            yield step, use


def _together(
    group: Group,
    needed: Collection[Name],
    shapes: Mapping[Side, Mapping[str, Shape]],
    memory: ChainMemory,
) -> Iterator[Member]:
    """Yield steps that follow each other as one, if C computes something there; others read the blobs that are ``needed``."""
    used = library()
    links = [*chained.from_iterable(links for _, links in group)]
    if used is None or not any(link.native.single or link.native.program for link in links):
        yield from (member for member, _ in group)
        return
    names = {name: _name(name) for link in links for name in (*link.reads, *link.writes)}
    sizes = {name: shapes[side][blob] for name, (side, blob) in names.items()}
    kept = {name for name, each in names.items() if each in needed}
    for link in links:
        if link.native.program is not None:
            link.native.program.rest()  # the chain has memory of its own
    chain = NativeChain(used, links, sizes, kept, {name for name, (side, _) in names.items() if side == "device"})
    step = InC(chain, group, needed, memory)
    yield step, StepBlobs(tuple([names[name] for name in chain.reads]), ())


def _name(name: str) -> Name:
    """Return the blob that ``name_of`` has this name for."""
    side, _, blob = name.partition(" ")
    return "host" if side == "host" else "device", blob


class InC(PreparedStep):
    """A group of steps as one chain; others read the blobs that are ``needed``."""

    def __init__(
        self,
        chain: NativeChain,
        group: Group,
        needed: Collection[Name],
        memory: ChainMemory,
    ) -> None:
        self._chain, self._needed, self._memory = chain, needed, memory
        self._members = [member for member, _ in group]
        self._noting = [step for step, _ in self._members if step.notes]
        self._converted = sum([step.converted for step in self._noting])
        self._reads = [(name, *_name(name)) for name in chain.reads]
        self._writes = [*map(_name, chain.writes)]
        layers = [step.layer for (step, _), links in group for _ in links]
        packed = [(layer, link.native.packed) for layer, link in zip(layers, chain.links)]
        self._packed = [(layer, each) for layer, arrays in packed if layer is not None for each in arrays]
        self._last = next((layer for layer in reversed(layers) if layer is not None), None)
        self.rows = Rows.of([step.rows for step, _ in self._members])

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        begin, sides = perf_counter(), slot.sides
        blobs = {name: sides[side][blob] for name, side, blob in self._reads}
        try:
            for layer, packed in self._packed:
                if layer.lent:
                    packed.write()
            memory = self._memory.take(self._chain)
            arrays, times = self._chain.run(blobs, memory)
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
        if slot.log is not None:
            self._log(slot.log, blobs)
        for (side, blob), array in zip(self._writes, arrays):
            sides[side][blob] = array
            if slot.log is not None:
                slot.log.add((side, blob), array)
        return RunTimes(self.rows, times, (begin - slot.started) * 1000)

    def _log(self, log: BlobLog, read: Mapping[str, Array]) -> None:
        """Note the blobs inside as if each step had arrays of its own, so that the peak is that of steps one by one."""
        last = {name: i for i, (_, use) in enumerate(self._members) for name in (*use.reads, *use.written)}
        for i, (_, use) in enumerate(self._members):
            for name in use.written:
                log.note(name, *self._chain.owner(name_of(*name), read))
            log.drop(name for name, end in last.items() if end == i and name not in self._needed)
            log.drop(use.dropped)
