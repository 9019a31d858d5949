"""Conv: a convolution on the array, and a pooling of its codes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from ..blob import Array, Shape
from ..errors import DeviceError
from ..overlay import Overlay, TaskLimits
from ..overlay.layout import Span, image_bytes, word_bytes
from ..overlay.sections import BEAT
from ..overlay.weights import block_bytes, block_diagonal, groups_to_join
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from . import tiling
from .conv_waits import conv_waits
from .fields import Operands, window_fields, window_of
from .filter import FilterTask
from .pooling import PooledCodes
from .tiling import Convolved
from .unfold import Unfold
from .waits import Waits
from .window import Window

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False)
class ConvLimits(TaskLimits):
    """Each ``_max`` applies to both axes."""

    kernel_max: int
    stride_max: int
    dilation_max: int
    pad_max: int
    group_max: int
    depthwise: bool
    leaky: bool
    prelu: bool = field(default=False, kw_only=True)
    pool_kernel_max: int = field(default=0, kw_only=True)
    pool_columns_max: int = field(default=0, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False)
class Conv(FilterTask):
    """A convolution on the array. ``pooling`` is of the codes after their ``lookup``."""

    kind = "conv"
    limit_type: ClassVar[type[TaskLimits]] = ConvLimits
    engine = "array"
    pooling: PooledCodes | None = field(default=None, kw_only=True)

    def define(self, *codes: Array) -> Array:
        result = super().define(*codes)
        return result if self.pooling is None else self.pooling.define(result)

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        conv, word = self._convolved(overlay, shapes), overlay.layout.channels_per_word
        weights, group = conv.weights, conv.group
        if group > 1 and not self.is_depthwise and (weights[1] % word or weights[0] // group % word):
            return f"groups of {weights[1]} inputs and {weights[0] // group} outputs are not whole words of {word}"
        if self.wide and overlay.wide_bits is None:
            return f"overlay {overlay.name} has no sums of more than {overlay.accumulator_bits} bits"
        fits = tiling.beyond_strips if self.pooling is None else tiling.beyond_ring
        reason = super().excluded(overlay, shapes) or fits(overlay, *conv[:4])
        if reason or conv.pooling is None:
            return reason
        columns = conv.tiling(overlay).columns
        drained = tiling.drained_planes(overlay, weights, group)
        return conv.pooling.excluded(self.limits(overlay), drained, conv.size, columns)

    def strips(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Sequence[Span | None]:
        conv = self._convolved(overlay, shapes)[:4]
        return (tiling.beyond_ring(overlay, *conv) and tiling.strips(overlay, *conv)) or (None,)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        sizes = {name: max(pair) for name, pair in self.window._asdict().items()}
        return {**sizes, "group": self.group, "depthwise": self.is_depthwise, **self.bends()}

    def working_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate cycles of the array, or of its memory ports: a beat of all inputs a cycle, and what is stored of constants."""
        read, _ = self.moved(overlay, shapes)
        constants = self.constant_traffic(overlay, shapes) / BEAT
        ports = max(read / (overlay.array.inputs * overlay.ports.words), constants / overlay.constants_at_once)
        return max(float(tiling.array_cycles(overlay, self._convolved(overlay, shapes))), ports)

    def reads(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[float, float, float, float]:
        """Return the bytes through each port: every port's share of the constants, and of the input's planes."""
        ports, planes = overlay.ports.constants, ceil_div(overlay.array.inputs, overlay.layout.channels_per_word)
        constants, share = self.constant_traffic(overlay, shapes) / ports, self.moved(overlay, shapes)[0] / planes
        return constants, constants + share, constants * (ports > 2) + share * (planes > 1), 0

    def waits(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Waits:
        return conv_waits(overlay, self._convolved(overlay, shapes))

    def takes_turns(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> bool:
        return self._convolved(overlay, shapes).tiling(overlay).waits

    def may_share(self, overlay: Overlay) -> bool:
        buffer = overlay.buffers.weights
        fits = tiling.weight_words(overlay, self.weights.shape, self.group) <= buffer.depth * buffer.banks
        return fits and "shares" in overlay.descriptor.values

    def constant_traffic(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
        weights, records = tiling.weight_traffic(overlay, self._convolved(overlay, shapes)), self.weights.shape[0]
        return weights + records * overlay.table.bytes + super().constant_traffic(overlay, shapes)

    def moved(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[int, int]:
        conv = self._convolved(overlay, shapes)
        read, written = word_bytes(conv.source, overlay.layout), super().moved(overlay, shapes)[1]
        if self.columns is not None:
            written = word_bytes((conv.source[0], conv.weights[0], *conv.size), overlay.layout)
        return read, written

    def in_bands(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> bool:
        return self.strips(overlay, shapes) == (None,)

    def rows_read(self, shapes: Mapping[str, Shape], blob: str) -> Span:
        size = shapes[blob][2:]
        return self.window.seen(0, self._codes(size)[0], size[0])[:2]

    def _codes(self, source: Shape) -> tuple[Span | None, PooledCodes | None]:
        """Return the rows of codes that it computes, None for all, and the pooling after them; ``source``: height and width."""
        if self.rows is None or self.pooling is None:
            return self.rows, self.pooling
        pooling, rows = self.pooling.band(self.rows, self.window.sizes(source)[0])
        return rows, pooling

    def _convolved(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Convolved:
        _, channels, full_height, full_width = shapes[self.inputs[0]]
        rows, pooling = self._codes((full_height, full_width))
        top, height, above = self.window.seen(0, rows, full_height)
        left, width, before = self.window.seen(1, self.columns, full_width)
        kernel, stride, _, dilation = self.window
        step = tiling.row_step(overlay, self.window, full_width)
        if step > 1:
            stride, height = (1, stride[1]), ceil_div(height, step)
        window = Window(kernel, stride, (above, before), dilation)
        whole = self.window.sizes((full_height, full_width))
        size = rows[1] if rows else whole[0], self.columns[1] if self.columns else whole[1]
        source, strip = (self.batch(shapes), channels, height, width), self.columns is not None
        plane_words = full_height * full_width, prod(self.pooling.out if self.pooling else whole)
        more = pooling, self.wide, self.shares, self.shared, plane_words
        return Convolved(window, self.weights.shape, self.group, source, size, strip, (top, left), *more)

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, target = memory.view(self.inputs[0]), memory.view(self.output)
        window, step = window_fields(self.window), tiling.row_step(memory.overlay, self.window, source.width)
        m = self.weights.shape[0]
        self.check_weights(source.channels)
        size = self.window.sizes((source.height, source.width))
        memory.check_output(self.output, (source.batch, m, *(self.pooling.out if self.pooling else size)))
        conv = self._convolved(memory.overlay, memory.shapes)
        if reason := tiling.beyond_ring(memory.overlay, *conv[:4]):
            raise DeviceError(reason)
        window |= window_fields(conv.window)
        if conv.strip or step > 1:
            window |= {"input_row": step * source.width, "output_row": target.width}
        source = memory.part(source, conv.first, conv.source[2:])
        (top, height), (left, width) = self.rows or (0, target.height), self.columns or (0, target.width)
        target = memory.part(target, (top, left), (height, width))
        tile = conv.tiling(memory.overlay)
        values = source.input() | target.output() | {"output_height": conv.size[0], "output_width": conv.size[1]}
        values |= conv.pooling.fields(conv.size) if conv.pooling else {}
        values |= window | self.numbers(memory.overlay, where)
        values |= {"tile_rows": tile.rows, "tile_columns": tile.columns, "tiles": tile.tiles, "stays": tile.stays}
        values |= {"group": self.group, "wide": int(self.wide), "shares": int(self.shares)}
        return values | {"weights_block": block_bytes(self.weights.shape, self.group, memory.overlay.array)}

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        window, width = window_of(values), memory.shape(common["inputs"][0])[3]
        step = values.get("input_row", 0) // max(1, width)
        if step > 1:  # of the rows that it reads
            window = window._replace(stride=(step * window.stride[0], window.stride[1]))
        pooling = PooledCodes.from_fields(values, memory.shape(common["output"])[2:])
        common |= {"pooling": pooling, "wide": bool(values.get("wide"))}
        return cls.decoded(values, memory, window, values["group"], common)

    # -- rewriting

    def joined(self, overlay: Overlay) -> Conv:
        """Return the Task with groups of channels as the overlay can read them."""
        count = groups_to_join(self.weights.shape, self.group, overlay) if overlay.own is None else 1
        if count == 1:
            return self
        weights = block_diagonal(np.asarray(self.weights), self.group, count)
        return self._with(weights, group=self.group // count)

    def _with(self, weights: Array, **changes: Any) -> Self:
        """Return the Task with other weights, which are its own but for zeros that are more or fewer."""
        zeros = self.zero_weights + weights.size - self.weights.size
        return replace(self, weights=weights, zero_weights=zeros, **changes)

    def unfolding(self, overlay: Overlay, source: Shape) -> Unfold | None:
        """Return how to unfold the input (of shape ``source``) for the fewest passes, then the smallest blob; None: not at all.

        A blob of more than 1.1 times the image at full words of the array's inputs is not considered.
        """
        window, inputs, layout = self.window, overlay.array.inputs, overlay.layout
        limits = self.limits(overlay)
        if self.group > 1 or source[1] >= inputs or window.dilation != (1, 1):
            return None
        candidates: dict[tuple[int, int], Unfold | None] = {}
        candidates[prod(window.kernel), image_bytes(source, layout)] = None
        for rows in Unfold.choices(window):
            unfold = Unfold(window, rows)
            shape = unfold.shape(source)
            size = image_bytes(shape, layout)
            fits = limits is not None and shape[1] <= limits.channels_max and max(shape[2:]) <= limits.size_max
            fits = fits and tiling.beyond_ring(overlay, unfold.kernel, (1, shape[1], 1, 1), 1, shape) is None
            if fits and size <= 1.1 * prod(source[2:]) * inputs:
                candidates.setdefault((unfold.kernel.kernel[0] * ceil_div(shape[1], inputs), size), unfold)
        return candidates[min(candidates)]

    def unfolded(self, unfold: Unfold, blob: str) -> Conv:
        """Return the Task that computes the same from the unfolded input ``blob``."""
        return self._with(unfold.weights(np.asarray(self.weights)), inputs=(blob,), window=unfold.kernel)

    def from_plain(self, unfold: Unfold, blob: str) -> Conv | None:
        """Return the Task that computes the same from ``blob``, which is not unfolded: the inverse of ``unfolded``, or None."""
        if self.group > 1:
            return None
        weights = unfold.plain_weights(np.asarray(self.weights))
        # of a file: rows beyond the kernel are not zeros
        return None if weights is None else self._with(weights, inputs=(blob,), window=unfold.window)

    def merge_key(self) -> Hashable | None:
        """Return a key that is equal for Tasks whose channels can be merged into one Task; None if it cannot be merged."""
        r = self.requantization
        lookup = None if self.lookup is None else self.lookup.tobytes()
        alike = self.inputs, self.window, self.zero, r.shift, r.low, r.high, r.zero, r.negative is None, lookup
        return alike if self.group == 1 and self.pooling is None else None

    @classmethod
    def merged(cls, parts: Sequence[Self], gaps: Sequence[int], output: str) -> Self:
        """Return one Task for parts with equal ``merge_key``, with ``gaps`` channels of zeros after each."""

        def padded(arrays: Iterable[Array]) -> Array:
            return np.concatenate([np.pad(a, [(0, gap)] + [(0, 0)] * (a.ndim - 1)) for a, gap in zip(arrays, gaps)])

        first = parts[0]
        below = [part.requantization.negative for part in parts]
        above = padded(part.requantization.multiplier for part in parts)
        negative = None if below[0] is None else padded(m for m in below if m is not None)
        return replace(
            first,
            output=output,
            origin=tuple(name for part in parts for name in part.origin),
            zero_weights=sum(part.zero_weights + gap * prod(part.weights.shape[1:]) for part, gap in zip(parts, gaps)),
            weights=padded(np.asarray(part.weights) for part in parts),
            bias=padded(part.bias for part in parts),
            wide=any(part.wide for part in parts),
            requantization=first.requantization._replace(multiplier=above, negative=negative),
        )

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield plain, dilated, grouped, depthwise, leaky and wide convolutions, and one whose rows do not fit."""
        limits: ConvLimits = maker.limits
        inputs = maker.step + 3
        channels = inputs, 2 * maker.step + 5
        plain = square(limits, 3, 2, 1)
        yield cls.probe(maker, "conv", channels, plain, slope=0)
        yield cls.probe(maker, "conv 1x1", channels, square(limits, 1, 1, 0))
        if limits.dilation_max > 1:
            yield cls.probe(maker, "conv dilated", channels, square(limits, 3, 1, 2, 2))
        if limits.group_max > 1:
            yield cls.probe(maker, "conv grouped", (2 * maker.step, 4 * maker.step), plain, 2, 0)
        if limits.depthwise:
            yield cls.probe(maker, "conv depthwise", (inputs, inputs), plain, inputs, 0)
        if limits.leaky:
            yield cls.probe(maker, "conv leaky", channels, plain, slope=maker.slope)
        if limits.prelu:
            yield cls.probe(maker, "conv PReLU", channels, plain, prelu=True)
        if maker.overlay.wide_bits is not None:
            yield cls.probe(maker, "conv wide", (inputs, 256), plain, wide=True)
        if limits.pool_kernel_max >= 3:
            yield cls.probe(maker, "conv pooled", channels, plain, slope=0, pooled=(3, 2))
        close = square(limits, 3, 1, 1)
        rows = close.extent(0) * maker.size[1]
        deep = maker.step * (tiling.ring_words(maker.overlay) // rows + 1)  # more than whole rows
        weights, source = (5, deep, *close.kernel), (1, deep, *maker.size)
        if deep <= limits.channels_max and tiling.strips(maker.overlay, close, weights, 1, source):
            yield cls.probe(maker, "conv in strips", (deep, 5), close)
        for unsigned in maker.unsigned:
            yield cls.probe(maker, "conv", channels, plain, unsigned=unsigned)


def square(limits: ConvLimits, kernel: int, stride: int, pad: int, dilation: int = 1) -> Window:
    """Return the square window within the overlay's limits that is closest to these sizes."""
    kernel, stride, pad = min(kernel, limits.kernel_max), min(stride, limits.stride_max), min(pad, limits.pad_max)
    return Window((kernel, kernel), (stride, stride), (pad, pad), (dilation, dilation))
