"""Weights as codes: steps, and rounding that looks at what the layer computes rather than at each weight alone.

Arrays have a leading axis for groups of channels: weights (G, M, K), the second moments of their inputs (G, K, K). The
error of a row is d H d' with d the difference of its codes from its weights in steps: with H = X' X that is the squared
error of the layer's sums on the rows X it was measured on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..fixed import Format, round_half_away
from ..tasks.target import fraction
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array

BLOCK = 64  # columns whose effect on later ones is gathered before it is spread
DAMPING = 0.01  # of the mean second moment, added to the diagonal
PASSES = 1  # of coordinate descent
STEPS = 300  # of learned rounding
FREE = 0.2  # share of those steps in which a weight may stay undecided at no charge
CHARGE = 0.1  # for being undecided, against the layer's error in units of its mean moment
RATE = 0.02  # of Adam
LONGEST = 4608  # rows of weights; longer ones would need more memory than a host should give
SHARES = [1.0 - 0.02 * i for i in range(35)]  # of a channel's largest weight that its threshold may be


def thresholds(weights: Array, method: str, bits: int, moments: Array | None = None) -> Array:
    """Return threshold of each channel, float32 (M,), of weights (M, ...): its largest ("max"), or the one among
    SHARES of it with the least squared error ("mse"), each weight counted with its input's second moment (M, K) if
    given."""
    rows = weights.reshape(len(weights), -1).astype(np.float64)
    largest = np.abs(rows).max(1, initial=0)
    if method == "max":
        covering: Array = largest.astype(np.float32)
        return covering
    high = (1 << (bits - 1)) - 1
    best, error = largest.copy(), np.full(len(rows), np.inf)
    for share in SHARES:
        step = np.maximum(largest * share, 1e-38)[:, None] / high
        wrong = (np.clip(np.rint(rows / step), -high, high) * step - rows) ** 2
        found = (wrong if moments is None else wrong * moments).sum(1)
        better = found < error
        best, error = np.where(better, largest * share, best), np.where(better, found, error)
    chosen: Array = best.astype(np.float32)
    return chosen


def one_fraction(weights: Array, method: str, bits: int) -> Format:
    """DynamicFixed format of a layer's weights: covering all ("max"), or of four the one with the least squared error."""
    first = fraction(bits, weights)
    formats = [Format("DynamicFixed", bits, min(first + i, 64)) for i in range(1 if method == "max" else 4)]
    values = weights.astype(np.float64)
    return min(formats, key=lambda f: float(((_nearest(values / f.step, f.largest) * f.step - values) ** 2).sum()))


def _nearest(scaled: Array, high: int) -> Array:
    codes: Array = np.clip(round_half_away(scaled), -high, high)
    return codes


def product(a: Array, b: Array) -> Array:
    """np.matmul. BLAS for ARM raises flags of numbers that it has not computed, which numpy would tell as warnings."""
    with np.errstate(all="ignore"):
        found: Array = np.matmul(a, b)
    return found


def moments(rows: Array) -> Array:
    """H (G, K, K) float64 of input rows (G, R, K)."""
    return product(rows.transpose(0, 2, 1), rows).astype(np.float64)


def objective(scaled: Array, codes: Array, moments: Array) -> Array:
    """d H d' of every row, (G, M)."""
    wrong = scaled - codes
    found: Array = (product(wrong, moments) * wrong).sum(2)
    return found


def together(scaled: Array, moments: Array, high: int, method: str = "compensated") -> Array:
    """Return codes of weights in steps (G, M, K) by a method of TOGETHER, then improved one code at a time; never
    worse than nearest rounding in any row."""
    nearest = _nearest(scaled, high)
    damped = _damped(moments)
    found = descend(scaled, TOGETHER[method](scaled, damped, high), damped, high)
    better = objective(scaled, found, moments) <= objective(scaled, nearest, moments)
    return np.where(better[..., None], found, nearest)


def _damped(moments: Array) -> Array:
    """Positive definite: an input that was never active gets a moment of 1, all a little more."""
    damped = moments.copy()
    diagonal = np.einsum("gkk->gk", damped)
    dead = diagonal <= 0
    alive = np.where(dead, 0, diagonal).sum(1) / np.maximum((~dead).sum(1), 1)
    diagonal[dead] = 1.0
    diagonal += DAMPING * np.maximum(alive, 1e-30)[:, None]
    return damped


def _spread(scaled: Array, moments: Array, high: int) -> Array:
    """GPTQ: each rounding error is made up for by the weights that are rounded after it, those with the largest moments
    first. With H = L L' the error is |L' d|^2, whose row k holds d_k and the d of later rows: from the last row up each
    code is the best one for those below it, which needs no inverse of H.
    """
    order = np.argsort(np.einsum("gkk->gk", moments), 1, kind="stable")
    rows = np.take_along_axis(np.take_along_axis(moments, order[:, :, None], 1), order[:, None, :], 2)
    lower = np.linalg.cholesky(rows)
    unit = (lower / np.einsum("gkk->gk", lower)[:, None, :]).astype(np.float32)
    exact = np.take_along_axis(_by_column(scaled), order[:, :, None], 1)
    wanted, codes = exact.copy(), np.empty_like(exact)
    for last in range(exact.shape[1], 0, -BLOCK):
        first = max(0, last - BLOCK)
        for k in range(last - 1, first - 1, -1):
            codes[:, k] = np.minimum(np.maximum(np.rint(wanted[:, k]), -high), high)
            wanted[:, first:k] += unit[:, k, first:k, None] * (exact[:, k] - codes[:, k])[:, None]
        errors = exact[:, first:last] - codes[:, first:last]
        wanted[:, :first] += product(unit[:, first:last, :first].transpose(0, 2, 1), errors)
    found = np.empty_like(codes)
    np.put_along_axis(found, order[:, :, None], codes, 1)
    return found.transpose(0, 2, 1)


def _learned(scaled: Array, moments: Array, high: int) -> Array:
    """AdaRound on the quadratic form: each weight goes up or down by a sigmoid whose argument Adam finds, while a growing
    charge for being undecided drives it to one side.
    """
    below = np.clip(np.floor(scaled), -high, high).astype(np.float32)
    exact = scaled.astype(np.float32)
    scale = np.einsum("gkk->g", moments)[:, None, None] / moments.shape[1]
    h = (moments / scale).astype(np.float32)
    # the sigmoid is stretched to -0.1 .. 1.1, so that both ends are reached; it starts at nobody's side
    start = np.clip(exact - below, 0.01, 0.99)
    argument = -np.log(1.2 / (start + np.float32(0.1)) - 1)
    mean, square = np.zeros_like(argument), np.zeros_like(argument)
    for i in range(1, STEPS + 1):
        sigmoid = 1 / (1 + np.exp(-argument))
        share = np.clip(1.2 * sigmoid - np.float32(0.1), 0, 1)
        slope = 2 * product(np.clip(below + share, -high, high) - exact, h)
        late = (i / STEPS - FREE) / (1 - FREE)
        if late > 0:
            power, undecided = 20 - 18 * late, 2 * share - 1
            slope -= CHARGE * 2 * power * np.abs(undecided) ** (power - 1) * np.sign(undecided)
        slope *= 1.2 * sigmoid * (1 - sigmoid) * ((share > 0) & (share < 1))
        mean += (slope - mean) * np.float32(0.1)
        square += (slope * slope - square) * np.float32(0.001)
        argument -= np.float32(RATE) * (mean / (1 - 0.9**i)) / (np.sqrt(square / (1 - 0.999**i)) + 1e-8)
    found: Array = np.clip(below + (1.2 * sigmoid >= 0.6), -high, high)
    return found


TOGETHER: dict[str, Callable[[Array, Array, int], Array]] = {"compensated": _spread, "learned": _learned}


def descend(scaled: Array, codes: Array, moments: Array, high: int, passes: int = PASSES) -> Array:
    """Coordinate descent: each code in turn becomes the whole number with the least error, the others as they are."""
    h = moments.astype(np.float32)
    found = _by_column(codes)
    inverse = 1 / np.einsum("gkk->gk", h)[..., None]
    gradient = product(h, _by_column(scaled) - found)
    length = h.shape[1]
    for _ in range(passes):
        for first in range(0, length, BLOCK):
            last = min(first + BLOCK, length)
            part, before = gradient[:, first:last].copy(), found[:, first:last].copy()
            for k in range(first, last):
                old = found[:, k].copy()
                found[:, k] = np.minimum(np.maximum(np.rint(old + part[:, k - first] * inverse[:, k]), -high), high)
                part -= h[:, first:last, k, None] * (found[:, k] - old)[:, None]
            gradient -= product(h[:, :, first:last], found[:, first:last] - before)
    return found.transpose(0, 2, 1).astype(np.float64)


def _by_column(rows: Array) -> Array:
    """(G, M, K) as a new float32 (G, K, M): what happens to one input's weights happens to neighbours in memory."""
    return np.array(rows.transpose(0, 2, 1), np.float32, order="C")
