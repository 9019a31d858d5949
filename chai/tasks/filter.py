"""FilterTask: acc = sum of qx * qw + qb over a window, requantised per output channel, on either engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay
from ..overlay.layout import Span
from ..overlay.sections import Array as ArraySize
from ..overlay.weights import ByteSource, Packed, Piece, Unpacked, is_depthwise, weight_bytes
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div, round_up
from . import Task
from .fields import Operands, clamp, from_table, table, zero_flag, zero_point
from .pooling import PooledCodes
from .window import Window

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False, repr=False)
class FilterTask(Task):
    """``weights`` int8 (M, C/group, kh, kw), ``bias`` int64 (M,), multipliers of ``requantization`` (M, 1, 1).

    ``zero`` is the input's zero point: padding has this code, and ``bias`` includes - zero * sum of the channel's weights,
    so that the accumulator is the true sum. ``wide`` is whether sums may leave the overlay's ``accumulator_bits``: they have
    ``wide_bits`` then, on the array alone, and take two cycles in the requantisation. It changes no code.

    Packed weights are in the order in which its engine reads them; ``np.asarray`` makes an array of them. Constants of a
    descriptor: the weights (``pack_weights``), then one record of the table per output channel.
    """

    table = slice(1, 2)
    weights: Array | Packed
    bias: Array
    window: Window
    group: int
    requantization: Requantization
    zero: int = 0
    wide: bool = field(default=False, kw_only=True)

    @classmethod
    def packing(cls, overlay: Overlay) -> ArraySize:
        """Return the inputs and outputs of the weights that its engine takes at a time, which their order follows."""
        return overlay.array

    def define(self, *codes: Array) -> Array:
        x = codes[0].astype(np.int64)
        n, c, h, w = x.shape
        m, cg = self.weights.shape[:2]
        (ph, pw), (sh, sw), (dh, dw) = self.window.pad, self.window.stride, self.window.dilation
        oh, ow = self.window.sizes((h, w))
        padded = np.full((n, c, h + 2 * ph, w + 2 * pw), self.zero, np.int64)
        padded[:, :, ph : ph + h, pw : pw + w] = x
        accumulator = np.zeros((n, self.group, m // self.group, oh * ow), np.int64)
        weights = np.asarray(self.weights).astype(np.int64)
        weights = weights.reshape(self.group, m // self.group, cg, *self.window.kernel)
        for i in range(self.window.kernel[0]):
            for j in range(self.window.kernel[1]):
                rows = slice(i * dh, i * dh + sh * (oh - 1) + 1, sh)
                tap = padded[:, :, rows, j * dw : j * dw + sw * (ow - 1) + 1 : sw]
                accumulator += np.matmul(weights[..., i, j], tap.reshape(n, self.group, cg, oh * ow))
        accumulator = accumulator.reshape(n, m, oh, ow) + self.bias.reshape(-1, 1, 1)
        return self.looked_up(requantize(accumulator, self.requantization))

    def zero_points(self) -> tuple[int, ...]:
        return self.zero, self.requantization.zero

    @property
    def is_depthwise(self) -> bool:
        """Return whether each of its channels has a filter of its own."""
        return is_depthwise(self.weights.shape, self.group)

    def bends(self) -> dict[str, int | bool | str]:
        """Return whether negative sums have multipliers of their own, and whether only a PReLU can have some of them."""
        above, below = self.requantization.multiplier, self.requantization.negative
        if below is None:
            return {"leaky": False, "prelu": False}
        return {"leaky": True, "prelu": bool(((below < 0) | (below > abs(above))).any())}

    def macs(self, *shapes: Shape) -> int:
        oh, ow = self.window.sizes(shapes[0][2:])
        oh, ow = self.rows[1] if self.rows else oh, self.columns[1] if self.columns else ow
        images = self.images[1] if self.images else shapes[0][0]
        return int(images * (self.weights.size - self.zero_weights) * oh * ow)

    def rows_read(self, shapes: Mapping[str, Shape], blob: str) -> Span:
        return self.window.seen(0, self.rows, shapes[blob][2])[:2]

    def check_weights(self, channels: int) -> None:
        """Raise DeviceError if its weights do not fit its groups, its window, or an input of so many channels."""
        m, c, *kernel = self.weights.shape
        if tuple(kernel) != self.window.kernel or c * self.group != channels or m % self.group:
            expected = f"{channels} channels and a kernel of {self.window.kernel}"
            raise DeviceError(f"weights: {self.weights.shape} with {self.group} groups do not fit {expected}")

    def weight_bytes(self, overlay: Overlay) -> int:
        """Return the bytes of packed weights and of the padding after them."""
        return round_up(weight_bytes(self.weights.shape, self.group, self.packing(overlay)), overlay.layout.alignment)

    def numbers(self, overlay: Overlay, where: int) -> dict[str, int]:
        """Return the fields of its requantisation, and of its constants from address ``where``."""
        constants = {"weights": where, "table": where + self.weight_bytes(overlay)}
        return {**clamp(self.requantization), **zero_flag("input", self.zero), **constants}

    def constants(self, memory: Operands) -> Sequence[Piece]:
        overlay, m = memory.overlay, self.weights.shape[0]
        if self.bias.shape != (m,):
            raise DeviceError(f"bias: expected {(m,)}, found {self.bias.shape}")
        packing = self.packing(overlay)
        weights = self.weights if isinstance(self.weights, Packed) else Unpacked(self.weights, self.group, packing)
        padding = ByteSource(bytes(self.weight_bytes(overlay) - weights.bytes))
        return weights, padding, table(overlay, self.bias, self.requantization, (m, 1, 1), self.wide)

    @classmethod
    def decoded(
        cls, values: Mapping[str, int], memory: Operands, window: Window, group: int, common: Mapping[str, Any]
    ) -> Self:
        """Return what ``from_fields`` does, for this window and so many groups."""
        (_, channels, *_), (_, m, *_) = memory.shape(common["inputs"][0]), memory.shape(common["output"])
        if not group or channels % group or m % group:
            raise DeviceError(f"descriptor: group = {group} does not divide {channels} and {m} channels")
        shape = m, channels // group, *window.kernel
        weights = memory.constants.weights(values["weights"], shape, group, memory.overlay, cls.packing(memory.overlay))
        bias, r = from_table(values, memory, (m, 1, 1))
        zero = zero_point(values, "input")
        return cls(**common, weights=weights, bias=bias, window=window, group=group, requantization=r, zero=zero)

    @classmethod
    def probe(
        cls,
        maker: Maker,
        name: str,
        channels: tuple[int, int],
        window: Window,
        group: int = 1,
        slope: float | None = None,
        unsigned: str = "",
        prelu: bool = False,
        wide: bool = False,
        pooled: tuple[int, int] | None = None,
    ) -> Probe:
        """Return a probe of this kind with random numbers, from and to so many channels.

        ``unsigned`` is its blob with unsigned codes; ``prelu``: whether one follows. The sums of a ``wide`` one have 27 bits.
        ``pooled`` are the kernel and stride of a pooling after it.
        """
        inputs, outputs = channels
        weights = maker.random.standard_normal((outputs, inputs // group, *window.kernel)).astype(np.float32)
        weights *= 1.99 / np.abs(weights).max()  # just below a power of two: the largest code in either scheme
        size, pooling = window.sizes(maker.size), None
        if pooled is not None:
            kernel, stride = pooled
            size = ceil_div(size[0] - kernel, stride) + 1, ceil_div(size[1] - kernel, stride) + 1
            pooling = PooledCodes(Window((kernel, kernel), (stride, stride), (0, 0)), size)
        shapes = {"x": (maker.batch, inputs, *maker.size), "y": (maker.batch, outputs, *size)}
        target = maker.target(shapes, largest=0.7 * float(weights[0].size) ** 0.5, unsigned=unsigned)
        sums = target.weights(weights, maker.random.standard_normal(outputs), None, "x", "y")
        if wide:  # products are small beside such a bias: only with many output channels do all codes occur
            most, format = min(1 << 26, maker.overlay.array_bound * 3 // 4), target.formats["y"]
            bias = maker.random.permutation(np.linspace(-1.05 * most, 1.05 * most, outputs).astype(np.int64))
            sums = sums._replace(bias=bias, steps=np.full(outputs, format.step * format.largest / most))
        slopes = maker.random.uniform(-1.5, 1.5, outputs) if prelu else None
        r = target.requantization(sums.steps.reshape(-1, 1, 1), "y", slope, None, slopes)
        codes = sums.codes, sums.bias, window, group, r, target.formats["x"].zero
        more: dict[str, Any] = {"pooling": pooling} if pooling else {}
        task = cls(("x",), "y", (cls.kind,), *codes, wide=wide, **more)
        return maker.probe(name, task, target)
