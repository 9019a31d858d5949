"""FloatChain: consecutive layers in float32 as one table of operations, in one call.

Blobs that nothing outside reads share one piece of memory; others are new arrays in each run. Blobs that are joined are written
where the joined one has them, if their memory may be a part of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain as chained
from math import gcd, prod
from operator import add
from typing import NamedTuple

from ...blob import Array, Shape
from ...util.lazy_numpy import np
from . import Link, NativeLayer
from .joined import joined
from .library import ALIGNMENT, Library, RunArguments, address, aligned
from .order import OperationBlobs, arena, order
from .single import OTHERS, SHARED, others, plain
from .table import Extent, Form, Kind, Operation, Table
from .threads import threads

ARENA = 0  # buffer of the blobs inside; then those that it reads, those that it writes, and parameters
ROWS = 64  # of a copy, at most: pieces of work that threads share


class _BlobSlice(NamedTuple):
    """A blob in the memory of another one: bytes from its first ``offset``, in each of ``parts`` parts."""

    whole: str
    offset: int
    parts: int


class _Place(NamedTuple):
    """A blob's first byte in the memory of ``whole``, and the bytes from one part to the next; 0 if they are contiguous."""

    whole: str
    offset: int
    stride: int


class _Step(NamedTuple):
    """An operation to be, whose time is that of link ``task``: from one blob to another, its first byte there, its parts.

    ``second`` is the blob of a second input, if it has one.
    """

    task: int
    single: Operation | None
    parameters: tuple[Array, ...]
    source: str
    target: str
    offset: int
    parts: int
    second: str | None = None


class FloatChain:
    """Layers whose blobs have these shapes. ``kept`` blobs, those that are read outside, are arrays of their own.

    ``reads`` and ``writes`` are the blobs that runs take and return, ``links`` the layers, ``size`` the bytes of memory that one
    needs besides.
    """

    def __init__(
        self, library: Library, links: Sequence[Link], shapes: Mapping[str, Shape], kept: Collection[str]
    ) -> None:
        self._library, self._shapes, self.links = library, shapes, joined(links, kept)
        self._roots: dict[str, str] = {}
        for link in self.links:
            alias = link.native.single is None and not link.native.parts
            self._roots.update((top, self._root(link.reads[0]) if alias else top) for top in link.writes)
        computed = {root for blob, root in self._roots.items() if root == blob}
        self.writes = [blob for blob in self._roots if blob in kept]
        self._results = dict.fromkeys(self._roots[blob] for blob in self.writes if self._roots[blob] in computed)
        self._users: dict[str, list[NativeLayer]] = {}
        for link in self.links:
            for blob in dict.fromkeys((*map(self._root, link.reads), *map(self._root, link.writes))):
                self._users.setdefault(blob, []).append(link.native)
        self.reads = dict.fromkeys(blob for blob in self._users if blob not in computed)
        self._parts: dict[str, _BlobSlice] = {}
        steps = [*self._steps(computed)]
        uses = [*map(self._use, steps)]
        self._numbers = {blob: number for number, blob in enumerate((*self.reads, *self._results), ARENA + 1)}
        self._parameters: list[Array] = []
        offsets, self.size = arena(uses, lambda blob: -(-self._bytes(blob) // ALIGNMENT) * ALIGNMENT, self._results)
        self._table: Table = (Operation * len(steps))(*(self._operation(step, offsets) for step in steps))
        singles = [link.native.single for link in self.links]
        self._shared = threads() > 1 and any(single is not None and single.ns >= SHARED for single in singles)
        if self._shared:
            order(self._table, uses, self._memory(offsets))
        aliased = [(self._root(blob), shapes[blob]) for blob in self.writes]
        self._aliases = [] if self.writes == [*self._results] else aliased
        self._frames: list[RunArguments] = []
        for each in chained.from_iterable(link.native.packed for link in self.links):
            each.write()
        library.verify(self._table, self._extents())

    def _root(self, blob: str) -> str:
        """Return the blob whose memory this one is."""
        return self._roots.get(blob, blob)

    def _bytes(self, blob: str) -> int:
        return 4 * prod(self._shapes[blob])

    def _steps(self, computed: Collection[str]) -> Iterator[_Step]:
        """Yield the operations in order; note the blobs that need none to be joined."""
        for i, link in enumerate(self.links):
            single, parameters, parts = link.native.single, link.native.parameters, link.native.parts
            reads, writes = link.reads, link.writes
            if single is not None:
                first, second = (*map(self._root, reads), None)[:2]
                assert first is not None
                yield _Step(i, single.operation, parameters, first, writes[0], 0, 0, second)
            elif parts:
                offset = 0
                for blob in map(self._root, reads):
                    inside = blob in computed and blob not in self._results and blob not in self._parts
                    if inside and self._divides(blob, parts):
                        self._parts[blob] = _BlobSlice(writes[0], offset, parts)
                    else:
                        yield _Step(i, None, (), blob, writes[0], offset, parts)
                    offset += self._bytes(blob) // parts

    def _divides(self, blob: str, parts: int) -> bool:
        """Return whether all links that read or write a blob can do so if its parts are apart."""
        if parts == 1:
            return True
        counts = (one.parts if one.single is None else one.single.images for one in self._users[blob])
        return all(count in (0, parts) for count in counts)  # 0: the link has another name for it

    def _place(self, blob: str) -> _Place:
        if blob not in self._parts:
            return _Place(blob, 0, 0)
        part = self._parts[blob]
        whole, offset, stride = self._place(part.whole)
        apart = stride or self._bytes(part.whole) // part.parts
        return _Place(whole, offset + part.offset, apart if part.parts > 1 else 0)

    def _use(self, step: _Step) -> OperationBlobs:
        """Return what an operation reads and writes; parts of a blob are told apart by their bytes."""
        whole, offset, _ = self._place(step.target)
        size = self._bytes(step.source) // step.parts if step.parts else self._bytes(step.target)
        inputs = (step.source,) if step.second is None else (step.source, step.second)
        reads = tuple([blob for each in inputs if (blob := self._place(each).whole) not in self.reads])
        return OperationBlobs(reads, whole, range(offset + step.offset, offset + step.offset + size))

    def _memory(self, offsets: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return the bytes of each blob, as if those that it writes came after those inside."""
        places = {blob: (offset, offset + self._bytes(blob)) for blob, offset in offsets.items()}
        end = self.size
        for blob in self._results:
            places[blob] = end, end + self._bytes(blob)
            end += self._bytes(blob)
        return places

    def _operation(self, step: _Step, offsets: Mapping[str, int]) -> Operation:
        source, target = self._place(step.source), self._place(step.target)
        if step.single is None:
            operation = self._copy(step, source.stride, target.stride)
        else:
            operation = Operation.from_buffer_copy(step.single)
            operation.input_image = source.stride or operation.input_image
            operation.output_image = target.stride or operation.output_image
        operation.task = step.task
        operation.input_buffer = self._numbers.get(source.whole, ARENA)
        operation.output_buffer = self._numbers.get(target.whole, ARENA)
        operation.input_offset = source.offset + offsets.get(source.whole, 0)
        operation.output_offset = target.offset + step.offset + offsets.get(target.whole, 0)
        first = ARENA + 1 + len(self._numbers) + len(self._parameters)
        buffers = [*range(first, first + len(step.parameters))]
        self._parameters += step.parameters
        if step.second is not None:
            second = self._place(step.second)
            buffers.insert(0, self._numbers.get(second.whole, ARENA))
            operation.second_offset = second.offset + offsets.get(second.whole, 0)
            operation.second_image = second.stride or operation.second_image
        for name, buffer in zip(OTHERS, others(buffers)):
            setattr(operation, name, buffer)
        return operation

    def _copy(self, step: _Step, source: int, target: int) -> Operation:
        """Return the operation that copies the parts of a blob; they are so many bytes apart, 0 if they are contiguous."""
        size, whole = self._bytes(step.source) // step.parts, self._bytes(step.target) // step.parts
        rows = gcd(size, ROWS)
        shape = step.parts, size // rows, rows, 1
        inside = 1, size // rows, size // rows
        read, written = (0, 0, source or size, *inside), (0, 0, target or whole, *inside)
        return Form(Kind.COPY).operation(shape, shape, [read], written)

    def _extents(self) -> ctypes.Array[Extent]:
        """Return the sizes of the buffers."""
        pairs = [(self.size, self.size), *((self._bytes(blob), 0) for blob in self.reads)]
        pairs += [(self._bytes(blob), self._bytes(blob)) for blob in self._results]
        pairs += [(array.nbytes, 0) for array in self._parameters]
        return (Extent * len(pairs))(*(Extent(*pair) for pair in pairs))

    def memory(self) -> Array:
        """Return memory for a run of this chain, or of a smaller one."""
        return aligned(self.size)

    def run(self, blobs: Mapping[str, Array], memory: Array, images: int = 1) -> tuple[list[Array], Sequence[float]]:
        """Return the blobs of ``writes`` and the milliseconds of each link, in memory of any content.

        Blobs may have so many times the ``images`` of this chain: it runs for one part after the other.
        """
        try:
            frame = self._frames.pop()
        except IndexError:  # all are in use by other threads
            none = [None] * (1 + len(self._numbers))
            frame = RunArguments(self._table, len(self.links), [*none, *self._parameters])
        read = [plain(blobs[blob]) for blob in self.reads]
        new = [np.empty(_times(self._shapes[blob], images), np.float32) for blob in self._results]
        begins = [*map(address, (memory, *read, *new))]
        parts = [0, *(array.nbytes // images for array in (*read, *new))]
        times: Sequence[float] = ()
        for i in range(images):
            frame.addresses[: len(begins)] = [begin + i * part for begin, part in zip(begins, parts)]
            ms = self._library.run(self._table, frame, threads() if self._shared else 1)
            times = [*map(add, times, ms)] if times else ms
        self._frames.append(frame)
        if not self._aliases:
            return new, times
        arrays = dict(zip(self._numbers, (*read, *new)))
        return [arrays[root].reshape(_times(shape, images)) for root, shape in self._aliases], times


def _times(shape: Shape, images: int) -> Shape:
    """Return the shape of so many times the images."""
    return shape if images == 1 else (images * shape[0], *shape[1:])
