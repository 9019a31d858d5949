"""Convolutions.

Convolution: y[m] = b[m] + sum over c, i, j of w[m, c, i, j] * x[c, s*h + d*i - p, s*w + d*j - p].
ConvolutionDepthwise: a Convolution that multiplies each channel with weights of its own.
DepthwiseConvolution: a Convolution with one group per channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .. import kernels
from ..blob import Array, Shape, count
from ..graph import Arithmetic
from ..kernels.convolution import conv2d
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import Filtering, Window
from ..util.lazy_numpy import np
from ._fitting import smaller
from ._window import WindowLayer

if TYPE_CHECKING:
    from ..tasks.conv import Conv
from dataclasses import replace
from typing import Any


class Convolution(WindowLayer):
    """Sizes round down; ``group`` splits channels and outputs alike; padding is zero."""

    can_clamp = can_bend = True
    weighted = True
    new_tops = True
    rectifies = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.check(bottoms)
        window = self.window
        return tuple((n, self.params.num_output, *self.places(window, tuple(size))) for n, _, *size in bottoms)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        m = self.params.num_output
        weights = (m, bottoms[0][1] // self.params.group, *self.kernel)
        return (weights, (m,)) if self.params.bias_term else (weights,)

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        per_output = count(self.weight_shapes(*bottoms)[0][1:])
        return sum(count(top) for top in tops) * per_output

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms) != 1:
            return "more than one bottom"
        reason = self.refused(overlay, self.window, bottoms[0])
        return reason and (None if smaller(self, overlay, bottoms[0]) else reason)

    def lower(self, target: Arithmetic) -> list[Task]:
        bias = self.blobs[1] if self.params.bias_term else None
        task = target.conv(self, self.evened(self.blobs[0]), bias, self.window, self.params.group)
        bottom = target.shapes[self.bottoms[0]]
        whole = self.refused(target.overlay, self.window, bottom, whole=True) is None
        pieces = None if whole else smaller(self, target.overlay, bottom)
        return pieces(self, target, cast("Conv", task)) if pieces else [task]

    @property
    def convolution(self) -> tuple[Window, int] | None:
        return self.window, self.params.group

    @property
    def bias_blob(self) -> int | None:
        return 1 if self.params.bias_term else None

    def multiplies_channels(self, bottom: Shape) -> bool:
        return len(self.bottoms) == 1

    def rescaled(self, into: Array | None, out: Array | None) -> list[Array]:
        if into is None and out is None:
            return self.blobs
        weights, bias = self.blobs[0].astype(np.float64), self.blobs[1:]
        if into is not None:
            each = np.repeat(into.reshape(self.params.group, -1), len(weights) // self.params.group, 0)
            weights = weights * each[:, :, None, None]
        if out is not None:
            weights = weights / out[:, None, None, None]
            bias = [(b / out).astype(np.float32) for b in bias]
        return [weights.astype(np.float32), *bias]

    def forward(self, *bottoms: Array, rectified: bool = False) -> tuple[Array, ...]:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        filtering = Filtering(self.window, self.params.group, rectified)
        return tuple([conv2d(x, weights, bias, filtering) for x in bottoms])

    def rectified(self, *bottoms: Array) -> tuple[Array, ...]:
        return self.forward(*bottoms, rectified=True)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        if len(bottoms) > 1 or weights is not self.blobs[0]:
            return None
        return kernels.floats.convolution(
            bottoms[0], weights, bias, Filtering(self.window, self.params.group, rectified)
        )


class ConvolutionDepthwise(Convolution):
    """Has as many outputs as channels, and as many groups, whatever ``group`` is; other parameters are Convolution's.

    The fork takes the channels for ``num_output`` without a word; OpenCV refuses another number, as here.
    """

    fork = "farmingyard/caffe-mobilenet"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params = replace(self.params, group=max(self.params.num_output, 1))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        tops = super().shapes(*bottoms)
        if bottoms[0][1] != self.params.num_output:
            what = f"num_output {self.params.num_output} for {bottoms[0][1]} channels"
            raise self.wrong(f"{what}: both are the same here")
        return tops


class DepthwiseConvolution(Convolution):
    """Type of forks that have a faster kernel for it; parameters and results are Convolution's."""

    fork = "yonghenglh6/DepthwiseConvolution"
