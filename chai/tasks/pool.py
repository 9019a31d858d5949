"""Pool: the largest code of a window, or its requantised sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay, TaskLimits
from ..overlay.layout import Span
from ..overlay.weights import Piece
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, as_it_is, clamp, from_table, table, window_fields, window_of, zero_flag, zero_point
from .pooling import maxima, reduced
from .tiling import beyond_pool
from .window import Window

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False)
class PoolLimits(TaskLimits):
    """``global_max`` replaces ``kernel_max`` if one window covers the whole image."""

    methods: tuple[str, ...]
    kernel_max: int
    stride_max: int
    pad_max: int
    global_max: int


@dataclass(frozen=True, eq=False, repr=False)
class Pool(Task):
    """Pooling with Caffe's geometry: windows are clipped to the image, so padding is never a maximum.

    ``out``             height and width of the output (Caffe rounds up)
    ``requantization``  None for MAX; for AVE multipliers (OH, OW), one per window, since windows differ in area
    ``zero``            for AVE the input's zero point; MAX compares codes as they are stored

    Descriptor of MAX: no table, shift 0, clamp -128..127. AVE: one record per window, row by row over the output; the bias
    is - zero * pixels of the window inside the image, so that the accelerator sums stored codes.
    """

    kind = "pool"
    limit_type = PoolLimits
    table = slice(2, 4)
    whole_windows: ClassVar[bool] = False  # windows may begin after the image
    window: Window
    out: tuple[int, int]
    requantization: Requantization | None
    zero: int = 0

    def define(self, *codes: Array) -> Array:
        r = self.requantization
        if r is None:
            return self.looked_up(maxima(codes[0], self.window, self.out))
        values = codes[0].astype(np.int64) - self.zero
        sums = reduced(values, self.window, self.out, lambda part: part.sum((2, 3)))
        return self.looked_up(requantize(sums, r))

    def zero_points(self) -> tuple[int, ...] | None:
        return None if self.requantization is None else (self.zero, self.requantization.zero)

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        size, average = shapes[self.inputs[0]][2:], self.requantization is not None
        reason = super().excluded(overlay, shapes)
        return reason or beyond_pool(overlay, self.window, size, self.out, average, self.whole_windows)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        window, method = self.window, "MAX" if self.requantization is None else "AVE"
        side = "global" if window.covers(shapes[self.inputs[0]][2:]) else "kernel"
        return {"method": method, side: max(window.kernel), "stride": max(window.stride), "pad": max(window.pad)}

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, target = self.views(memory)
        memory.check_output(self.output, (source.batch, source.channels, *self.out))
        window = self.window.of_rows(self.rows, memory.shapes[self.inputs[0]][2])
        if self._seems_global(memory.shapes):
            what = "a window as large as what they read gives one row"
            raise DeviceError(f"rows {self.rows}: {what}, not {target.height}")
        values = source.input() | target.output() | window_fields(window) | clamp(self.requantization or as_it_is())
        if self.requantization is None:
            return values
        return values | zero_flag("input", self.zero) | {"average": 1, "table": where}

    def in_bands(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> bool:
        """Return whether it is a MAX of several windows: an average's records are those of all rows."""
        return self.requantization is None and not self.window.covers(shapes[self.inputs[0]][2:])

    def bands(self, overlay: Overlay, shapes: Mapping[str, Shape], most: int) -> Sequence[Span | None]:
        bands = super().bands(overlay, shapes, most)
        return (None,) if any(replace(self, rows=rows)._seems_global(shapes) for rows in bands) else bands

    def _seems_global(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether a window covers all that its rows read, so that the accelerator would compute that one alone.

        The windows after it end below the image, where they are cut.
        """
        if self.rows is None or self.rows[1] == 1:
            return False
        (height, width), (_, rows) = shapes[self.inputs[0]][2:], self.rows_read(shapes, self.inputs[0])
        return self.window.of_rows(self.rows, height).covers((rows, width))

    def rows_read(self, shapes: Mapping[str, Shape], blob: str) -> Span:
        return self.window.seen(0, self.rows, shapes[blob][2])[:2]

    def constants(self, memory: Operands) -> Sequence[Piece]:
        if self.requantization is None:
            return ()
        bias = self._bias(memory.shape(self.inputs[0])[2:])
        return (table(memory.overlay, bias, self.requantization, self.out),)

    def _bias(self, size: Shape) -> Array:
        """Return - zero * pixels inside an image of this size for each window of an average: int64, row by row."""
        sides = []
        for i in range(2):
            start = np.arange(self.out[i]) * self.window.stride[i] - self.window.pad[i]
            sides.append(np.maximum(np.minimum(start + self.window.kernel[i], size[i]) - np.maximum(start, 0), 0))
        bias: Array = -self.zero * np.multiply.outer(*sides).astype(np.int64).reshape(-1)
        return bias

    @classmethod
    def records(cls, values: Mapping[str, int], output: Shape) -> int:
        return super().records(values, output) if values["average"] else 0

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        _, _, *out = memory.shape(common["output"])
        common |= {"window": window_of(values), "out": tuple(out)}
        if not values["average"]:
            return cls(**common, requantization=None)
        bias, r = from_table(values, memory, tuple(out))
        task = cls(**common, requantization=r, zero=zero_point(values, "input"))
        if not np.array_equal(bias, task._bias(memory.shape(task.inputs[0])[2:])):
            raise DeviceError("table: the bias of an average is - zero point * pixels of the window inside the image")
        return task

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield a Task for each method, with windows that extend beyond the right and lower edge, as in Caffe."""
        limits: PoolLimits = maker.limits
        for method in limits.methods:
            k, s, p = min(3, limits.kernel_max), min(2, limits.stride_max), min(1, limits.pad_max)
            window = Window((k, k), (s, s), (p, p))
            height, width = ((n + 2 * p - k + s - 1) // s + 1 for n in maker.size)
            shape = maker.batch, maker.step + 3, *maker.size
            shapes = {"x": shape, "y": (*shape[:2], height, width)}
            # an average divides by its window clipped to the padded image
            sides = zip((height, width), maker.size)
            rows, columns = (np.minimum(k, n + 2 * p - np.arange(count) * s) for count, n in sides)
            areas = np.multiply.outer(rows, columns)
            maximum = method == "MAX"
            for unsigned in ("",) if maximum else ("", *maker.unsigned):
                target = maker.target(shapes, largest=0.6, unsigned=unsigned)
                source = target.formats["x"]
                r = None if maximum else target.requantization(source.step / areas, "y", None)
                task = cls(("x",), "y", ("pool",), window, (height, width), r, source.zero)
                yield maker.probe(f"pool {method}", task, target)
