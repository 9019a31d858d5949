"""Target: the overlay, shapes and formats that layers are lowered with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import frexp

from ..blob import Array, Shape, View
from ..fixed import (
    Coarser,
    Format,
    Requantization,
    Scaled,
    largest_magnitudes,
    multipliers,
    quantized,
    round_half_away,
    weight_steps,
)
from ..overlay import Overlay
from ..util.lazy_numpy import np
from .coarser import FACTORS, Quantize, Sums, fitted
from .precision import Precision
from .unsupported import Unsupported


@dataclass(frozen=True)
class Target:
    """An overlay, and the shape and format of every blob it may hold (by blob id).

    ``trained``  False if the weights are placeholders: no layer is refused because of their sums
    ``coarser``  the layers lowered with coarser weight steps, by their top
    ``quantize`` computes the codes of weights: ``fixed.quantized``, or what is equal and faster
    ``between``  the blobs that only Tasks of one layer write and read: see ``blob_between``
    ``parts``    those that are channels of another blob: see ``part``
    """

    overlay: Overlay
    formats: Mapping[str, Format]
    shapes: Mapping[str, Shape]
    trained: bool = True
    coarser: dict[str, Coarser] = field(default_factory=dict)
    quantize: Quantize = quantized
    between: set[str] = field(default_factory=set)
    parts: dict[str, View] = field(default_factory=dict)

    def blob_between(self, top: str, what: str, shape: Shape, format: Format) -> str:
        """Return the name of a new blob, which one Task of the layer that writes ``top`` writes for another one."""
        name = f"{top} {what}"
        while name in self.shapes and name not in self.between:
            name += "'"
        self.between.add(name)
        object.__setattr__(self, "shapes", {**self.shapes, name: shape})
        object.__setattr__(self, "formats", {**self.formats, name: format})
        return name

    def part(self, blob: str, first: int, channels: int) -> str:
        """Return the name of a new blob for Tasks to read: some channels of a blob, from a multiple of the channel step."""
        n, _, *size = self.shapes[blob]
        name = self.blob_between(blob, f"from {first} to {first + channels}", (n, channels, *size), self.formats[blob])
        self.parts[name] = View(blob, first)
        return name

    def weight_format(self, weights: Array, precision: Precision | None, top: str) -> tuple[Format, Array | None]:
        """Return format and thresholds of a layer's weights: its precision_param's, else a format that covers them.

        Missing bits and scheme are taken from the output ``top``. Without thresholds a Xilinx format uses each channel's
        maximum.
        """
        p, output = precision, self.formats[top]
        scheme, bits = output.scheme, output.bits
        if p is not None and p.bw_params:  # its own type: a layer folded in may have set another for the output
            scheme, bits = p.quant_type, p.bw_params
        if scheme == "DynamicFixed":
            stated = p.fl_params if p is not None else None
            return Format(scheme, bits, fraction(bits, weights) if stated is None else stated), None
        thresholds = np.array(p.th_params, np.float32) if p is not None and p.th_params else None
        return Format(scheme, bits, 0.0), thresholds

    def weights(self, weights: Array, bias: Array | None, precision: Precision | None, bottom: str, top: str) -> Sums:
        """Return the codes of weights (M, ...) and bias (M,), and each channel's accumulator step, from ``bottom`` to ``top``.

        Raises Unsupported if a sum could overflow the array's accumulators.
        """
        source = self.formats[bottom]
        if not source.step:
            raise Unsupported(f"its input's format is {source}: every value is 0")
        format, thresholds = self.weight_format(weights, precision, top)
        if thresholds is not None and len(thresholds) not in (1, len(weights)):
            raise Unsupported(f"{len(thresholds)} th_params for {len(weights)} output channels")
        if thresholds is not None and len(thresholds) == 1:
            thresholds = np.repeat(thresholds, len(weights))
        steps = weight_steps(weights, format, thresholds, source.step)
        return self.sums(Scaled(weights, bias, steps), format, bottom, top, self.quantize)

    def sums(self, scaled: Scaled, format: Format, bottom: str, top: str, quantize: Quantize) -> Sums:
        """Return what ``weights`` does, for weights in ``format``, and note in ``coarser`` if their steps changed."""
        source, most = self.formats[bottom], self.overlay.array_bound
        factors = FACTORS[format.scheme] if self.trained else []
        fit = fitted(scaled, source, factors, most, format.bits, quantize)
        if self.trained and fit.bound >= most:
            limit = f"beyond the accumulator's {most:,} even with weights in steps {factors[-1]:g} times"
            raise Unsupported(f"a sum could reach {fit.bound:,}, {limit} as coarse")
        if fit.coarser is not None:
            self.coarser[top] = fit.coarser
        return fit._replace(steps=fit.steps * source.step)

    def may_overflow(self, weights: Array, precision: Precision | None, bottom: str, top: str) -> bool:
        """Return whether some weights of this shape could overflow the accumulator, not counting the bias.

        That is, even with the coarsest steps.
        """
        if not weights.size:
            return False
        source, (format, _) = self.formats[bottom], self.weight_format(weights, precision, top)
        largest = format.largest
        # without a format of the prototxt, the format covers all weights
        if precision is None or (precision.fl_params is None and not precision.th_params):
            largest = int(largest / FACTORS[format.scheme][-1] + 0.5)
        return bool(weights[0].size * largest * (source.magnitude - source.zero) >= self.overlay.array_bound)

    def requantization(
        self, steps: Array, top: str, slope: float | None, ceiling: float | None = None, slopes: Array | None = None
    ) -> Requantization:
        """Return the requantisation from accumulators with ``steps`` to codes of ``top``, with a ReLU if slope is not None.

        ``ceiling`` is the ReLU's upper limit, at whose code codes are clamped. ``slopes`` (C,) are those of a PReLU, for steps
        (C, 1, 1); they may be negative or above 1.
        """
        format = self.formats[top]
        if not format.step:
            raise Unsupported(f"its output's format is {format}: every value is 0")
        low, high = format.range
        if ceiling is not None:
            high = min(high, format.zero + int(round_half_away(np.array(ceiling / format.step))))
        requant = self.overlay.requant
        ratios = np.asarray(steps, np.float64) / format.step
        below = None if slopes is None else ratios * np.asarray(slopes, np.float64).reshape(-1, 1, 1)
        every = ratios if below is None else np.stack([ratios, below])
        factors = multipliers(every, requant.mult_bits, requant.shift_max)
        if factors is None:
            raise Unsupported(f"its output steps ({format}) are too fine for {requant.mult_bits}-bit multipliers")
        m, shift = factors
        if below is not None:
            return Requantization(m[0], shift, low, high, m[1], format.zero)
        if slope is None or slope == 0:
            return Requantization(m, shift, format.zero if slope == 0 else low, high, zero=format.zero)
        negative = round_half_away(slope * ratios * 2.0**shift).astype(np.int64)
        return Requantization(m, shift, low, high, negative, format.zero)


def fraction(bits: int, values: Array) -> int:
    """Return the largest fraction length at which all values are in range."""
    largest = float(largest_magnitudes(values))
    return bits - 1 - frexp(largest)[1] if largest else bits - 1
