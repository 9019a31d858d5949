"""Weights as codes: choose steps, round weights jointly to minimise the error of the layer's sums, and correct biases.

Arrays have a leading axis for groups of channels: weights (G, M, K), second moments of their inputs (G, K, K). The error of
a row is d H d', where d is the difference between its codes and its weights in steps. With H = X' X this is the squared
error of the layer's sums on the measured input rows X.

A bias is corrected by the mean quantisation error of the layer, measured after its ReLU. The plain mean difference before the
ReLU ("mean") misleads where few sums are positive: it is then mostly that of values which the ReLU discards. It ruins some
networks and is offered only as one candidate.
"""

from __future__ import annotations

from collections.abc import Callable

from ..blob import Array
from ..fixed import Format, blocks, round_half_away
from ..tasks.target import fraction
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div

BLOCK = 64  # columns whose effect on later columns is accumulated before it is applied
DAMPING = 0.01  # of the mean second moment, added to the diagonal
STEPS = 300  # of learned rounding
FREE = 0.2  # share of those steps without a penalty for undecided weights
CHARGE = 0.1  # weight of the penalty, relative to the layer's error in units of its mean moment
RATE = 0.02  # of Adam
LONGEST = 4608  # most inputs of a layer whose second moments are computed; those of more are rounded part by part
PART = 1024  # inputs of such a layer that are rounded together
SAMPLES = 2048  # most input rows that such a layer is rounded on
SHARES = [1.0 - 0.02 * i for i in range(35)]  # candidate thresholds, as shares of a channel's largest weight
CORRECTIONS = {  # of biases: shares of the mean error that are tried
    "tuned": (0.0, 0.25, 0.5, 0.75, 1.0, 1.3),
    "mean": (1.0,),
}
TAKEN = {"tuned": 0.5, "mean": 1.0}  # of the best share: half of a tuned one helps other images more than all of it


def thresholds(weights: Array, method: str, bits: int) -> Array:
    """Return the threshold of each channel, float32 (M,), of weights (M, ...).

    That is its largest weight ("max"), or the one of SHARES of it with the least squared error ("mse").
    """
    flat, high = weights.reshape(len(weights), -1), (1 << (bits - 1)) - 1
    chosen: Array = np.abs(flat).max(1, initial=0).astype(np.float32)
    for part in blocks(*flat.shape) if method != "max" else ():
        rows = flat[part].astype(np.float64)
        largest = np.abs(rows).max(1, initial=0)
        best, error = largest.copy(), np.full(len(rows), np.inf)
        for share in SHARES:
            step = np.maximum(largest * share, 1e-38)[:, None] / high
            errors = ((np.clip(np.rint(rows / step), -high, high) * step - rows) ** 2).sum(1)
            better = errors < error
            best, error = np.where(better, largest * share, best), np.where(better, errors, error)
        chosen[part] = best
    return chosen


def one_fraction(weights: Array, method: str, bits: int) -> Format:
    """Return the DynamicFixed format of weights: the one that covers all ("max"), or the best of four by squared error."""
    first = fraction(bits, weights)
    formats = [Format("DynamicFixed", bits, min(first + i, 64)) for i in range(1 if method == "max" else 4)]
    if len(formats) == 1:
        return formats[0]
    flat, errors = weights.reshape(len(weights), -1), np.zeros(len(formats))
    for part in blocks(*flat.shape):
        rows = flat[part].astype(np.float64)
        errors += [((_nearest(rows / f.step, f.largest) * f.step - rows) ** 2).sum() for f in formats]
    return formats[int(errors.argmin())]


def _nearest(scaled: Array, high: int) -> Array:
    return np.clip(round_half_away(scaled), -high, high)


def in_steps(weights: Array, steps: Array) -> Array:
    """Return weights in steps, float64, within bounds that the squares of their errors can have."""
    return np.clip(weights / steps, -1e6, 1e6)


def product(a: Array, b: Array) -> Array:
    """Return np.matmul(a, b) without warnings: BLAS for ARM raises floating-point flags for values it does not compute."""
    with np.errstate(all="ignore"):
        result: Array = np.matmul(a, b)
    return result


def moments(rows: Array) -> Array:
    """Return H (G, K, K), float64, of input rows (G, R, K)."""
    return product(rows.transpose(0, 2, 1), rows).astype(np.float64)


def objective(scaled: Array, codes: Array, moments: Array) -> Array:
    """Return d H d' of every row, float32 (G, M)."""
    wrong = (scaled - codes).astype(np.float32)
    errors: Array = (product(wrong, moments) * wrong).sum(2)
    return errors


def together(scaled: Array, moments: Array, high: int, method: str = "compensated") -> Array:
    """Round weights in steps (G, M, K) to codes by a method of TOGETHER, then improve them by coordinate descent.

    A row for which nearest rounding is better keeps nearest rounding.
    """
    nearest = _nearest(scaled, high)
    damped = _damped(moments)
    codes = descend(scaled, TOGETHER[method](scaled, damped, high), damped, high)
    moments = moments.astype(np.float32)
    better = objective(scaled, codes, moments) <= objective(scaled, nearest, moments)
    return np.where(better[..., None], codes, nearest)


def by_parts(weights: Array, steps: Array, rows: Array, high: int) -> Array:
    """Round long rows of weights (G, M, K) with steps (G, M, 1) to codes, int8, on input rows (G, R, K): GPTQ without H.

    H of so many inputs is too large, but the errors E (R, M) of the layer's sums are not. The weights of later parts, with inputs
    Y, can make up for E down to DAMPING's share of E' S^-1 E, with S = Y Y' + damping. So for a part's inputs x the moments are
    x' S^-1 x + 1, and the codes aim at the weights that make up for the E of the parts before.
    """
    rows = rows[:, :: ceil_div(rows.shape[1], SAMPLES)].astype(np.float64)
    codes: Array = np.empty(weights.shape, np.int8)
    for own_codes, own, step, x in zip(codes, weights, steps, rows):
        energy = np.einsum("rk,rk->k", x, x)
        damping = max(DAMPING * energy.sum() / max(np.count_nonzero(energy), 1), 1e-30)
        later = product(x, x.T) + damping * np.eye(len(x))
        errors = np.zeros((len(x), len(own)))
        order = np.argsort(-energy, kind="stable")
        for part in np.split(order, range(PART, len(order), PART)):
            inputs = x[:, part]
            later -= product(inputs, inputs.T)
            solved = np.linalg.solve(later, inputs)
            moments = product(inputs.T, solved) + np.eye(len(part))
            scaled = in_steps(own[:, part], step)
            target = scaled - product(errors.T, np.linalg.solve(moments, solved.T).T)
            own_codes[:, part] = _spread(target[None], moments[None], high)[0]
            errors += product(inputs, (own_codes[:, part] - scaled).T)
    return codes


def _damped(moments: Array) -> Array:
    """Make the moments positive definite: 1 for inputs that were never active, DAMPING of the mean added to all."""
    damped = moments.copy()
    diagonal = np.einsum("gkk->gk", damped)
    dead = diagonal <= 0
    alive = np.where(dead, 0, diagonal).sum(1) / np.maximum((~dead).sum(1), 1)
    diagonal[dead] = 1.0
    diagonal += DAMPING * np.maximum(alive, 1e-30)[:, None]
    return damped


def _spread(scaled: Array, moments: Array, high: int) -> Array:
    """Round with error compensation (GPTQ): each rounding error is compensated by the weights that are rounded later.

    Weights with the largest moments come first. With H = L L' the error is |L' d|^2, whose row k involves only d_k and
    later d: rounding from the last row up makes each code optimal given those already rounded, without inverting H.
    """
    order = np.argsort(np.einsum("gkk->gk", moments), 1, kind="stable")
    lower = np.linalg.cholesky(np.stack([h.take(at, 0).take(at, 1) for h, at in zip(moments, order)]))
    unit = (lower / np.einsum("gkk->gk", lower)[:, None, :]).astype(np.float32)
    exact = np.take_along_axis(_by_column(scaled), order[:, :, None], 1)
    targets, codes = exact.copy(), np.empty_like(exact)
    for last in range(exact.shape[1], 0, -BLOCK):
        first = max(0, last - BLOCK)
        for k in range(last - 1, first - 1, -1):
            codes[:, k] = np.minimum(np.maximum(np.rint(targets[:, k]), -high), high)
            targets[:, first:k] += unit[:, k, first:k, None] * (exact[:, k] - codes[:, k])[:, None]
        errors = exact[:, first:last] - codes[:, first:last]
        targets[:, :first] += product(unit[:, first:last, :first].transpose(0, 2, 1), errors)
    restored = np.empty_like(codes)
    np.put_along_axis(restored, order[:, :, None], codes, 1)
    return restored.transpose(0, 2, 1)


def _learned(scaled: Array, moments: Array, high: int) -> Array:
    """Round up or down by AdaRound on the quadratic form.

    Adam optimises the argument of a sigmoid per weight, and a growing penalty drives undecided weights to 0 or 1.
    """
    below = np.clip(np.floor(scaled), -high, high).astype(np.float32)
    exact = scaled.astype(np.float32)
    scale = np.einsum("gkk->g", moments)[:, None, None] / moments.shape[1]
    h = (moments / scale).astype(np.float32)
    # the sigmoid is stretched to -0.1 .. 1.1, so that 0 and 1 are reached; it starts at the exact fraction
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
    return np.clip(np.where(1.2 * sigmoid >= 0.6, below + 1, below), -high, high)


TOGETHER: dict[str, Callable[[Array, Array, int], Array]] = {"compensated": _spread, "learned": _learned}


def descend(scaled: Array, codes: Array, moments: Array, high: int) -> Array:
    """Improve codes by one pass of coordinate descent: set each to the integer with the least error, all others fixed."""
    h = moments.astype(np.float32)
    rounded = _by_column(codes)
    inverse = 1 / np.einsum("gkk->gk", h)[..., None]
    gradient = product(h, _by_column(scaled) - rounded)
    length = h.shape[1]
    for first in range(0, length, BLOCK):
        last = min(first + BLOCK, length)
        part, before = gradient[:, first:last].copy(), rounded[:, first:last].copy()
        for k in range(first, last):
            old = rounded[:, k].copy()
            rounded[:, k] = np.minimum(np.maximum(np.rint(old + part[:, k - first] * inverse[:, k]), -high), high)
            part[:, k - first :] -= h[:, k:last, k, None] * (rounded[:, k] - old)[:, None]
        gradient[:, last:] -= product(h[:, last:, first:last], rounded[:, first:last] - before)
    return rounded.transpose(0, 2, 1).astype(np.float64)


def _by_column(rows: Array) -> Array:
    """Return (G, M, K) as a new float32 (G, K, M), in which one input's weights are contiguous."""
    return np.array(rows.transpose(0, 2, 1), np.float32, order="C")


# -- biases


def bias_correction(
    exact: Array, quantised: Array, format: Format, slope: float | None, method: str = "tuned"
) -> Array:
    """Return the correction to add to each channel's bias, float64 (M,).

    ``exact`` and ``quantised`` are sums (R, M) in float and from codes, biases included. The correction is a share of their
    mean difference: per channel, TAKEN of the method's share with the least squared error of the output codes.
    """
    difference = (exact - quantised).mean(0, dtype=np.float64)
    unit = np.float32(1 / format.step)
    target = activated(exact, slope) * unit
    low, high = (np.float32(code - format.zero) for code in format.range)
    best, least = np.zeros(len(difference)), np.full(len(difference), np.inf)
    for share in CORRECTIONS[method]:
        codes = activated(quantised + (share * difference).astype(np.float32), slope)
        codes *= unit
        np.rint(codes, out=codes)
        np.clip(codes, low, high, out=codes)
        codes -= target
        error = np.einsum("rm,rm->m", codes, codes)
        better = error < least
        best, least = np.where(better, share, best), np.where(better, error, least)
    moved: Array = TAKEN[method] * best * difference
    return moved


def activated(sums: Array, slope: float | None) -> Array:
    """Apply the layer's fused ReLU to ``sums``; ``slope`` is None if it has none."""
    if not slope:
        return sums if slope is None else np.maximum(sums, np.float32(0))
    return np.where(sums < 0, slope * sums, sums)
