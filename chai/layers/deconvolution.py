"""Deconvolution: transposed convolution; every input pixel adds its multiple of the kernel to the output."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from .. import tasks
from ..blob import Array, Shape, count, show
from ..graph import Arithmetic
from ..kernels.convolution import deconv2d
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from ._pick import writing
from ._squares import Squares
from ._window import WindowLayer
from .repeat import upsample_refused

if TYPE_CHECKING:
    from ..tasks.conv import Conv

    Pair = tuple[int, int]


class Deconvolution(WindowLayer):
    """Output size: stride * (size - 1) + dilation * (kernel - 1) + 1 - 2 * pad.

    An overlay convolves the bottom, in which a stride has put zeros between pixels, with the kernel turned around. Where it can
    interleave maps, it convolves the bottom itself for each ``Phase``, without these zeros: the same codes.
    """

    new_tops = can_clamp = can_bend = True

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
        if self._phases(overlay, bottom):
            return None
        spread = (*bottom[:2], bottom[2] * stride[0], bottom[3] * stride[1])
        reason = None if stride == (1, 1) else upsample_refused(self, overlay, bottom, stride)
        return reason or self.refused(overlay, window, spread)

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

    def _squares(self, overlay: Overlay) -> Squares:
        return Squares(self, overlay, self.params.num_output, self.window.stride)

    def _phases(self, overlay: Overlay, bottom: Shape) -> list[Phase]:
        """Return the phases of which an overlay interleaves the maps; [] if it does not, or if they differ in size."""
        (_, _, *out), stride, dilation = self.shapes(bottom)[0], self.window.stride, self.window.dilation
        squares = self._squares(overlay)
        uneven = any(size % step for size, step in zip(out, stride))
        if stride == (1, 1) or dilation != (1, 1) or uneven or squares.refused(self, overlay, bottom):
            return []
        sizes = [(size, new // step) for size, new, step in zip(bottom[2:], out, stride)]
        axes = [*zip(stride, self.window.kernel, self._turned.pad, sizes)]
        each = [Phase(*(phase_along(at, *axis) for at, axis in zip(place, axes))) for place in squares.places()]
        return [] if any(self.refused(overlay, phase.window, bottom) for phase in each) else each

    def lower(self, target: Arithmetic) -> list[Task]:
        bottom, stride = self.bottoms[0], self.window.stride
        shape = target.shapes[bottom]
        if each := self._phases(target.overlay, shape):
            return self._interleaved(target, each)
        if stride == (1, 1):
            return [self._convolution(target, bottom)]
        spread = (*shape[:2], shape[2] * stride[0], shape[3] * stride[1])
        name = target.blob_between(self.tops[0], "spread", spread, target.formats[bottom])
        return [target.upsample(self, name, stride, spread=True), self._convolution(target, name)]

    def _interleaved(self, target: Arithmetic, each: Sequence[Phase]) -> list[Task]:
        """Return a convolution for each phase, or one for all if their windows are equal, and what interleaves their maps."""
        top, squares, stride = self.tops[0], self._squares(target.overlay), self.window.stride
        n, _, height, width = target.shapes[top]
        size, format = (height // stride[0], width // stride[1]), target.formats[top]
        parts = target.blob_between(top, "parts", (n, squares.total, *size), format)
        whole = cast("Conv", self._convolution(target, self.bottoms[0]))
        work = [phase.of(whole) for phase in each]
        fits = self.beyond(target.overlay, "conv", channels=squares.total) is None
        if len({task.merge_key() for task in work}) == 1 and whole.group == 1 and fits:
            gaps = [squares.apart - squares.channels] * (len(work) - 1) + [0]
            joint = replace(type(whole).merged(work, gaps, parts), origin=self.origin)
            return [joint, *squares.interleave(self, target, parts)]
        copies = []
        for i, task in enumerate(work):
            name = target.blob_between(top, f"part {i}", (n, squares.channels, *size), format)
            work[i] = replace(task, output=name)
            copies.append(target.copy(writing(self, parts), name, i * squares.apart))
        return [*work, *copies, *squares.interleave(self, target, parts)]

    def _convolution(self, target: Arithmetic, bottom: str) -> Task:
        """Return the convolution of a blob: of the bottom, or of that with zeros between its pixels."""
        window, group, shape = self._turned, self.params.group, target.shapes[self.bottoms[0]]
        layer = copy(self)
        layer.bottoms = (bottom,)
        each = self.evened(self.blobs[0])  # (C, M / group, kh, kw)
        c, m, *kernel = each.shape
        turned = each.reshape(group, c // group, m, *kernel)[..., ::-1, ::-1].swapaxes(1, 2)
        zeros = [(0, new - old) for new, old in zip(window.kernel, kernel)]
        weights = np.pad(turned.reshape(group * m, c // group, *kernel), ((0, 0), (0, 0), *zeros))
        bias = self.blobs[1] if self.params.bias_term else None
        task = target.conv(layer, weights, bias, window, group)
        top = target.shapes[self.tops[0]]
        own = self.macs((shape,), (top,)) // (top[0] * top[2] * top[3])  # of a pixel, without products with zeros
        return replace(task, zero_weights=max(0, weights.size - own))

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        return tuple(deconv2d(x, weights, bias, self.window, self.params.group) for x in bottoms)


class Axis(NamedTuple):
    """A phase along one axis: ``taps`` of the whole kernel are at ``places`` of its own.

    Its own kernel has ``length`` taps, others than these are 0, and ``pad``: a window has the same padding on both sides.
    """

    taps: slice
    places: slice
    length: int
    pad: int


class Phase(NamedTuple):
    """The convolution of the bottom that computes the pixels of the top at a row and a column of each square of its stride.

    The stride puts zeros between the bottom's pixels, so a pixel of the top sees the kernel's taps at every stride-th place
    only. Which of them follows from its row and column modulo the stride.
    """

    rows: Axis
    columns: Axis

    @property
    def window(self) -> Window:
        return Window((self.rows.length, self.columns.length), (1, 1), (self.rows.pad, self.columns.pad))

    def of(self, task: Conv) -> Conv:
        """Return the convolution of this phase; ``task`` is that of the bottom with zeros between its pixels."""
        whole = np.asarray(task.weights)
        weights = np.zeros((*whole.shape[:2], self.rows.length, self.columns.length), whole.dtype)
        taps = whole[:, :, self.rows.taps, self.columns.taps]
        weights[:, :, self.rows.places, self.columns.places] = taps
        # a bias holds minus the zero point times the weights
        bias = task.bias + task.zero * (whole.sum((1, 2, 3), np.int64) - weights.sum((1, 2, 3), np.int64))
        return replace(task, weights=weights, bias=bias, window=self.window, zero_weights=weights.size - taps.size)


def phase_along(phase: int, stride: int, taps: int, pad: int, sizes: Pair) -> Axis:
    """Return a phase along an axis of a convolution with ``taps`` and ``pad`` of a bottom with zeros between its pixels.

    ``sizes`` are those of the bottom and of the phase's part of the top.
    """
    first = (pad - phase) % stride
    count = max(0, ceil_div(taps - first, stride))
    offset = (phase + first - pad) // stride if count else 0  # of the pixel that the first tap sees, from the top's
    more = sizes[0] - sizes[1] + 1  # taps of a window without padding
    own = max(0, -offset, ceil_div(1 - more, 2), offset + count - more)  # the least padding for all taps
    return Axis(slice(first, taps, stride), slice(offset + own, offset + own + count), more + 2 * own, own)
