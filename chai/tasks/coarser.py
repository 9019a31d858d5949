"""Coarser weight steps for channels whose sums could overflow the accumulator.

Such a channel's step is multiplied by the smallest factor at which its sums fit, and so is its multiplier: its values
stay, with fewer bits. The weights of other channels do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ..fixed import ACCUMULATOR, Coarser, Format, accumulator_bounds, blocks, quantize_bias
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array

    Quantize = Callable[[Array, Array], Array]  # weights (M, ...) and steps (M,) to codes

FACTORS = {"Xilinx": [2 ** (j / 16) for j in range(1, 49)], "DynamicFixed": [2.0, 4.0, 8.0]}


SENTENCE = "coarser weight steps, so that sums fit the accumulator, and what they cost the weights in SQNR"


def listed(coarser: Mapping[str, Coarser]) -> list[str]:
    """Return the layers with coarser steps as text, for reports."""
    return [f"{name} ({found})" for name, found in coarser.items()]


def as_json(coarser: Mapping[str, Coarser]) -> dict[str, Any]:
    """Return the layers with coarser steps as values for json.dumps."""
    return {name: asdict(found) for name, found in coarser.items()}


class Sums(NamedTuple):
    """Codes of weights (M, ...), bias int64 (M,) in units of the accumulator, and steps of the weights (M,).

    ``bound`` is the largest magnitude that an accumulator can reach; ``coarser`` is None if all steps are the given ones.
    """

    codes: Array
    bias: Array
    steps: Array
    bound: int
    coarser: Coarser | None = None


def fitted(
    weights: Array,
    bias: Array | None,
    steps: Array,
    source: Format,
    factors: Sequence[float],
    largest: int,
    quantize: Quantize,
) -> Sums:
    """Return weights (M, ...) as codes of at most ``largest``, with coarser steps where sums could overflow.

    ``bias`` (M,) is added to the sums, ``source`` is the input's format. A channel that overflows with each of ``factors``
    gets the last one; ``bound`` tells.
    """
    codes = quantize(weights, steps)
    added = _bias(codes, bias, steps, source)
    bounds = accumulator_bounds(codes, added, source.magnitude)
    over = np.flatnonzero(bounds >= ACCUMULATOR)
    if not len(over) or not factors:
        return Sums(codes, added, steps, int(bounds.max(initial=0)))
    before, steps = _error(weights, codes, steps), steps.copy()
    for part in blocks(len(over), weights[0].size):
        left = over[part]
        sizes = np.array([np.minimum(np.abs(weights[i]) / steps[i], largest).sum() for i in left])
        base = steps[left]
        for factor in factors:
            # rounding takes less than 0.501 from each code: sums that are too large even so need not be tried
            least = (sizes / factor - 0.501 * weights[0].size) * source.magnitude
            near = (least < ACCUMULATOR) | (factor == factors[-1])
            tried = left[near]
            if not len(tried):
                continue
            steps[tried] = base[near] * factor
            codes[tried] = quantize(weights[tried], steps[tried])
            added[tried] = _bias(codes[tried], None if bias is None else bias[tried], steps[tried], source)
            bounds[tried] = accumulator_bounds(codes[tried], added[tried], source.magnitude)
            wide = bounds[left] >= ACCUMULATOR
            left, sizes, base = left[wide], sizes[wide], base[wide]
    after = _error(weights, codes, steps)
    lost = 10 * float(np.log10(after / before)) if before and after else 0.0
    return Sums(codes, added, steps, int(bounds.max(initial=0)), Coarser(len(over), lost))


def _bias(codes: Array, bias: Array | None, steps: Array, source: Format) -> Array:
    """Return the bias in units of the accumulator: - zero * sum of codes turns the sum over stored codes into the true one."""
    added = np.zeros(len(codes), np.int64)
    if bias is not None:
        added = quantize_bias(bias.astype(np.float64), steps * source.step)
    total: Array = added - source.zero * codes.reshape(len(codes), -1).sum(1, dtype=np.int64)
    return total


def _error(weights: Array, codes: Array, steps: Array) -> float:
    """Return the sum of the squared errors of the weights."""
    total = 0.0
    for part in blocks(len(weights), weights[0].size):
        step = steps[part].reshape(-1, *(1,) * (weights.ndim - 1))
        total += float(((weights[part] - codes[part] * step) ** 2).sum())
    return total
