"""join_argmax: make one layer of a Deconvolution and the ArgMax of its scores, as CHaiDNN-v2's unit runs them.

A Crop may be between them.
"""

from __future__ import annotations

from dataclasses import replace

from ..blob import Array, Shape
from ..graph import Arithmetic, Graph, Layer
from ..layers.borders import Crop
from ..layers.deconvolution import Deconvolution
from ..layers.reduction import ArgMax
from ..overlay import Overlay
from ..tasks import Task, find

STRIDES = 2, 4, 8, 16, 32  # of the unit: a shift finds a pixel's place


class BestClass(Deconvolution):
    """A Deconvolution, whose scores an ArgMax reads; a second bottom has the size that a Crop leaves of them."""

    can_clamp = can_bend = False
    indices = True

    def __init__(self, scores: Deconvolution, crop: Crop | None, argmax: ArgMax) -> None:
        layers: list[Layer] = [layer for layer in (scores, crop, argmax) if layer is not None]
        bottoms = scores.bottoms if crop is None else (*scores.bottoms, crop.bottoms[1])
        super().__init__(scores.name, bottoms, argmax.tops, scores.params, scores.blobs, scores.type)
        self.crop, self.argmax, self._parts = crop, argmax, layers
        self.precision, self.place, self.turn, self.shares = scores.precision, scores.place, scores.turn, scores.shares
        self.origin = tuple(name for layer in layers for name in layer.origin)

    @property
    def decision(self) -> str | None:
        return self.argmax.decision

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        scores = super().shapes(bottoms[0])
        return self.argmax.shapes(*(scores if self.crop is None else self.crop.shapes(*scores, bottoms[1])))

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        return super().macs(bottoms[:1], tops)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        (scores,) = super().forward(bottoms[0])
        return self.argmax.forward(*(self.crop.forward(scores, bottoms[1]) if self.crop is not None else (scores,)))

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if find("argmax", overlay.arithmetic).limits(overlay) is None:
            return self.without_unit
        (_, channels, *size), (k, stride, pad, dilation) = bottoms[0], self.window
        p, (_, classes, *out) = self.argmax.params, super().shapes(bottoms[0])[0]
        if p.axis is None or self.argmax.axis(p.axis, (0,) * 4) != 1 or p.top_k != 1 or p.out_max_val:
            return "CHaiDNN finds the one best class of each pixel: an ArgMax with axis 1"
        if not channels == classes == self.params.group:
            return f"{channels} inputs, {classes} outputs and {self.params.group} groups; CHaiDNN has one number for all three"
        if any(pad) or dilation != (1, 1) or k[0] != k[1] or stride[0] != stride[1]:
            return "CHaiDNN's Deconvolution has a square kernel, one stride, no padding and no dilation"
        if stride[0] not in STRIDES or k[0] not in (2 * stride[0], 2 * stride[0] - 1):
            return (
                f"stride {stride[0]} with a {k[0]}x{k[0]} kernel; CHaiDNN's strides are powers of two from {STRIDES[0]} to "
                f"{STRIDES[-1]}, and its kernels twice as large, or one less"
            )
        sizes = {"kernel": k[0], "input": max(size), "size": max(out), "pad": max(self._offset(bottoms))}
        return self.beyond(overlay, "argmax", channels=channels, **sizes)

    def _offset(self, bottoms: tuple[Shape, ...]) -> tuple[int, int]:
        """Return the first row and column that the Crop leaves."""
        if self.crop is None:
            return 0, 0
        rows, columns = self.crop.window(super().shapes(bottoms[0])[0], bottoms[1])[2:]
        return rows.start, columns.start

    def apart(self) -> list[Layer]:
        return self._parts

    def lower(self, target: Arithmetic) -> list[Task]:
        shapes = tuple(target.shapes[blob] for blob in self.bottoms)
        bias = self.blobs[1] if self.params.bias_term else None
        return [target.best_class(self, self.blobs[0], bias, self.window, self._offset(shapes))]


def join_argmax(graph: Graph) -> Graph:
    """Return the graph with one layer for each Deconvolution whose scores an ArgMax alone reads, or through a Crop of pixels."""
    joined: dict[str, BestClass] = {}  # by the ArgMax
    taken: set[str] = set()
    for layer in graph.layers:
        if (
            not isinstance(layer, Deconvolution)
            or len(layer.tops) != 1
            or layer.slope is not None
            or layer.ceiling is not None
        ):
            continue
        after, crop = graph.only_reader(layer.tops[0]), None
        if isinstance(after, Crop) and after.bottoms[0] == layer.tops[0] and after.params.axis == 2:
            crop = after
            after = graph.only_reader(crop.tops[0])
        if isinstance(after, ArgMax):
            joined[after.name] = BestClass(layer, crop, after)
            taken.update(part.name for part in (layer, crop) if part is not None)
    layers: list[Layer] = [joined.get(x.name, x) for x in graph.layers if x.name not in taken]
    return replace(graph, layers=layers) if joined else graph
