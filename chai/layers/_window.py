"""Base of convolution and deconvolution: parameters, the window they describe, and asymmetric padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape, count, show
from ..graph import Layer
from ..graph.params import Filler, MessageFields, margin, nested, size, within
from ..overlay import Overlay
from ..overlay.weights import groups_to_join, is_depthwise
from ..tasks.tiling import beyond_ring, beyond_strips
from ..tasks.window import Window
from ..text import number_of
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    Pair = tuple[int, int]


JOINED = 64 << 20  # bytes of joined weights; thousands of groups that have no words of their own would need gigabytes
FEW = 8  # zeros that may be added to any kernel; larger kernels may get as many as they have rows, which bounds the weights


def sides(layer: Layer, pad: Pair) -> tuple[Pair, Pair]:
    """Return the paddings (top, left) and (bottom, right): pad_t etc. if the layer has them, else ``pad`` twice."""
    p = layer.params
    pads = (p.pad_t, p.pad_l), (p.pad_b, p.pad_r)
    if pads == ((0, 0), (0, 0)):
        return pad, pad
    if any(pad):
        raise layer.wrong("pad and pad_t / pad_b / pad_l / pad_r are both given")
    return pads


def conv_refused(
    layer: Layer, overlay: Overlay, window: Window, outputs: Pair, bottom: Shape, whole: bool = False
) -> str | None:
    """Return why the overlay cannot run a convolution over a blob of this shape as a part of a layer; None if it can.

    ``outputs`` are its output channels and groups. ``whole``: in whole rows, not in strips.
    """
    channels, group = outputs
    shape = channels, bottom[1] // group, *window.kernel
    joined = groups_to_join(shape, group, overlay)
    if joined > 1 and joined * count(shape) > JOINED:
        return f"{group} groups share words of channels; joined, their weights take more than {JOINED:,} bytes"
    weights = shape[0], shape[1] * joined, *window.kernel
    fits = beyond_ring if whole else beyond_strips
    return fits(overlay, window, weights, group // joined, bottom) or layer.beyond(
        overlay,
        "conv",
        kernel=max(window.kernel),
        stride=max(window.stride),
        pad=max(window.pad),
        dilation=max(window.dilation),
        group=group,
        depthwise=is_depthwise(shape, group),
        **layer.bends,
        size=max(*bottom[2:], *window.sizes(bottom[2:])),
        channels=max(bottom[1], channels),
    )


class WindowLayer(Layer):
    """Reads the window; the subclass defines the order of the weights' axes.

    An asymmetric padding becomes a symmetric one with a larger kernel: rows and columns of zeros (``_zeros``) are added to
    the kernel on the side with less padding. So an overlay, which pads symmetrically, can run these layers too.
    """

    message = "convolution_param"
    bottoms_allowed: tuple[int, int | None] = (1, None)
    tops_allowed: tuple[int, int | None] = (1, None)

    class Params(MessageFields):
        """kernel_size, stride, pad and dilation take one value or (h, w), as alternatives to kernel_h, kernel_w ...

        pad_l, pad_r, pad_t and pad_b are the Synopsys fork's padding for each side.
        """

        num_output: int = within(0, 2**31 - 1, 0)
        bias_term: bool = True
        pad: tuple[int, ...] = margin(())
        kernel_size: tuple[int, ...] = size(())
        stride: tuple[int, ...] = size(())
        dilation: tuple[int, ...] = size(())
        pad_h: int | None = margin()
        pad_w: int | None = margin()
        pad_l: int = margin(0)
        pad_r: int = margin(0)
        pad_t: int = margin(0)
        pad_b: int = margin(0)
        kernel_h: int | None = size()
        kernel_w: int | None = size()
        stride_h: int | None = size()
        stride_w: int | None = size()
        group: int = size(1)
        weight_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)
        axis: int = within(-32, 31, 1)

    _measured: tuple[Any, Window, tuple[Pair, Pair]] | None = None  # window and zeros of these parameters

    @property
    def window(self) -> Window:
        """Return the window of this layer. Raises ShapeError if a size is given twice, only in part or not at all."""
        return self._geometry[0]

    @property
    def _geometry(self) -> tuple[Window, tuple[Pair, Pair]]:
        """Return the window, and the zeros (before, after) to add to the trained kernel's rows, and to its columns."""
        if self._measured is None or self._measured[0] is not self.params:
            (h, w), zeros, (before, after) = self.kernel, self._zeros(), self._sides
            pad = max(before[0], after[0]), max(before[1], after[1])
            kernel = h + sum(zeros[0]), w + sum(zeros[1])
            window = Window(kernel, self.pair("stride", 1), pad, self.pair("dilation", 1))
            self._measured = self.params, window, zeros
        return self._measured[1:]

    @property
    def kernel(self) -> Pair:
        """Return height and width of the trained kernel."""
        return self.pair("kernel", None)

    @property
    def _sides(self) -> tuple[Pair, Pair]:
        return sides(self, self.pair("pad", 0))

    def _zeros(self) -> tuple[Pair, Pair]:
        zeros = []
        for before, after, kernel, dilation in zip(*self._sides, self.kernel, self.pair("dilation", 1)):
            more, most, pads = after - before, max(kernel, FEW) * dilation, f"paddings of {before} and {after}"
            if more % dilation:
                raise self.wrong(f"{pads} with dilation {dilation}; they may differ by a multiple of it")
            if abs(more) > most:
                raise self.wrong(f"{pads}; they may differ by {most} at most")
            zeros.append((max(more, 0) // dilation, max(-more, 0) // dilation))
        return zeros[0], zeros[1]

    def evened(self, weights: Array) -> Array:
        """Return trained weights with zeros added, as the kernel of ``window``."""
        zeros = self._geometry[1]
        return weights if zeros == ((0, 0), (0, 0)) else np.pad(weights, ((0, 0), (0, 0), *zeros))

    def pair(self, what: str, default: Any) -> Pair:
        """Return height and width of the kernel, stride, pad or dilation. Raises ShapeError if it is not one or two values."""
        name = "kernel_size" if what == "kernel" else what
        values, h, w = getattr(self.params, name), *(getattr(self.params, f"{what}_{axis}", None) for axis in "hw")
        if h is None and w is None:
            if len(values) > 2:
                raise self.wrong(f"{name} has {number_of(len(values), 'value')}; only 2 spatial axes are supported")
            h, w = (values[0], values[-1]) if values else (default, default)
            if h is None:
                raise self.wrong("kernel_size is missing", hint="kernel_size: 3, or kernel_h: 3 kernel_w: 1")
        elif values:
            raise self.wrong(f"{name} and {what}_h / {what}_w are both given")
        elif default is None and None in (h, w):
            present, other = ("h", "w") if w is None else ("w", "h")
            raise self.wrong(f"{what}_{present} is given without {what}_{other}")
        return (default if h is None else h), (default if w is None else w)

    def check(self, bottoms: tuple[Shape, ...]) -> None:
        """Check the rules common to convolution and deconvolution. Raises ShapeError."""
        p = self.params
        if len(bottoms) != len(self.tops):
            raise self.wrong(
                f"{number_of(len(bottoms), 'bottom')} but {number_of(len(self.tops), 'top')}; each bottom has its top"
            )
        if p.num_output < 1:
            raise self.wrong("num_output is missing")
        self.check_axis()
        channels = {self.spatial(b)[1] for b in bottoms}
        if len(channels) > 1:
            raise self.wrong(f"bottoms with different numbers of channels: {sorted(channels)}")
        for what, number in (("channels", channels.pop()), ("num_output", p.num_output)):
            if number % p.group:
                raise self.wrong(f"{what} {number} cannot be divided into {p.group} groups")

    def refused(self, overlay: Overlay, window: Window, bottom: Shape, whole: bool = False) -> str | None:
        """Return why the overlay cannot run a convolution with this window over a blob of this shape; None if it can.

        ``whole``: in whole rows, not in strips.
        """
        return conv_refused(self, overlay, window, (self.params.num_output, self.params.group), bottom, whole)

    def check_axis(self) -> None:
        """Check that channels are axis 1. Raises ShapeError."""
        if self.params.axis not in (1, -3):
            raise self.wrong(f"axis {self.params.axis}: only the channel axis 1 is supported")

    def places(self, window: Window, size: tuple[int, ...]) -> Pair:
        """Return the numbers of window positions in an image (height, width), down and across. Raises ShapeError if 0."""
        positions = window.sizes(size)
        if min(positions) < 1:
            kernel = f"kernel {show(window.kernel)} (dilation {show(window.dilation)})"
            raise self.wrong(f"{kernel} is larger than the padded input {show(size)}")
        return positions
