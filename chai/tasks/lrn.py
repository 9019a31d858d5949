"""LRN across channels: a code times a factor that a table has for the sum of squares of the codes around it.

The table has ``SEGMENTS`` pieces of lines. Those of an octave of sums, from 2^e to 2^(e+1), are equally long, so that small sums
are as precise as large ones; sums below ``2 * STEPS`` have a piece each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization, multipliers, requantize
from ..overlay import Overlay, TaskLimits
from ..overlay.records import pack_rows, unpack_rows
from ..overlay.sections import BitField, Record
from ..overlay.weights import ByteSource, Piece
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, clamp, clamped, only_shifts, zero_flag, zero_point
from .unsupported import Unsupported

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe
    from .target import Target

STEPS = 32  # segments of an octave
OCTAVES = 16  # the first one is of the sums below STEPS
SEGMENTS = STEPS * OCTAVES
REST_BITS = 14  # of the position in a segment
SUM_BITS = 20  # of a sum: STEPS << (OCTAVES - 1) = 2^20
FACTOR_BITS = 18
LARGEST_WINDOW = 15  # channels: 15 * 255^2 < 2^20
CHUNK = 64  # pixels of a plane that the accelerator reads at a time, before the same ones of the next plane
PRECISION = 0.5  # of a code: the largest error of the table's lines

_BASE = BitField("base", 0, 0, FACTOR_BITS, False, "factor at the first sum of the segment")
_SLOPE = BitField("slope", 1, 0, FACTOR_BITS, True, "what is added to it until the first sum of the next one")
SEGMENT = Record("segment", 0, 8, "little", (_BASE, _SLOPE))


@dataclass(frozen=True, eq=False)
class LRNLimits(TaskLimits):
    """``local_size_max``: channels of a window."""

    local_size_max: int


@dataclass(frozen=True, eq=False, repr=False)
class LRNTask(Task):
    """Each value is multiplied by ``factor`` of the sum of squares of the ``local_size`` channels around it, and requantised.

    ``bases, slopes``   int64 (SEGMENTS,): the factor at the first sum of a segment, and its change over the segment
    ``requantization``  multiplier 1, as the table has all factors
    ``zero``            the input's zero point: a value is a code without it

    A descriptor has ``local_size`` as ``kernel_h``, and the segments at ``table``, 8 bytes each.
    """

    kind = "lrn"
    limit_type = LRNLimits
    side_by_side = False
    banded = True
    local_size: int
    bases: Array
    slopes: Array
    requantization: Requantization
    zero: int = 0

    def define(self, *codes: Array) -> Array:
        x = codes[0].astype(np.int64) - self.zero
        channels, half = x.shape[1], self.local_size // 2
        sums = np.zeros_like(x)
        for channel in range(channels):
            near = x[:, max(channel - half, 0) : channel + half + 1]
            sums[:, channel] = (near * near).sum(1)
        return requantize(x * self.factor(sums), self.requantization)

    def factor(self, sums: Array) -> Array:
        """Return the factors of sums below 2^SUM_BITS: on the line of its segment, a half rounded up."""
        octave = np.maximum(np.frexp(sums)[1] - STEPS.bit_length() + 1, 0)  # 0 below STEPS, 1 below 2 * STEPS, ...
        width = np.maximum(octave - 1, 0)  # bits of a sum that count in its segment
        segment = (sums >> width) + STEPS * width
        rest = (sums - (sums >> width << width)) << (REST_BITS - width)
        factor: Array = self.bases[segment] + ((self.slopes[segment] * rest + (1 << REST_BITS >> 1)) >> REST_BITS)
        return factor

    def zero_points(self) -> tuple[int, ...]:
        return self.zero, self.requantization.zero

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"local_size": self.local_size}

    def working_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate the words, for each image the last plane's part that has no plane after it, and a wait for the table.

        The first band's table comes while another Task computes; the others wait until the band before is done with its own.
        """
        images, _, *size = self.accessed(shapes, self.output)
        waits = SEGMENTS if self.rows and self.rows[0] else 0
        return super().working_cycles(overlay, shapes) + images * min(CHUNK, prod(size)) + waits

    def constant_traffic(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
        return SEGMENTS * SEGMENT.bytes

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        r = self.requantization
        if not only_shifts(r):
            raise DeviceError("table: an LRN has no multiplier but its factors")
        if self.local_size % 2 == 0:
            raise DeviceError(f"kernel_h: {self.local_size} channels, expected an odd number")
        ends = np.asarray(self.bases) + self.slopes
        if ends.min(initial=0) < 0 or int(ends.max(initial=0)) >> FACTOR_BITS:
            raise DeviceError(f"table: a factor beyond {FACTOR_BITS} bits at the end of a segment")
        source, target = self.views(memory)
        memory.check_output(self.output, memory.shape(self.inputs[0]))
        values = source.input() | target.output() | clamp(r) | zero_flag("input", self.zero)
        return values | {"kernel_h": self.local_size, "table": where}

    def constants(self, memory: Operands) -> Sequence[Piece]:
        return (ByteSource(pack_rows(SEGMENT, {"base": self.bases, "slope": self.slopes})),)

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        data = memory.constants.read("table", values["table"], SEGMENTS * SEGMENT.bytes)
        columns = unpack_rows(SEGMENT, data.data)
        size, r, zero = values["kernel_h"], clamped(values, 1), zero_point(values, "input")
        bases, slopes = columns["base"], columns["slope"]
        return cls(**common, local_size=size, bases=bases, slopes=slopes, requantization=r, zero=zero)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield a usual window and the largest one, this one with unsigned codes, too."""
        limits: LRNLimits = maker.limits
        shapes = dict.fromkeys("xy", (maker.batch, maker.step + 3, *maker.size))
        most = (limits.local_size_max - 1) // 2 * 2 + 1
        for size, unsigned in ((min(5, most), ""), *((most, blob) for blob in ("", *maker.unsigned))):
            target = maker.target(shapes, largest=0.45, unsigned=unsigned)
            table = lines(target, "x", "y", size, lambda sums, n=size: (1 + 0.9 / n * sums) ** -0.75)  # type: ignore[misc]
            task = cls(("x",), "y", ("lrn",), size, *table, target.formats["x"].zero)
            yield maker.probe(f"lrn of {size}", task, target)


def starts() -> Array:
    """Return the first sum of each segment, and of the one after the last: int64 (SEGMENTS + 1,)."""
    octave, step = np.divmod(np.arange(SEGMENTS), STEPS)
    below = np.where(octave == 0, step, (STEPS + step) << np.maximum(octave - 1, 0))
    return np.append(below, 1 << SUM_BITS)


def lines(
    target: Target, bottom: str, top: str, local_size: int, function: Callable[[Array], Array]
) -> tuple[Array, Array, Requantization]:
    """Return bases, slopes and requantisation for ``function`` of the sum of squares of values, float64.

    Factors of sums that no codes reach are those of the largest sum. Raises Unsupported if the function is not a positive
    number there, or if the error of a result, before it is rounded, could be more than ``PRECISION``.
    """
    source, format = target.formats[bottom], target.formats[top]
    if not source.step:
        raise Unsupported(f"its input's format is {source}: every value is 0")
    largest = source.largest if source.unsigned else source.largest + 1  # magnitude of a value
    most = min(local_size, target.shapes[bottom][1]) * largest**2
    first = starts()
    used = int(np.searchsorted(first, most, side="right"))  # segments that sums reach
    sums = np.maximum(first[: used + 1], 1).astype(np.float64)  # a sum of 0 multiplies zeros
    with np.errstate(all="ignore"):
        factors = function(sums * source.step**2) * source.step
    if not np.isfinite(factors).all() or factors.min() <= 0:
        raise Unsupported("k + alpha * mean of squares is not positive for all codes")
    clamped = target.requantization(np.array(format.step), top, None)  # its clamp and zero point
    fitted = multipliers(factors / format.step, FACTOR_BITS, target.overlay.requant.shift_max)
    if fitted is None:
        raise Unsupported(f"its output steps ({format}) are too fine for {FACTOR_BITS}-bit factors")
    ends, shift = fitted
    bases = np.append(ends[:used], np.full(SEGMENTS - used, ends[used]))
    slopes = np.append(np.diff(ends), np.zeros(SEGMENTS - used, np.int64))
    slopes[: 2 * STEPS] = 0  # of one sum each
    if (np.abs(slopes) >> (FACTOR_BITS - 1)).any():
        raise Unsupported("its factors change too much from sum to sum")
    r = Requantization(np.array(1), shift, clamped.low, clamped.high, zero=format.zero)
    task = LRNTask((bottom,), top, (), local_size, bases, slopes, r)
    between = np.unique(first[:-1] + np.outer(np.arange(8), np.diff(first)) // 8)
    between = between[(between > 0) & (between <= most)]
    exact = function(between * source.step**2) * source.step / format.step
    values = np.minimum(np.minimum(np.sqrt(between), largest), 257 / exact)  # more give the largest code anyway
    error = np.abs(task.factor(between) * 2.0**-shift - exact) * values
    worst = float(error.max(initial=0))
    if worst > PRECISION:
        codes = ceil(10 * worst) / 10
        raise Unsupported(f"{FACTOR_BITS}-bit factors of its sums would change results by {codes:g} codes")
    return bases, slopes, r
