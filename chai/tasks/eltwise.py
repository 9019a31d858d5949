"""Eltwise: v = sum of (x_i - zero_i) * m_i, rounded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay, TaskLimits
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, check_multipliers, clamp, same_multipliers, zero_flag, zero_point

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe


@dataclass(frozen=True)
class EltwiseLimits(TaskLimits):
    """Caffe's operations, and the number of blobs that one Task reads."""

    operations: tuple[str, ...]
    inputs: int
    leaky: bool


@dataclass(frozen=True, eq=False)
class Eltwise(Task):
    """``factors`` are the signed multipliers of the inputs, at the shift of ``requantization``.

    The multiplier of ``requantization`` is 1; a leaky ReLU has separate multipliers for negative sums: ``negative``.
    ``zeros`` are the inputs' zero points; () if all are 0.
    A descriptor holds both as fields, for two inputs, and has no table.
    """

    kind = "eltwise"
    operands = 2
    factors: tuple[int, ...]
    negative: tuple[int, ...] | None
    requantization: Requantization
    zeros: tuple[int, ...] = ()

    def define(self, *codes: Array) -> Array:
        values = [x.astype(np.int64) - zero for x, zero in zip(codes, self.plain().zeros)]
        total = sum(x * m for x, m in zip(values, self.factors))
        if self.negative is not None:
            below = sum(x * m for x, m in zip(values, self.negative))
            total = np.where(np.asarray(total) < 0, below, total)
        return self.looked_up(requantize(np.asarray(total), self.requantization))

    def plain(self) -> Self:
        return replace(self, zeros=self.zeros or (0,) * len(self.inputs))

    def zero_points(self) -> tuple[int, ...]:
        return *self.plain().zeros, self.requantization.zero

    @classmethod
    def limits(cls, overlay: Overlay) -> EltwiseLimits | None:
        return overlay.limits(cls.kind, EltwiseLimits)

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        limits = self.limits(overlay)
        if limits is not None and len(self.inputs) > limits.inputs:
            return f"{len(self.inputs)} inputs; the overlay adds {limits.inputs}"
        return super().excluded(overlay, shapes)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"operation": "SUM", "leaky": self.negative is not None}

    def working_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        return super().working_cycles(overlay, shapes) * (1 if self.negative is None else 2)  # a sum for each sign

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        if len(self.inputs) != 2 or len(self.factors) != 2 or len(self.negative or self.factors) != 2:
            raise DeviceError(f"second: expected 2 inputs, each with a factor, found {len(self.inputs)}")
        r = self.requantization
        if r.negative is not None or not same_multipliers(r.multiplier, np.array(1)):
            raise DeviceError("factor: an eltwise has no multiplier after its sum")
        source, second = (memory.view(blob) for blob in self.inputs)
        shape = memory.shape(self.inputs[0])
        if memory.shape(self.inputs[1]) != shape:
            raise DeviceError(f"second: expected {shape}, blob {self.inputs[1]!r} is {memory.shape(self.inputs[1])}")
        memory.check_output(self.output, shape)
        below = self.negative or (0, 0)
        names = "factor", "second_factor", "negative", "second_negative"
        factors = dict(zip(names, (*self.factors, *below)))
        check_multipliers(memory.overlay, **factors)
        return {
            **source.input(),
            **second.place("second"),
            **memory.view(self.output).output(),
            **clamp(r, self.negative is not None),
            **{name: zero_flag(name, zero) for name, zero in zip(("input_zero", "second_zero"), self.zeros)},
            **factors,
        }

    @classmethod
    def from_fields(cls, values: Mapping[str, int], _: Operands, /, **common: Any) -> Self:
        factors = values["factor"], values["second_factor"]
        negative = (values["negative"], values["second_negative"]) if values["leaky"] else None
        numbers = values["shift"], values["low"], values["high"]
        r = Requantization(np.array(1), *numbers, zero=zero_point(values, "output"))
        zeros = zero_point(values, "input"), zero_point(values, "second")
        return cls(**common, factors=factors, negative=negative, requantization=r, zeros=zeros)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe[Self]]:
        """Yield a weighted sum, with a leaky ReLU if the overlay has one."""
        limits = cls.limits(maker.overlay)
        if limits is None:
            return
        shape = maker.batch, maker.step + 3, *maker.size
        names = tuple(f"x{i}" for i in range(limits.inputs))
        shapes = dict.fromkeys((*names, "y"), shape)
        forms: list[tuple[str, float | None, tuple[str, ...]]] = [("eltwise", None, ())]
        forms += [("eltwise leaky", maker.slope, ())] if limits.leaky else []
        forms += [(f"eltwise unsigned {blob}", None, (blob,)) for blob in (*names, "y") if maker.unsigned]
        for name, slope, unsigned in forms:
            target = maker.target(shapes, largest=1.3, unsigned=unsigned)
            steps = np.array([(1 - 1.7 * i) * target.formats[blob].step for i, blob in enumerate(names)])
            r = target.requantization(steps, "y", slope)
            negative = None if r.negative is None else tuple(map(int, r.negative))
            one = r._replace(multiplier=np.array(1), negative=None)
            zeros = tuple(target.formats[blob].zero for blob in names)
            task = cls(names, "y", ("eltwise",), tuple(map(int, r.multiplier)), negative, one, zeros)
            yield maker.probe(name, task, target)
