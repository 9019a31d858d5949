"""Copy: a blob into some channels of another, rescaled if their formats differ, or through a table of codes.

A folded one reads the words of a blob as a map of another shape: the words of each image keep their order in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..blob import Array, Shape, View
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay, TaskLimits
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, as_it_is, clamp, clamped, factor_fields, leaves_codes, zero_flag, zero_point

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False)
class CopyLimits(TaskLimits):
    """Limits of copies; ``fold``: whether the words may be read as a map of another shape."""

    fold: bool = field(default=False, kw_only=True)


class Fold(NamedTuple):
    """A map of shape ``out`` (C, H, W) from the words of another one, each of ``word`` channels."""

    word: int
    out: tuple[int, int, int]

    def define(self, codes: Array) -> Array:
        """Return codes (N, C, H, W), whose channels fill whole words, as such a map."""
        n, channels, height, width = codes.shape
        c, h, w = self.out
        words = codes.reshape(n, channels // self.word, self.word, height * width).transpose(0, 1, 3, 2)
        return words.reshape(n, c // self.word, h * w, self.word).transpose(0, 1, 3, 2).reshape(n, c, h, w)


@dataclass(frozen=True, eq=False, repr=False)
class Copy(Task):
    """Writes the channels of its output from ``first``; with ``requantization`` None the codes are unchanged.

    ``zero`` is the input's zero point, which is subtracted first; unchanged codes need none.
    A function of one number alone is a Copy of unchanged codes with a ``lookup``.
    A descriptor has one ``factor`` and no records; unchanged codes have factor 1, shift 0, clamp -128..127.
    """

    kind = "copy"
    limit_type = CopyLimits
    in_parts = True
    first: int
    requantization: Requantization | None
    zero: int = 0
    fold: Fold | None = field(default=None, kw_only=True)

    def define(self, *codes: Array) -> Array:
        x = codes[0] if self.fold is None else self.fold.define(codes[0])
        if self.requantization is None:
            return self.looked_up(x)
        return self.looked_up(requantize(x.astype(np.int64) - self.zero, self.requantization))

    def channels(self, shapes: Mapping[str, Shape]) -> tuple[int, int]:
        return self.first, self.fold.out[0] if self.fold else shapes[self.inputs[0]][1]

    def as_view(self) -> View | None:
        unchanged = self.requantization is None and self.lookup is None and self.fold is None
        return View(self.output, self.first) if unchanged else None

    def zero_points(self) -> tuple[int, ...] | None:
        return None if self.requantization is None else (self.zero, self.requantization.zero)

    @classmethod
    def limits(cls, overlay: Overlay) -> CopyLimits | None:
        limits = overlay.limits(cls.kind, CopyLimits)
        if limits is None or overlay.window.planes == 1:
            return limits
        return replace(limits, fold=False)  # words of several planes come at once

    def in_bands(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> bool:
        return self.fold is None

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"fold": self.fold is not None}

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, whole = self.views(memory)
        if self.first % memory.step:
            raise DeviceError(f"output: channel {self.first} is not the first of a plane of {memory.step}")
        channels, *size = self.fold.out if self.fold else memory.shape(self.inputs[0])[1:]
        planes = not (source.channels % memory.step or channels % memory.step)
        if self.fold and not (planes and prod(self.fold.out) == prod(source[4:])):
            raise DeviceError(f"output: a map {self.fold.out} has other words of {memory.step} than {source[4:]}")
        if not 0 <= self.first <= whole.channels - channels:
            part = f"{channels} channels from {self.first} on"
            raise DeviceError(f"output: {part}, blob {self.output!r} has {whole.channels}")
        memory.check_output(self.output, (source.batch, whole.channels, *size))
        start = whole.address + self.first // memory.step * whole.pitch
        target = whole._replace(address=start, channels=channels)
        r = self.requantization or as_it_is()
        values = source.input() | target.output() | clamp(r) | factor_fields(memory.overlay, r)
        return values | zero_flag("input", self.zero if self.requantization else 0)

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        whole = memory.view(common["output"])
        first = (values["output"] - whole.address) // max(1, whole.pitch) * memory.step
        below = np.array(values["negative"]) if values["leaky"] else None
        r, zero = clamped(values, values["factor"], below), zero_point(values, "input")
        unchanged = leaves_codes(values) and not (zero or r.zero)
        out = values["output_channels"], values["output_height"], values["output_width"]
        sizes = tuple(values[f"input_{name}"] for name in ("channels", "height", "width"))
        fold = None if out == sizes else Fold(memory.step, out)
        return cls(**common, first=first, requantization=None if unchanged else r, zero=zero, fold=fold)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield copies into the middle of a larger blob, unchanged and rescaled, and a folded one."""
        limits: CopyLimits = maker.limits
        shape = maker.batch, maker.step + 3, *maker.size
        whole = maker.batch, limits.channel_step + shape[1] + 5, *maker.size
        target = maker.target({"x": shape, "y": whole}, largest=0.6)
        yield maker.probe("copy", cls(("x",), "y", ("copy",), limits.channel_step, None), target)
        for unsigned in ("", *maker.unsigned):
            target = maker.target({"x": shape, "y": whole}, largest=0.6, unsigned=unsigned)
            source = target.formats["x"]
            r = target.requantization(np.array(source.step), "y", None)
            yield maker.probe("copy rescaled", cls(("x",), "y", ("copy",), limits.channel_step, r, source.zero), target)
        if limits.fold:
            fold = Fold(limits.channel_step, (2 * limits.channel_step, maker.size[0], 3 * maker.size[1]))
            shape = maker.batch, 6 * limits.channel_step, *maker.size
            target = maker.target({"x": shape, "y": (maker.batch, *fold.out)}, 1.0)
            yield maker.probe("copy folded", cls(("x",), "y", ("copy",), 0, None, fold=fold), target)
