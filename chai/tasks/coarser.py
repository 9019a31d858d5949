"""Coarser weight steps for channels whose sums could overflow the accumulator.

Such a channel's step is multiplied by the smallest factor at which its sums fit, and so is its multiplier: its values
stay, with fewer bits. The weights of other channels do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..blob import Array
from ..fixed import Coarser, Format, Quantized, Scaled, accumulator_bounds, blocks, quantize_bias
from ..util.lazy_numpy import np

Quantize = Callable[[Array, Array, int], Quantized]  # weights (M, ...), steps (M,) and bits

BLOCK = 1 << 18  # weights that stay in the cache while coarser steps are tried
FACTORS = {"Xilinx": [2 ** (j / 16) for j in range(1, 49)], "DynamicFixed": [2.0, 4.0, 8.0]}


SENTENCE = "coarser weight steps, so that sums fit the accumulator, and what they cost the weights in SQNR"


def listed(coarser: Mapping[str, Coarser]) -> list[str]:
    """Return the layers with coarser steps as text, for reports."""
    return [f"{name} ({cost})" for name, cost in coarser.items()]


def as_json(coarser: Mapping[str, Coarser]) -> dict[str, Any]:
    """Return the layers with coarser steps as values for json.dumps."""
    return {name: cost._asdict() for name, cost in coarser.items()}


class Sums(NamedTuple):
    """Codes of weights (M, ...), bias int64 (M,) in units of the accumulator, and steps of the weights (M,).

    ``bound`` is the largest magnitude that an accumulator can reach; ``coarser`` is None if all steps are the given ones.
    """

    codes: Array
    bias: Array
    steps: Array
    bound: int
    coarser: Coarser | None = None


def fitted(scaled: Scaled, source: Format, factors: Sequence[float], limit: int, bits: int, quantize: Quantize) -> Sums:
    """Return weights as codes, with steps times the first of ``factors`` with which sums stay below ``limit``.

    ``source`` is the input's format. A channel that overflows with each factor gets the last one; ``bound`` tells.
    """
    weights, bias, steps = scaled
    count, size = len(weights), weights[:1].size
    sums = (np.empty(count, kind) for kind in (np.int64, np.int64, float))
    rounded = Quantized(np.empty(weights.shape, np.int8), *sums)
    added, bounds, steps = np.empty(count, np.int64), np.empty(count, np.int64), steps.copy()

    def compute(rows: slice | Array) -> None:
        part = quantize(weights[rows], steps[rows], bits)
        for whole, values in zip(rounded, part):
            whole[rows] = values
        added[rows] = _bias(part.totals, None if bias is None else bias[rows], steps[rows], source)
        bounds[rows] = accumulator_bounds(part.magnitudes, added[rows], source.magnitude)

    channels, before = 0, 0.0
    for part in blocks(count, size, BLOCK):
        compute(part)
        before += float(rounded.errors[part].sum())
        left = part.start + np.flatnonzero(bounds[part] >= limit)
        channels += len(left)
        if not len(left) or not factors:
            continue
        base, index = steps[left], _first(rounded.magnitudes[left], size, factors, limit / source.magnitude)
        while len(left):
            steps[left] = base * np.take(factors, index)
            compute(left)
            over = (bounds[left] >= limit) & (index + 1 < len(factors))
            left, base, index = left[over], base[over], index[over] + 1
    bound = int(bounds.max(initial=0))
    if not channels or not factors:
        return Sums(rounded.codes, added, steps, bound)
    after = float(rounded.errors.sum())
    lost = 10 * float(np.log10(after / before)) if before and after else 0.0
    return Sums(rounded.codes, added, steps, bound, Coarser(channels, lost))


def _first(magnitudes: Array, size: int, factors: Sequence[float], most: float) -> Array:
    """Return the index of the first factor at which the sums of channels (M,) might fit; the last one if none does.

    ``magnitudes`` are the sums of their codes' at factor 1, of ``size`` weights each, ``most`` is what such a sum may be.
    Rounding takes less than 0.501 from each code, there and here.
    """
    lowest = (magnitudes[:, None] - 0.501 * size) / np.array(factors) - 0.501 * size
    fits = lowest < most
    fits[:, -1] = True
    first: Array = fits.argmax(1)
    return first


def _bias(totals: Array, bias: Array | None, steps: Array, source: Format) -> Array:
    """Return the bias in units of the accumulator: - zero * sum of codes turns the sum over stored codes into the true one."""
    added = np.zeros(len(totals), np.int64)
    if bias is not None:
        added = quantize_bias(bias.astype(np.float64), steps * source.step)
    total: Array = added - source.zero * totals
    return total
