"""Attach a head: the layer that makes boxes of a detector's outputs becomes the network's last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ..blob import Shape, show
from ..errors import UsageError
from ..graph import Graph
from ..layers import find
from ..passes.infer_shapes import infer_shapes
from ..util.suggest import did_you_mean
from .head import Head, head_of

STRIDES = 8, 16, 32  # of blobs that have all maps, unless others are named
BOXES = "detections"  # name of the layer and its top


_Fit = tuple[str, tuple[str, ...], dict[str, Any]]  # a layer type, its bottoms in order and its parameters


def with_head(
    graph: Graph, asked: Mapping[str, Any] | str | None, card: Head | None, sizes: Mapping[str, Shape]
) -> Graph:
    """Return a network with the head that is ``asked`` for, else its card's, if there is one.

    Its boxes are an output in place of what it reads. A threshold alone is for the head of a card. ``sizes`` are shapes of
    inputs in place of the file's. Raises UsageError if it is no head or does not fit the outputs.
    """
    alone = isinstance(asked, Mapping) and asked.keys() <= {"threshold"}
    head = card if asked is None or (alone and card is None) else head_of(asked, card)
    return graph if head is None else _attached(graph, head, {blob: tuple(shape) for blob, shape in sizes.items()})


def _attached(graph: Graph, head: Head, sizes: Mapping[str, Shape]) -> Graph:
    shapes = infer_shapes(graph, sizes, partial=True)
    unknown = [name for name in head.outputs if name not in graph.outputs]
    if unknown:
        message = f"detect: {graph.path} has no output {unknown[0]!r}"
        raise UsageError(message, hint=did_you_mean(unknown[0], graph.outputs))
    names = head.outputs or graph.outputs
    known = {name: shapes[graph.latest[name]] for name in names if graph.latest[name] in shapes}
    pictures = [shapes[blob] for blob in graph.inputs if len(shapes.get(blob, ())) == 4]
    size = (pictures[0][2], pictures[0][3]) if len(pictures) == 1 else None
    type, bottoms, own = _HeadFitting(graph, head, size, known).fit()
    cls = find(type)
    assert cls is not None
    iou = head.family.iou if head.iou is None else head.iou
    common = {"confidence_threshold": head.threshold, "nms_threshold": iou}
    params = cls.Params(**own, **common, multi_label=head.multi_label)
    top = BOXES
    while top in graph.latest or top in graph.by_name:
        top += "_"
    layer = cls(top, tuple([graph.latest[name] for name in bottoms]), (top,), params)
    outputs = [name for name in graph.outputs if name not in bottoms]
    return replace(graph, layers=[*graph.layers, layer], outputs=[*outputs, top], latest={**graph.latest, top: top})


class _HeadFitting:
    """The search for the form in which outputs hold a head.

    ``size`` has height and width of the only input that is a picture; None if there are several, or if it is unknown.
    """

    def __init__(self, graph: Graph, head: Head, size: tuple[int, int] | None, shapes: Mapping[str, Shape]) -> None:
        self.graph, self.head, self.size, self.shapes = graph, head, size, shapes
        self.listed = ", ".join(f"{name} ({show(shape)})" for name, shape in shapes.items()) or "none of known size"

    def fit(self) -> _Fit:
        """Return the layer that reads the outputs. Raises UsageError if there is none."""
        flat = [name for name, shape in self.shapes.items() if len(shape) == 3]
        ranks = (4, 5) if self.head.family.anchored else (4,)
        maps = [name for name, shape in self.shapes.items() if len(shape) in ranks]
        if flat and self.size is None:
            raise self._wrong("the size of the input is unknown", "--shape BLOB=1x3xHxW")
        if flat:
            joined = None if self.head.family.anchored else self._joined(flat)
            return joined or self._decoded(flat)
        if not maps:
            raise self._wrong("they are no maps, and no boxes", "outputs = [...] names those that are read")
        return self._anchors(maps) if self.head.family.anchored else self._distances(maps)

    def _wrong(self, why: str, hint: str | None = None) -> UsageError:
        what = f"{self.head.head} does not fit the outputs of {self.graph.path}, {self.listed}"
        return UsageError(f"detect: {what}: {why}", hint=hint)

    def _cells(self) -> int:
        """Return the cells of all maps, for blobs that have them side by side."""
        assert self.size is not None
        height, width = self.size
        return sum(-(-height // stride) * -(-width // stride) for stride in self.head.strides or STRIDES)

    def _decoded(self, names: Sequence[str]) -> _Fit:
        """Return the layer for boxes that are decoded: centre, size, objectness if there is any, and classes of each."""
        if len(names) != 1:
            raise self._wrong("expected one with boxes", "outputs = [...] names it")
        objectness = self.head.family.anchored
        (name,), cells, first = names, self._cells(), 4 + objectness
        _, rows, columns = self.shapes[name]
        last = objectness
        if rows % cells != 0 or columns % cells != 0:  # else both may be boxes: the family's usual order
            last = rows % cells == 0
        boxes, channels = (rows, columns) if last else (columns, rows)
        strides = list(self.head.strides or STRIDES)
        if boxes % cells or (not objectness and boxes != cells):
            raise self._wrong(f"expected boxes for {cells} cells of strides {strides}", "strides = [...] names others")
        if channels <= first or self.head.classes not in (None, channels - first):
            expected = "some" if self.head.classes is None else self.head.classes
            raise self._wrong(f"{channels} numbers of a box; expected {first} and {expected} classes")
        assert self.size is not None
        height, width = self.size
        params = {"height": height, "width": width, "objectness": objectness, "channels_last": last}
        return ("DecodedDetectionOutput", (name,), params)

    def _joined(self, names: Sequence[str]) -> _Fit | None:
        """Return the layer for distances and logits of the cells of all maps; None if they are boxes."""
        assert self.size is not None
        bins, channels = 4 * self.head.reg_max, [self.shapes[name][1] for name in names]
        (height, width), strides = self.size, self.head.strides or STRIDES
        params = {"reg_max": self.head.reg_max, "stride": strides, "height": height, "width": width}
        if len(names) == 2 and bins in channels:
            order = names if channels[0] == bins else names[::-1]
            return ("AnchorFreeDetectionOutput", tuple(order), params)
        if len(names) == 1 and self.head.classes is not None and channels[0] == bins + self.head.classes:
            return ("AnchorFreeDetectionOutput", tuple(names), params)
        return None

    def _fine_first(self, names: Sequence[str]) -> list[str]:
        return sorted(names, key=lambda name: -self.shapes[name][2] * self.shapes[name][3])

    def _distances(self, names: Sequence[str]) -> _Fit:
        ordered = self._fine_first(names)
        bins, classes = 4 * self.head.reg_max, self.head.classes
        channels = {name: self.shapes[name][1] for name in ordered}
        apart = [name for name in ordered if channels[name] == bins]
        if apart and 2 * len(apart) == len(ordered):
            others = [name for name in ordered if name not in apart]
            ordered = list(chain(*zip(apart, others)))
            classes_of = {channels[name] for name in others}
        else:
            classes_of = {count - bins for count in channels.values()}
        if len(classes_of) != 1 or min(classes_of) < 1 or classes not in (None, *classes_of):
            expected = "some classes" if classes is None else f"{classes} classes"
            raise self._wrong(f"expected {bins} channels of distances and {expected} in each", "reg_max or classes = N")
        return ("AnchorFreeDetectionOutput", tuple(ordered), {"reg_max": self.head.reg_max})

    def _anchors(self, names: Sequence[str]) -> _Fit:
        head, ordered = self.head, self._fine_first(names)
        if not head.anchors:
            raise self._wrong(
                "its anchors are missing", "anchors = [[w, h, w, h, ...], ...], a list per map, the finest first"
            )
        if len(head.anchors) != len(ordered) or len({len(row) for row in head.anchors}) != 1:
            lists = [len(row) // 2 for row in head.anchors]
            raise self._wrong(
                f"{lists} anchors for {len(ordered)} maps; expected as many for each", "the finest map first"
            )
        strides = head.strides or tuple([self._stride(name) for name in ordered])
        for what, values in (("strides", strides), ("scale_xy", head.scale_xy)):
            if values and len(values) != len(ordered):
                raise self._wrong(f"{len(values)} {what} for {len(ordered)} maps")
        anchors = [
            float(x) * (stride if head.family.cells else 1) for row, stride in zip(head.anchors, strides) for x in row
        ]
        params = {
            "anchor": tuple(anchors),
            "stride": strides,
            "scale_x_y": head.scale_xy or (head.family.scale,) * len(ordered),
            "size": "SQUARE" if head.family.square else "EXPONENT",
            "score": "SOFTMAX" if head.family.softmax else "SIGMOID",
        }
        count = len(head.anchors[0]) // 2
        for name in ordered:
            shape = self.shapes[name]
            channels = shape[4] if len(shape) == 5 else shape[1] / count
            if (len(shape) == 5 and shape[1] != count) or channels % 1 or channels <= 5:
                raise self._wrong(f"{name} is no map of {count} anchors")
            if head.classes not in (None, channels - 5):
                raise self._wrong(f"{name} has {channels - 5:g} classes; expected {head.classes}")
        return ("AnchoredDetectionOutput", tuple(ordered), params)

    def _stride(self, name: str) -> int:
        if self.size is None:
            raise self._wrong("the size of the input is unknown", "strides = [...] or --shape BLOB=1x3xHxW")
        grid = self.shapes[name][2:4]
        stride = self.size[0] // max(1, grid[0])
        if stride < 1 or tuple(-(-side // stride) for side in self.size) != grid:
            raise self._wrong(
                f"{name} has no whole stride for an input of {self.size[0]}x{self.size[1]}", "strides = [...]"
            )
        return stride
