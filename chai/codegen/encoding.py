"""Tasks to what an accelerator fetches from DDR, and back: ``decode(encode(task))`` equals the Task.

A Task becomes one record of ``overlay.descriptor`` and its constants: weights, then the table of requantisation, each
beginning at a multiple of the layout's alignment. Fields are spoken of by name; where they lie is ``descriptor``'s
business. Fields that a kind has no use for are zero. ``origin`` stays on the host.

======== ==============================================================================================
conv     weights (``pack_weights``); one record of the table per output channel
affine   the same: it is a 1x1 convolution with one group per channel
pool     MAX: no table, shift 0, codes pass the clamp -128..127
         AVE: one record per window, row by row over the output; bias 0
eltwise  ``factor`` and ``second_factor``; leaky: ``negative`` and ``second_negative``
copy     ``factor``; a blob that is moved as it is: factor 1, shift 0, clamp -128..127
======== ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import DeviceError
from ..fixed import Requantization
from ..overlay.records import pack, pack_rows, unpack, unpack_rows
from ..overlay.weights import Held, Packed, Unpacked, joined, weight_bytes
from ..tasks.conv import Affine, Conv
from ..tasks.copy import Copy
from ..tasks.eltwise import Eltwise
from ..tasks.pool import Pool
from ..tasks.window import Window
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..overlay import Overlay
    from ..overlay.weights import Buffer, Piece, Source
    from ..tasks import Task

    Made = tuple[dict[str, int], Sequence[Piece]]  # values of fields, constants one behind the other


def as_it_is() -> Requantization:
    """What moves any code unchanged."""
    return Requantization(np.array(1), 0, -128, 127)


class Place(Protocol):
    """Where a blob lies: ``offset`` is the address (in bytes) of the whole, of which it has the planes from
    ``first_channel`` on; ``parent`` is the whole's id, None for a blob of its own."""

    @property
    def offset(self) -> int: ...

    @property
    def parent(self) -> str | None: ...

    @property
    def first_channel(self) -> int: ...


class View(NamedTuple):
    """The part of memory that a Task reads or writes, as a descriptor says it."""

    address: int
    plane: int
    planes: int
    batch: int
    channels: int
    height: int
    width: int


# -- Tasks


def encode(
    task: Task,
    overlay: Overlay,
    address: Mapping[str, Place],
    shapes: Mapping[str, Shape],
    where: int,
    *,
    tag: int = 0,
    wait: bool = False,
    signal: bool = False,
) -> tuple[bytes, Sequence[Piece]]:
    """The descriptor of a Task and its constants in pieces, which have to lie one behind the other from address ``where``
    on. Weights that are packed already are given as they are, to be read by whoever wants them.

    ``address`` and ``shapes`` know every blob of the Task and the wholes they are parts of. ``tag``, ``wait`` and
    ``signal`` are the descriptor's place in a chain and its tokens. Raises DeviceError, with the Task and the field,
    for a value that the field cannot hold.
    """
    try:
        memory = _Memory(overlay, address, shapes)
        values = {field.name: 0 for field in overlay.descriptor.fields if field.name != "version"}
        values |= {"opcode": _opcode(overlay, task.kind), "tag": tag, "wait": int(wait), "signal": int(signal)}
        made, constants = _made(task, memory, where)
        if made["shift"] > overlay.requant.shift_max:
            raise DeviceError(f"shift: {made['shift']}, expected at most {overlay.requant.shift_max}")
        return pack(overlay.descriptor, values | made), constants
    except DeviceError as error:
        name = "+".join(task.origin) or task.output
        raise DeviceError(f"task {name} ({task.kind}): {error.message}", layer=name, hint=error.hint) from error


def decode(
    descriptor: Buffer,
    constants: Buffer | Source,
    overlay: Overlay,
    address: Mapping[str, Place],
    shapes: Mapping[str, Shape],
    where: int,
) -> Task:
    """The Task of a descriptor; ``constants`` is the memory from address ``where`` on, of one Task or many, and the
    Task's weights stay in it.

    Blobs get the names that ``address`` has for their place and size, so it must not hold two blobs that share both
    (they are never in use at once). The Task has no origin. Raises DeviceError for whatever ``encode`` does not write.
    """
    values = unpack(overlay.descriptor, descriptor)
    area = _Constants(constants, where)
    task = _task(values, _Memory(overlay, address, shapes), area)
    # encoding is the other half of the check: nothing may be left that it would not have written
    begin = values["weights"] if isinstance(task, Conv) else values["table"] if values["average"] else where
    wait, signal = bool(values["wait"]), bool(values["signal"])
    again, parts = encode(task, overlay, address, shapes, begin, tag=values["tag"], wait=wait, signal=signal)
    for name, value in unpack(overlay.descriptor, again).items() if again != bytes(descriptor) else ():
        if values[name] != value:
            raise DeviceError(f"descriptor: {name} = {values[name]}, a {task.kind} like this has {value}")
    for part in parts:
        if isinstance(part, Packed):  # these very bytes, which it has checked
            begin, parts = begin + part.bytes, parts[1:]
    made = joined(parts)
    if made != area.read("constants", begin, len(made)):
        raise DeviceError(f"descriptor: the padding of the constants of a {task.kind} is not zero")
    return task


def equal(a: Task, b: Task) -> bool:
    """Whether two Tasks do the same to the same blobs: all fields but ``origin``, arrays by value.

    A Copy that requantises to the same codes equals one that does not requantise.
    """
    a, b = _plain(a), _plain(b)
    if type(a) is not type(b):
        return False
    return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "origin")


def _plain(task: Task) -> Task:
    moved = isinstance(task, Copy) and _same(task.requantization, as_it_is())
    return replace(task, requantization=None) if moved else task  # type: ignore[call-arg]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Requantization) and isinstance(b, Requantization):
        numbers = a.shift == b.shift and a.low == b.low and a.high == b.high
        return numbers and _same_multipliers(a.multiplier, b.multiplier) and _same_multipliers(a.negative, b.negative)
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _same_multipliers(a: Array | None, b: Array | None) -> bool:
    """One number stands for as many as there are channels or windows."""
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape == b.shape or 1 in (a.size, b.size)) and bool((a == b).all())


def _opcode(overlay: Overlay, kind: str) -> int:
    limits = getattr(overlay.tasks, kind)
    if limits is None:
        raise DeviceError(f"opcode: overlay {overlay.name} has no {kind} unit")
    opcode: int = limits.opcode
    return opcode


def _made(task: Task, memory: _Memory, where: int) -> Made:
    if isinstance(task, Conv):
        return _conv_fields(task, memory, where)
    if isinstance(task, Pool):
        return _pool_fields(task, memory, where)
    if isinstance(task, Eltwise):
        return _eltwise_fields(task, memory), ()
    assert isinstance(task, Copy)
    return _copy_fields(task, memory), ()


def _task(values: Mapping[str, int], memory: _Memory, constants: _Constants) -> Task:
    tasks, opcode = memory.overlay.tasks, values["opcode"]
    if opcode == tasks.conv.opcode:
        return _conv_task(values, memory, constants, Conv)
    if tasks.affine and opcode == tasks.affine.opcode:
        return _conv_task(values, memory, constants, Affine)
    if tasks.pool and opcode == tasks.pool.opcode:
        return _pool_task(values, memory, constants)
    if tasks.eltwise and opcode == tasks.eltwise.opcode:
        return _eltwise_task(values, memory)
    if tasks.copy and opcode == tasks.copy.opcode:
        return _copy_task(values, memory)
    raise DeviceError(f"descriptor: opcode = {opcode} is that of no Task of overlay {memory.overlay.name}")


# -- blobs


class _Memory:
    """The blobs of a Task, and how descriptors say where they lie."""

    def __init__(self, overlay: Overlay, address: Mapping[str, Place], shapes: Mapping[str, Shape]) -> None:
        self.overlay = overlay
        self.address = address
        self.shapes = shapes
        self.step = overlay.layout.channels_per_word

    def shape(self, blob: str) -> Shape:
        """(N, C, H, W)."""
        shape = self.shapes.get(blob, ())
        if len(shape) != 4:
            raise DeviceError(f"blob {blob!r}: expected 4 axes (N, C, H, W), found {shape}")
        return shape

    def view(self, blob: str) -> View:
        """Where a blob lies."""
        if blob not in self.address:
            raise DeviceError(f"blob {blob!r} has no address")
        place = self.address[blob]
        n, c, h, w = self.shape(blob)
        if place.first_channel % self.step:
            raise DeviceError(f"plane: blob {blob!r} begins at channel {place.first_channel}, not at a plane's first")
        planes = self.planes(self.shape(place.parent or blob)[1])
        return View(place.offset, place.first_channel // self.step, planes, n, c, h, w)

    def planes(self, channels: int) -> int:
        return -(-channels // self.step)

    def find(self, view: View) -> str:
        """The blob that lies there."""
        return self._one([blob for blob in self.address if self.view(blob) == view], view)

    def around(self, view: View) -> str:
        """The smallest blob that holds those planes."""
        found = {}
        for blob in self.address:
            whole = self.view(blob)
            ends = whole.plane + self.planes(whole.channels), view.plane + self.planes(view.channels)
            apart = view._replace(plane=0, channels=0) != whole._replace(plane=0, channels=0)
            if not apart and whole.plane <= view.plane and ends[1] <= ends[0]:
                found[blob] = whole.channels
        return self._one([b for b in found if found[b] == min(found.values())], view)

    def _one(self, found: list[str], view: View) -> str:
        # a part that fills its whole is the same memory: the whole gives the name
        found = [blob for blob in found if self.address[blob].parent not in found]
        if len(found) != 1:
            what = "no blob lies" if not found else "more than one blob lies"
            raise DeviceError(f"descriptor: {what} at {view.address:#x}: {', '.join(found) or view}")
        return found[0]


def _source(view: View, name: str = "input") -> dict[str, int]:
    return {name: view.address, f"{name}_plane": view.plane, f"{name}_planes": view.planes}


def _input(view: View) -> dict[str, int]:
    sizes = {"input_channels": view.channels, "input_height": view.height, "input_width": view.width}
    return {**_source(view), **sizes, "batch": view.batch}


def _output(view: View) -> dict[str, int]:
    sizes = {"output_channels": view.channels, "output_height": view.height, "output_width": view.width}
    return {**_source(view, "output"), **sizes}


def _view(values: Mapping[str, int], name: str, sizes: str) -> View:
    place = values[name], values[f"{name}_plane"], values[f"{name}_planes"], values["batch"]
    return View(*place, values[f"{sizes}_channels"], values[f"{sizes}_height"], values[f"{sizes}_width"])


def _check_output(task: Task, memory: _Memory, wanted: Shape) -> None:
    found = memory.shape(task.output)
    if found != wanted:
        raise DeviceError(f"output: expected {wanted}, blob {task.output!r} is {found}")


# -- windows and requantisation


def _window(window: Window) -> dict[str, int]:
    values = {f"{name}_{axis}": value for name, pair in window._asdict().items() for axis, value in zip("hw", pair)}
    for name, value in values.items():
        if value < 1 and not name.startswith("pad"):
            raise DeviceError(f"descriptor: {name} = {value} is less than 1")
    return values


def _window_of(values: Mapping[str, int]) -> Window:
    window = Window(*((values[f"{name}_h"], values[f"{name}_w"]) for name in Window._fields))
    _window(window)
    return window


def _clamp(r: Requantization, leaky: bool) -> dict[str, int]:
    return {"shift": r.shift, "low": r.low, "high": r.high, "leaky": int(leaky)}


def _multipliers(name: str, given: Array, shape: Shape) -> Array:
    """One per channel or window, flat int64; one number is for all of them."""
    array = np.asarray(given, np.int64)
    if array.size != 1 and array.shape != shape:
        raise DeviceError(f"{name}: expected {shape}, found {array.shape}")
    return np.broadcast_to(array.reshape(-1), prod(shape))


def _table(overlay: Overlay, bias: Array, r: Requantization, shape: Shape) -> bytes:
    """Records for multipliers of this shape; ``negative`` is 0 when not leaky."""
    above = _multipliers("multiplier", r.multiplier, shape)
    below = np.zeros_like(above) if r.negative is None else _multipliers("negative", r.negative, shape)
    return pack_rows(overlay.table, {"bias": bias, "multiplier": above, "negative": below})


def _records(values: Mapping[str, int], memory: _Memory, constants: _Constants, shape: Shape) -> tuple[Array, Any]:
    """Bias (one per record) and the Requantization with multipliers of this shape."""
    record = memory.overlay.table
    data = constants.read("table", values["table"], prod(shape) * record.bytes)
    columns = unpack_rows(record, data)
    above, below = columns["multiplier"].reshape(shape), columns["negative"].reshape(shape)
    clamp = values["shift"], values["low"], values["high"]
    return columns["bias"], Requantization(above, *clamp, below if values["leaky"] else None)


class _Constants:
    def __init__(self, data: Buffer | Source, where: int) -> None:
        self.source: Source = Held(data) if isinstance(data, (bytes, bytearray, memoryview)) else data
        self.where = where

    def at(self, name: str, address: int, size: int) -> int:
        """Offset of so many bytes at an address."""
        start = address - self.where
        if start < 0 or start + size > len(self.source):
            raise DeviceError(
                f"descriptor: {name}: {size} bytes at {address:#x} are outside the constants, "
                f"{len(self.source)} bytes at {self.where:#x}"
            )
        return start

    def read(self, name: str, address: int, size: int) -> bytes:
        start = self.at(name, address, size)
        found = np.empty(size, np.uint8)
        self.source.read(start, found)
        return found.tobytes()


# -- one pair of functions per kind


def _conv_fields(task: Conv, memory: _Memory, where: int) -> Made:
    overlay = memory.overlay
    source = memory.view(task.inputs[0])
    window = _window(task.window)
    m, c, *kernel = task.weights.shape
    if tuple(kernel) != task.window.kernel or c * task.group != source.channels or m % task.group:
        raise DeviceError(
            f"weights: {task.weights.shape} with {task.group} groups do not fit {source.channels} channels "
            f"and a kernel of {task.window.kernel}"
        )
    if task.bias.shape != (m,):
        raise DeviceError(f"bias: expected {(m,)}, found {task.bias.shape}")
    _check_output(task, memory, (source.batch, m, *task.window.sizes((source.height, source.width))))
    array, shape = overlay.array, task.weights.shape
    weights = task.weights if isinstance(task.weights, Packed) else Unpacked(task.weights, task.group, array)
    size = weight_bytes(shape, task.group, array)
    padding = bytes(-size % overlay.layout.alignment)
    r = task.requantization
    table = _table(overlay, task.bias, r, (m, 1, 1))
    values = {
        **_input(source),
        **_output(memory.view(task.output)),
        **window,
        **_clamp(r, r.negative is not None),
        "group": task.group,
        "weights": where,
        "table": where + size + len(padding),
    }
    return values, (weights, padding, table)


def _conv_task(values: Mapping[str, int], memory: _Memory, constants: _Constants, cls: type[Conv]) -> Conv:
    source, target = _view(values, "input", "input"), _view(values, "output", "output")
    input, output = memory.find(source), memory.find(target)
    m, group, window = target.channels, values["group"], _window_of(values)
    if not group or source.channels % group or m % group:
        raise DeviceError(f"descriptor: group = {group} does not divide {source.channels} and {m} channels")
    shape = m, source.channels // group, *window.kernel
    array = memory.overlay.array
    start = constants.at("weights", values["weights"], weight_bytes(shape, group, array))
    weights = Packed(constants.source, start, shape, group, array)
    bias, r = _records(values, memory, constants, (m, 1, 1))
    return cls((input,), output, (), weights, bias, window, group, r)


def _pool_fields(task: Pool, memory: _Memory, where: int) -> Made:
    source = memory.view(task.inputs[0])
    _check_output(task, memory, (source.batch, source.channels, *task.out))
    values = {**_input(source), **_output(memory.view(task.output)), **_window(task.window)}
    r = task.requantization
    if r is None:
        return {**values, **_clamp(as_it_is(), False)}, ()
    table = _table(memory.overlay, np.zeros(prod(task.out), np.int64), r, task.out)
    return {**values, **_clamp(r, r.negative is not None), "average": 1, "table": where}, (table,)


def _pool_task(values: Mapping[str, int], memory: _Memory, constants: _Constants) -> Pool:
    target = _view(values, "output", "output")
    inputs, output = (memory.find(_view(values, "input", "input")),), memory.find(target)
    out = target.height, target.width
    r = _records(values, memory, constants, out)[1] if values["average"] else None
    return Pool(inputs, output, (), _window_of(values), out, r)


def _eltwise_fields(task: Eltwise, memory: _Memory) -> dict[str, int]:
    if len(task.inputs) != 2 or len(task.factors) != 2 or len(task.negative or task.factors) != 2:
        raise DeviceError(f"second: expected 2 inputs, each with a factor, found {len(task.inputs)}")
    r = task.requantization
    if r.negative is not None or not _same_multipliers(r.multiplier, np.array(1)):
        raise DeviceError("factor: an eltwise has no multiplier behind its sum")
    source, second = (memory.view(blob) for blob in task.inputs)
    shape = memory.shape(task.inputs[0])
    if memory.shape(task.inputs[1]) != shape:
        raise DeviceError(f"second: expected {shape}, blob {task.inputs[1]!r} is {memory.shape(task.inputs[1])}")
    _check_output(task, memory, shape)
    below = task.negative or (0, 0)
    return {
        **_input(source),
        **_source(second, "second"),
        **_output(memory.view(task.output)),
        **_clamp(r, task.negative is not None),
        **dict(zip(("factor", "second_factor", "negative", "second_negative"), (*task.factors, *below))),
    }


def _eltwise_task(values: Mapping[str, int], memory: _Memory) -> Eltwise:
    inputs = memory.find(_view(values, "input", "input")), memory.find(_view(values, "second", "input"))
    factors = values["factor"], values["second_factor"]
    negative = (values["negative"], values["second_negative"]) if values["leaky"] else None
    r = Requantization(np.array(1), values["shift"], values["low"], values["high"])
    return Eltwise(inputs, memory.find(_view(values, "output", "output")), (), factors, negative, r)


def _copy_fields(task: Copy, memory: _Memory) -> dict[str, int]:
    source, whole = memory.view(task.inputs[0]), memory.view(task.output)
    if task.first % memory.step:
        raise DeviceError(f"output_plane: channel {task.first} is not the first of a plane of {memory.step}")
    if task.first + source.channels > whole.channels:
        raise DeviceError(
            f"output_plane: {source.channels} channels from {task.first} on, blob {task.output!r} has {whole.channels}"
        )
    _check_output(task, memory, (source.batch, whole.channels, source.height, source.width))
    part = whole._replace(plane=whole.plane + task.first // memory.step, channels=source.channels)
    r = task.requantization or as_it_is()
    values = {**_input(source), **_output(part), **_clamp(r, r.negative is not None)}
    values["factor"] = _multipliers("factor", r.multiplier, ())[0]
    values["negative"] = 0 if r.negative is None else _multipliers("negative", r.negative, ())[0]
    return values


def _copy_task(values: Mapping[str, int], memory: _Memory) -> Copy:
    part = _view(values, "output", "output")
    output = memory.around(part)
    first = (part.plane - memory.view(output).plane) * memory.step
    below = np.array(values["negative"]) if values["leaky"] else None
    r = Requantization(np.array(values["factor"]), values["shift"], values["low"], values["high"], below)
    inputs = (memory.find(_view(values, "input", "input")),)
    return Copy(inputs, output, (), first, None if _same(r, as_it_is()) else r)
