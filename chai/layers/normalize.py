"""Normalize: x / sqrt(sum of squares + eps), times a trained scale (SSD)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..fixed import Format
from ..graph import Layer
from ..graph.params import Filler, nested, within
from ..util.lazy_numpy import np


class Normalize(Layer):
    """The squares are summed over channels, and over pixels too if across_spatial."""

    @dataclass(frozen=True)
    class Params:
        """across_spatial: one norm per image instead of one per pixel; channel_shared: one scale for all channels."""

        across_spatial: bool = True
        scale_filler: Filler | None = nested(Filler)
        channel_shared: bool = True
        eps: float = within(0, 1e30, 1e-10)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if len(bottoms[0]) < 2:
            raise self.wrong(f"expected a blob with channels, found {show(bottoms[0])}")
        return bottoms

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        # Caffe stores a shared scale as a blob without axes
        return ((),) if self.params.channel_shared else ((bottoms[0][1],),)

    def fillers(self) -> tuple[Filler | None, ...]:
        return (self.params.scale_filler or Filler(value=1.0),)

    other: Callable[[Array, Array, Format, Format], Array] | None = None  # what is computed from codes to codes

    def beside(self, functions: Mapping[str, Callable[..., Array]]) -> Normalize:
        if "Normalize" not in functions or self.params.across_spatial:
            return self
        own = copy(self)
        own.other = functions["Normalize"]
        return own

    def takes_codes(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.other is not None

    def on_codes(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> Callable[..., tuple[Array, ...]]:
        stated, other = None if self.precision is None else self.precision.side("in"), self.other
        assert other is not None
        source, target = formats[self.bottoms[0]] if stated is None else Format(*stated), formats[self.tops[0]]
        return lambda codes: (other(codes, self.blobs[0].reshape(-1), source, target),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        axes = tuple(range(1, x.ndim)) if self.params.across_spatial else (1,)
        norm = np.sqrt((x * x).sum(axes, keepdims=True) + np.float32(self.params.eps))
        return (x / norm * self.blobs[0].reshape(-1, *(1,) * (x.ndim - 2)),)
