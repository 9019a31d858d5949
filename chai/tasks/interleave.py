"""Interleave: the pixels of several parts of a blob's channels side by side, as rows and columns of one larger map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..overlay import Overlay
from ..overlay.layout import planes
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from . import Task
from .fields import Operands, as_it_is, clamp
from .upsample import FactorLimits, too_many_rows

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe

COLUMNS = 2  # side by side: the accelerator reads two parts at a time


@dataclass(frozen=True, eq=False, repr=False)
class Interleave(Task):
    """Pixel (y * factor + i, x * 2 + j) of the output is pixel (y, x) of part i * 2 + j.

    A part is as many channels as the output has, from a multiple of ``apart``, a multiple of a word's channels; channels between
    two parts are not read. Codes are unchanged.

    A descriptor has the address of the first two parts, and in ``weights_block`` the bytes from these to the next two.
    """

    kind = "interleave"
    limit_type = FactorLimits
    side_by_side = False
    factor: int
    apart: int

    def define(self, *codes: Array) -> Array:
        x = codes[0]
        n, c, h, w = x.shape
        count = self.factor * COLUMNS
        channels = c - (count - 1) * self.apart
        out = np.empty((n, channels, h * self.factor, w * COLUMNS), np.int8)
        for part in range(count):
            i, j = divmod(part, COLUMNS)
            out[:, :, i :: self.factor, j::COLUMNS] = x[:, part * self.apart : part * self.apart + channels]
        return self.looked_up(out)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"factor": max(self.factor, COLUMNS)}

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        height, channels = shapes[self.inputs[0]][2], shapes[self.output][1]
        return super().excluded(overlay, shapes) or too_many_rows(overlay, channels, height)

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, target = memory.view(self.inputs[0]), memory.view(self.output)
        count = self.factor * COLUMNS
        if self.factor < 1 or self.apart < 1 or self.apart % memory.step:
            raise DeviceError(f"stride: {self.factor} rows of parts that are {self.apart} channels apart")
        channels = source.channels - (count - 1) * self.apart
        if not 0 < channels <= self.apart:
            parts = f"{count} parts that are {self.apart} channels apart"
            raise DeviceError(f"input: {source.channels} channels are not {parts}")
        memory.check_output(self.output, (source.batch, channels, source.height * self.factor, source.width * COLUMNS))
        part = self.apart // memory.step * source.pitch
        second = source._replace(address=source.address + part).place("second")
        values = source.input() | second | target.output() | clamp(as_it_is())
        values |= {"factor": 1, "stride_h": self.factor, "stride_w": COLUMNS, "weights_block": COLUMNS * part}
        return values | {"tiles": planes(channels, memory.overlay.layout) * source.height}

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        plane = max(1, COLUMNS * values["input_pitch"])
        return cls(**common, factor=values["stride_h"], apart=values["weights_block"] // plane * memory.step)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        limits: FactorLimits = maker.limits
        if limits.factor_max < COLUMNS:
            return
        for rows in (1, 2):
            channels, apart = maker.step + 3, round_up(maker.step + 3, maker.step)
            parts = (rows * COLUMNS - 1) * apart + channels
            n, (height, width) = maker.batch, maker.size
            shapes = {"x": (n, parts, height, width), "y": (n, channels, height * rows, width * COLUMNS)}
            task = cls(("x",), "y", ("interleave",), rows, apart)
            yield maker.probe(f"interleave {rows}x{COLUMNS}", task, maker.target(shapes, 1.0))
