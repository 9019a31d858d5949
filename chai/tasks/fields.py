"""Descriptor fields that several kinds of Task share: blobs, windows, clamps and tables of multipliers.

Fields are identified by name; ``overlay.records`` knows their bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import DeviceError
from ..fixed import Requantization
from ..overlay.layout import image_bytes, planes
from ..overlay.records import Rows, unpack_rows
from ..overlay.weights import Held
from ..util.lazy_numpy import np
from .window import Window

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..overlay import Overlay
    from ..overlay.sections import Record
    from ..overlay.weights import Buffer, Piece, Source

    Encoded = tuple[dict[str, int], Sequence[Piece | Rows]]  # values of fields, and constants in order


class Place(Protocol):
    """Location of a blob: the planes from ``first_channel`` of the blob ``parent`` at byte address ``offset``.

    ``parent`` is None if the blob is not a view.
    """

    @property
    def offset(self) -> int: ...

    @property
    def parent(self) -> str | None: ...

    @property
    def first_channel(self) -> int: ...


class View(NamedTuple):
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
        return {**self.place("input"), **self._sizes("input"), "batch": self.batch}

    def output(self) -> dict[str, int]:
        """Return the fields of a Task's output."""
        return {**self.place("output"), **self._sizes("output")}

    def place(self, name: str) -> dict[str, int]:
        """Return the fields of a blob's location, without its sizes."""
        return {name: self.address, f"{name}_image": self.image}

    def _sizes(self, name: str) -> dict[str, int]:
        sizes = {"channels": self.channels, "height": self.height, "width": self.width, "pitch": self.pitch}
        return {f"{name}_{axis}": size for axis, size in sizes.items()}


def view(values: Mapping[str, int], name: str, sizes: str = "") -> View:
    """Return the View of blob ``name``, with its sizes from the fields of ``sizes`` (default: its own)."""
    sizes = sizes or name
    place = values[name], values[f"{sizes}_pitch"], values[f"{name}_image"], values["batch"]
    return View(*place, values[f"{sizes}_channels"], values[f"{sizes}_height"], values[f"{sizes}_width"])


class Constants:
    """The memory with the constants of one or several Tasks, from address ``where``.

    ``begin`` is the address of the first read, or None.
    """

    def __init__(self, data: Buffer | Source, where: int) -> None:
        self.source: Source = Held(data) if isinstance(data, (bytes, bytearray, memoryview)) else data
        self.where = where
        self.begin: int | None = None
        self._rows: dict[tuple[int, int], dict[str, Array]] = {}

    def at(self, name: str, address: int, size: int) -> int:
        """Return the offset of the ``size`` bytes at an address."""
        start = address - self.where
        if start < 0 or start + size > len(self.source):
            raise DeviceError(
                f"descriptor: {name}: {size} bytes at {address:#x} are outside the constants, "
                f"{len(self.source)} bytes at {self.where:#x}"
            )
        self.begin = address if self.begin is None else self.begin
        return start

    def read(self, name: str, address: int, size: int) -> bytes:
        """Return the ``size`` bytes at an address."""
        start = self.at(name, address, size)
        data = np.empty(size, np.uint8)
        self.source.read(start, data)
        return data.tobytes()

    def rows(self, name: str, record: Record, address: int, size: int) -> dict[str, Array]:
        """Return the columns of the records in the ``size`` bytes at an address; they are read and checked once."""
        if (address, size) not in self._rows:
            self._rows[address, size] = unpack_rows(record, self.read(name, address, size))
        return self._rows[address, size]


class Memory:
    """The blobs of a Task, with shapes and addresses, and the constants that its fields refer to.

    ``images`` (first, count) are those that the Task works on; None for all.
    """

    def __init__(
        self,
        overlay: Overlay,
        address: Mapping[str, Place],
        shapes: Mapping[str, Shape],
        constants: Constants | None = None,
        images: tuple[int, int] | None = None,
    ) -> None:
        self.overlay = overlay
        self.constants = constants or Constants(b"", 0)
        self.address = address
        self.shapes = shapes
        self.images = images
        self.step = overlay.layout.channels_per_word
        self._views: dict[str, View] = {}

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

    def view(self, blob: str) -> View:
        """Return the View of a blob."""
        if blob in self._views:
            return self._views[blob]
        if blob not in self.address:
            raise DeviceError(f"blob {blob!r} has no address")
        place = self.address[blob]
        n, c, h, w = self.shape(blob)
        if place.first_channel % self.step:
            raise DeviceError(f"plane: blob {blob!r} begins at channel {place.first_channel}, not at a plane's first")
        pitch, image = h * w * self.step, image_bytes(self.shape(place.parent or blob), self.overlay.layout)
        first = self.images[0] if self.images else 0
        address = place.offset + first * image + place.first_channel // self.step * pitch
        self._views[blob] = view = View(address, pitch, image, n, c, h, w)
        return view

    def find(self, view: View) -> str:
        """Return the blob at a View."""
        return self._one([blob for blob in self.address if self.view(blob) == view], view)

    def around(self, view: View) -> str:
        """Return the smallest blob that holds the planes of a View."""
        layout = self.overlay.layout
        channels = {}
        for blob in self.address:
            whole = self.view(blob)
            plane, between = divmod(view.address - whole.address, whole.pitch or 1)
            inside = not between and 0 <= plane <= planes(whole.channels, layout) - planes(view.channels, layout)
            if inside and view._replace(address=0, channels=0) == whole._replace(address=0, channels=0):
                channels[blob] = whole.channels
        return self._one([b for b in channels if channels[b] == min(channels.values())], view)

    def _one(self, blobs: list[str], view: View) -> str:
        # a view of all of its parent is the same memory: use the parent's name
        blobs = [blob for blob in blobs if self.address[blob].parent not in blobs]
        if len(blobs) != 1:
            what = "no blob lies" if not blobs else "more than one blob lies"
            raise DeviceError(f"descriptor: {what} at {view.address:#x}: {', '.join(blobs) or view}")
        return blobs[0]

    def check_output(self, blob: str, expected: Shape) -> None:
        """Raise DeviceError if a Task's output does not have the shape expected for its inputs."""
        shape = self.shape(blob)
        if shape != expected:
            raise DeviceError(f"output: expected {expected}, blob {blob!r} is {shape}")


# -- windows


def window_fields(window: Window) -> dict[str, int]:
    """Return the fields of a window. Raises DeviceError for a size below 1."""
    values = {f"{name}_{axis}": value for name, pair in window._asdict().items() for axis, value in zip("hw", pair)}
    for name, value in values.items():
        if value < 1 and not name.startswith("pad"):
            raise DeviceError(f"descriptor: {name} = {value} is less than 1")
    return values


def window_of(values: Mapping[str, int]) -> Window:
    """Return the window that these fields describe. Raises DeviceError for a size below 1."""
    window = Window(*((values[f"{name}_h"], values[f"{name}_w"]) for name in Window._fields))
    window_fields(window)
    return window


# -- requantisation


def as_it_is() -> Requantization:
    """Return the requantisation that leaves any code unchanged."""
    return Requantization(np.array(1), 0, -128, 127)


def clamp(r: Requantization, leaky: bool) -> dict[str, int]:
    """Return the fields of a shift, a clamp and the output's zero point."""
    return {"shift": r.shift, "low": r.low, "high": r.high, "leaky": int(leaky), **zero_points(output=r.zero)}


def zero_points(**zeros: int) -> dict[str, int]:
    """Return the fields of zero points, 0 or -128, of the blobs ``input``, ``second`` and ``output``."""
    for name, zero in zeros.items():
        if zero not in (0, -128):
            raise DeviceError(f"{name}_zero: zero point {zero}, expected 0 or -128")
    return {f"{name}_zero": int(zero != 0) for name, zero in zeros.items()}


def zero_point(values: Mapping[str, int], name: str) -> int:
    """Return the zero point of a blob."""
    return -128 if values[f"{name}_zero"] else 0


def flat_multipliers(name: str, values: Array, shape: Shape) -> Array:
    """Return one multiplier per channel or window, int64 (n,); a single number applies to all."""
    array = np.asarray(values, np.int64)
    if array.size != 1 and array.shape != shape:
        raise DeviceError(f"{name}: expected {shape}, found {array.shape}")
    return np.broadcast_to(array.reshape(-1), prod(shape))


def table(overlay: Overlay, bias: Array, r: Requantization, shape: Shape) -> Rows:
    """Return the table's records for multipliers of this shape; ``negative`` is 0 unless leaky."""
    above = flat_multipliers("multiplier", r.multiplier, shape)
    below = np.zeros_like(above) if r.negative is None else flat_multipliers("negative", r.negative, shape)
    check_multipliers(overlay, **{"table: multiplier": above, "table: negative": below})
    return Rows(overlay.table, {"bias": bias, "multiplier": above, "negative": below})


def check_multipliers(overlay: Overlay, **multipliers: Array | int) -> None:
    """Raise DeviceError for a multiplier that has more bits than the overlay's, beside a sign."""
    for name, values in multipliers.items():
        most = int(np.abs(values).max(initial=0))
        if most >> overlay.requant.mult_bits:
            raise DeviceError(f"{name} = {most}: expected {overlay.requant.mult_bits} bits")


def from_table(values: Mapping[str, int], memory: Memory, shape: Shape) -> tuple[Array, Requantization]:
    """Return the bias (one per record) and the Requantization with multipliers of this shape."""
    record = memory.overlay.table
    columns = memory.constants.rows("table", record, values["table"], prod(shape) * record.bytes)
    above, below = columns["multiplier"].reshape(shape), columns["negative"].reshape(shape)
    numbers = values["shift"], values["low"], values["high"], below if values["leaky"] else None
    return columns["bias"], Requantization(above, *numbers, zero_point(values, "output"))


def same(a: Any, b: Any) -> bool:
    """Return whether two values of a Task's fields are equal, arrays and multipliers by value."""
    if isinstance(a, Requantization) and isinstance(b, Requantization):
        numbers = (a.shift, a.low, a.high, a.zero) == (b.shift, b.low, b.high, b.zero)
        return numbers and same_multipliers(a.multiplier, b.multiplier) and same_multipliers(a.negative, b.negative)
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def same_multipliers(a: Array | None, b: Array | None) -> bool:
    """Return whether multipliers are equal; a single number equals an array filled with it."""
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape == b.shape or 1 in (a.size, b.size)) and bool((a == b).all())
