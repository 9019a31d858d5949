"""Biases that make up for the mean error of a layer, judged behind its ReLU.

The mean difference before a ReLU alone ("mean") is no guide: where few positions are positive it is that of values which
nobody sees. It ruins some networks, and is there to be tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fixed import Format
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array

SHARES = {  # of the mean error that may be taken away
    "tuned": (0.0, 0.25, 0.5, 0.75, 1.0, 1.3),
    "mean": (1.0,),
}


def tuned(wanted: Array, found: Array, format: Format, slope: float | None, method: str = "tuned") -> Array:
    """Return what to add to each channel's bias, float64 (M,).

    ``wanted`` and ``found`` are sums (R, M) in float and from codes, biases included; of the method's shares of their mean
    difference each channel takes the one with the least squared error of its output code against the float output.
    """
    difference = (wanted - found).mean(0, dtype=np.float64)
    unit = np.float32(1 / format.step)
    target = activated(wanted, slope) * unit
    low, high = map(np.float32, format.range)
    best, least = np.zeros(len(difference)), np.full(len(difference), np.inf)
    for share in SHARES[method]:
        codes = activated(found + (share * difference).astype(np.float32), slope)
        codes *= unit
        np.rint(codes, out=codes)
        np.clip(codes, low, high, out=codes)
        codes -= target
        error = np.einsum("rm,rm->m", codes, codes)
        better = error < least
        best, least = np.where(better, share, best), np.where(better, error, least)
    moved: Array = best * difference
    return moved


def activated(sums: Array, slope: float | None) -> Array:
    """Return a ReLU that a pass has put into the layer, if there is one."""
    if not slope:
        return sums if slope is None else np.maximum(sums, np.float32(0))
    return np.where(sums < 0, slope * sums, sums)
