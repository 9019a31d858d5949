"""One number, or the places of some, of all along axes.

ArgMax: indices of the largest values.
Reduction: the sum, mean, product or extreme over all axes from ``axis``.
"""

from __future__ import annotations

from typing import Any

from ..blob import Array, Shape, count
from ..graph import Layer, OutputKind
from ..graph.params import MessageFields, axis_index, choice, size
from ..util.lazy_numpy import np


class ArgMax(Layer):
    """Indices as float32, largest value first; among equal values the highest index comes first, as in Caffe.

    With chai_first the lowest does, as in ONNX.

    With ``axis``: that axis gets length top_k and holds indices, or values if out_max_val.
    Without: (N, 1, top_k) of indices, or (N, 2, top_k) of indices and values if out_max_val.
    """

    indices = True

    class Params(MessageFields):
        """Without ``axis`` each image is searched as one vector."""

        out_max_val: bool = False
        top_k: int = size(1)
        axis: int | None = axis_index(None)
        chai_first: bool = False

    @property
    def decision(self) -> str | None:
        return None if self.params.out_max_val else "argmax"

    def output_kind(self, top: Shape) -> OutputKind | None:
        p = self.params
        if p.out_max_val or (p.axis is not None and self.axis(p.axis, top) != 1):
            return None
        return "map" if p.axis is not None and len(top) == 4 and count(top[2:]) > 1 else "scores"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, p = bottoms[0], self.params
        if not shape:
            raise self.wrong("a scalar has no axis to search")
        if p.axis is None:
            size = count(shape[1:])
            top = (shape[0], 2 if p.out_max_val else 1, p.top_k, *(1,) * (len(shape) - 3))
        else:
            along = self.axis(p.axis, shape)
            size, top = shape[along], (*shape[:along], p.top_k, *shape[along + 1 :])
        if p.top_k > size:
            raise self.wrong(f"top_k {p.top_k} of only {size} values")
        return (top,)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.params.axis is not None and self.axis(self.params.axis, bottoms[0]) == 0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, p = bottoms[0], self.params
        top = self.shapes(x.shape)[0]
        along = 1 if p.axis is None else self.axis(p.axis, x.shape)
        values = x.reshape(len(x), count(x.shape[1:])) if p.axis is None else x
        # a stable sort of the reversed axis puts the last of equal values first
        order = np.argsort(-(values if p.chai_first else np.flip(values, along)), axis=along, kind="stable")
        index = np.take(order, np.arange(p.top_k), along)
        if not p.chai_first:
            index = values.shape[along] - 1 - index
        if p.axis is None and p.out_max_val:
            best = np.take_along_axis(values, index, along)
            return (np.stack([index, best], 1).astype(np.float32).reshape(top),)
        y = np.take_along_axis(values, index, along) if p.out_max_val else index
        return (y.astype(np.float32).reshape(top),)


class Reduction(Layer):
    """coeff times the sum, sum of magnitudes, sum of squares, mean, ... over ``axis`` and all axes after it."""

    class Params(MessageFields):
        """ASUM sums magnitudes, SUMSQ squares. MAX, MIN and PROD are chai's own."""

        operation: str = choice("SUM", "ASUM", "SUMSQ", "MEAN", "MAX", "MIN", "PROD", default="SUM")
        axis: int = axis_index(0)
        coeff: float = 1.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (bottoms[0][: self.axis(self.params.axis, bottoms[0])],)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, p = bottoms[0], self.params
        x = np.abs(x) if p.operation == "ASUM" else x * x if p.operation == "SUMSQ" else x
        axes = tuple(range(self.axis(p.axis, x.shape), x.ndim))
        if p.operation in ("MAX", "MIN"):
            y = x.max(axes, initial=-np.inf) if p.operation == "MAX" else x.min(axes, initial=np.inf)
        else:
            combine: Any = {"MEAN": np.mean, "PROD": np.prod}.get(p.operation, np.sum)
            y = combine(x, axes, dtype=np.float32)
        return (np.float32(p.coeff) * y,)
