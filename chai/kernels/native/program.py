"""Program: Tasks as one table of operations, over blobs that share one piece of memory.

Blobs are stored in NHWC order with a border as wide as the widest padding of their readers. A view is some channels of its
parent. The host's blobs (int8, NCHW) are loaded before the first Task and stored after the last one that writes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from operator import add
from typing import NamedTuple

from ...blob import Array, Shape, Wholes, codes_of
from ...errors import DeviceError
from ...overlay.weights import Packed
from ...tasks import Task
from ...tasks.window import POINT
from ...util.lazy_numpy import np
from ...util.sharing import Mutex
from .library import ALIGNMENT, Library, RunArguments, address, aligned, pointer
from .order import OperationBlobs, arena, order
from .table import (
    MAX_BLOCK_OUTPUTS,
    NOWHERE,
    RUN_STEP,
    Constants,
    Extent,
    Form,
    Kind,
    Operation,
    Place,
    Table,
    plain_strides,
)
from .threads import threads

ARENA, CONSTANTS, HOST = 0, 1, 2  # buffers: blobs, weights and tables, then the host's arrays
LONG = 512  # pixels of a row that is loaded or stored: many of a channel together, which are in few pages
FEW, LARGE = 4, 1 << 20  # pixels and bytes: weights that are used so little are not packed
SHARED = 1 << 23  # multiply-accumulates of a run: fewer take less time than to wake a thread
CACHED = 4 << 20  # bytes at most of a blob of images that run together, so that it is in a cache when it is read


class ChannelRange(NamedTuple):
    """Some channels of a blob, which may be a view."""

    blob: str
    first: int
    channels: int


class _Blob:
    """An outermost blob: rows and columns of its border, the code of 0 there, and the place of its first code."""

    __slots__ = ("border", "place", "shape", "zero")

    def __init__(self, shape: Shape) -> None:
        self.shape, self.border, self.zero = shape, (0, 0), 0
        self.place: Place = NOWHERE

    @property
    def strides(self) -> tuple[int, int, int, int]:
        _, c, h, w = self.shape
        row = (w + 2 * self.border[1]) * c
        return (h + 2 * self.border[0]) * row, 1, row, c

    @property
    def bytes(self) -> int:
        """Return its size; runs of the last pixel may be read in whole steps."""
        return -(-(self.shape[0] * self.strides[0] + RUN_STEP) // ALIGNMENT) * ALIGNMENT

    def put(self, offset: int) -> None:
        """Let its bytes begin at an offset in the arena."""
        image, channel, row, pixel = self.strides
        first = offset + self.border[0] * row + self.border[1] * pixel
        self.place = ARENA, first, image, channel, row, pixel

    def channels(self, first: int) -> Place:
        """Return the place of its channels from ``first`` on."""
        buffer, offset, image, channel, row, pixel = self.place
        return buffer, offset + first, image, channel, row, pixel


@dataclass(eq=False, repr=False, slots=True)
class _ProgramStep(OperationBlobs):
    """An operation, whose time counts as that of the Task with this ``index``.

    It computes it, if it has its ``form``; else it loads or stores a part of a blob, or fills its border.
    """

    index: int
    kind: int
    part: ChannelRange
    form: Form | None = None


class NativeProgram:
    """Some Tasks with their forms. ``loads`` and ``stores`` are the channels that come from and go to the host.

    ``table``   its operations; their buffers are memory of ``size`` bytes, constants, arrays of the host, and ``files``
    ``shared``  whether several threads run it
    """

    def __init__(
        self,
        library: Library,
        tasks: Sequence[tuple[Task, Form]],
        shapes: Mapping[str, Shape],
        wholes: Wholes,
        loads: Collection[ChannelRange],
        stores: Collection[ChannelRange],
    ) -> None:
        self._library, self._whole_shapes = library, shapes
        self._loads, self._stores = [*loads], [*stores]
        moved = [(Kind.LOAD, part) for part in loads] + [(Kind.STORE, part) for part in stores]
        self._numbers = {key: number for number, key in enumerate(moved, HOST)}
        self._wholes = wholes
        bases = dict.fromkeys(wholes[blob].base for task, _ in tasks for blob in (*task.inputs, task.output))
        batches = {shapes[base][0] for base in bases}
        self._batch = self._fewest = self._images = max(batches)  # of a batch; computed at least; in one run
        self._shapes = shapes
        if loads and len(batches) == 1:  # else images may not be apart
            blobs = [prod(shapes[base][1:]) for base in bases]
            weights = sum([form.weights.size for _, form in tasks if form.weights is not None])
            self._fewest, self._images = 1, _together(self._batch, blobs, weights)
            self._shapes = {blob: (self._images, *shape[1:]) for blob, shape in shapes.items()}
        self._blobs = {base: _Blob(self._shapes[base]) for base in bases}
        self._constants = Constants()
        self._files: list[Packed] = []  # weights that are read where they are stored
        for task, form in tasks:
            (rows, columns), source = form.border, self._blobs[self._wholes[task.inputs[0]].base]
            if rows or columns:
                source.border = max(source.border[0], rows), max(source.border[1], columns)
                source.zero = form.zeros[0]
        self.tasks = [task for task, _ in tasks]
        steps = [*self._steps(tasks)]
        places, self.size = self._lay_out(steps)
        operations = (self._moving(s) if s.form is None else self._computing(s, s.form) for s in steps)
        self.table = (Operation * len(steps))(*operations)
        macs = (task.macs(*(self._shapes[blob] for blob in task.inputs)) for task in self.tasks)
        self.shared = threads() > 1 and sum(macs) >= SHARED
        if threads() > 1:  # a chain may share it
            order(self.table, steps, places)
        self._weights = [
            (operation, step.form)
            for operation, step in zip(self.table, steps)
            if step.form is not None and step.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE)
        ]
        self._memory: Array | None = None
        self._frames: list[RunArguments] = []
        self._partial: dict[int, Table] = {}  # the table for fewer images
        self._packing = Mutex()
        library.verify(self.table, self._extents())

    # -- before the first run

    def _shape(self, part: ChannelRange) -> Shape:
        n, _, *size = self._shapes[part.blob]
        return (n, part.channels, *size)

    def _steps(self, tasks: Sequence[tuple[Task, Form]]) -> Iterator[_ProgramStep]:
        """Yield the operations in order, with the index of the Task whose time each counts as."""
        bordered: set[str] = set()

        def border(i: int, whole: str) -> Iterator[_ProgramStep]:
            if whole not in bordered and any(self._blobs[whole].border):
                part = ChannelRange(whole, 0, self._blobs[whole].shape[1])
                yield _ProgramStep((), whole, range(0), i, Kind.BORDER, part)
            bordered.add(whole)

        last = {self._wholes[task.output].base: i for i, (task, _) in enumerate(tasks)}  # Task that writes a blob last
        stored: dict[str, list[ChannelRange]] = {}
        for part in self._stores:
            stored.setdefault(self._wholes[part.blob].base, []).append(part)
        for part in self._loads:
            whole, channels = self._inside(part)
            yield from border(0, whole)
            yield _ProgramStep((), whole, channels, 0, Kind.LOAD, part)
        for i, (task, form) in enumerate(tasks):
            written = ChannelRange(task.output, *task.channels(self._shapes))
            whole, channels = self._inside(written)
            yield from border(i, whole)
            reads = tuple([self._wholes[blob].base for blob in task.inputs])
            yield _ProgramStep(reads, whole, channels, i, self._kind(task, form), written, form)
            if form.lookup is not None and form.kind != Kind.LOOKUP:
                yield _ProgramStep((whole,), whole, channels, i, Kind.LOOKUP, written, form)
            if last[whole] == i:
                for part in stored.get(whole, ()):
                    yield _ProgramStep((whole,), "", self._inside(part)[1], i, Kind.STORE, part)

    def _inside(self, part: ChannelRange) -> tuple[str, range]:
        """Return the outermost blob of a part, and its channels there."""
        whole, first = self._wholes[part.blob]
        return whole, range(first + part.first, first + part.first + part.channels)

    def _kind(self, task: Task, form: Form) -> int:
        """Return the kind of a Task's operation: large weights that few pixels need stay in their file."""
        weights, (n, _, h, w) = form.weights, self._shapes[task.output]
        if form.kind != Kind.CONVOLUTION or form.group != 1 or not isinstance(weights, Packed):
            return form.kind
        few = n * h * w <= FEW and weights.bytes >= LARGE and weights.axes[6] <= MAX_BLOCK_OUTPUTS
        return Kind.IN_PLACE if few else form.kind

    def _lay_out(self, steps: Sequence[OperationBlobs]) -> tuple[dict[str, tuple[int, int]], int]:
        """Give each blob bytes; return them, and the size of all."""
        offsets, size = arena(steps, lambda whole: self._blobs[whole].bytes)
        for whole, offset in offsets.items():
            self._blobs[whole].put(offset)
        return {whole: (offset, offset + self._blobs[whole].bytes) for whole, offset in offsets.items()}, size

    def _computing(self, step: _ProgramStep, form: Form) -> Operation:
        """Return the operation of a Task, with places for its constants."""
        if step.kind == Kind.LOOKUP:
            return self._looking_up(step, form)
        task, channels = self.tasks[step.index], step.channels
        shape, (_, _, *size) = self._shapes[task.inputs[0]], self._shapes[task.output]
        inputs = [self._blobs[whole].channels(first) for whole, first in map(self._wholes.__getitem__, task.inputs)]
        if form.vector:
            inputs[1] = (*inputs[1][:4], 0, 0)
        output, outputs = self._blobs[step.writes].channels(channels.start), len(channels)
        operation = form.operation(shape, (shape[0], outputs, *size), inputs, output, step.index)
        if form.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.AVERAGE):
            r, entries = form.requantization, prod(size) if form.kind == Kind.AVERAGE else outputs
            assert r is not None
            operation.constants = CONSTANTS
            operation.scale = self._constants.scales(r.multiplier, r.shift, entries)
            if r.negative is not None:
                operation.negative = self._constants.scales(r.negative, r.shift, entries)
        if step.kind == Kind.IN_PLACE:
            assert isinstance(form.weights, Packed)
            operation.kind = step.kind
            *_, operation.block_inputs, operation.block_outputs = form.weights.axes
            operation.file = HOST + len(self._loads) + len(self._stores) + len(self._files)
            self._files.append(form.weights)
        elif form.weights is not None:
            packed = self._library.calls.chai_packed(self._library.number, ctypes.byref(operation))
            operation.weights = self._constants.reserve(packed)
        if form.bias is not None:
            operation.constants = CONSTANTS
            operation.bias = self._constants.integers(form.bias, form.bias.size)
        return operation

    def _looking_up(self, step: _ProgramStep, form: Form) -> Operation:
        """Return the operation that looks up the codes of a Task's output, or those of its input on their way there."""
        task, channels, lookup = self.tasks[step.index], step.channels, form.lookup
        n, _, *size = self._shapes[task.output]
        assert lookup is not None
        shape, output = (n, len(channels), *size), self._blobs[step.writes].channels(channels.start)
        source = output
        if form.kind == Kind.LOOKUP:
            whole, first = self._wholes[task.inputs[0]]
            source = self._blobs[whole].channels(first)
        operation = Form(Kind.LOOKUP).operation(shape, shape, [source], output, step.index)
        operation.constants, operation.scale = CONSTANTS, self._constants.codes(lookup)
        return operation

    def _moving(self, step: _ProgramStep) -> Operation:
        """Return the operation that loads or stores channels, or fills the border of a blob."""
        (whole,), shape = step.blobs, self._shape(step.part)
        blob, kind = self._blobs[whole], step.kind
        if kind == Kind.BORDER:
            form = Form(kind, window=POINT._replace(pad=blob.border))
            operation = form.operation(shape, shape, (), blob.place, step.index)
            operation.zero_out = blob.zero
            return operation
        own = blob.channels(step.channels.start)
        if blob.border == (0, 0):  # pixels follow each other: any size with as many of them will do
            height, width = _rows(*shape[2:])
            buffer, offset, image, channel, _, pixel = own
            shape, own = (*shape[:2], height, width), (buffer, offset, image, channel, width * pixel, pixel)
        host = self._numbers[kind, step.part], 0, *plain_strides(shape)
        source, target = (host, own) if kind == Kind.LOAD else (own, host)
        return Form(kind).operation(shape, shape, [source], target, step.index)

    def _packed(self) -> Array:
        """Return the constants: tables, and weights in the order of the kernels."""
        memory = aligned(self._constants.size)
        self._constants.write(memory)
        stored = [form.weights.bytes for _, form in self._weights if isinstance(form.weights, Packed)]
        scratch = np.empty(max(stored, default=0), np.int8)  # one for all: new pages take longer than reading
        for operation, form in self._weights:
            weights, bias = form.weights, form.bias
            assert weights is not None
            assert bias is not None
            if isinstance(weights, Packed):
                data, (*_, inputs, outputs) = weights.blocks(scratch[: weights.bytes]), weights.axes
                block = (1, outputs) if form.kind == Kind.DEPTHWISE else (outputs, inputs)
            else:
                data, block = np.ascontiguousarray(weights, np.int8), (1, 1)
            bias32 = bias.astype(np.int32)
            operation.narrow = self._library.calls.chai_pack(
                self._library.number,
                ctypes.byref(operation),
                pointer(data),
                *map(ctypes.c_int64, block),
                pointer(bias32),
                pointer(memory),
            )
        return memory

    def _extents(self) -> ctypes.Array[Extent]:
        hosts = [prod(self._shape(part)) for part in (*self._loads, *self._stores)]
        writable = [0] * len(self._loads) + hosts[len(self._loads) :]
        pairs = [(self.size, self.size), (self._constants.size, 0), *zip(hosts, writable)]
        pairs += [(file.bytes, 0) for file in self._files]
        return (Extent * len(pairs))(*(Extent(*pair) for pair in pairs))

    def _table_of(self, images: int) -> Table:
        """Return the table for so many images. The weights have been packed."""
        if images == self._images:
            return self.table
        if images not in self._partial:
            table = type(self.table).from_buffer_copy(self.table)
            for operation in table:
                operation.images = images
            self._library.verify(table, self._extents())
            self._partial[images] = table
        return self._partial[images]

    # -- as a part of another table

    @property
    def ends(self) -> tuple[list[str], list[str]] | None:
        """Return the blobs that it reads and writes; None if these are parts of others, or a run may leave images out."""
        parts = [*self._loads, *self._stores]
        whole = all(self._inside(part) == (part.blob, range(self._shapes[part.blob][1])) for part in parts)
        if self._fewest < self._batch or not whole:
            return None
        return [part.blob for part in self._loads], [part.blob for part in self._stores]

    def constants(self) -> Array:
        """Return the constants, after which the operations of the table are complete."""
        with self._packing:
            if self._memory is None:
                self._memory = self._packed()
            return self._memory

    @property
    def files(self) -> list[Array]:
        """Return the weights that are read where they are stored."""
        return [file.mapped for file in self._files]

    # -- each run

    def close(self) -> None:
        """Release what runs have allocated; a later run allocates it again. One that is not done yet keeps its own."""
        with self._packing:
            self._frames, self._memory = [], None

    def rest(self) -> None:
        """Release the memory of blobs alone."""
        with self._packing:
            self._frames = []

    def run(self, blobs: dict[str, Array]) -> Sequence[float]:
        """Run all Tasks on the codes of ``loads``, add those of ``stores``, and return the milliseconds of each Task."""
        loads = [self._array(part, blobs) for part in self._loads]
        images = self._batch if self._fewest == self._batch else self._different(loads)
        with self._packing:
            memory, frames = self.constants(), self._frames
            frame = frames.pop() if frames else self._frame(memory)
            firsts = range(0, images, self._images)
            tables = [self._table_of(min(self._images, images - first)) for first in firsts]
        stores = [self._array(part, blobs) for part in self._stores]
        moved = [array if array.flags.c_contiguous else np.array(array, order="C") for array in (*loads, *stores)]
        times: Sequence[float] = ()
        for first, table in zip(firsts, tables):
            frame.addresses[HOST : HOST + len(moved)] = [address(a) + first * (a.nbytes // self._batch) for a in moved]
            ms = self._library.run(table, frame, threads() if self.shared else 1)
            times = [*map(add, times, ms)] if first else ms
        for array, result in zip(stores, moved[len(loads) :]):
            if images < self._batch:
                result[images:] = result[images - 1]
            if array is not result:
                array[...] = result
        frames.append(frame)  # those of now, or those that a close has dropped meanwhile
        return times

    def _frame(self, memory: Array) -> RunArguments:
        """Return a frame with an arena of its own, and without the addresses of the host's arrays."""
        none = [None] * (len(self._loads) + len(self._stores))
        return RunArguments(self.table, len(self.tasks), [aligned(self.size), memory, *none, *self.files])

    def _different(self, arrays: Sequence[Array]) -> int:
        """Return the number of images without those at the end that are copies, with which a batch is filled up."""
        images = self._batch
        while images > self._fewest and all(np.array_equal(array[images - 1], array[images - 2]) for array in arrays):
            images -= 1
        return images

    def _array(self, part: ChannelRange, blobs: dict[str, Array]) -> Array:
        shapes = self._whole_shapes
        codes, shape = codes_of(part.blob, blobs, shapes, self._wholes.views), shapes[part.blob]
        if codes.shape != shape or codes.dtype != np.int8:
            raise DeviceError(f"blob {part.blob!r}: expected int8 {shape}, found {codes.dtype} {codes.shape}")
        if part.channels == shape[1]:
            return codes
        return codes[:, part.first : part.first + part.channels]


def _together(batch: int, blobs: Sequence[int], weights: int) -> int:
    """Return how many images of a batch run together, at most. ``blobs`` are the bytes of each blob of an image.

    Their largest blob stays in a cache, or all of their blobs have no more bytes than the weights, which each run reads again.
    """
    most = max(CACHED // max(1, *blobs), weights // max(1, sum(blobs)), 1)  # a blob may be empty
    return ceil(batch / ceil(batch / most))


def _rows(height: int, width: int) -> tuple[int, int]:
    """Return a height and a width of as many pixels, with rows as long as possible up to ``LONG``, but none shorter."""
    together = max((n for n in range(1, min(height, LONG // width) + 1) if height % n == 0), default=1)
    return height // together, width * together
