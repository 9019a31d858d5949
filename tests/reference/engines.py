"""Two engines that really run apart, and what their descriptors mean for the bytes in memory.

Nothing here knows how dependencies are derived: accesses are read from the fields of descriptors, by the words of
hw_overlays/README.md, and only the counts in them keep the engines in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import inf
from operator import or_
from random import Random
from typing import Any, NamedTuple

from chai.overlay import Overlay

ENGINES = "array", "window"
Values = Mapping[str, int]  # the fields of a descriptor
Move = tuple[str, int]  # "start" or "step", and the Task
Choice = Callable[[Sequence[Move]], Move]


class Stuck(Exception):
    """Tasks remain, and none of them can move."""


def engine(values: Values, overlay: Overlay) -> str:
    sections = {dict(section.limits)["opcode"]: section.kind for section in overlay.tasks}
    return "array" if sections[values["opcode"]] in ("conv", "affine") else "window"


def after(values: Values) -> dict[str, int]:
    return {name: values[f"after_{name}"] for name in ENGINES}


def run(
    engines: Sequence[str],
    counts: Sequence[Mapping[str, int]],
    work: Callable[[int], Iterator[Any]],
    choose: Choice,
    depth: float = inf,
) -> Iterator[int]:
    """Run Tasks; yield each when it has finished.

    Descriptors are fetched in order into a queue per engine; one that finds ``depth`` others in its queue waits, and so do
    all after it. A fetch takes no time: a later one is no different from a later start.

    An engine starts its Tasks in order, each as soon as its counts are reached, even before the one before it has
    finished; it finishes them in order. ``work`` is what a Task does between its start and its end, step by step.
    """
    queues: dict[str, list[int]] = {name: [] for name in ENGINES}
    fetched = 0
    started: dict[str, list[int]] = {name: [] for name in ENGINES}
    finished = dict.fromkeys(ENGINES, 0)
    flying: dict[int, Iterator[Any]] = {}
    while fetched < len(engines) or any(queues.values()) or flying:
        while fetched < len(engines) and len(queues[engines[fetched]]) < depth:
            queues[engines[fetched]].append(fetched)
            fetched += 1
        heads = [queue[0] for queue in queues.values() if queue]
        moves = [("start", i) for i in heads if all(finished[e] >= counts[i][e] for e in ENGINES)]
        moves += [("step", i) for i in flying]
        if not moves:
            raise Stuck
        what, i = choose(moves)
        if what == "start":
            queues[engines[i]].remove(i)
            started[engines[i]].append(i)
            flying[i] = work(i)
        elif next(flying[i], StopIteration) is StopIteration:
            del flying[i]
            line = started[engines[i]]
            while line and line[0] not in flying:
                finished[engines[i]] += 1
                yield line.pop(0)


def shuffled(seed: int) -> Choice:
    """Any order that the counts allow."""
    return Random(seed).choice


def delaying(victim: int) -> Choice:
    """The adversary: all that can happen without one Task happens before it does anything; later Tasks go first."""
    return lambda moves: max(moves, key=lambda move: (move != ("step", victim), move[0] == "start", move[1]))


# -- bytes


class Accesses(NamedTuple):
    """(begin, end) of the bytes that a Task reads and writes."""

    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]


def accesses(values: Values, overlay: Overlay) -> Accesses:
    """The words of each plane, padding channels included; those of a strip as if it had all columns."""
    read, written = values["input_pitch"] // 8, values["output_pitch"] // 8
    if engine(values, overlay) == "window":
        read, written = values["tile_rows"] or read, values["tile_columns"] or written
    elif values["output_row"] in (0, values["output_width"]):
        row = values["input_row"] or values["input_width"]
        read = (values["input_height"] - 1) * row + values["input_width"]
        written = values["output_height"] * values["output_width"]
        if values["pooled_width"]:
            rows = values["output_height"] + values["pool_pad_h"] + values["pool_over_h"] - values["pool_kernel_h"]
            written = (rows // values["pool_stride_h"] + 1) * values["pooled_width"]

    def of(name: str, sizes: str, words: int) -> list[tuple[int, int]]:
        planes = -(-values[f"{sizes}_channels"] // overlay.layout.channels_per_word)
        images = [values[name] + i * values[f"{name}_image"] for i in range(values["batch"])]
        begins = [image + i * values[f"{sizes}_pitch"] for image in images for i in range(planes)]
        return [(begin, begin + words * 8) for begin in begins]

    second = of("second", "input", read) if values["second"] else []
    return Accesses(of("input", "input", read) + second, of("output", "output", written))


class Traffic:
    """The accesses of a chain as sets of cells (bit masks): bytes that no access tells apart are one cell."""

    def __init__(self, overlay: Overlay, chain: Sequence[Values]) -> None:
        listed = [accesses(values, overlay) for values in chain]
        ends = sorted({at for access in listed for span in (*access.reads, *access.writes) for at in span})
        cell = {at: i for i, at in enumerate(ends)}

        def mask(spans: Sequence[tuple[int, int]]) -> int:
            return reduce(or_, ((1 << cell[end]) - (1 << cell[begin]) for begin, end in spans), 0)

        self.engines = [engine(values, overlay) for values in chain]
        self.counts = [after(values) for values in chain]
        self.reads = [mask(access.reads) for access in listed]
        self.writes = [mask(access.writes) for access in listed]
        self.cells = len(ends)

    def conflicts(self, i: int, j: int) -> bool:
        """Whether two Tasks must keep their order."""
        return bool(self.writes[i] & (self.reads[j] | self.writes[j]) or self.reads[i] & self.writes[j])

    def races(self, counts: Sequence[Mapping[str, int]] | None = None) -> list[tuple[int, int]]:
        """Pairs of Tasks that some interleaving runs in the wrong order: a proof over all interleavings.

        ``ended[i]`` are the Tasks that have finished whenever Task i runs: those it counts, whatever these count, and,
        as an engine starts in order, whatever the one before it on its engine counts.
        """
        counts = self.counts if counts is None else counts
        of = {name: [i for i, e in enumerate(self.engines) if e == name] for name in ENGINES}
        ended: list[int] = []
        last: dict[str, int] = dict.fromkeys(ENGINES, 0)
        for i, name in enumerate(self.engines):
            sure = last[name]
            for e in ENGINES:
                for k in of[e][: counts[i][e]]:
                    sure |= ended[k] | 1 << k
            ended.append(sure)
            last[name] = sure
        pairs = ((i, j) for j in range(len(ended)) for i in range(j) if not ended[j] >> i & 1)
        return [(i, j) for i, j in pairs if self.conflicts(i, j)]

    def replay(
        self, choose: Choice, counts: Sequence[Mapping[str, int]] | None = None, depth: float = inf
    ) -> str | None:
        """Run the chain on cells that remember who wrote them; return the first read of other bytes than in order."""
        owner = [-1] * self.cells
        wanted: list[list[int]] = []
        for i in range(len(self.engines)):
            wanted.append([owner[cell] for cell in _cells(self.reads[i])])
            for cell in _cells(self.writes[i]):
                owner[cell] = i
        memory = [-1] * self.cells
        wrong: list[str] = []

        def work(i: int) -> Iterator[None]:
            reads, writes = list(zip(_cells(self.reads[i]), wanted[i])), _cells(self.writes[i])
            for part in range(2):  # reads and writes at any time
                for cell, writer in reads[part::2]:
                    if memory[cell] != writer:
                        wrong.append(f"Task {i} reads bytes of {memory[cell]} instead of {writer}")
                yield
                for cell in writes[part::2]:
                    memory[cell] = i
                yield

        for _ in run(self.engines, self.counts if counts is None else counts, work, choose, depth):
            if wrong:
                return wrong[0]
        return wrong[0] if wrong else None if memory == owner else "other bytes remain"


def _cells(mask: int) -> list[int]:
    indices = []
    while mask:
        low = mask & -mask
        indices.append(low.bit_length() - 1)
        mask ^= low
    return indices
