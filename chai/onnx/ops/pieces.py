"""Blobs joined, cut, padded and repeated."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Shape
from ...text import number_of
from ...util.lazy_numpy import np
from ...util.rounding import ceil_div
from ..fold import pieces, slices, taken
from ..node import OnnxNode
from ..refusal import Refused
from ..sizes import alike, counts_images
from . import operator
from .choose import check_index

FAR = 2**31 - 1  # as the end of a slice: that of the axis


@operator("Concat")
def concat(node: OnnxNode) -> None:
    axis = node.axis(node.attributes.integer("axis", 1), len(node.shape()))
    computed = [node.input(i) for i in range(len(node.inputs)) if not node.is_constant(i)]
    images = next((blob for blob in computed if axis and counts_images(node.shape_of(blob)[:1])), None)
    blobs = [_beside(node, i, images, axis) for i in range(len(node.inputs))]
    if len(blobs) == 1:
        node.same(blobs[0])
    else:
        node.result("Concat", *blobs, axis=axis)


def _beside(node: OnnxNode, index: int, images: str | None, axis: int) -> str:
    """Return an input to be joined to ``images``: a constant that all images have alike, as a class token, once for each."""
    if not node.is_constant(index):
        return node.input(index)
    one = None if images is None else node.of_image(index, node.shape_of(images)[0])
    if images is None or one is None or not _fits(one.shape, node.shape_of(images), axis):
        node.draft.one_batch |= node.draft.differs(node.inputs[index])
        return node.input(index)
    always = node.constant_blob(np.ones([1] * one.ndim, np.float32))
    return node.part("Where", always, node.constant_blob(one), cut(node, images, axis, 0, 1))


def _fits(one: Shape, images: Shape, axis: int) -> bool:
    """Return whether a constant can stand beside images along an axis: all others but the first are as long as theirs."""
    return len(one) == len(images) and all(one[i] == images[i] for i in range(1, len(one)) if i != axis)


@operator("Split")
def split(node: OnnxNode) -> None:
    shape = node.shape()
    axis = node.axis(node.attributes.integer("axis", 0), len(shape))
    sizes = pieces(node, shape[axis])
    if not all(node.record.outputs):
        raise Refused("an output without a name")
    equal = len(set(sizes)) == 1 and node.integers("split", 1) is None
    blob = node.input()
    if not equal:
        node.for_one_batch([shape[axis]])
    if len(sizes) == 1:
        node.same(blob)
    else:
        points = () if equal else tuple(int(point) for point in np.cumsum(sizes)[:-1])
        node.draft.add(node.record.label, "Slice", (blob,), node.outputs, axis=axis, slice_point=points)


@operator("Slice")
def slice_(node: OnnxNode) -> None:
    blob = node.input()
    for start, end, axis, step in zip(*slices(node, len(node.shape()))):
        size = node.shape_of(blob)[axis]
        places = taken(start, end, step, size)
        fixed = counts_images(size) and (start < 0 or end < FAR)  # images that do not depend on how many there are
        if step > 1 or (fixed and not 0 <= min(start, end) <= end <= size):
            node.for_one_batch([size])
        if step < 1 or fixed:
            blob = _picked(node, blob, places, axis)
            continue
        blob = cut(node, blob, axis, places.start, min(places.stop, size))
        if step > 1:
            blob = every(node, blob, axis, step)
    node.same(blob)


def cut(node: OnnxNode, blob: str, axis: int, first: int, last: int) -> str:
    """Return the part of a blob from ``first`` to before ``last`` along an axis. Raises Refused if that is empty."""
    size = node.shape_of(blob)[axis]
    if last <= first:
        raise Refused("a blob without numbers")
    points = tuple(point for point in (first, last) if 0 < point < size)
    if not points:
        return blob
    tops = node.parts(len(points) + 1, "Slice", blob, axis=axis, slice_point=points)
    return tops[1 if first > 0 else 0]


def every(node: OnnxNode, blob: str, axis: int, step: int) -> str:
    """Return every ``step``th part of a blob along an axis: the first of each run of so many."""
    shape = list(node.shape_of(blob))
    runs = ceil_div(shape[axis], step)
    if more := runs * step - shape[axis]:
        paddings = [0] * (2 * len(shape))
        paddings[2 * axis + 1] = more
        blob = node.part("Pad", blob, paddings=tuple(paddings))
    blob = node.reshaped(blob, [*shape[:axis], runs, step, *shape[axis + 1 :]], final=False)
    return node.reshaped(cut(node, blob, axis + 1, 0, 1), [*shape[:axis], runs, *shape[axis + 1 :]], final=False)


@operator("Gather")
def gather(node: OnnxNode) -> None:
    shape, picks = list(node.shape()), node.whole(1, "indices")
    axis = node.axis(node.attributes.integer("axis", 0), len(shape))
    if not shape or not picks:
        raise Refused("a blob without numbers")
    if min(picks) < -shape[axis] or max(picks) >= shape[axis]:
        raise Refused(f"an index outside an axis of {shape[axis]}")
    if min(picks) < 0:
        node.for_one_batch([shape[axis]])
    picks = [pick % int(shape[axis]) for pick in picks]
    if picks == list(range(picks[0], picks[0] + len(picks))) and not counts_images(shape[axis]):
        blob = cut(node, node.input(), axis, picks[0], picks[-1] + 1)
    else:
        blob = _picked(node, node.input(), picks, axis)
    top = [*shape[:axis], *node.shape(1), *shape[axis + 1 :]]
    if alike(top, node.shape_of(blob)):
        node.same(blob)
    else:
        node.reshaped(blob, top)


def _picked(node: OnnxNode, blob: str, picks: Sequence[int], axis: int) -> str:
    """Return the parts of a blob at some places of an axis, in any order. Raises Refused if there are none."""
    if not picks:
        raise Refused("a blob without numbers")
    node.draft.claim(len(picks))
    check_index(max(picks) + 1)
    rank = len(node.shape_of(blob))
    places = node.constant_blob(np.array(picks, np.float32))
    order = (axis, *(a for a in range(rank) if a != axis))
    moved = node.part("Permute", blob, order=order) if axis else blob
    rows = node.part("BatchReindex", moved, places)
    return node.part("Permute", rows, order=tuple(order.index(a) for a in range(rank))) if axis else rows


@operator("Pad")
def pad(node: OnnxNode) -> None:
    shape = node.shape()
    mode = node.attributes.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Refused(f"mode {mode!r}")
    pads = node.integers("pads", 1) or []
    axes = [node.axis(axis, len(shape)) for axis in node.integers("axes", 3) or range(len(shape))]
    value = node.number(2, "value") if node.has(2) else node.attributes.number("value", 0.0)
    if (steps := node.draft.steps.get(node.inputs[0])) is not None:  # it is a code
        value = (value - float(steps.zero[0])) * float(steps.scale[0])
    if len(pads) != 2 * len(axes):
        raise Refused(f"{number_of(len(pads), 'pad')} for {number_of(len(axes), 'axis')}")
    blob, paddings = node.input(), [0] * (2 * len(shape))
    for i, axis in enumerate(axes):
        before, after = pads[i], pads[i + len(axes)]
        if before < 0 or after < 0:
            blob = cut(node, blob, axis, max(-before, 0), node.shape_of(blob)[axis] - max(-after, 0))
        paddings[2 * axis], paddings[2 * axis + 1] = max(before, 0), max(after, 0)
    if any(paddings):
        node.result("Pad", blob, paddings=tuple(paddings), constant_values=value, chai_mode=mode.upper())
    else:
        node.same(blob)


@operator("Tile", "Expand")
def tile(node: OnnxNode) -> None:
    shape, blob = list(node.shape()), node.input()
    numbers = node.whole(1, "repeats" if node.operator == "Tile" else "shape")
    if node.operator == "Expand":
        rank = max(len(shape), len(numbers))
        shape = [1] * (rank - len(shape)) + shape
        target = [1] * (rank - len(numbers)) + numbers
        blob = node.reshaped(blob, shape, final=False)
        same = [new in (1, old) if not counts_images(new) else alike([new], [old]) for old, new in zip(shape, target)]
        repeats = [1 if kept else new if old == 1 else 0 for kept, old, new in zip(same, shape, target)]
        node.for_one_batch([size for size, count in zip(shape, repeats) if count != 1])
    else:
        repeats = numbers
    if len(repeats) != len(shape) or min(repeats, default=1) < 1:
        raise Refused(f"{node.operator} of {node.shape()} by {numbers}")
    for axis, count in enumerate(repeats):
        if count > 1 or counts_images(count):
            blob = node.part("Tile", blob, axis=axis, tiles=count)
    node.same(blob)
