"""OnnxNode: what an operator's file sees of one node, and how it adds the layers that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..blob import Array, Shape, show
from ..graph.params import BlobShape
from ..text import number_of
from .constants import FLOATS, Constant, TrainedBlob
from .draft import Blobs, Draft
from .read import NodeRecord
from .refusal import Refused
from .sizes import alike, counts_images, size


class OnnxNode:
    """One node with its inputs, which are blobs or constants, and its outputs.

    An input that is left out has the name "", an output one that nothing reads.
    """

    def __init__(self, record: NodeRecord, opset: int, draft: Draft) -> None:
        self.record, self.opset, self.draft = record, opset, draft
        self.operator = record.operator
        self.attributes = record.attributes
        self.inputs = record.inputs
        self.outputs = tuple(name or draft.free(f"{record.label}/output{i}") for i, name in enumerate(record.outputs))
        self._parts = 0

    # -- inputs

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and bool(self.inputs[index])

    def input(self, index: int = 0) -> str:
        """Return the blob of an input; a constant becomes a blob, too."""
        if not self.has(index):
            raise Refused(f"input {index} is missing")
        return self.draft.live(self.inputs[index])

    def shape(self, index: int = 0) -> Shape:
        if not self.has(index):
            raise Refused(f"input {index} is missing")
        return self.draft.sizes(self.inputs[index])

    def shape_of(self, blob: str) -> Shape:
        return self.draft.sizes(blob)

    def is_constant(self, index: int) -> bool:
        return self.has(index) and self.inputs[index] in self.draft.constants

    def constant(self, index: int, what: str) -> Array:
        """Return the numbers of a constant input. Raises Refused, which calls it ``what``, if a layer computes it."""
        constant = self._constant(index, what)
        self.draft.claim(prod(constant.shape))  # of which a view may have many more than the file
        return constant.array()

    def of_image(self, index: int, images: int) -> Array | None:
        """Return what each of some images has of a constant, (1, ...); None if they have different parts."""
        stated, read = self.draft.batches
        if self.dtype(index) not in FLOATS or self.shape(index)[:1] not in ((images,), (images * stated // read,)):
            return None
        array, twofold = self.constant(index, "input"), self.draft.twofold.get(self.inputs[index])
        every = [array] if twofold is None else [array, twofold.array()]
        return array[:1] if all((each == array[:1]).all() for each in every) else None

    def number(self, index: int, what: str) -> float:
        """Return the number of a constant input. Raises Refused for none and for several."""
        array = self.constant(index, what)
        if array.size != 1:
            raise Refused(f"its {what} has {number_of(array.size, 'number')}, expected one")
        return float(array.reshape(-1)[0])

    def whole(self, index: int, what: str) -> list[int]:
        """Return the numbers of a constant input that are whole. Raises Refused for floats."""
        array = self.constant(index, what)
        if array.dtype.kind not in "iub":
            raise Refused(f"its {what} has numbers of type {array.dtype}, expected whole ones")
        twofold = self.draft.twofold.get(self.inputs[index])
        other = array if twofold is None or twofold.shape != array.shape else twofold.array()
        return [*map(size, map(int, array.reshape(-1).tolist()), map(int, other.reshape(-1).tolist()))]

    def trained(self, index: int, what: str) -> TrainedBlob:
        """Return a constant input as a trained parameter, which is read when the network gets its weights."""
        constant = self._constant(index, what)
        if constant.dtype not in FLOATS:
            raise Refused(f"its {what} has numbers of type {constant.dtype}, expected float32")
        return TrainedBlob(constant, constant.shape)

    def _constant(self, index: int, what: str) -> Constant:
        constant = self.draft.constants.get(self.inputs[index]) if self.has(index) else None
        if constant is None:
            raise Refused(f"its {what} is computed by other nodes, or fed; expected a constant in the file")
        return constant

    def dtype(self, index: int) -> str:
        constant = self.draft.constants.get(self.inputs[index]) if self.has(index) else None
        return "float32" if constant is None else constant.dtype

    def integers(self, name: str, index: int) -> list[int] | None:
        """Return whole numbers that are an attribute in older opsets and a constant input in newer ones."""
        values = self.attributes.integers(name)
        if values is not None:
            return list(values)
        return self.whole(index, name) if self.has(index) else None

    def axis(self, value: int, rank: int) -> int:
        """Return an axis counted from the first."""
        if not -rank <= value < rank:
            raise Refused(f"axis {value} is outside a blob of {number_of(rank, 'axis')}")
        return value % rank

    def only_output(self) -> None:
        """Raise Refused if more than the first output is used."""
        for name in self.outputs[1:]:
            if self.draft.used(name):
                raise Refused(f"its output {name!r} is used, which no layer computes")

    # -- layers

    def part(self, type: str, *bottoms: str, blobs: Blobs = (), **params: Any) -> str:
        """Add a layer whose top is a blob between the node's inputs and outputs, and return its name."""
        self._parts += 1
        top = self.draft.free(f"{self.outputs[0]}/{self._parts}")
        self.draft.add(f"{self.record.label}/{type}", type, bottoms, (top,), blobs, **params)
        return top

    def parts(self, count: int, type: str, bottom: str, **params: Any) -> list[str]:
        """Add a layer of several tops as ``part`` does, and return their names."""
        self._parts += 1
        tops = [self.draft.free(f"{self.outputs[0]}/{self._parts}.{i}") for i in range(count)]
        self.draft.add(f"{self.record.label}/{type}", type, (bottom,), tops, **params)
        return tops

    def result(self, type: str, *bottoms: str, blobs: Blobs = (), **params: Any) -> None:
        """Add the layer that writes the node's first output."""
        self.draft.add(self.record.label, type, bottoms, self.outputs[:1], blobs, **params)

    def whole_numbers(self, index: int) -> None:
        """Say that an output holds integers."""
        if self.record.outputs[index]:
            self.draft.whole.add(self.record.outputs[index])
            self.draft.integers.add(self.record.outputs[index])

    def constant_blob(self, array: Array) -> str:
        """Return a blob of these numbers."""
        numbers = TrainedBlob(Constant(array), array.shape)
        return self.part("Parameter", blobs=[numbers], shape=BlobShape(array.shape))

    def same(self, blob: str, index: int = 0) -> None:
        """Let an output be another name of a blob."""
        self.draft.blobs[self.outputs[index]] = blob

    def reshaped(self, blob: str, shape: Sequence[int], final: bool = True) -> str:
        """Return a blob's numbers in another shape; with ``final`` as the node's first output.

        The batch stays free: a size that depends on it is copied from the same axis, or takes what is left.
        """
        before, dims = self.shape_of(blob), [*shape]
        if not final and alike(dims, before):
            return blob
        for i in [axis for axis, own in enumerate(dims) if counts_images(own)]:
            if alike(before[i : i + 1], dims[i : i + 1]):
                dims[i] = 0
            elif -1 not in dims:
                dims[i] = -1
        self.draft.one_batch |= counts_images(dims)
        target = BlobShape(tuple(map(int, dims)))
        if not final:
            return self.part("Reshape", blob, shape=target)
        self.result("Reshape", blob, shape=target)
        return self.outputs[0]

    def for_one_batch(self, sizes: Sequence[int]) -> None:
        """Say that the layers are right for this batch alone, if one of some sizes depends on it."""
        self.draft.one_batch |= counts_images(sizes)

    def spatial(self) -> Shape:
        """Return the shape of the first input. Raises Refused unless it is (N, C, H, W)."""
        shape = self.shape()
        if len(shape) != 4:
            raise Refused(f"a blob of {number_of(len(shape), 'axis')} {show(shape)}, expected 4")
        return shape
