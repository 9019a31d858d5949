"""infer_shapes: compute the shape of every blob from the shapes of the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..blob import Shape, show
from ..errors import ModelError, ShapeError
from ..graph import Graph, check_shape, last_readers
from ..limits import limits

Renewed = Mapping[str, tuple[Shape, ...]]  # shapes of the tops of layers, by layer


def infer_shapes(
    graph: Graph, inputs: Mapping[str, Shape] | None = None, partial: bool = False, renewed: Renewed | None = None
) -> dict[str, Shape]:
    """Return the shapes of all blob ids for inputs of the given shapes, or else of the file's.

    ``renewed`` tops have other shapes in a pass than their layer's rule says. With ``partial``, inputs of unknown shape are left
    out, and so are the blobs that depend on them. Raises ShapeError naming the layer, and ModelError for an unknown shape.
    """
    shapes: dict[str, Shape] = {}
    for blob, declared in graph.inputs.items():
        shape = (inputs or {}).get(blob, declared)
        if shape is None and partial:
            continue
        if shape is None:
            raise ModelError(
                f"{graph.path}: the file does not say the size of input {blob!r}",
                hint=f"give it: --shape {blob}=1x3x224x224, or Net(..., shapes={{{blob!r}: (1, 3, 224, 224)}})",
            )
        if graph.fixed and declared is not None and tuple(shape[1:]) != declared[1:]:
            raise ShapeError(
                f"{graph.path}: input {blob!r} is {show(tuple(shape))}, but the network was read for {show(declared)}; "
                "only the batch may change",
                hint=f"read it for this size: --shape {blob}=..., or Net(..., shapes={{{blob!r}: {tuple(shape)}}})",
            )
        shapes[blob] = tuple(shape)
    macs = alive = peak = 0
    for layer, finished in zip(graph.layers, last_readers(graph.layers)):
        if layer.source:
            for top in layer.tops:
                if top in shapes:
                    check_shape(layer, shapes[top])
                    if prod(shapes[top]) == 0:
                        raise layer.wrong(f"input {top!r} of shape {show(shapes[top])} is empty")
        elif shapes.keys() >= set(layer.bottoms):
            bottoms = tuple(shapes[b] for b in layer.bottoms)
            try:
                tops = (renewed or {}).get(layer.name) or layer.shapes(*bottoms)
                for top_shape in tops:
                    check_shape(layer, top_shape)
            except ShapeError as error:
                if layer.place and layer.place not in error.message:
                    error.message = f"{layer.place}: {error.message}"
                raise
            shapes.update(zip(layer.tops, tops))
            macs += layer.macs(bottoms, tops)
        alive += 4 * sum(prod(shapes[t]) for t in layer.tops if t in shapes)
        peak = max(peak, alive)
        alive -= 4 * sum(prod(shapes[b]) for b in finished if b in shapes)
    for limit, found in (("activation_bytes", peak), ("macs", macs)):
        if found > getattr(limits(), limit):
            raise ModelError(
                f"{graph.path}: this network at this input size asks too much: " + limits().exceeded(limit, found)
            )
    return shapes
