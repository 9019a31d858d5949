"""NativeChain: consecutive steps as one table of operations, in one call: layers in float32, conversions, and Tasks.

Blobs that nothing outside reads share one piece of memory; others are new arrays in each run. Blobs that are joined are written
where the joined one has them, if their memory may be a part of it. Tasks have theirs (``NativeProgram``) as one blob more.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain as chained, pairwise
from math import gcd, prod
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from ...blob import Array, Shape, plain, show
from ...errors import DeviceError
from ...util.lazy_numpy import np
from . import Link, NativeLayer
from .library import ALIGNMENT, Library, RunArguments, address, aligned
from .order import OperationBlobs, arena, order
from .packed import ChannelTable
from .single import OTHERS, SHARED, set_others
from .table import FLOATS, PACKS, Extent, Form, Kind, Operation, Table
from .threads import threads

if TYPE_CHECKING:
    from .program import NativeProgram

ARENA = 0  # buffer of the blobs inside, and of notes; then those that it reads, those that it writes, and parameters
NOTES, NOTE = "", 4  # name of the memory of notes, for which no operation waits; bytes of each, an int32
ROWS = 64  # of a copy, at most: pieces of work that threads share


class _Place(NamedTuple):
    """A blob's first byte in the memory of ``whole``, and the bytes from one part to the next; 0 if they are contiguous."""

    whole: str
    offset: int
    stride: int


class _Step(NamedTuple):
    """An operation to be, whose time counts as that of row ``task``: from one blob to another, its first byte there, its parts.

    ``others`` are its other buffers, those of the fields OTHERS: blobs by name, or arrays. ``second`` is its first byte there.
    It waits for so many operations of the ``program`` that it is one of, and for all before that.
    """

    task: int
    operation: Operation
    source: str
    target: str
    offset: int = 0
    parts: int = 0
    others: tuple[str | Array, ...] = ()
    second: int = 0
    program: int | None = None


class NativeChain:
    """Steps whose blobs have these shapes: float32, or int8 those that are ``codes``. ``kept`` ones are read outside.

    ``reads`` and ``writes`` are the blobs that runs take and return, ``links`` the steps, ``size`` the bytes of memory that one
    needs besides.
    """

    def __init__(
        self,
        library: Library,
        links: Sequence[Link],
        shapes: Mapping[str, Shape],
        kept: Collection[str],
        codes: Collection[str] = (),
    ) -> None:
        self._library, self._shapes, self._codes, self.links = library, shapes, codes, joined(links, kept)
        self._other: dict[str, int] = {}  # bytes of memory by its name, which is no blob: of each program, and of notes
        self._roots: dict[str, str] = {}
        for link in self.links:
            native = link.native
            alias = native.single is None and not native.parts and native.program is None
            self._roots.update((top, self._root(link.reads[0]) if alias else top) for top in link.writes)
        computed = {root for blob, root in self._roots.items() if root == blob}
        self.writes = [blob for blob in self._roots if blob in kept]
        results = (self._roots[blob] for blob in self.writes if self._roots[blob] in computed)
        self._results = {blob: np.int8 if blob in codes else np.float32 for blob in results}
        self._users: dict[str, list[NativeLayer]] = {}
        for link in self.links:
            for blob in dict.fromkeys((*map(self._root, link.reads), *map(self._root, link.writes))):
                self._users.setdefault(blob, []).append(link.native)
        self.reads = {blob: self._bytes(blob) for blob in self._users if blob not in computed}
        # blobs in the memory of another one: which, from which byte on, and in each of how many parts
        self._parts: dict[str, tuple[str, int, int]] = {}
        self._rows = self._noted = 0
        steps = [*self._steps(computed)]
        uses = [*map(self._use, steps)]
        self._numbers = {blob: number for number, blob in enumerate((*self.reads, *self._results), ARENA + 1)}
        self._parameters: dict[int, Array] = {}
        offsets, inside = arena(uses, lambda blob: -(-self._bytes(blob) // ALIGNMENT) * ALIGNMENT, self._results)
        self._other[NOTES] = NOTE * self._noted
        offsets[NOTES], self.size = inside, inside + self._other[NOTES]
        self._notes = slice(inside, self.size)
        self._table: Table = (Operation * len(steps))(*(self._operation(step, offsets) for step in steps))
        self._shared = threads() > 1 and any(map(_is_long, self.links))
        if self._shared:
            order(self._table, uses, self._memory(offsets))
            self._order_programs(steps)
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
        size = self._other.get(blob)
        return size if size is not None else prod(self._shapes[blob]) * (1 if blob in self._codes else 4)

    def _steps(self, computed: Collection[str]) -> Iterator[_Step]:
        """Yield the operations in order; note the blobs that need none to be joined."""
        for link in self.links:
            native, reads = link.native, [*map(self._root, link.reads)]
            task, self._rows = max(self._rows - (not link.rows), 0), self._rows + link.rows
            if native.program is not None:
                yield from self._of_program(native.program, task, (*reads, *link.writes))
            elif native.single is not None:
                (first, *second), operation, note = reads, native.single.operation, NOTE * self._noted
                if operation.kind in PACKS:
                    yield _Step(task, operation, first, link.writes[0], others=(NOTES,), second=note)
                elif link.writes:
                    yield _Step(task, operation, first, link.writes[0], others=(*second, *native.parameters))
                else:
                    yield _Step(task, operation, first, NOTES, note)
                self._noted += operation.kind in PACKS or not link.writes
            elif native.parts:
                yield from self._joining(task, reads, link.writes[0], native.parts, computed)

    def _joining(
        self, task: int, reads: Sequence[str], whole: str, parts: int, computed: Collection[str]
    ) -> Iterator[_Step]:
        """Yield the operations that copy blobs into the one that joins their parts."""
        offset = 0
        for blob in reads:
            inside = blob in computed and blob not in self._results and blob not in self._parts
            if inside and self._divides(blob, parts):
                self._parts[blob] = whole, offset, parts
            else:
                yield _Step(task, self._copy(blob, whole, parts), blob, whole, offset, parts)
            offset += self._bytes(blob) // parts

    def _of_program(self, program: NativeProgram, task: int, blobs: Sequence[str]) -> Iterator[_Step]:
        """Yield the operations of a program that reads and writes these blobs."""
        memory = f"memory of program {len(self._other)}"
        self._other[memory] = program.size
        buffers = (memory, program.constants(), *blobs, *program.files)
        for row in program.table:
            source, target = buffers[row.input_buffer], buffers[row.output_buffer]
            assert isinstance(source, str)
            assert isinstance(target, str)
            others = tuple([buffers[getattr(row, name)] for name in OTHERS])
            yield _Step(task + row.task, row, source, target, others=others, program=row.after)

    def _order_programs(self, steps: Sequence[_Step]) -> None:
        """Let the operations of each program wait for those that its own table says, and for all before it."""
        begin = 0
        for i, (operation, step) in enumerate(zip(self._table, steps)):
            if step.program is None:
                begin = i + 1
            else:
                operation.after = begin + step.program

    def _divides(self, blob: str, parts: int) -> bool:
        """Return whether all links that read or write a blob can do so if its parts are apart."""
        if parts == 1:
            return True
        users = self._users[blob]
        if any(one.single is not None and one.single.operation.kind not in FLOATS for one in users):
            return False
        counts = (one.parts if one.single is None else one.single.operation.images for one in users)
        return all(count in (0, parts) for count in counts)  # 0: the link has another name for it

    def _place(self, blob: str) -> _Place:
        if blob not in self._parts:
            return _Place(blob, 0, 0)
        into, first, parts = self._parts[blob]
        whole, offset, stride = self._place(into)
        apart = stride or self._bytes(into) // parts
        return _Place(whole, offset + first, apart if parts > 1 else 0)

    def _use(self, step: _Step) -> OperationBlobs:
        """Return what an operation reads and writes; parts of a blob are told apart by their bytes."""
        blobs = [step.source, *[other for other in step.others if isinstance(other, str) and other != NOTES]]
        reads = tuple([blob for each in blobs if (blob := self._place(each).whole) not in self.reads])
        if step.target == NOTES:
            return OperationBlobs(reads, "", range(0))
        whole, offset, _ = self._place(step.target)
        size = self._bytes(step.source) // step.parts if step.parts else self._bytes(step.target)
        return OperationBlobs(reads, whole, range(offset + step.offset, offset + step.offset + size))

    def _memory(self, offsets: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return the bytes of each blob, as if those that it writes came after those inside."""
        starts, end = {**offsets}, self.size
        for blob in self._results:
            starts[blob] = end
            end += self._bytes(blob)
        return {blob: (start, start + self._bytes(blob)) for blob, start in starts.items()}

    def _operation(self, step: _Step, offsets: Mapping[str, int]) -> Operation:
        source, target = self._place(step.source), self._place(step.target)
        operation = Operation.from_buffer_copy(step.operation)
        operation.input_image = source.stride or operation.input_image
        operation.output_image = target.stride or operation.output_image
        operation.task = step.task
        operation.input_buffer = self._numbers.get(source.whole, ARENA)
        operation.output_buffer = self._numbers.get(target.whole, ARENA)
        operation.input_offset += source.offset + offsets.get(source.whole, 0)
        operation.output_offset += target.offset + step.offset + offsets.get(target.whole, 0)
        set_others(operation, [*map(self._buffer, step.others)])
        if step.others and isinstance(step.others[0], str):
            second = self._place(step.others[0])
            operation.second_offset += second.offset + step.second + offsets.get(second.whole, 0)
            operation.second_image = second.stride or operation.second_image
        return operation

    def _buffer(self, other: str | Array) -> int:
        """Return the number of the buffer that a blob is in, or of an array."""
        if isinstance(other, str):
            return self._numbers.get(self._place(other).whole, ARENA)
        first = ARENA + 1 + len(self._numbers)
        self._parameters.setdefault(id(other), other)
        return first + [*self._parameters].index(id(other))

    def _copy(self, blob: str, whole: str, parts: int) -> Operation:
        """Return the operation that copies the parts of a blob into those of the whole."""
        size = self._bytes(blob) // parts
        rows = gcd(size, ROWS)
        shape, inside = (parts, size // rows, rows, 1), (1, size // rows, size // rows)
        return Form(Kind.COPY).operation(
            shape, shape, [(0, 0, size, *inside)], (0, 0, self._bytes(whole) // parts, *inside)
        )

    def _extents(self) -> ctypes.Array[Extent]:
        pairs = [(self.size, self.size), *((self._bytes(blob), 0) for blob in self.reads)]
        pairs += [(self._bytes(blob), self._bytes(blob)) for blob in self._results]
        pairs += [(array.nbytes, 0) for array in self._parameters.values()]
        return (Extent * len(pairs))(*(Extent(*pair) for pair in pairs))

    def memory(self) -> Array:
        """Return memory for a run of this chain, or of a smaller one."""
        return aligned(self.size)

    def owner(self, blob: str, read: Mapping[str, Array]) -> tuple[Hashable, int]:
        """Return what tells the memory of a blob from that of others, and its bytes; of those that runs ``read`` its array's."""
        root = self._root(blob)
        array = read.get(root)
        return root if array is None else id(array if array.base is None else array.base), self._bytes(root)

    def notes(self, memory: Array) -> list[int]:
        """Return what the last run in this memory has noted: of each Pack 1 for NaN, else 0; what links without tops count."""
        noted: list[int] = memory[self._notes].view(np.int32).tolist()
        return noted

    def run(self, blobs: Mapping[str, Array], memory: Array, images: int = 1) -> tuple[list[Array], Sequence[float]]:
        """Return the blobs of ``writes`` and the milliseconds of each row, in memory of any content.

        Blobs may have so many times the ``images`` of this chain: it runs for one part after the other. Raises DeviceError for
        one of another size.
        """
        try:
            frame = self._frames.pop()
        except IndexError:  # all are in use by other threads
            none = [None] * (1 + len(self._numbers))
            frame = RunArguments(self._table, self._rows, [*none, *self._parameters.values()])
        read = [self._read(blob, blobs[blob], images) for blob in self.reads]
        new = [np.empty(_times(self._shapes[blob], images), type) for blob, type in self._results.items()]
        begins = [*map(address, (memory, *read, *new))]
        if self._noted:
            memory[self._notes] = 0
        times: Sequence[float] = ()
        for i in range(images):
            if i:
                parts = (array.nbytes // images for array in (*read, *new))
                begins[1:] = map(add, begins[1:], parts)
            frame.addresses[: len(begins)] = [*begins]
            ms = self._library.run(self._table, frame, threads() if self._shared else 1)
            times = [*map(add, times, ms)] if i else ms
        self._frames.append(frame)
        if not self._aliases:
            return new, times
        arrays = dict(zip(self._numbers, (*read, *new)))
        return [arrays[root].reshape(_times(shape, images)) for root, shape in self._aliases], times

    def _read(self, blob: str, array: Array, images: int) -> Array:
        if array.nbytes != images * self.reads[blob]:
            expected = show(_times(self._shapes[blob], images))
            raise DeviceError(f"blob {blob!r}: expected {expected}, found {array.dtype} {show(array.shape)}")
        return np.ascontiguousarray(array) if blob in self._codes else plain(array)


def _is_long(link: Link) -> bool:
    """Return whether several threads pay for a step."""
    single, program = link.native.single, link.native.program
    return program.shared if program is not None else single is not None and single.ns >= SHARED


def _times(shape: Shape, images: int) -> Shape:
    """Return the shape of so many times the images."""
    return shape if images == 1 else (images * shape[0], *shape[1:])


def joined(links: Sequence[Link], kept: Collection[str]) -> list[Link]:
    """Return consecutive layers; a BatchNorm, a Scale, or both are computed with the convolution before them.

    They are then other names of its top, if nothing else reads its sums. ``kept`` blobs are read outside. Every bit is that of
    layers one by one.
    """
    readers = Counter(chained.from_iterable(link.reads for link in links))
    result = list(links)
    for i, link in enumerate(links):
        if link.native.scaled is None:
            continue
        after = _after(links[i : i + 3], readers, kept)
        if after:
            table, rectified = _table(link.native, [each.native for each in after])
            result[i] = replace(link, native=link.native.scaled(table, rectified))
            for j, each in enumerate(after, i + 1):
                result[j] = replace(each, native=NativeLayer(None))
    return result


def _after(links: Sequence[Link], readers: Counter[str], kept: Collection[str]) -> list[Link]:
    """Return those after a convolution, the first, that can be computed with it: a BatchNorm, a Scale, or both in this order."""
    after: list[Link] = []
    kinds = {Kind.NORMALISE, Kind.SCALE}
    for last, link in pairwise(links):
        (blob,), before, single = last.writes, links[0].native.single, link.native.single
        if before is None or single is None or link.reads != (blob,) or readers[blob] > 1 or blob in kept:
            break
        this, of = single.operation, before.operation
        if this.kind not in kinds or (this.images, this.channels) != (of.images, of.outputs):
            break
        after.append(link)
        if this.kind == Kind.SCALE or this.negative >= 0:
            break
        kinds = {Kind.SCALE}
    return after


def _table(convolution: NativeLayer, after: Sequence[NativeLayer]) -> tuple[ChannelTable, bool]:
    """Return what the layers after a convolution make of its sums, and whether a ReLU follows."""
    assert convolution.single is not None
    operation, norm, scale, rectified = convolution.single.operation, None, tuple[Array, ...](), False
    for layer in after:
        assert layer.single is not None
        last = layer.single.operation
        rectified = last.negative >= 0
        if last.kind == Kind.NORMALISE:
            mean, variance, divisor = layer.parameters
            norm = mean, variance, divisor, float(np.int32(last.factor).view(np.float32))
        else:
            scale = layer.parameters
    bias = convolution.parameters[1] if operation.bias >= 0 else None
    return ChannelTable(int(operation.outputs), bias, norm, scale), rectified
