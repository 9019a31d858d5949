"""Chain: a segment's descriptors, constants and blob addresses in DDR, as an accelerator fetches them.

Descriptors are encoded before the addresses of the memory regions are known; ``relocate`` puts those in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ..blob import Array, Shape
from ..overlay import Overlay
from ..overlay.layout import Span, spaced
from ..overlay.records import pack, unpack
from ..overlay.weights import Piece as Constant
from ..tasks import Task
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from .dependencies import Finished
from .memory_map import FIXED, REGION, HostBlobs, Regions, split


class Piece(NamedTuple):
    """Images, rows and columns (first, count) of a Task, which is a number among those of its segment; None for all.

    ``shared`` and ``shares`` are those of the Task.
    """

    task: int
    images: Span | None = None
    rows: Span | None = None
    columns: Span | None = None
    shared: bool = False
    shares: bool = False

    @property
    def begins(self) -> bool:
        """Return whether it has the Task's first image, row and column."""
        return not any(some and some[0] for some in self[1:4])


@dataclass(frozen=True, eq=False, repr=False)
class Chain(HostBlobs):
    """The Tasks of one segment, ready to be written to memory.

    ``tasks``        in the order of the descriptors: the tag of a descriptor is the Task's index
    ``pieces``       which Task of the segment each of ``tasks`` is, or which images, rows and columns of it
    ``after``        what each of ``tasks`` waits for
    ``descriptors``  with addresses relative to regions
    ``constants``    stored after them in FIXED, in order: (offset in FIXED, bytes or their source)
    """

    overlay: Overlay
    tasks: tuple[Task, ...]
    pieces: tuple[Piece, ...]
    shapes: Mapping[str, Shape]
    regions: Regions
    after: Sequence[Finished]
    descriptors: Sequence[bytes]
    constants: Sequence[tuple[int, Constant]]

    def __repr__(self) -> str:
        return f"<Chain: {number_of(len(self.tasks), 'descriptor')}>"

    @cached_property
    def cycles(self) -> int:
        from .cycles import chain_cycles  # a pass needs none

        return chain_cycles(self.overlay, self.tasks, self.shapes, self.after)

    @property
    def whole(self) -> list[Task]:
        """Return the Tasks of which ``tasks`` are pieces."""
        first = {piece.task: task for piece, task in zip(self.pieces, self.tasks) if piece.begins}
        return [uncut(task) for _, task in sorted(first.items())]

    @property
    def spent(self) -> list[int]:
        """Return the clock cycles of each Task if nothing else runs."""
        return [task.cycles(self.overlay, self.shapes) for task in self.tasks]

    @property
    def sizes(self) -> dict[int, int]:
        end = max((start + part.bytes for start, part in self.constants), default=0)
        fixed = round_up(max(head_bytes(self.overlay, len(self.tasks)), end), self.overlay.layout.alignment)
        return {FIXED: fixed, **self.regions.sizes}

    def listing(self) -> Iterator[str]:
        """Yield the descriptors as text: tag, Task, and the values of fields that are not 0."""
        for tag, (task, descriptor) in enumerate(zip(self.tasks, self.descriptors)):
            values = unpack(self.overlay.descriptor, descriptor)
            shown = [
                f"{name} {hex(value) if value > 1 << REGION else value}" for name, value in values.items() if value
            ]
            yield f"{tag:5} {'+'.join(task.origin) or task.output} ({task.kind}): {' '.join(shown)}"

    @property
    def program_span(self) -> tuple[int, int]:
        return 0, len(self.tasks) * self.overlay.descriptor.bytes

    def relocate(self, base: Mapping[int, int], out: Array) -> None:
        """Write the descriptors for regions at these base addresses into ``out`` (uint8)."""
        record = self.overlay.descriptor
        addresses = [f.name for f in record.fields if f.multiple > 1]
        end = 0
        for descriptor in self.descriptors:
            values = unpack(record, descriptor)
            for name in addresses:
                if values[name]:
                    region, offset = split(values[name])
                    values[name] = base[region] + offset
            out[end : end + record.bytes] = np.frombuffer(pack(record, values), np.uint8)
            end += record.bytes

    def fill(self, out: Array) -> None:
        """Write the constants into FIXED, and zeros around them."""
        end = self.program_span[1]
        for start, part in self.constants:
            out[end:start] = 0
            end = start + part.bytes
            part.read(out[start:end])
        out[end:] = 0


def arranged(tasks: Sequence[Task], pieces: Sequence[Piece]) -> list[Task]:
    """Return the Tasks of an arrangement."""
    return [
        replace(tasks[i], images=images, rows=rows, columns=columns, shared=shared, shares=shares)
        if images or rows or columns
        else tasks[i]
        for i, images, rows, columns, shared, shares in pieces
    ]


def uncut(task: Task) -> Task:
    """Return the Task of a piece."""
    cut = task.images or task.rows or task.columns
    return replace(task, images=None, rows=None, columns=None, shared=False, shares=False) if cut else task


def sharing(overlay: Overlay, tasks: Sequence[Task], pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with their weights fetched once for all that follow one another on the array.

    Those of a Task have the same weights, which stay in the array's buffer if there is room for all of them.
    """
    on_array = [i for i, piece in enumerate(pieces) if tasks[piece.task].engine == "array"]
    result = [piece._replace(shared=False, shares=False) for piece in pieces]
    for i, k in pairwise(on_array):
        if pieces[i].task == pieces[k].task and tasks[pieces[i].task].may_share(overlay):
            result[i], result[k] = result[i]._replace(shares=True), result[k]._replace(shared=True)
    return result


def head_bytes(overlay: Overlay, count: int) -> int:
    """Return the bytes of ``count`` descriptors in FIXED, which is the offset of the constants."""
    return spaced(count * overlay.descriptor.bytes)
