"""Depthwise: a filter of 3 x 3 for each channel, in the window engine while the array computes other Tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from ..blob import Shape
from ..overlay import Overlay, TaskLimits
from ..overlay.sections import BEAT, Array as ArraySize
from ..overlay.weights import weight_bytes
from . import Task
from .conv import Conv
from .fields import Operands, window_fields, window_of
from .filter import FilterTask
from .window import Window

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe

KERNEL = 3, 3
NARROW = 5  # columns, at least: a code is in the memory of rows before the next row reads it
BEGIN = 2  # cycles from the last word of a plane to the first one of the next
SLOWER = 1.5  # times the cycles of the array that it may take, as the array computes other Tasks meanwhile
RECORDS = 20  # cycles more than one for each record, until those of the next planes are there


@dataclass(frozen=True, eq=False)
class DepthwiseLimits(TaskLimits):
    """Each ``_max`` applies to both axes, but ``columns_max``: of the input, which the unit keeps two rows of."""

    stride_max: int
    pad_max: int
    columns_max: int
    leaky: bool
    prelu: bool = field(default=False, kw_only=True)


class Depthwise(FilterTask):
    """A FilterTask with a group for each channel. The order of its weights: planes, taps, channels of the plane."""

    kind = "depthwise"
    limit_type = DepthwiseLimits
    banded = True

    @classmethod
    def packing(cls, overlay: Overlay) -> ArraySize:
        word = overlay.layout.channels_per_word
        return overlay.array._replace(inputs=word, outputs=word)

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        if not self.is_depthwise or self.window.kernel != KERNEL or self.window.dilation != (1, 1):
            return "it is no filter of 3 x 3 for each channel"
        if shapes[self.inputs[0]][3] < NARROW:
            return f"its input has fewer than {NARROW} columns"
        return super().excluded(overlay, shapes)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        columns = shapes[self.inputs[0]][3]
        return {"stride": max(self.window.stride), "pad": max(self.window.pad), "columns": columns, **self.bends()}

    def working_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate cycles of the window engine: a column of the image a cycle, and those of padding after it and below it."""
        _, channels, height, width = shapes[self.inputs[0]]
        _, rows, above = self.window.seen(0, self.rows, height)
        out_rows, out_columns = self.accessed(shapes, self.output)[2:]
        (down, right), (_, left) = self.window.stride, self.window.pad
        lines, columns = max(rows, (out_rows - 1) * down + 3 - above), max(width, (out_columns - 1) * right + 3 - left)
        plane = max(lines * columns + BEGIN, overlay.window.planes * overlay.layout.channels_per_word + RECORDS)
        groups = self.words_at_once(overlay, (self.batch(shapes), channels, 1, 1))
        return max(groups * plane, super().working_cycles(overlay, shapes))

    def reads(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[float, float, float, float]:
        """Return the bytes through each port: weights come as second inputs do, records with the input."""
        images, (weights, records) = self.batch(shapes), self._constants(overlay)
        weights, others = images * weights, self.moved(overlay, shapes)[0] + images * records
        return (0, 0, 0, weights + others) if overlay.ports.window == 1 else (weights, 0, 0, others)

    def reading_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[float, ...]:
        """Estimate the cycles of each port; where weights come as second inputs do, those of a plane are a run."""
        first, *others = super().reading_cycles(overlay, shapes)
        if overlay.ports.window > 1:
            first = self.reads(overlay, shapes)[0] / BEAT / overlay.rates(prod(KERNEL), prod(KERNEL))[0]
        return first, *others

    def constant_traffic(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
        return self.batch(shapes) * sum(self._constants(overlay)) + super().constant_traffic(overlay, shapes)

    def _constants(self, overlay: Overlay) -> tuple[int, int]:
        """Return the bytes of weights and of records that each image reads."""
        weights = weight_bytes(self.weights.shape, self.group, self.packing(overlay))
        return weights, self.weights.shape[0] * overlay.table.bytes

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, target = self.views(memory)
        batch, channels, *size = memory.shape(self.inputs[0])
        self.check_weights(channels)
        memory.check_output(self.output, (batch, channels, *self.window.sizes(tuple(size))))
        window = window_fields(self.window.of_rows(self.rows, size[0]))
        return source.input() | target.output() | window | self.numbers(memory.overlay, where)

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        return cls.decoded(values, memory, window_of(values), memory.shape(common["output"])[1], common)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield filters of each stride, with a ReLU, a slope and a PReLU, and one for each blob with unsigned codes."""
        limits: DepthwiseLimits = maker.limits
        channels = maker.step + 3
        close, apart = (((channels, channels), Window(KERNEL, (n, n), (1, 1)), channels) for n in (1, 2))
        yield cls.probe(maker, "depthwise", *close, slope=0)
        yield cls.probe(maker, "depthwise of stride 2", *apart, slope=0)
        if limits.leaky:
            yield cls.probe(maker, "depthwise leaky", *close, slope=maker.slope)
        if limits.prelu:
            yield cls.probe(maker, "depthwise PReLU", *close, prelu=True)
        for unsigned in maker.unsigned:
            yield cls.probe(maker, "depthwise", *close, unsigned=unsigned)


def in_window_engine(task: Task, overlay: Overlay, shapes: Mapping[str, Shape]) -> Task:
    """Return a convolution as the window engine computes it, if it can and is not much slower there; else the Task itself."""
    if type(task) is not Conv or task.wide or task.pooling is not None:
        return task
    common = {name: getattr(task, name) for name in ("images", "zero_weights", "lookup")}
    numbers = task.weights, task.bias, task.window, task.group, task.requantization, task.zero
    depthwise = Depthwise(task.inputs, task.output, task.origin, *numbers, **common)
    if depthwise.excluded(overlay, shapes) or depthwise.cycles(overlay, shapes) > SLOWER * task.cycles(overlay, shapes):
        return task
    return depthwise
