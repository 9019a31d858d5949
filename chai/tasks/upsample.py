"""Upsample: each pixel as a rectangle of copies, or alone with zeros to the right of it and below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..fixed import Requantization, requantize
from ..overlay import Overlay, TaskLimits
from ..overlay.layout import planes
from ..util.lazy_numpy import np
from . import Task
from .fields import Operands, as_it_is, clamp, clamped, factor_fields, leaves_codes, zero_flag, zero_point

if TYPE_CHECKING:
    from typing_extensions import Self

    from .probe import Maker, Probe

ROWS_MAX = (1 << 16) - 1  # of all planes of an image


@dataclass(frozen=True, eq=False)
class FactorLimits(TaskLimits):
    """``factor_max``: rows, and columns, of the output for one of the input."""

    factor_max: int


@dataclass(frozen=True, eq=False, repr=False)
class UpsampleTask(Task):
    """Pixel (y, x) becomes those from (y * rows, x * columns), for the ``factors`` (rows, columns).

    All of them are copies of it; or, with ``spread``, all but the first are 0: what a Deconvolution with this stride convolves.
    ``requantization`` and ``zero`` are a Copy's; with None the codes are unchanged, and the code of 0 is ``zero``.

    A descriptor has the factors as strides.
    """

    kind = "upsample"
    limit_type = FactorLimits
    side_by_side = False
    factors: tuple[int, int]
    spread: bool = False
    requantization: Requantization | None = None
    zero: int = 0

    def define(self, *codes: Array) -> Array:
        x, r = codes[0], self.requantization
        if r is not None:
            x = requantize(x.astype(np.int64) - self.zero, r)
        copies = x.repeat(self.factors[0], 2).repeat(self.factors[1], 3)
        if not self.spread:
            return self.looked_up(copies)
        alone = np.full_like(copies, requantize(np.array(0), self._written()))
        alone[:, :, :: self.factors[0], :: self.factors[1]] = x
        return self.looked_up(alone)

    def _written(self) -> Requantization:
        """Return the requantisation that the accelerator computes, of codes without their zero point."""
        return self.requantization or as_it_is()._replace(zero=self.zero)

    def zero_points(self) -> tuple[int, ...] | None:
        r = self.requantization
        return (self.zero, self.zero if r is None else r.zero) if self.spread or r is not None else None

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"factor": max(self.factors)}

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        _, channels, rows, _ = shapes[self.inputs[0]]
        return super().excluded(overlay, shapes) or too_many_rows(overlay, channels, rows)

    def read_of_each(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Sequence[int]:
        (read,) = super().read_of_each(overlay, shapes)
        return [read * self.factors[0]]  # each row is read as often as it is written

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source = memory.view(self.inputs[0])
        rows, columns = self.factors
        if min(self.factors) < 1:
            raise DeviceError(f"stride: factors {self.factors}, expected 1 or more")
        memory.check_output(self.output, (source.batch, source.channels, source.height * rows, source.width * columns))
        r = self._written()
        if r.negative is not None:
            raise DeviceError("negative: an upsample has none")
        values = source.input() | memory.view(self.output).output() | clamp(r) | factor_fields(memory.overlay, r)
        values |= {"stride_h": rows, "stride_w": columns, "spread": int(self.spread)}
        values["tiles"] = planes(source.channels, memory.overlay.layout) * source.height
        return values | zero_flag("input", self.zero)

    @classmethod
    def from_fields(cls, values: Mapping[str, int], _: Operands, /, **common: Any) -> Self:
        r, zero = clamped(values, values["factor"]), zero_point(values, "input")
        factors, spread = (values["stride_h"], values["stride_w"]), bool(values["spread"])
        if leaves_codes(values) and r.zero == zero:
            return cls(**common, factors=factors, spread=spread, zero=zero if spread else 0)
        return cls(**common, factors=factors, spread=spread, requantization=r, zero=zero)

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        limits: FactorLimits = maker.limits
        channels, factors = maker.step + 3, (min(2, limits.factor_max), min(3, limits.factor_max))
        source = maker.batch, channels, *maker.size
        shapes = {"x": source, "y": (*source[:2], source[2] * factors[0], source[3] * factors[1])}
        for name, spread, unsigned in (
            ("upsample", False, ()),
            ("upsample spread", True, ()),
            *(("upsample rescaled", True, (blob,)) for blob in maker.unsigned[:1]),
        ):
            target = maker.target(shapes, 0.6 if unsigned else 1.0, unsigned)
            r = target.requantization(np.array(target.formats["x"].step), "y", None) if unsigned else None
            task = cls(("x",), "y", ("upsample",), factors, spread, r, target.formats["x"].zero)
            yield maker.probe(name, task, target)


def too_many_rows(overlay: Overlay, channels: int, rows: int) -> str | None:
    """Return why an overlay's descriptor cannot say how many rows the planes of an image have; None if it can."""
    total = planes(channels, overlay.layout) * rows
    return f"the planes of an image have {total} rows, more than {ROWS_MAX}" if total > ROWS_MAX else None
