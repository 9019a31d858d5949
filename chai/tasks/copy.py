"""Copy: a blob into some channels of another, rescaled if their formats differ, or through a table of codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape, View
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay, TaskLimits
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, as_it_is, check_multipliers, clamp, flat_multipliers, same, zero_flag, zero_point

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False)
class Copy(Task):
    """Writes the channels of its output from ``first``; with ``requantization`` None the codes are unchanged.

    ``zero`` is the input's zero point, which is subtracted first; unchanged codes need none.
    A function of one number alone is a Copy of unchanged codes with a ``lookup``.
    A descriptor has one ``factor`` and no records; unchanged codes have factor 1, shift 0, clamp -128..127.
    """

    kind = "copy"
    in_parts = True
    first: int
    requantization: Requantization | None
    zero: int = 0

    def define(self, *codes: Array) -> Array:
        if self.requantization is None:
            return self.looked_up(codes[0])
        return self.looked_up(requantize(codes[0].astype(np.int64) - self.zero, self.requantization))

    def written(self, output: Array, channels: int) -> Array:
        return output[:, self.first : self.first + channels]

    def channels(self, shapes: Mapping[str, Shape]) -> tuple[int, int]:
        return self.first, shapes[self.inputs[0]][1]

    def as_view(self) -> View | None:
        unchanged = self.requantization is None and self.lookup is None
        return View(self.output, self.first) if unchanged else None

    def plain(self) -> Self:
        unchanged = self.requantization is None or (not self.zero and same(self.requantization, as_it_is()))
        return replace(self, requantization=None, zero=0) if unchanged else self

    def zero_points(self) -> tuple[int, ...] | None:
        return None if self.requantization is None else (self.zero, self.requantization.zero)

    @classmethod
    def limits(cls, overlay: Overlay) -> TaskLimits | None:
        return overlay.limits(cls.kind, TaskLimits)

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        limits = self.limits(overlay)
        if limits is not None and self.first % limits.channel_step:
            return f"it writes from channel {self.first}, not from a multiple of {limits.channel_step}"
        return super().excluded(overlay, shapes)

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, whole = memory.view(self.inputs[0]), memory.view(self.output)
        if self.first % memory.step:
            raise DeviceError(f"output: channel {self.first} is not the first of a plane of {memory.step}")
        if not 0 <= self.first <= whole.channels - source.channels:
            raise DeviceError(
                f"output: {source.channels} channels from {self.first} on, blob {self.output!r} has {whole.channels}"
            )
        memory.check_output(self.output, (source.batch, whole.channels, source.height, source.width))
        start = whole.address + self.first // memory.step * whole.pitch
        part = whole._replace(address=start, channels=source.channels)
        r = self.requantization or as_it_is()
        values = {**source.input(), **part.output(), **clamp(r, r.negative is not None)}
        values["input_zero"] = zero_flag("input_zero", self.zero if self.requantization else 0)
        factor = flat_multipliers("factor", r.multiplier, ())[0]
        negative = 0 if r.negative is None else flat_multipliers("negative", r.negative, ())[0]
        check_multipliers(memory.overlay, factor=factor, negative=negative)
        return {**values, "factor": factor, "negative": negative}

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        whole = memory.view(common["output"])
        first = (values["output"] - whole.address) // max(1, whole.pitch) * memory.step
        below = np.array(values["negative"]) if values["leaky"] else None
        numbers = values["shift"], values["low"], values["high"]
        r = Requantization(np.array(values["factor"]), *numbers, below, zero_point(values, "output"))
        return cls(**common, first=first, requantization=r, zero=zero_point(values, "input")).plain()

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe[Self]]:
        """Yield copies into the middle of a larger blob, unchanged and rescaled."""
        limits = cls.limits(maker.overlay)
        if limits is None:
            return
        shape = maker.batch, maker.step + 3, *maker.size
        whole = maker.batch, limits.channel_step + shape[1] + 5, *maker.size
        target = maker.target({"x": shape, "y": whole}, largest=0.6)
        yield maker.probe("copy", cls(("x",), "y", ("copy",), limits.channel_step, None), target)
        for unsigned in ("", *maker.unsigned):
            target = maker.target({"x": shape, "y": whole}, largest=0.6, unsigned=unsigned)
            source = target.formats["x"]
            r = target.requantization(np.array(source.step), "y", None)
            name = f"copy rescaled unsigned {unsigned}" if unsigned else "copy rescaled"
            yield maker.probe(name, cls(("x",), "y", ("copy",), limits.channel_step, r, source.zero), target)
