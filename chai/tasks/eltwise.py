"""Eltwise: v = sum of (x_i - zero_i) * m_i, the product (x_0 - zero_0) * (x_1 - zero_1) * m, or the larger, rounded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay, TaskLimits
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, check_multipliers, clamp, clamped, only_shifts, zero_flag, zero_point

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe
    from .target import Target


@dataclass(frozen=True, eq=False)
class EltwiseLimits(TaskLimits):
    """Caffe's operations, and the number of blobs that one Task reads. ``vector``: the second may have one pixel."""

    operations: tuple[str, ...]
    inputs: int
    leaky: bool
    vector: bool = field(default=False, kw_only=True)


OPERATIONS = "SUM", "PROD", "MAX"  # as descriptors number them


@dataclass(frozen=True, eq=False, repr=False)
class Eltwise(Task):
    """``factors`` are the signed multipliers of the inputs, at the shift of ``requantization``.

    The multiplier of ``requantization`` is 1; a leaky ReLU has separate multipliers for negative sums: ``negative``.
    ``zeros`` are the inputs' zero points.
    A "PROD" has one factor, of the product; a "MAX" is the larger of both inputs times their factors. Neither has ``negative``.
    With ``vector`` the second of two inputs is (N, C, 1, 1), repeated for each pixel of the first.
    A descriptor holds both as fields, for two inputs, and has no table.
    """

    kind = "eltwise"
    limit_type = EltwiseLimits
    operands = 2
    banded = True
    factors: tuple[int, ...]
    negative: tuple[int, ...] | None
    requantization: Requantization
    zeros: tuple[int, ...]
    operation: str = "SUM"
    vector: bool = False

    def define(self, *codes: Array) -> Array:
        values = [x.astype(np.int64) - zero for x, zero in zip(codes, self.zeros)]
        if self.operation == "PROD":
            result = values[0] * values[1] * self.factors[0]
        elif self.operation == "MAX":
            result = np.maximum(values[0] * self.factors[0], values[1] * self.factors[1])
        else:
            result = np.asarray(sum(x * m for x, m in zip(values, self.factors)))
            if self.negative is not None:
                result = np.where(result < 0, sum(x * m for x, m in zip(values, self.negative)), result)
        return self.looked_up(requantize(result, self.requantization))

    def zero_points(self) -> tuple[int, ...]:
        return *self.zeros, self.requantization.zero

    @classmethod
    def of_blobs(
        cls,
        inputs: tuple[str, ...],
        output: str,
        origin: tuple[str, ...],
        operation: str,
        target: Target,
        coefficients: Sequence[float] = (),
        slope: float | None = None,
        ceiling: float | None = None,
    ) -> Self:
        """Return the Task that computes an operation of blobs in the formats of ``target``, then a ReLU with this slope.

        The blobs of a sum have ``coefficients``, 1 each by default. Raises Unsupported for steps that no multiplier fits.
        """
        formats = [target.formats[blob] for blob in inputs]
        steps = np.array([c * f.step for c, f in zip(coefficients or (1.0,) * len(inputs), formats)])
        if operation == "PROD":
            steps = np.array([steps.prod()])
        r = target.requantization(steps, output, slope, ceiling)
        negative = None if r.negative is None else tuple(map(int, r.negative))
        one, zeros = r._replace(multiplier=np.array(1), negative=None), tuple(f.zero for f in formats)
        sizes = [target.shapes[blob][2:] for blob in inputs]
        vector = len(inputs) == 2 and sizes[0] != sizes[1] == (1, 1)
        return cls(inputs, output, origin, tuple(map(int, r.multiplier)), negative, one, zeros, operation, vector)

    @property
    def looks_up(self) -> bool:
        return self.operation != "MAX"  # the codes of both inputs would be looked up before the larger is chosen

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        if self.operation != "SUM" and self.negative is not None:
            return f"a leaky {self.operation}"
        if self.lookup is not None and not self.looks_up:
            return f"a table of codes after a {self.operation}"
        return super().excluded(overlay, shapes)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"operation": self.operation, "leaky": self.negative is not None, "vector": self.vector}

    def working_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate a cycle for each product of a word in the lanes: one of a PROD, two of a sum, four of a leaky one."""
        products = (1 if self.operation == "PROD" else 2) * (1 if self.negative is None else 2)
        computing = self.words_at_once(overlay, self.accessed(shapes, self.output)) * products
        return max(computing, super().working_cycles(overlay, shapes))

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        factors = self.factors if self.operation != "PROD" else (*self.factors, 0)
        if len(self.inputs) != 2 or len(factors) != 2 or len(self.negative or factors) != 2:
            raise DeviceError(f"second: expected 2 inputs, each with a factor, found {len(self.inputs)}")
        r = self.requantization
        if not only_shifts(r):
            raise DeviceError("factor: an eltwise has no multiplier after its sum")
        source, second, target = self.views(memory)
        shape = memory.shape(self.inputs[0])
        other = (*shape[:2], 1, 1) if self.vector else shape
        if memory.shape(self.inputs[1]) != other:
            raise DeviceError(f"second: expected {other}, blob {self.inputs[1]!r} is {memory.shape(self.inputs[1])}")
        memory.check_output(self.output, shape)
        below = self.negative or (0, 0)
        names = "factor", "second_factor", "negative", "second_negative"
        multipliers = dict(zip(names, (*factors, *below)))
        check_multipliers(memory.overlay, **multipliers)
        values = source.input() | second.place("second") | target.output() | clamp(r) | multipliers
        values |= zero_flag("input", self.zeros[0]) | zero_flag("second", self.zeros[1])
        values |= {"leaky": int(self.negative is not None), "vector": int(self.vector)}
        return values | {"operation": OPERATIONS.index(self.operation)}

    @classmethod
    def from_fields(cls, values: Mapping[str, int], _: Operands, /, **common: Any) -> Self:
        if values.get("operation", 0) >= len(OPERATIONS):
            raise DeviceError(f"descriptor: operation = {values['operation']}, expected less than {len(OPERATIONS)}")
        operation = OPERATIONS[values.get("operation", 0)]
        factors = (values["factor"], values["second_factor"])[: 1 if operation == "PROD" else 2]
        negative = (values["negative"], values["second_negative"]) if values["leaky"] else None
        r, zeros = clamped(values, 1), (zero_point(values, "input"), zero_point(values, "second"))
        common |= {"operation": operation, "vector": bool(values.get("vector"))}
        return cls(**common, factors=factors, negative=negative, requantization=r, zeros=zeros)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield a weighted sum, with a leaky ReLU if the overlay has one, and what else it computes of two blobs."""
        limits: EltwiseLimits = maker.limits
        shape = maker.batch, maker.step + 3, *maker.size
        names = tuple(f"x{i}" for i in range(limits.inputs))
        shapes = dict.fromkeys((*names, "y"), shape)
        forms: list[tuple[str, float | None, tuple[str, ...]]] = [("eltwise", None, ())]
        forms += [("eltwise leaky", maker.slope, ())] if limits.leaky else []
        forms += [("eltwise", None, (blob,)) for blob in (*names, "y") if maker.unsigned]
        for name, slope, unsigned in forms:
            target = maker.target(shapes, largest=1.3, unsigned=unsigned)
            coefficients = [1 - 1.7 * i for i in range(len(names))]
            task = cls.of_blobs(names, "y", ("eltwise",), "SUM", target, coefficients, slope)
            yield maker.probe(name, task, target)
        whole, point = shapes["y"], (*shapes["y"][:2], 1, 1)
        for operation, second in product(limits.operations, (whole, point)):
            if (operation == "SUM" and second == whole) or (second == point and not limits.vector):
                continue
            unsigned = (names[1],) if maker.unsigned and (operation, second) == ("PROD", point) else ()
            sizes = {**shapes, names[1]: second}
            target = maker.target(sizes, largest={"PROD": 0.7, "MAX": 1.0}.get(operation, 1.3), unsigned=unsigned)
            task = cls.of_blobs(names, "y", ("eltwise",), operation, target)
            yield maker.probe(f"eltwise {operation}{' vector' if second == point else ''}", task, target)
