"""Deconvolution: transposed convolution; every input pixel adds its multiple of the kernel to the output."""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..kernels.convolution import deconv2d
from ._window import WindowLayer


class Deconvolution(WindowLayer):
    """Output size: stride * (size - 1) + dilation * (kernel - 1) + 1 - 2 * pad."""

    new_tops = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.check(bottoms)
        window = self.window
        tops = []
        for n, _, *size in bottoms:
            out = [window.stride[i] * (s - 1) + window.extent(i) - 2 * window.pad[i] for i, s in enumerate(size)]
            if min(out) < 1:
                raise self.wrong(f"padding {show(window.pad)} leaves nothing of the output {show(tuple(out))}")
            tops.append((n, self.params.num_output, *out))
        return tuple(tops)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        m = self.params.num_output
        weights = (bottoms[0][1], m // self.params.group, *self.kernel)
        return (weights, (m,)) if self.params.bias_term else (weights,)

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        per_input = count(self.weight_shapes(*bottoms)[0][1:])
        return sum(count(bottom) for bottom in bottoms) * per_input

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        return tuple(deconv2d(x, weights, bias, self.window, self.params.group) for x in bottoms)
