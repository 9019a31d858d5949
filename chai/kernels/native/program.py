"""Program: Tasks as one table of operations, over blobs that share one piece of memory.

Blobs are stored in NHWC order with a border as wide as the widest padding of their readers. A view is some channels of its
parent. The host's blobs (int8, NCHW) are loaded before the first Task and stored after the last one that writes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...blob import View, Wholes, codes_of
from ...errors import DeviceError
from ...overlay.layout import share
from ...overlay.weights import Packed
from ...util.lazy_dataclass import dataclass
from ...util.lazy_numpy import np
from ...util.sharing import Mutex
from .library import ALIGNMENT, Frame, Library, address, aligned, pointer
from .order import Use, after
from .table import BLOCK_OUTPUTS, Constants, Extent, Form, Kind, Operation, Place, Table, plain_strides, sizes
from .threads import threads

if TYPE_CHECKING:
    from ...blob import Array, Shape
    from ...tasks import Task

ARENA, CONSTANTS, HOST = 0, 1, 2  # buffers: blobs, weights and tables, then the host's arrays
LONG = 512  # pixels of a row that is loaded or stored: many of a channel together, which are in few pages
FEW, LARGE = 4, 1 << 20  # pixels and bytes: weights that are used so little are not packed
SHARED = 1 << 23  # multiply-accumulates of a run: fewer take less time than to wake a thread


class Part(NamedTuple):
    """Some channels of a blob, which may be a view."""

    blob: str
    first: int
    channels: int


@dataclass
class _Blob:
    """An outermost blob: rows and columns of its border, the code of 0 there, and its offset in the arena."""

    shape: Shape
    border: tuple[int, int] = (0, 0)
    zero: int = 0
    offset: int = 0

    @property
    def strides(self) -> tuple[int, int, int, int]:
        _, c, h, w = self.shape
        row = (w + 2 * self.border[1]) * c
        return (h + 2 * self.border[0]) * row, 1, row, c

    @property
    def bytes(self) -> int:
        """Return its size; the last pixel may be read in whole dwords."""
        return -(-(self.shape[0] * self.strides[0] + 4) // ALIGNMENT) * ALIGNMENT

    def place(self, first: int) -> Place:
        """Return the place of its channels from ``first`` on."""
        image, channel, row, pixel = self.strides
        start = self.offset + self.border[0] * row + self.border[1] * pixel + first
        return Place(ARENA, start, image, channel, row, pixel)


class _Step:
    """An operation to be: a Task with its form, or a part of a blob to move; its time counts as that of Task ``task``."""

    __slots__ = ("form", "kind", "task", "what")

    def __init__(self, task: int, kind: int, what: Task | Part, form: Form | None = None) -> None:
        self.task, self.kind, self.what, self.form = task, kind, what, form


class Native:
    """Some Tasks with their forms. ``loads`` and ``stores`` are the channels that come from and go to the host."""

    def __init__(
        self,
        library: Library,
        tasks: Sequence[tuple[Task, Form]],
        shapes: Mapping[str, Shape],
        views: Mapping[str, View],
        loads: Collection[Part],
        stores: Collection[Part],
    ) -> None:
        self._library, self._shapes = library, shapes
        self._loads, self._stores = [*loads], [*stores]
        moved = [(Kind.LOAD, part) for part in loads] + [(Kind.STORE, part) for part in stores]
        self._numbers = {key: number for number, key in enumerate(moved, HOST)}
        self._views, self._wholes = views, Wholes(views)
        self._blobs: dict[str, _Blob] = {}
        self._constants = Constants()
        self._files: list[Array] = []  # weights that are read where they are stored
        for task, form in tasks:
            for blob in (*task.inputs, task.output):
                whole = self._wholes[blob].base
                if whole not in self._blobs:
                    self._blobs[whole] = _Blob(shapes[whole])
            (rows, columns), source = form.border, self._blobs[self._wholes[task.inputs[0]].base]
            if rows or columns:
                source.border = max(source.border[0], rows), max(source.border[1], columns)
                source.zero = form.zeros[0]
        steps = [*self._steps(tasks)]
        size = self._lay_out(steps)
        self.tasks = [task for task, _ in tasks]
        self._table = (Operation * len(steps))(*map(self._operation, steps))
        self._batch = int(self._table[0].images)
        alike = bool(loads) and all(operation.images == self._batch for operation in self._table)
        self._fewest = 1 if alike else self._batch  # images of a run
        places = {name: (blob.offset, blob.offset + blob.bytes) for name, blob in self._blobs.items()}
        for operation, count in zip(self._table, after(map(self._use, steps), places)):
            operation.after = count
        macs = sum(task.macs(*(shapes[blob] for blob in task.inputs)) for task, _ in tasks)
        self._shared = macs >= SHARED
        self._weights = [
            (operation, step.form)
            for operation, step in zip(self._table, steps)
            if step.form is not None and operation.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE)
        ]
        self._memory: Array | None = None
        self._frames: list[Frame] = []
        self._partial: dict[int, Table] = {}  # the table for fewer images
        self._size = size
        self._packing = Mutex()
        self._check(self._table)

    # -- before the first run

    def _shape(self, part: Part) -> Shape:
        n, _, *size = self._shapes[part.blob]
        return (n, part.channels, *size)

    def _steps(self, tasks: Sequence[tuple[Task, Form]]) -> Iterator[_Step]:
        """Yield the operations in order, with the index of the Task whose time each counts as."""
        bordered: set[str] = set()

        def border(i: int, whole: str) -> Iterator[_Step]:
            if whole not in bordered and any(self._blobs[whole].border):
                yield _Step(i, Kind.BORDER, Part(whole, 0, self._blobs[whole].shape[1]))
            bordered.add(whole)

        last = {}  # Task that writes a blob last
        for i, (task, _) in enumerate(tasks):
            last[self._wholes[task.output].base] = i
        stored: dict[str, list[Part]] = {}
        for part in self._stores:
            stored.setdefault(self._wholes[part.blob].base, []).append(part)
        for part in self._loads:
            yield from border(0, self._wholes[part.blob].base)
            yield _Step(0, Kind.LOAD, part)
        for i, (task, form) in enumerate(tasks):
            whole = self._wholes[task.output].base
            yield from border(i, whole)
            yield _Step(i, self._kind(task, form), task, form)
            if last[whole] == i:
                yield from (_Step(i, Kind.STORE, part) for part in stored.get(whole, ()))

    def _kind(self, task: Task, form: Form) -> int:
        """Return the kind of a Task's operation: large weights that few pixels need stay in their file."""
        weights, (n, _, h, w) = form.weights, self._shapes[task.output]
        if form.kind != Kind.CONVOLUTION or form.group != 1 or not isinstance(weights, Packed):
            return form.kind
        few = n * h * w <= FEW and weights.bytes >= LARGE and weights.axes[6] <= BLOCK_OUTPUTS
        return Kind.IN_PLACE if few and weights.mapped is not None else form.kind

    def _lay_out(self, steps: Sequence[_Step]) -> int:
        """Give each blob an offset, shared by blobs that are never used at the same time; return the size of all."""
        lives: dict[str, tuple[int, int]] = {}
        for moment, step in enumerate(steps):
            what = step.what
            for blob in (what.blob,) if isinstance(what, Part) else (*what.inputs, what.output):
                whole = self._wholes[blob].base
                lives[whole] = lives.get(whole, (moment,))[0], moment
        offsets, size = share(lives, {whole: self._blobs[whole].bytes for whole in lives})
        for whole, offset in offsets.items():
            self._blobs[whole].offset = offset
        return size

    def _operation(self, step: _Step) -> Operation:
        task, kind, what, form = step.task, step.kind, step.what, step.form
        if isinstance(what, Part):
            return self._moving(task, kind, what)
        assert form is not None
        shape, out = self._shapes[what.inputs[0]], self._shapes[what.output]
        whole, first = self._wholes[what.output]
        start, outputs = what.channels(self._shapes)
        values = {**form.fields(), "task": task, **sizes(shape, (shape[0], outputs, *out[2:]))}
        values |= self._blobs[whole].place(first + start).fields("output")
        for name, blob in zip(("input", "second"), what.inputs):
            source, channel = self._wholes[blob]
            values |= self._blobs[source].place(channel).fields(name)
        if form.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.AVERAGE):
            r, entries = form.requantization, prod(out[2:]) if form.kind == Kind.AVERAGE else outputs
            assert r is not None
            values["constants"] = CONSTANTS
            values["scale"] = self._constants.table(r.multiplier * 2.0**-r.shift, entries)
            if r.negative is not None:
                values["negative"] = self._constants.table(r.negative * 2.0**-r.shift, entries)
        operation = Operation(**values)
        if kind == Kind.IN_PLACE:
            assert isinstance(form.weights, Packed)
            assert form.weights.mapped is not None
            assert form.bias is not None
            operation.kind, (*_, inputs, wide) = kind, form.weights.axes
            operation.block_inputs, operation.block_outputs = inputs, wide
            operation.file = HOST + len(self._loads) + len(self._stores) + len(self._files)
            operation.bias = self._constants.table(form.bias.astype(np.int32), outputs)
            self._files.append(form.weights.mapped)
        elif form.weights is not None:
            size = self._library.calls.chai_packed(self._library.number, ctypes.byref(operation))
            operation.weights = self._constants.reserve(size)
            operation.bias = self._constants.table(np.zeros(outputs, np.int32), outputs)
        return operation

    def _use(self, step: _Step) -> Use:
        """Return what an operation reads and writes; a border has none of a blob's channels."""
        what = step.what
        if isinstance(what, Part):
            whole, first = self._wholes[what.blob]
            if step.kind == Kind.STORE:
                return Use((whole,), "", range(0))
            start = first + what.first
            return Use((), whole, range(start, start + what.channels * (step.kind == Kind.LOAD)))
        whole, first = self._wholes[what.output]
        start, outputs = what.channels(self._shapes)
        reads = tuple(self._wholes[blob].base for blob in what.inputs)
        return Use(reads, whole, range(first + start, first + start + outputs))

    def _moving(self, task: int, kind: int, part: Part) -> Operation:
        """Return the operation that loads or stores channels, or fills the border of a blob."""
        whole, first = self._wholes[part.blob]
        shape = self._shape(part)
        values = {**Form(kind).fields(), "task": task, **sizes(shape, shape)}
        own = self._blobs[whole].place(first + part.first)
        if kind == Kind.BORDER:
            values |= dict(zip(("pad_h", "pad_w"), self._blobs[whole].border)) | own.fields("output")
            values["zero_out"] = self._blobs[whole].zero
        else:
            if self._blobs[whole].border == (0, 0):  # pixels follow each other: any size with as many of them will do
                height, width = _rows(*shape[2:])
                shape, own = (*shape[:2], height, width), own._replace(row=width * own.pixel)
                values |= sizes(shape, shape)
            host = Place(self._numbers[kind, part], 0, *plain_strides(shape))
            values |= (host if kind == Kind.LOAD else own).fields("input")
            values |= (own if kind == Kind.LOAD else host).fields("output")
        return Operation(**values)

    def _packed(self) -> Array:
        """Return the constants: tables, and weights in the order of the kernels."""
        memory = aligned(self._constants.size)
        for offset, part in self._constants.parts:
            memory[offset : offset + part.nbytes] = part.view(np.uint8)
        stored = [form.weights.bytes for _, form in self._weights if isinstance(form.weights, Packed)]
        scratch = np.empty(max(stored, default=0), np.int8)  # one for all: new pages take longer than reading
        for operation, form in self._weights:
            weights, bias = form.weights, form.bias
            assert weights is not None
            assert bias is not None
            if isinstance(weights, Packed):
                data = weights.blocks(scratch[: weights.bytes])
                block = data.shape[6] if data.ndim == 7 else 1, data.shape[5] if data.ndim == 7 else data.shape[3]
            else:
                data, block = np.ascontiguousarray(weights, np.int8), (1, 1)
            given = bias.astype(np.int32)
            operation.narrow = self._library.calls.chai_pack(
                self._library.number,
                ctypes.byref(operation),
                pointer(data),
                *map(ctypes.c_int64, block),
                pointer(given),
                pointer(memory),
            )
        return memory

    def _extents(self) -> ctypes.Array[Extent]:
        """Return the sizes of the buffers."""
        hosts = [prod(self._shape(part)) for part in (*self._loads, *self._stores)]
        writable = [0] * len(self._loads) + hosts[len(self._loads) :]
        pairs = [(self._size, self._size), (self._constants.size, 0), *zip(hosts, writable)]
        pairs += [(file.nbytes, 0) for file in self._files]
        return (Extent * len(pairs))(*(Extent(*pair) for pair in pairs))

    def _check(self, table: Table) -> None:
        """Let the library check a table: every byte that an operation can touch lies in its buffer."""
        wrong = self._library.check(table, self._extents())
        if wrong >= 0:
            kind = Kind.name(table[wrong].kind)
            raise DeviceError(f"operation {wrong} ({kind}) would leave its memory")

    def _table_of(self, images: int) -> Table:
        """Return the table for the first images of a batch. The weights have been packed."""
        if images == self._batch:
            return self._table
        if images not in self._partial:
            table = type(self._table).from_buffer_copy(self._table)
            for operation in table:
                operation.images = images
            self._check(table)
            self._partial[images] = table
        return self._partial[images]

    # -- each run

    def close(self) -> None:
        """Release what runs have allocated; a later run allocates it again. One that is not done yet keeps its own."""
        with self._packing:
            self._frames, self._memory = [], None

    def run(self, blobs: dict[str, Array]) -> Sequence[float]:
        """Run all Tasks on the codes of ``loads``, add those of ``stores``, and return the milliseconds of each Task."""
        loads = [self._array(part, blobs) for part in self._loads]
        images = self._batch if self._fewest == self._batch else self._different(loads)
        with self._packing:
            if self._memory is None:
                self._memory = self._packed()
            frames = self._frames
            frame = frames.pop() if frames else self._frame(self._memory)
            table = self._table_of(images)
        stores = [self._array(part, blobs) for part in self._stores]
        moved = [array if array.flags.c_contiguous else np.array(array, order="C") for array in (*loads, *stores)]
        frame.addresses[HOST : HOST + len(moved)] = [*map(address, moved)]
        times = self._library.run(table, frame, threads() if self._shared else 1)
        for array, result in zip(stores, moved[len(loads) :]):
            if images < self._batch:
                result[images:] = result[images - 1]
            if array is not result:
                array[...] = result
        frames.append(frame)  # those of now, or those that a close has dropped meanwhile
        return times

    def _frame(self, memory: Array) -> Frame:
        """Return a frame with an arena of its own, and without the addresses of the host's arrays."""
        none = [None] * (len(self._loads) + len(self._stores))
        return Frame(self._table, len(self.tasks), [aligned(self._size), memory, *none, *self._files])

    def _different(self, given: Sequence[Array]) -> int:
        """Return the number of images without those at the end that are copies, with which a batch is filled up."""
        images = self._batch
        while images > self._fewest and all(np.array_equal(array[images - 1], array[images - 2]) for array in given):
            images -= 1
        return images

    def _array(self, part: Part, blobs: dict[str, Array]) -> Array:
        codes, shape = codes_of(part.blob, blobs, self._shapes, self._views), self._shapes[part.blob]
        if codes.shape != shape or codes.dtype != np.int8:
            raise DeviceError(f"blob {part.blob!r}: expected int8 {shape}, found {codes.dtype} {codes.shape}")
        if part.channels == shape[1]:
            return codes
        return codes[:, part.first : part.first + part.channels]


def _rows(height: int, width: int) -> tuple[int, int]:
    """Return a height and a width of as many pixels, with rows as long as possible up to ``LONG``, but none shorter."""
    together = max((n for n in range(1, min(height, LONG // width) + 1) if height % n == 0), default=1)
    return height // together, width * together
