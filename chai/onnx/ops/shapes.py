"""The same numbers in another shape or order."""

from __future__ import annotations

from math import prod

from ...blob import Shape
from ...text import number_of
from ..constants import FLOATS, WHOLE, type_name
from ..fold import flat_axis, reshape_target, squeezed, unsqueezed
from ..node import OnnxNode
from ..refusal import Refused
from ..sizes import alike, counts_images, plain, size, twofold
from . import operator


@operator("Identity")
def identity(node: OnnxNode) -> None:
    node.same(node.input())


@operator("Cast", "CastLike")
def cast(node: OnnxNode) -> None:
    dtype = type_name(node.attributes.integer("to", 0))
    if node.operator == "CastLike":
        dtype = node.dtype(1)
    whole = node.inputs[0] in node.draft.whole
    if dtype not in FLOATS and not (whole and dtype in WHOLE):
        raise Refused(f"a cast to {dtype}: layers compute float32")
    node.same(node.input())
    if whole and dtype in WHOLE:
        node.whole_numbers(0)
    elif whole:
        node.draft.whole.add(node.outputs[0])


@operator("Dropout")
def dropout(node: OnnxNode) -> None:
    node.only_output()
    if node.has(2) and node.constant(2, "training_mode").any():
        raise Refused("it is in training mode", hint="export the network for inference: module.eval()")
    node.same(node.input())


@operator("Reshape")
def reshape(node: OnnxNode) -> None:
    shape = node.shape()
    target = _with_images(node, shape, reshape_target(node, shape))
    others = -prod(target)
    if -1 in target and counts_images(target) and prod(shape) % others == 0:  # as B * heads, -1, size
        target = [prod(shape) // others if size == -1 else size for size in target]
    source, groups = _shuffled(node, target)
    if groups:
        node.result("ShuffleChannel", source, group=groups)
    else:
        node.reshaped(node.input(), target)


def _with_images(node: OnnxNode, shape: Shape, target: list[int]) -> list[int]:
    """Return the sizes of a Reshape; of constant ones that of the images depends on the batch.

    They are for the batch that the file states or, without -1, for that of their product; with -1 and a batch that the file
    leaves open they are for all. Images stay whole: the product of the sizes before theirs is the same as in ``shape``. If
    neither such a size nor -1 has whole images, the sizes are right for one batch alone.
    """
    (stated, read), here = node.draft.batches, plain((*shape,))
    axes = [axis for axis, length in enumerate(shape) if counts_images(length)]
    batch = stated if -1 in target else prod(target) * read // prod(here)  # that the sizes are for
    if not batch or len(axes) != 1 or counts_images(target) or prod(twofold(shape)) != 2 * prod(here):
        return target
    (images,) = axes
    before, length = prod(here[:images]), here[images] * batch // read  # of the axis of images, in that batch
    left = target.index(-1) if -1 in target else None
    sizes = [prod(here) * batch // read // -prod(target) if axis == left else n for axis, n in enumerate(target)]
    outer = [prod(sizes[:axis]) for axis in range(len(sizes))]
    for axis, n in enumerate(sizes):
        if outer[axis] == before and n in (length, batch):
            free = shape[images] if n == length else size(read, 2 * read)
            return [*target[:axis], -1 if axis == left else free, *target[axis + 1 :]]
    if left is None:  # all images in the first size that is not 1, with what follows them
        left = next((axis for axis, n in enumerate(sizes) if outer[axis] == before == 1 and n % batch == 0), None)
        return [-1 if axis == left else n for axis, n in enumerate(sizes)]
    whole = before % outer[left] == 0 and outer[left] * sizes[left] % (before * batch) == 0
    if not whole and any(n % batch == 0 for axis, n in enumerate(sizes) if axis != left):
        if read != stated:
            what = f"its sizes {target} mix {number_of(stated, 'image')}, and may be others for {read}"
            hint = f"read the network for {stated} in place of {number_of(read, 'image')}, or export it for as many as you feed"
            raise Refused(what, hint=hint)
        node.for_one_batch(shape)
    return target


def _shuffled(node: OnnxNode, target: list[int]) -> tuple[str, int]:
    """Return the blob and the groups of which (N, groups, C / groups, H, W), transposed, is a shuffle; 0 if it is none.

    The layers that were added for the nodes before are dropped if nothing else reads them.
    """
    turned = node.draft.writers.get(node.input())
    if turned is None or turned.type != "Permute" or turned.params.order != (0, 2, 1, 3, 4):
        return "", 0
    split = node.draft.writers.get(turned.bottoms[0])
    if split is None or split.type != "Reshape":
        return "", 0
    source = node.shape_of(split.bottoms[0])
    n, groups, each, h, w = node.shape_of(split.tops[0])
    whole = alike(source, (n, groups * each, h, w))
    sizes = [source[0] if size == -1 else size for size in target[:1]] + target[1:]
    known = [s if size == -1 else size for s, size in zip(source, sizes)]
    return (split.bottoms[0], groups) if whole and len(target) == 4 and alike(known, source) else ("", 0)


@operator("Flatten")
def flatten(node: OnnxNode) -> None:
    shape = node.shape()
    axis = flat_axis(node, len(shape))
    if axis == 1 and len(shape) > 1:
        node.result("Flatten", node.input())
    else:
        node.reshaped(node.input(), (prod(shape[:axis]), prod(shape[axis:])))


@operator("Squeeze")
def squeeze(node: OnnxNode) -> None:
    shape = node.shape()
    gone = squeezed(node, shape)
    kept = [length for axis, length in enumerate(shape) if axis not in gone]
    if node.integers("axes", 1) is None and counts_images(kept):
        node.result("Squeeze", node.input())  # the axis of images goes, too, if one image is fed
    elif gone:
        node.result("Squeeze", node.input(), axis=gone)
    else:
        node.same(node.input())


@operator("Unsqueeze")
def unsqueeze(node: OnnxNode) -> None:
    node.reshaped(node.input(), unsqueezed(node, node.shape()))


@operator("Transpose")
def transpose(node: OnnxNode) -> None:
    axes = range(len(node.shape()))
    order = tuple(node.attributes.integers("perm") or reversed(axes))
    if sorted(order) != [*axes]:
        raise Refused(f"perm {list(order)} does not name each of {number_of(len(axes), 'axis')} once")
    if order == tuple(axes):
        node.same(node.input())
    else:
        node.result("Permute", node.input(), order=order)


@operator("DepthToSpace")
def depth_to_space(node: OnnxNode) -> None:
    form = node.attributes.text("mode", "DCR")
    node.result("DepthToSpace", node.input(), block_size=node.attributes.integer("blocksize", 0), data_format=form)


@operator("Focus")
def focus(node: OnnxNode) -> None:
    """Put the four pixels of each square into blocks of channels, column by column: what YOLOv5 begins with."""
    shape = node.spatial() if node.attributes.integer("negative", 0) else node.shape()
    if len(shape) < 4:
        raise Refused(f"a blob of {number_of(len(shape), 'axis')}, of which the third and the fourth are cut")
    n, c, h, w, *rest = shape
    if h % 2 or w % 2:
        raise Refused(f"every second pixel of a map of {h}x{w}, of which four make no whole one")
    squares = node.reshaped(node.input(), (n, c, h // 2, 2, w // 2, 2, *rest), final=False)
    order = (0, 5, 3, 1, 2, 4, *range(6, 6 + len(rest)))
    node.reshaped(node.part("Permute", squares, order=order), (n, 4 * c, h // 2, w // 2, *rest))


@operator("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> None:
    (n, c, h, w), b = node.spatial(), node.attributes.integer("blocksize", 0)
    if b < 1 or h % b or w % b:
        raise Refused(f"blocks of {b} in a map of {h}x{w}")
    order = (0, 1, 3, 5, 2, 4) if node.attributes.text("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    squares = node.reshaped(node.input(), (n, c, h // b, b, w // b, b), final=False)
    node.reshaped(node.part("Permute", squares, order=order), (n, c * b * b, h // b, w // b))
