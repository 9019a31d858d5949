"""Random parameters for networks without a caffemodel, the same on every run."""

from __future__ import annotations

from math import prod, sqrt
from zlib import crc32

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .params import EXACT, Filler


def fill(layer: str, shapes: tuple[Shape, ...], fillers: tuple[Filler | None, ...]) -> list[Array]:
    """Return one float32 blob per shape.

    Weights (two axes or more) are drawn like Caffe's xavier, uniform in +-sqrt(3 / fan_in), so that signals keep their
    magnitude from layer to layer, unless they have a constant or bilinear filler, which is applied. Everything else, and
    blobs with a filler of type EXACT, get the filler's constant, or 0.
    """
    random = np.random.default_rng(crc32(layer.encode()))
    blobs = []
    for i, shape in enumerate(shapes):
        filler = fillers[i] if i < len(fillers) else None
        if filler is not None and filler.type == "bilinear" and len(shape) == 4:
            blobs.append(bilinear(shape))
        elif len(shape) < 2 or (filler is not None and filler.type in (EXACT, "constant")):
            blobs.append(np.full(shape, filler.value if filler else 0, np.float32))
        else:
            limit = sqrt(3 / max(1, prod(shape[1:])))
            blobs.append(random.uniform(-limit, limit, shape).astype(np.float32))
    return blobs


def upsampling(fillers: tuple[Filler | None, ...]) -> bool:
    """Return whether weights are those of bilinear upsampling, which are often neither trained nor stored."""
    return bool(fillers) and fillers[0] is not None and fillers[0].type == "bilinear"


def bilinear(shape: Shape) -> Array:
    """Return the upsampling kernel (M, C, k, k) of Caffe's BilinearFiller."""
    kernel = shape[3]
    factor = ceil_div(kernel, 2)
    center = (2 * factor - 1 - factor % 2) / (2 * factor)
    x = 1 - np.abs(np.arange(kernel) / factor - center)
    y = 1 - np.abs(np.arange(shape[2]) / factor - center)
    return np.broadcast_to(np.multiply.outer(y, x), shape).astype(np.float32)
