"""InnerProduct: y = x W' + b over all axes from ``axis``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..blob import Shape, count
from ..graph import Layer
from ..graph.params import Filler, axis_index, nested, within
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array


@dataclass(frozen=True)
class InnerProductParams:
    """With ``transpose`` the weights are stored as (K, num_output)."""

    num_output: int = within(0, 2**31 - 1, 0)
    bias_term: bool = True
    weight_filler: Filler | None = nested(Filler)
    bias_filler: Filler | None = nested(Filler)
    axis: int = axis_index(1)
    transpose: bool = False


class InnerProduct(Layer):
    """Axes before ``axis`` stay, the rest is one vector of length K; weights (num_output, K)."""

    message = "inner_product_param"
    Params = InnerProductParams

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.num_output < 1:
            raise self.wrong("num_output is missing")
        return ((*bottoms[0][: self.axis(self.params.axis, bottoms[0])], self.params.num_output),)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        m, k = self.params.num_output, count(bottoms[0][self.axis(self.params.axis, bottoms[0]) :])
        weights = (k, m) if self.params.transpose else (m, k)
        return (weights, (m,)) if self.params.bias_term else (weights,)

    def fillers(self) -> tuple[Filler | None, ...]:
        return self.params.weight_filler, self.params.bias_filler

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        return count(bottoms[0]) * int(self.params.num_output)

    def multiplies_channels(self, bottom: Shape) -> bool:
        return self.axis(self.params.axis, bottom) == 1 and not self.params.transpose

    def rescaled(self, into: Array | None, out: Array | None) -> list[Array]:
        if into is None:
            return self.blobs
        weights = self.blobs[0].reshape(len(self.blobs[0]), len(into), -1) * into[None, :, None]
        return [weights.reshape(self.blobs[0].shape).astype(np.float32), *self.blobs[1:]]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        lead = x.shape[: self.axis(self.params.axis, x.shape)]
        weights = self.blobs[0] if self.params.transpose else self.blobs[0].T
        y = np.matmul(x.reshape(count(lead), -1), weights)
        if self.params.bias_term:
            y += self.blobs[1]
        return (y.reshape(*lead, self.params.num_output),)
