"""Operations and extents as C has them (chai.h), and the form of a Task that becomes one."""

from __future__ import annotations

import ctypes
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ...tasks.window import Window
from ...util.lazy_dataclass import dataclass, field
from ...util.lazy_numpy import np

if TYPE_CHECKING:
    from ...blob import Array, Shape
    from ...fixed import Requantization
    from ...overlay.weights import Packed

AT = 128  # a stored code of 0, as a byte
BLOCK_OUTPUTS = 64  # of a block of IN_PLACE, at most
SPARE = 64  # entries of a table beyond the last output, which a vector may read
POINT = Window((1, 1), (1, 1), (0, 0))
_PLACES = {  # fields of the places of an operation
    place: tuple(f"{place}_{name}" for name in ("buffer", "offset", "image", "channel", "row", "pixel"))
    for place in ("input", "second", "output")
}
_WINDOW = tuple(f"{name}_{axis}" for name in Window._fields for axis in "hw")
_SIZES = ("images", "channels", "height", "width", "batch", "outputs", "out_height", "out_width")
FIELDS = (
    *("kind", "task", "after", "first", "items"),
    *chain.from_iterable(_PLACES.values()),
    *_SIZES,
    *_WINDOW,
    *("group", "constants", "weights", "bias", "scale", "negative", "file", "block_outputs", "block_inputs"),
    *("shift", "factor", "second_factor", "negative_factor", "negative_second"),
    *("low", "high", "narrow", "zero_in", "zero_second", "zero_out"),
)


class Kind:
    """The kinds of operation, numbered as in chai.h. An IntEnum would take as long as six modules to load."""

    CONVOLUTION = 1
    DEPTHWISE = 2
    MAXIMUM = 3
    AVERAGE = 4
    SUM = 5
    COPY = 6
    BORDER = 7
    LOAD = 8
    STORE = 9
    IN_PLACE = 10
    UNFOLD = 11
    PRODUCT = 12
    LARGEST = 13
    TOTAL = 14
    PACK = 15
    UNPACK = 16
    LRN = 17
    SOFTMAX = 18
    MEAN = 19
    PLUS = 20
    TIMES = 21
    GREATER = 22
    SCALE = 23
    NORMALISE = 24
    LEAKY = 25

    @classmethod
    def name(cls, kind: int) -> str:
        """Return the name of a kind in small letters."""
        return next(name.lower() for name, number in vars(cls).items() if number == kind)


FLOATS = (  # on float32, in planes
    *(Kind.PRODUCT, Kind.LARGEST, Kind.TOTAL, Kind.LRN, Kind.SOFTMAX, Kind.MEAN, Kind.SCALE, Kind.NORMALISE),
    *(Kind.PLUS, Kind.TIMES, Kind.GREATER, Kind.LEAKY),
)


class Operation(ctypes.Structure):
    """One row of the table."""

    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


Table = ctypes.Array[Operation]


class Extent(ctypes.Structure):
    """Bytes of a buffer, and how many of them may be written."""

    _fields_ = [("size", ctypes.c_int64), ("writable", ctypes.c_int64)]


class Place(NamedTuple):
    """Element (n, c, y, x) is at offset + n * image + c * channel + y * row + x * pixel bytes of a buffer."""

    buffer: int
    offset: int
    image: int
    channel: int
    row: int
    pixel: int

    def fields(self, name: str) -> dict[str, int]:
        """Return the fields of this place in an operation."""
        return dict(zip(_PLACES[name], self))


@dataclass(frozen=True)
class Form:
    """A Task as an operation, without its places.

    ``weights``, ``bias``   int8 (M, C/group, kh, kw) and int64 (M,) of a convolution
    ``requantization``      of its sums; the multipliers of an average are those of its windows. None: codes stay as they are
    ``zeros``               zero points of the inputs; the bias of a convolution takes its own into account
    ``factors, negative``   of the inputs of a SUM, and those for sums below 0; of one factor, for inputs below 0
    ``rectified``           whether a ReLU makes results of a PRODUCT, and from PLUS to NORMALISE, below 0 to 0
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

    @property
    def border(self) -> tuple[int, int]:
        """Return the rows and columns around its input that it reads."""
        return self.window.pad if self.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE) else (0, 0)

    def fields(self) -> dict[str, int]:
        """Return the fields that do not depend on places and sizes."""
        values = dict(zip(_WINDOW, chain.from_iterable(self.window)))
        values |= {"kind": self.kind, "group": self.group, "low": -AT, "high": AT - 1, "negative": self.rectified - 1}
        values |= zip(("zero_in", "zero_second"), self.zeros)
        if (r := self.requantization) is not None:
            values |= {"low": r.low, "high": r.high, "zero_out": r.zero}
        if self.numbers:
            bits = np.array(self.numbers, np.float32).view(np.int32).tolist()
            values |= zip(("factor", "second_factor"), bits)
        if self.kind == Kind.SUM:
            assert self.requantization is not None
            shift, below = self.requantization.shift, self.negative or (0,)
            none = shift > 29  # sums stay below 2^26, so that every code is 0
            first, second = (0, 0) if none else (*self.factors, 0)[:2]
            minus, other = (0, 0) if none else (*below, 0)[:2]
            looks = -1 if self.negative is None else len(self.factors) == 1
            values |= {"shift": 0 if none else shift, "factor": first, "second_factor": second}
            values |= {"negative_factor": minus, "negative_second": other, "negative": looks}
        return values


def fits(r: Requantization | None) -> bool:
    """Return whether the kernels compute a requantisation exactly: |m| < 2^17, shift <= 40, codes of 8 bits."""
    if r is None:
        return True
    most = max(int(np.abs(m).max(initial=0)) for m in (r.multiplier, r.negative) if m is not None)
    return most < 1 << 17 and 0 <= r.shift <= 40 and -AT <= r.low <= r.high < AT and -AT <= r.zero < AT


@dataclass
class Constants:
    """One buffer of weights and tables, each at a multiple of 64 bytes; filled after all sizes are known."""

    size: int = 0
    parts: list[tuple[int, Array]] = field(default_factory=list)

    def reserve(self, size: int) -> int:
        """Return the offset of ``size`` more bytes."""
        offset = self.size
        self.size += -(-size // 64) * 64
        return offset

    def table(self, values: Array, count: int) -> int:
        """Return the offset of a table: ``values`` broadcast to ``count`` entries, and zeros that vectors may read."""
        padded = np.zeros(count + SPARE, values.dtype)
        padded[:count] = values.reshape(-1)
        offset = self.reserve(padded.nbytes)
        self.parts.append((offset, padded))
        return offset


def plain_strides(shape: Shape, size: int = 1) -> tuple[int, int, int, int]:
    """Return image, channel, row and pixel of a contiguous array (N, C, H, W), in bytes; its numbers take ``size`` each."""
    _, c, h, w = shape
    return size * c * h * w, size * h * w, size * w, size


def sizes(shape: Shape, out: Shape) -> dict[str, int]:
    """Return the fields of the sizes of input and output, both (N, C, H, W)."""
    return dict(zip(_SIZES, (*shape, shape[0], *out[1:])))
