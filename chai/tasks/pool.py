"""Pool: the largest code of a window, or its requantised sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ..fixed import Requantization, requantize
from ..overlay import Limits
from ..util.lazy_numpy import np
from . import Task
from .fields import as_it_is, clamp, from_table, table, view, window_fields, window_of
from .probe import SIZE
from .window import Window

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..blob import Array
    from ..overlay import Overlay
    from .fields import Encoded, Memory
    from .probe import Maker, Probe


@dataclass(frozen=True)
class PoolLimits(Limits):
    """``global_max`` replaces ``kernel_max`` if one window covers the whole image."""

    methods: tuple[str, ...]
    kernel_max: int
    stride_max: int
    pad_max: int
    global_max: int


@dataclass(frozen=True, eq=False)
class Pool(Task):
    """Pooling with Caffe's geometry: windows are clipped to the image, so padding is never a maximum.

    ``out``             height and width of the output (Caffe rounds up)
    ``requantization``  None for MAX; for AVE multipliers (OH, OW), one per window, since windows differ in area

    Descriptor of MAX: no table, shift 0, clamp -128..127. AVE: one record per window, row by row over the output; bias 0.
    """

    kind = "pool"
    window: Window
    out: tuple[int, int]
    requantization: Requantization | None

    def define(self, *codes: Array) -> Array:
        x = codes[0].astype(np.int64)
        n, c, h, w = x.shape
        result = np.zeros((n, c, *self.out), np.int64)
        for i in range(self.out[0]):
            top = i * self.window.stride[0] - self.window.pad[0]
            rows = slice(max(top, 0), min(top + self.window.kernel[0], h))
            for j in range(self.out[1]):
                left = j * self.window.stride[1] - self.window.pad[1]
                part = x[:, :, rows, max(left, 0) : min(left + self.window.kernel[1], w)]
                result[:, :, i, j] = part.max((2, 3), initial=-128) if self.requantization is None else part.sum((2, 3))
        return result.astype(np.int8) if self.requantization is None else requantize(result, self.requantization)

    @classmethod
    def limits(cls, overlay: Overlay) -> PoolLimits | None:
        return overlay.limits(cls.kind, PoolLimits)

    def fields(self, memory: Memory, where: int) -> Encoded:
        source = memory.view(self.inputs[0])
        memory.check_output(self.output, (source.batch, source.channels, *self.out))
        values = {**source.input(), **memory.view(self.output).output(), **window_fields(self.window)}
        r = self.requantization
        if r is None:
            return {**values, **clamp(as_it_is(), False)}, ()
        records = table(memory.overlay, np.zeros(prod(self.out), np.int64), r, self.out)
        return {**values, **clamp(r, r.negative is not None), "average": 1, "table": where}, (records,)

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Memory) -> Self:
        target = view(values, "output")
        inputs, output = (memory.find(view(values, "input")),), memory.find(target)
        out = target.height, target.width
        r = from_table(values, memory, out)[1] if values["average"] else None
        return cls(inputs, output, (), window_of(values), out, r)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe[Self]]:
        """Yield a Task for each method, with windows that extend beyond the right and lower edge, as in Caffe."""
        limits = cls.limits(maker.overlay)
        for method in limits.methods if limits else ():
            assert limits is not None
            k, s, p = min(3, limits.kernel_max), min(2, limits.stride_max), min(1, limits.pad_max)
            window = Window((k, k), (s, s), (p, p))
            height, width = ((n + 2 * p - k + s - 1) // s + 1 for n in SIZE)
            shape = maker.batch, maker.step + 3, *SIZE
            target = maker.target({"x": shape, "y": (*shape[:2], height, width)}, largest=0.6)
            # an average divides by its window clipped to the padded image
            rows, columns = (
                np.minimum(np.arange(count) * s + k, n + 2 * p) - np.arange(count) * s
                for count, n in zip((height, width), SIZE)
            )
            steps = target.formats["x"].step / np.multiply.outer(rows, columns)
            r = None if method == "MAX" else target.requantization(steps, "y", None)
            yield maker.probe(f"pool {method}", cls(("x",), "y", ("pool",), window, (height, width), r), target)
