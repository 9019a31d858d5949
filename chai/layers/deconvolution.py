"""Deconvolution: transposed convolution; every input pixel adds its multiple of the kernel to the output."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from .. import tasks
from ..blob import Array, Shape, count, show
from ..graph import Arithmetic
from ..kernels.convolution import deconv2d
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.upsample import too_many_rows
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ._window import WindowLayer


class Deconvolution(WindowLayer):
    """Output size: stride * (size - 1) + dilation * (kernel - 1) + 1 - 2 * pad.

    An overlay convolves the bottom, in which a stride has put zeros between pixels, with the kernel turned around.
    """

    new_tops = True
    can_clamp = can_bend = True

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

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms) != 1:
            return "more than one bottom"
        stride, window, bottom = self.window.stride, self._turned, bottoms[0]
        if tasks.find("upsample").limits(overlay) is None:
            return self.without_unit
        if min(window.pad) < 0:
            return f"padding {show(self.window.pad)} crops more than the kernel adds"
        if any((s - 1) % d for s, d in zip(stride, window.dilation)):
            return f"stride {show(stride)} with dilation {show(window.dilation)}"
        if stride != (1, 1):
            spread = (*bottom[:2], bottom[2] * stride[0], bottom[3] * stride[1])
            sizes = {"factor": max(stride), "size": max(spread[2:]), "channels": bottom[1]}
            reason = self.beyond(overlay, "upsample", **sizes) or too_many_rows(overlay, bottom[1], bottom[2])
            if reason:
                return reason
            bottom = spread
        return self.refused(overlay, window, bottom)

    @property
    def _turned(self) -> Window:
        """Return the window of the convolution with stride 1 that computes it.

        After an upsample there are zeros after the last pixel, too, which as many zeros at the kernel's end leave out.
        """
        window = self.window
        more = [(s - 1) // d for s, d in zip(window.stride, window.dilation)]
        kernel = window.kernel[0] + more[0], window.kernel[1] + more[1]
        pad = window.extent(0) - 1 - window.pad[0], window.extent(1) - 1 - window.pad[1]
        return Window(kernel, (1, 1), pad, window.dilation)

    def lower(self, target: Arithmetic) -> list[Task]:
        bottom, window, group = self.bottoms[0], self._turned, self.params.group
        shape, stride = target.shapes[bottom], self.window.stride
        work: list[Task] = []
        layer = copy(self)
        if stride != (1, 1):
            spread = (*shape[:2], shape[2] * stride[0], shape[3] * stride[1])
            name = target.blob_between(self.tops[0], "spread", spread, target.formats[bottom])
            work.append(target.upsample(self, name, stride, spread=True))
            layer.bottoms = (name,)
        each = self.evened(self.blobs[0])  # (C, M / group, kh, kw)
        c, m, *kernel = each.shape
        turned = each.reshape(group, c // group, m, *kernel)[..., ::-1, ::-1].swapaxes(1, 2)
        zeros = [(0, new - old) for new, old in zip(window.kernel, kernel)]
        weights = np.pad(turned.reshape(group * m, c // group, *kernel), ((0, 0), (0, 0), *zeros))
        bias = self.blobs[1] if self.params.bias_term else None
        task = target.conv(layer, weights, bias, window, group)
        top = target.shapes[self.tops[0]]
        own = self.macs((shape,), (top,)) // (top[0] * top[2] * top[3])  # of a pixel, without products with zeros
        work.append(replace(task, zero_weights=max(0, weights.size - own)))
        return work

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        return tuple(deconv2d(x, weights, bias, self.window, self.params.group) for x in bottoms)
