"""Bias correction: compensate the mean quantisation error of a layer, measured after its ReLU.

The plain mean difference before the ReLU ("mean") misleads where few sums are positive: it is then mostly that of values
which the ReLU discards. It ruins some networks and is offered only as one candidate.
"""

from __future__ import annotations

from ..blob import Array
from ..fixed import Format
from ..util.lazy_numpy import np

SHARES = {  # shares of the mean error that are tried
    "tuned": (0.0, 0.25, 0.5, 0.75, 1.0, 1.3),
    "mean": (1.0,),
}
TAKEN = {"tuned": 0.5, "mean": 1.0}  # of the best share: half of a tuned one helps other images more than all of it


def tuned(exact: Array, quantised: Array, format: Format, slope: float | None, method: str = "tuned") -> Array:
    """Return the correction to add to each channel's bias, float64 (M,).

    ``exact`` and ``quantised`` are sums (R, M) in float and from codes, biases included. The correction is a share of their
    mean difference: per channel, TAKEN of the method's share with the least squared error of the output codes.
    """
    difference = (exact - quantised).mean(0, dtype=np.float64)
    unit = np.float32(1 / format.step)
    target = activated(exact, slope) * unit
    low, high = (np.float32(code - format.zero) for code in format.range)
    best, least = np.zeros(len(difference)), np.full(len(difference), np.inf)
    for share in SHARES[method]:
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
