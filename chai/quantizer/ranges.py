"""Collect a blob's values in bounded memory and choose the format that loses least of them.

Batches are added one by one, in any number. Stored are the exact extremes and a histogram whose span doubles when a larger
value arrives, so the result does not depend on the order of the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, frexp, isfinite, log2

from ..blob import Array
from ..fixed import Format
from ..offload.formats import covering
from ..util.lazy_numpy import np

BINS = 8192  # per sign: three or more for each step of 8 bits at a threshold of a twentieth of the largest value
KL_BINS = 2048  # as in TensorRT's method
COVERED = 0.9999  # share of the values that "percentile" covers
# limits of a precision_param: of a threshold (1e30) as powers of two, in float32, and of a fraction length
LIMITS: dict[str, tuple[float, float]] = {"Xilinx": (2.0**-99, 2.0**99), "DynamicFixed": (-32, 64)}


class Histogram:
    """Counts of the values of one blob: positive and negative ones in ``BINS`` bins each, over -span .. span.

    ``span`` is a power of two above every magnitude seen, 0 before the first that is not 0; zeros are counted separately.
    """

    def __init__(self) -> None:
        self.low = self.high = 0.0
        self.span = 0.0
        self.zeros = 0
        self.counts = np.zeros((2, BINS), np.int64)

    @property
    def largest(self) -> float:
        """Return the largest magnitude, exact."""
        return max(self.high, -self.low)

    def add(self, values: Array) -> None:
        """Count float values of any shape; they must be finite."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen(self.largest)
        self.zeros += values.size - int(np.count_nonzero(values))
        for image in values if values.ndim > 1 else (values,):  # copies of all would need as much memory again
            self.counts[0] += self._binned(image[image > 0] if self.span else image[:0])
            if low < 0:
                self.counts[1] += self._binned(-image[image < 0])

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.zeros += other.zeros
        self._widen(other.largest)
        self.counts += _widened(other.counts, other.span, self.span)

    def _widen(self, largest: float) -> None:
        if largest >= self.span and largest > 0:
            span = 2.0 ** frexp(largest)[1]
            self.counts = _widened(self.counts, self.span, span)
            self.span = span

    def _binned(self, magnitudes: Array) -> Array:
        if not magnitudes.size:
            return np.zeros(BINS, np.int64)
        # in float64: a float32 near the span times BINS / span must not round up to BINS
        index = (magnitudes.astype(np.float64) * (BINS / self.span)).astype(np.intp)
        return np.bincount(index.reshape(-1), minlength=BINS)

    def cumulative(self, edges: Array) -> Array:
        """Return the number of non-zero magnitudes below each of ``edges``, interpolated inside bins."""
        both = np.concatenate([[0], np.cumsum(self.counts.sum(0))])
        counts: Array = np.interp(edges, np.linspace(0, self.span, BINS + 1), both)
        return counts


def _widened(counts: Array, old: float, new: float) -> Array:
    """Rebin counts over 0 .. old to 0 .. new, both powers of two; ``old`` is 0 for an empty histogram."""
    if not old or new <= old:
        return counts
    factor = int(min(new / old, BINS))
    merged = np.zeros_like(counts)
    merged[:, : BINS // factor] = counts.reshape(2, -1, factor).sum(2)
    return merged


def squared_error(seen: Histogram, steps: Array, low: int, high: int) -> Array:
    """Return the sum of (Q(x) - x)^2 over all values x for each step; codes run from ``low`` to ``high``.

    Values are assumed uniform inside each bin, and the integral over a bin is exact: the squared error of nearest rounding
    has the antiderivative k / 12 + (u - k)^3 / 3 at u steps, where k is the code of u.
    """
    total = np.zeros(len(steps))
    if not seen.span:
        return total
    for counts, last in zip(seen.counts, (high, -low)):
        used = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 0
        edges = np.linspace(0, seen.span * used / BINS, used + 1)
        width = seen.span / BINS
        for i, step in enumerate(steps if used else ()):
            u = edges / step
            k = np.minimum(np.floor(u + 0.5), last)
            integral = k / 12 + (u - k) ** 3 / 3
            total[i] += step**3 / width * float((counts[:used] * np.diff(integral)).sum())
    return total


def least_error(seen: Histogram, bits: int, scheme: str, unsigned: bool = False) -> Format:
    """Return the format with the least squared error.

    Candidates are thresholds down to a fourteenth of the largest value, or six fraction lengths.
    """

    def errors(formats: list[Format]) -> Array:
        low, high = (code - formats[0].zero for code in formats[0].range)
        return squared_error(seen, np.array([f.step for f in formats]), low, high)

    return best(candidates(seen.largest, bits, scheme, unsigned), errors)


def candidates(largest: float, bits: int, scheme: str, unsigned: bool = False) -> list[Format]:
    """Return candidate formats for values up to ``largest``, first the one that covers them all."""
    values = [covering(largest, bits, scheme, unsigned).value + i for i in range(6)]
    if scheme == "Xilinx":
        values = [largest * 0.96**i for i in range(64)] if largest else values[:1]
    return [_limited(scheme, value, bits, unsigned) for value in values]


def best(formats: list[Format], errors: Callable[[list[Format]], Array]) -> Format:
    """Return the format with the least error; for Xilinx, refine it among thresholds 1 % apart."""
    coarse = formats[int(np.argmin(errors(formats)))]
    if coarse.scheme == "DynamicFixed" or len(formats) == 1:
        return coarse
    most = formats[0].value
    shares = (1 + 0.01 * i for i in (0, -3, -2, -1, 1, 2, 3))
    near = [_limited("Xilinx", min(most, coarse.value * share), coarse.bits, coarse.unsigned) for share in shares]
    return near[int(np.argmin(errors(near)))]


def percentile(seen: Histogram, bits: int, scheme: str, unsigned: bool = False) -> Format:
    """Return the format that covers the smallest COVERED of all values, zeros included."""
    edges = np.linspace(0, seen.span, BINS + 1)
    below = seen.cumulative(edges) + seen.zeros
    at = float(np.interp(COVERED * below[-1], below, edges)) if seen.span else 0.0
    return covering(min(at, seen.largest) or seen.largest, bits, scheme, unsigned)


def least_divergence(seen: Histogram, bits: int, scheme: str, unsigned: bool = False) -> Format:
    """Return TensorRT's threshold: the cut of a 2048-bin histogram with the least KL divergence after quantisation."""
    if not seen.span:
        return covering(0.0, bits, scheme, unsigned)
    levels = 1 << (bits if unsigned else bits - 1)
    whole = np.diff(seen.cumulative(np.linspace(0, seen.largest * (1 + 1e-7), KL_BINS + 1)))
    cuts = [*range(levels, KL_BINS, 16), KL_BINS]
    cut = min(cuts, key=lambda i: divergence(whole, i, levels))
    threshold = seen.largest * cut / KL_BINS
    value = threshold if scheme == "Xilinx" else floor(log2((levels - 1) / threshold) + 0.5)
    return _limited(scheme, value, bits, unsigned)


def divergence(whole: Array, cut: int, levels: int) -> float:
    """Return KL(p || q) in nats for a histogram that is cut.

    p is the histogram clipped to ``cut`` bins (outliers in the last), q is p in ``levels`` steps, with empty bins kept empty.
    Infinite if no value is below the cut.
    """
    inside = whole[:cut]
    if not inside.sum():
        return float("inf")
    p = inside.copy()
    p[-1] += whole[cut:].sum()
    level = np.arange(cut) * levels // cut
    filled = inside > 0
    share = np.bincount(level, inside, levels) / np.maximum(np.bincount(level, filled, levels), 1)
    q = np.where(filled, share[level], 0)
    p, q = p / p.sum(), q / q.sum()
    some = p > 0
    return float((p[some] * np.log(p[some] / np.maximum(q[some], 1e-12))).sum())


METHODS: dict[str, Callable[[Histogram, int, str, bool], Format]] = {
    "max": lambda seen, bits, scheme, unsigned: covering(seen.largest, bits, scheme, unsigned),
    "percentile": percentile,
    "mse": least_error,
    "kl": least_divergence,
}


def fit(seen: Histogram, method: str, bits: int, scheme: str, unsigned: bool = False) -> Format:
    """Return a blob's format by a method of METHODS, within the limits of a precision_param."""
    return _limited(scheme, METHODS[method](seen, bits, scheme, unsigned).value, bits, unsigned)


def _limited(scheme: str, value: float, bits: int, unsigned: bool) -> Format:
    low, high = LIMITS[scheme]
    inside = min(max(value, low), high) if isfinite(value) else high
    return Format(scheme, bits, float(np.float32(inside)) if scheme == "Xilinx" else int(inside), unsigned)
