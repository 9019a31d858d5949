"""Descriptor fields that several kinds of Task share: blobs, windows, clamps and tables of multipliers.

Fields are identified by name; ``overlay.records`` knows their bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization
from ..overlay import Overlay
from ..overlay.layout import Placed, image_bytes
from ..overlay.records import pack_rows, unpack_rows
from ..overlay.sections import Array as ArraySize
from ..overlay.weights import Buffer, ByteSource, Packed, weight_bytes
from ..util.lazy_numpy import np
from .window import Window


class StridedBlob(NamedTuple):
    """The memory that a Task reads or writes, as a descriptor describes it.

    ``address``  of the first word of the first image, in bytes
    ``pitch``    bytes from plane to plane
    ``image``    bytes from image to image
    """

    address: int
    pitch: int
    image: int
    batch: int
    channels: int
    height: int
    width: int

    def input(self) -> dict[str, int]:
        """Return the fields of a Task's (first) input."""
        return dict(zip(_INPUT, self))

    def output(self) -> dict[str, int]:
        """Return the fields of a Task's output."""
        return dict(zip(_OUTPUT, (*self[:3], *self[4:])))

    def place(self, name: str) -> dict[str, int]:
        """Return the fields of a blob's location, without its sizes."""
        return {name: self.address, f"{name}_image": self.image}


# as in StridedBlob
_INPUT = "input", "input_pitch", "input_image", "batch", "input_channels", "input_height", "input_width"
_OUTPUT = "output", "output_pitch", "output_image", "output_channels", "output_height", "output_width"


class TaskConstants:
    """The memory with the constants of one or several Tasks, from address ``where``."""

    def __init__(self, data: Buffer | ByteSource, where: int) -> None:
        self.source = data if isinstance(data, ByteSource) else ByteSource(data)
        self.where = where
        self.largest_bias = 0  # magnitude in the tables that were read
        self._unread = self.source.bytes  # that may still be those of a table
        self._tables: dict[tuple[int, int], dict[str, Array]] = {}

    def weights(self, address: int, shape: Shape, group: int, overlay: Overlay, packing: ArraySize) -> Packed:
        """Return the weights (M, C/group, kh, kw) at an address, packed for so many inputs and outputs.

        The padding after them is checked to be 0.
        """
        size = weight_bytes(shape, group, packing)
        start = self._offset("weights", address, size)
        padding = -size % overlay.layout.alignment
        if padding and self.read("padding", address + size, padding).any():
            raise DeviceError("descriptor: the padding of the constants of a conv is not zero")
        return Packed(self.source, start, shape, group, packing)

    def read(self, name: str, address: int, size: int) -> Array:
        """Return the ``size`` bytes at an address, uint8."""
        start = self._offset(name, address, size)
        data = np.empty(size, np.uint8)
        self.source.read(data, start)
        return data

    def read_tables(self, overlay: Overlay, spans: Sequence[tuple[int, int]]) -> None:
        """Read the tables of several Tasks, each (address, records), in the time of one. Raises DeviceError if they overlap."""
        record, names = overlay.table, ("multiplier", "negative")
        offsets = [self._offset("table", address, count * record.bytes) for address, count in spans]
        ends = [*accumulate((count for _, count in spans), initial=0)]
        unread = self._unread - ends[-1] * record.bytes
        if unread < 0:  # which bounds the memory that they take here
            raise DeviceError("descriptor: table: the tables take more than all constants")
        data = np.empty(ends[-1] * record.bytes, np.uint8)
        for offset, begin, end in zip(offsets, ends, ends[1:]):
            self.source.read(data[begin * record.bytes : end * record.bytes], offset)
        columns = unpack_rows(record, data.data)
        check_multipliers(overlay, **{f"table: {name}": columns[name] for name in names})
        self.largest_bias = max(self.largest_bias, int(np.abs(columns["bias"]).max(initial=0)))
        if not columns["negative"].any():
            del columns["negative"]
        for span, begin, end in zip(spans, ends, ends[1:]):
            self._tables[span] = {name: column[begin:end] for name, column in columns.items()}
        self._unread = unread

    def table(self, overlay: Overlay, address: int, records: int) -> dict[str, Array]:
        """Return the columns of the table at an address; "negative" only if some table has such multipliers."""
        if (address, records) not in self._tables:
            self.read_tables(overlay, [(address, records)])
        return self._tables[address, records]

    def _offset(self, name: str, address: int, size: int) -> int:
        """Return the offset of the ``size`` bytes at an address."""
        start = address - self.where
        if start < 0 or start + size > self.source.bytes:
            constants = f"the constants, {self.source.bytes} bytes at {self.where:#x}"
            raise DeviceError(f"descriptor: {name}: {size} bytes at {address:#x} are outside {constants}")
        return start


class Operands:
    """The blobs of a Task, with shapes and addresses, and the constants that its fields refer to.

    ``images`` (first, count) are those that the Task works on; None for all.
    """

    def __init__(
        self,
        overlay: Overlay,
        address: Mapping[str, Placed],
        shapes: Mapping[str, Shape],
        constants: TaskConstants | None = None,
        images: tuple[int, int] | None = None,
    ) -> None:
        self.overlay = overlay
        self.constants = constants or TaskConstants(b"", 0)
        self.address = address
        self.shapes = shapes
        self.images = images
        self.step = overlay.layout.channels_per_word
        self._views: dict[str, StridedBlob] = {}

    def of(self, images: tuple[int, int] | None) -> Operands:
        """Return the same memory for other images."""
        if images == self.images:
            return self
        return Operands(self.overlay, self.address, self.shapes, self.constants, images)

    def shape(self, blob: str) -> Shape:
        """Return (N, C, H, W) of the Task's images."""
        shape = self.shapes.get(blob, ())
        if len(shape) != 4:
            raise DeviceError(f"blob {blob!r}: expected 4 axes (N, C, H, W), found {shape}")
        if self.images is None:
            return shape
        first, count = self.images
        if not (first >= 0 and count > 0 and first + count <= shape[0]):
            raise DeviceError(f"images: {count} from {first} on, blob {blob!r} has {shape[0]}")
        return count, *shape[1:]

    def view(self, blob: str) -> StridedBlob:
        """Return the StridedBlob of a blob."""
        if (view := self._views.get(blob)) is not None:
            return view
        if blob not in self.address:
            raise DeviceError(f"blob {blob!r} has no address")
        place = self.address[blob]
        n, c, h, w = shape = self.shape(blob)
        if place.first_channel % self.step:
            raise DeviceError(f"plane: blob {blob!r} begins at channel {place.first_channel}, not at a plane's first")
        whole = shape if place.parent is None else self.shape(place.parent)
        pitch, image = h * w * self.step, image_bytes(whole, self.overlay.layout)
        first = self.images[0] if self.images else 0
        address = place.offset + first * image + place.first_channel // self.step * pitch
        self._views[blob] = view = StridedBlob(address, pitch, image, n, c, h, w)
        return view

    def part(self, view: StridedBlob, first: tuple[int, int], size: Sequence[int]) -> StridedBlob:
        """Return a part of a StridedBlob: from row and column ``first`` on, of ``size`` (height, width).

        Raises DeviceError if it is not inside.
        """
        if first[0] + size[0] > view.height or first[1] + size[1] > view.width:
            part = f"{size[0]} x {size[1]} from {first}"
            raise DeviceError(f"its part of {part} is outside of {view.height} x {view.width}")
        at = (first[0] * view.width + first[1]) * self.step
        return view._replace(address=view.address + at, height=size[0], width=size[1])

    def check_output(self, blob: str, expected: Shape) -> None:
        """Raise DeviceError if a Task's output does not have the shape expected for its inputs."""
        shape = self.shape(blob)
        if shape != expected:
            raise DeviceError(f"output: expected {expected}, blob {blob!r} is {shape}")


# -- windows


def window_fields(window: Window) -> dict[str, int]:
    """Return the fields of a window. Raises DeviceError for a size below 1."""
    kernel, stride, pad, dilation = window
    values = {"kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1]}
    values |= {"dilation_h": dilation[0], "dilation_w": dilation[1]}
    if min(values.values()) < 1:
        name = min(values, key=values.__getitem__)
        raise DeviceError(f"descriptor: {name} = {values[name]} is less than 1")
    values["pad_h"], values["pad_w"] = pad
    return values


def window_of(values: Mapping[str, int]) -> Window:
    """Return the window that these fields describe. Raises DeviceError for a size below 1."""
    window = Window(*((values[f"{name}_h"], values[f"{name}_w"]) for name in Window._fields))
    window_fields(window)  # which checks the sizes
    return window


# -- requantisation

_AS_IT_IS = {"factor": 1, "shift": 0, "low": -128, "high": 127, "leaky": 0}


def as_it_is() -> Requantization:
    """Return the requantisation that leaves any code unchanged."""
    return Requantization(np.array(1), 0, -128, 127)


def leaves_codes(values: Mapping[str, int]) -> bool:
    """Return whether a descriptor with one factor leaves any code unchanged, but for its zero points."""
    return all(values.get(name, 0) == value for name, value in _AS_IT_IS.items())


def clamp(r: Requantization) -> dict[str, int]:
    """Return the fields of a shift, a clamp, multipliers of negative sums and the output's zero point."""
    numbers = {"shift": r.shift, "low": r.low, "high": r.high, "leaky": int(r.negative is not None)}
    return numbers | zero_flag("output", r.zero)


def factor_fields(overlay: Overlay, r: Requantization) -> dict[str, int]:
    """Return the fields of a single multiplier, and of that of negative sums, 0 if it has none."""
    both = {"factor": r.multiplier, "negative": 0 if r.negative is None else r.negative}
    numbers = {name: int(flat_multipliers(name, np.asarray(m), ())[0]) for name, m in both.items()}
    check_multipliers(overlay, **numbers)
    return numbers


def clamped(values: Mapping[str, int], multiplier: Array | int, negative: Array | None = None) -> Requantization:
    """Return the requantisation with these multipliers and the shift, clamp and zero point of ``clamp``'s fields."""
    numbers = values["shift"], values["low"], values["high"]
    return Requantization(np.asarray(multiplier), *numbers, negative, zero_point(values, "output"))


def zero_flag(blob: str, zero: int) -> dict[str, int]:
    """Return the field of a blob's zero point, 0 or -128."""
    if zero not in (0, -128):
        raise DeviceError(f"{blob}_zero: zero point {zero}, expected 0 or -128")
    return {f"{blob}_zero": 1 if zero else 0}


def zero_point(values: Mapping[str, int], name: str) -> int:
    """Return the zero point of a blob, for which an overlay without unsigned codes has no field."""
    return -128 if values.get(f"{name}_zero") else 0


def flat_multipliers(name: str, values: Array, shape: Shape) -> Array:
    """Return one multiplier per channel or window, int64 (n,); a single number applies to all."""
    array = np.asarray(values, np.int64)
    if array.size != 1 and array.shape != shape:
        raise DeviceError(f"{name}: expected {shape}, found {array.shape}")
    return np.broadcast_to(array.reshape(-1), prod(shape))


def table(overlay: Overlay, bias: Array, r: Requantization, shape: Shape, wide: bool = False) -> ByteSource:
    """Return the table's records for multipliers of this shape; ``negative`` is 0 unless leaky. A ``wide`` bias has more bits."""
    check_bias(overlay, bias, wide)
    above = flat_multipliers("multiplier", r.multiplier, shape)
    below = np.zeros_like(above) if r.negative is None else flat_multipliers("negative", r.negative, shape)
    check_multipliers(overlay, **{"table: multiplier": above, "table: negative": below})
    return ByteSource(pack_rows(overlay.table, {"bias": bias, "multiplier": above, "negative": below}))


def check_bias(overlay: Overlay, bias: Array, wide: bool) -> None:
    """Raise DeviceError for a bias beyond the sums of a Task, which may be ``wide``."""
    bits = overlay.array_bits if wide else overlay.accumulator_bits
    most = (1 << bits - 1) - 1
    beyond = np.flatnonzero((bias > most) | (bias < -most - 1))
    if len(beyond):
        number, value = int(beyond[0]), int(bias[beyond[0]])
        raise DeviceError(f"record {number} of the table: bias = {value} is outside {-most - 1}..{most}")


def check_multipliers(overlay: Overlay, **multipliers: Array | int) -> None:
    """Raise DeviceError for a multiplier that has more bits than the overlay's, beside a sign."""
    for name, values in multipliers.items():
        largest = int(np.abs(values).max(initial=0))
        if largest >> overlay.requant.mult_bits:
            raise DeviceError(f"{name} = {largest}: expected {overlay.requant.mult_bits} bits")


def from_table(values: Mapping[str, int], memory: Operands, shape: Shape) -> tuple[Array, Requantization]:
    """Return the bias (one per record) and the Requantization with multipliers of this shape."""
    columns = memory.constants.table(memory.overlay, values["table"], prod(shape))
    above, below = columns["multiplier"], columns.get("negative")
    if values["leaky"]:
        below = (np.zeros_like(above) if below is None else below).reshape(shape)
    elif below is not None:
        if below.any():
            raise DeviceError("descriptor: its table has multipliers of negative sums, but leaky = 0")
        below = None
    if memory.constants.largest_bias >= memory.overlay.accumulator_bound:
        check_bias(memory.overlay, columns["bias"], bool(values.get("wide")))
    return columns["bias"], clamped(values, above.reshape(shape), below)


def only_shifts(r: Requantization) -> bool:
    """Return whether a requantisation has no multiplier but 1."""
    return r.negative is None and bool((np.asarray(r.multiplier) == 1).all())
