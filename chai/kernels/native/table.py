"""Operations and extents as C has them (chai.h), and the form of a Task that becomes one."""

from __future__ import annotations

import ctypes
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...blob import Array, Shape
from ...tasks.window import POINT, Window
from ...util.lazy_numpy import np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...fixed import Requantization
    from ...overlay.weights import Packed

SIZE = 1 << 24  # of any axis, window or stride, at most
STORED_ZERO = 128  # a stored code of 0, as a byte
MAX_BLOCK_OUTPUTS = 64  # of a block of IN_PLACE, at most
RUN_STEP = 64  # bytes: of an input that a convolution may read, runs are multiples of it
SPARE = 64  # entries of a table beyond the last output, which a vector may read
# element (n, c, y, x) is at offset + n * image + c * channel + y * row + x * pixel bytes of a buffer
_PLACE = ("buffer", "offset", "image", "channel", "row", "pixel")
Place = tuple[int, int, int, int, int, int]
NOWHERE = (0, 0, 0, 0, 0, 0)
FIELDS = (
    *("kind", "task"),
    *(f"{place}_{name}" for place in ("input", "second", "output") for name in _PLACE),
    *("images", "channels", "height", "width", "batch", "outputs", "out_height", "out_width"),
    *(f"{name}_{axis}" for name in Window._fields for axis in "hw"),
    *("group", "shift", "factor", "second_factor", "negative_factor", "negative_second"),
    *("low", "high", "zero_in", "zero_second", "zero_out", "negative"),
    *("constants", "weights", "bias", "scale", "narrow", "file", "block_outputs", "block_inputs"),
    *("after", "first", "items"),
)
_KNOWN = Struct(f"{FIELDS.index('constants')}q")  # fields that a Form, places and sizes determine


class Kind:
    """The kinds of operation, in the order of chai.h. An IntEnum would take as long as six modules to load."""

    CONVOLUTION, DEPTHWISE, MAXIMUM, AVERAGE, SUM, COPY, BORDER, LOAD, STORE, IN_PLACE, UNFOLD = range(1, 12)
    PRODUCT, LARGEST, TOTAL, PACK, UNPACK, LRN, SOFTMAX, MEAN, PLUS, TIMES, GREATER = range(12, 23)
    SCALE, NORMALISE, LEAKY, PACK_WORDS, UNPACK_WORDS, TO_WORDS, FROM_WORDS, UNFOLD_WORDS = range(23, 31)
    TABLE, RESIZE, LRN_CODES, LOOKUP, TIMES_CODES, GREATER_CODES, UPSAMPLE, INTERLEAVE = range(31, 39)
    TRANSFORM, TILED, ENDS = range(39, 42)

    @classmethod
    def name(cls, kind: int) -> str:
        """Return the name of a kind in small letters."""
        return next(name.lower() for name, number in vars(cls).items() if number == kind)


FLOATS = (  # on float32, in planes
    *(Kind.PRODUCT, Kind.LARGEST, Kind.TOTAL, Kind.LRN, Kind.SOFTMAX, Kind.MEAN, Kind.SCALE, Kind.NORMALISE),
    *(Kind.PLUS, Kind.TIMES, Kind.GREATER, Kind.LEAKY, Kind.TRANSFORM, Kind.TILED),
)
PACKS = Kind.PACK, Kind.PACK_WORDS  # which note NaN
PIXELS = (Kind.TABLE, Kind.RESIZE)  # on bytes of pictures (N, H, W, C)


class Operation(ctypes.Structure):
    """One row of the table."""

    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


Table = ctypes.Array[Operation]
Cell = TypeVar("Cell")


class Extent(ctypes.Structure):
    """Bytes of a buffer, and how many of them may be written."""

    _fields_ = [("size", ctypes.c_int64), ("writable", ctypes.c_int64)]


class Form(NamedTuple):
    """A Task as an operation, without its places.

    ``weights``, ``bias``   int8 (M, C/group, kh, kw) and int64 (M,) of a convolution; bias of an LRN_CODES its bases and slopes
    ``requantization``      of its sums; the multipliers of an average are those of its windows. None: codes stay as they are
    ``zeros``               zero points of the inputs; the bias of a convolution takes its own into account
    ``factors, negative``   of the inputs of a SUM, and those for sums below 0; of one factor, for inputs below 0
    ``rectified``           whether a ReLU makes results of a PRODUCT, and from PLUS to NORMALISE, below 0 to 0
    ``spread``              whether zeros are around each code of an UPSAMPLE
    ``apart``               channels from part to part of an INTERLEAVE
    ``vector``              whether the second input has one pixel, which meets all of the first's
    ``backwards``           whether a TABLE's channels are those of the pixels in the opposite order
    ``lookup``              table of codes (int8) that results go through, in the order of the codes
    ``numbers``             in float32: the step of a PACK or an UNPACK; alpha and k of an LRN; factors of a PLUS; eps
    """

    kind: int
    requantization: Requantization | None = None
    window: Window = POINT
    group: int = 1
    weights: Array | Packed | None = None
    bias: Array | None = None
    zeros: tuple[int, ...] = (0,)
    factors: tuple[int, ...] = ()
    negative: tuple[int, ...] | None = None
    numbers: tuple[float, ...] = ()
    rectified: bool = False
    spread: bool = False
    apart: int = 0
    vector: bool = False
    backwards: bool = False
    lookup: Array | None = None

    @property
    def border(self) -> tuple[int, int]:
        """Return the rows and columns around its input that it reads."""
        return self.window.pad if self.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE) else (0, 0)

    def operation(
        self, source: Shape, target: Shape, inputs: Sequence[Place], output: Place, task: int = 0
    ) -> Operation:
        """Return the operation without constants, from blobs of one shape (N, C, H, W) at two places at most to another."""
        r = self.requantization
        low, high, zero = (-STORED_ZERO, STORED_ZERO - 1, 0) if r is None else (r.low, r.high, r.zero)
        operation = Operation()
        _KNOWN.pack_into(
            operation,
            0,
            *(self.kind, task, *chain.from_iterable(_two(inputs, NOWHERE)), *output, *source, source[0], *target[1:]),
            *(*chain.from_iterable(self.window), self.group, *self._factors()),
            *(low, high, *_two(self.zeros, 0), zero, self._negative()),
        )
        return operation

    def _factors(self) -> tuple[int, ...]:
        """Return the shift and the factors of a kind of codes; of others the bits of two numbers at most."""
        if self.kind == Kind.SUM:
            assert self.requantization is not None
            shift = self.requantization.shift
            if shift <= 29:  # else each code is 0, as sums stay below 2^26
                return shift, *_two(self.factors, 0), *_two(self.negative or (), 0)
        elif self.kind in (Kind.LRN_CODES, Kind.TIMES_CODES, Kind.GREATER_CODES):
            assert self.requantization is not None
            return self.requantization.shift, *_two(self.factors, 0), 0, 0
        elif self.kind == Kind.INTERLEAVE:
            return 0, self.apart, 0, 0, 0
        elif self.numbers:
            bits: list[int] = np.array(self.numbers, np.float32).view(np.int32).tolist()
            return 0, *_two(bits, 0), 0, 0
        return 0, 0, 0, 0, 0

    def _negative(self) -> int:
        """Return what chai.h says of the field ``negative`` of a SUM and of the kinds with a ReLU."""
        if self.kind == Kind.SUM and self.negative is not None:
            return 1 if len(self.factors) == 1 else 0
        return 0 if self.rectified or self.spread else -1


def _two(values: Sequence[Cell], missing: Cell) -> tuple[Cell, Cell]:
    """Return two values of a table's row; ``missing`` for those that an operation has not."""
    first, second = (*values, missing, missing)[:2]
    return first, second


def fits(r: Requantization | None) -> bool:
    """Return whether the kernels compute a requantisation exactly: |m| < 2^17, shift <= 40, codes of 8 bits."""
    if r is None:
        return True
    largest = max(int(np.abs(m).max(initial=0)) for m in (r.multiplier, r.negative) if m is not None)
    least, most = -STORED_ZERO, STORED_ZERO - 1
    return largest < 1 << 17 and 0 <= r.shift <= 40 and least <= r.low <= r.high <= most and least <= r.zero <= most


class Constants:
    """One buffer of weights and tables, each at a multiple of 64 bytes; filled after all sizes are known."""

    def __init__(self) -> None:
        self.size = 0
        self._tables: list[tuple[int, int, Array, float, np.dtype[Any]]] = []

    def reserve(self, size: int) -> int:
        """Return the offset of ``size`` more bytes."""
        offset = self.size
        self.size += -(-size // 64) * 64
        return offset

    def integers(self, values: Array, count: int) -> int:
        """Return the offset of a table of int32: ``values`` broadcast to ``count``, and zeros that vectors may read."""
        return self._table(values, count, 1, np.dtype(np.int32))

    def codes(self, values: Array) -> int:
        """Return the offset of a table of codes (int8), as they are stored."""
        stored = (values.astype(np.int64) + STORED_ZERO).astype(np.uint8)
        return self._table(stored, len(stored), 1, np.dtype(np.uint8))

    def scales(self, multiplier: Array, shift: int, count: int) -> int:
        """Return the offset of such a table of float64: multiplier * 2^-shift."""
        return self._table(multiplier, count, 2.0**-shift, np.dtype(np.float64))

    def _table(self, values: Array, count: int, factor: float, type: np.dtype[Any]) -> int:
        offset = self.reserve((count + SPARE) * type.itemsize)
        self._tables.append((offset, count, values, factor, type))
        return offset

    def write(self, memory: Array) -> None:
        """Write the tables into memory of ``size`` bytes."""
        for offset, count, values, factor, type in self._tables:
            table = memory[offset : offset + (count + SPARE) * type.itemsize].view(type)
            table[:count] = values.reshape(-1) * factor
            table[count:] = 0


def pixel_strides(shape: Shape, backwards: bool = False) -> tuple[int, int, int, int, int]:
    """Return the offset and image, channel, row and pixel of a contiguous array (N, H, W, C) of bytes; ``shape`` is (N, C, H, W).

    ``backwards``: its channels are to be read from the last to the first.
    """
    _, c, h, w = shape
    return c - 1 if backwards else 0, h * w * c, -1 if backwards else 1, w * c, c


def plain_strides(shape: Shape, size: int = 1) -> tuple[int, int, int, int]:
    """Return image, channel, row and pixel of a contiguous array (N, C, H, W), in bytes; its numbers take ``size`` each."""
    _, c, h, w = shape
    return size * c * h * w, size * h * w, size * w, size
