"""infer_shapes: compute the shape of every blob from the shapes of the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..blob import Shape, show
from ..errors import ModelError, ShapeError
from ..graph import Graph, Layer
from ..limits import limits

Renewed = Mapping[str, tuple[Shape, ...]]  # shapes of the tops of layers, by layer


def unlike_caffe(graph: Graph, shapes: Mapping[str, Shape]) -> list[str]:
    """Return in words which layers have tops of other sizes than in Caffe, as an overlay's arithmetic computes them."""
    known = (layer for layer in graph.layers if not layer.source and shapes.keys() >= {*layer.bottoms})
    each = ((layer, layer.unlike_caffe(*(shapes[b] for b in layer.bottoms))) for layer in known if layer.whole_windows)
    return [f"layer {layer.name!r} ({layer.type}) is {text}" for layer, text in each if text]


def infer_shapes(
    graph: Graph, inputs: Mapping[str, Shape] | None = None, partial: bool = False, renewed: Renewed | None = None
) -> dict[str, Shape]:
    """Return the shapes of all blob ids for inputs of the given shapes, or else of the file's.

    ``renewed`` tops have other shapes in a pass than their layer's rule says. With ``partial``, inputs of unknown shape are left
    out, and so are the blobs that depend on them. Raises ShapeError naming the layer, and ModelError for an unknown shape.
    """
    shapes = _of_inputs(graph, inputs or {}, partial)
    macs = alive = peak = 0
    for layer, finished in zip(graph.layers, graph.last_readers):
        if layer.source:
            _check_source(layer, shapes)
        elif shapes.keys() >= set(layer.bottoms):
            bottoms = tuple(shapes[b] for b in layer.bottoms)
            try:
                tops = _of_tops(layer, bottoms, (renewed or {}).get(layer.name))
            except ShapeError as error:
                error.hint = error.hint or _own_batch(graph, shapes)
                raise
            shapes.update(zip(layer.tops, tops))
            macs += layer.macs(bottoms, tops)
        alive += 4 * sum(prod(shapes[t]) for t in layer.tops if t in shapes)
        peak = max(peak, alive)
        alive -= 4 * sum(prod(shapes[b]) for b in finished if b in shapes)
    for limit, size in (("activation_bytes", peak), ("macs", macs)):
        if size > getattr(limits(), limit):
            raise ModelError(
                f"{graph.path}: this network at this input size asks too much: " + limits().exceeded(limit, size)
            )
    return shapes


def _own_batch(graph: Graph, shapes: Mapping[str, Shape]) -> str | None:
    """Return a hint if the network runs with the batch of its file, which a Reshape may state; None if it does not."""
    own = {blob: size[0] for blob, size in graph.inputs.items() if size and size[:1] != shapes[blob][:1]}
    if not own:
        return None
    try:
        infer_shapes(graph, {blob: (batch, *shapes[blob][1:]) for blob, batch in own.items()})
    except ModelError:
        return None
    batch = min(own.values())
    return f"the file's own batch is {batch}: --batch {batch}, or Net(..., batch={batch})"


def _of_inputs(graph: Graph, inputs: Mapping[str, Shape], partial: bool) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for blob, declared in graph.inputs.items():
        shape = inputs.get(blob, declared)
        if shape is None and partial:
            continue
        if shape is None:
            raise ModelError(
                f"{graph.path}: the file does not say the size of input {blob!r}",
                hint=f"give it: --shape {blob}=1x3x224x224, or Net(..., shapes={{{blob!r}: (1, 3, 224, 224)}})",
            )
        kept = 0 if graph.counting else 1  # axes from here on keep their sizes
        if graph.fixed and declared is not None and tuple(shape[kept:]) != declared[kept:]:
            why = f"node {graph.counting!r} has numbers for that batch" if kept == 0 else "only the batch may change"
            raise ShapeError(
                f"{graph.path}: input {blob!r} is {show(tuple(shape))}, but the network was read for {show(declared)}; {why}",
                hint=f"read it for this size: --shape {blob}=..., or Net(..., shapes={{{blob!r}: {tuple(shape)}}})",
            )
        shapes[blob] = tuple(shape)
    return shapes


def _check_source(layer: Layer, shapes: Mapping[str, Shape]) -> None:
    for top in layer.tops:
        if top in shapes:
            layer.check_top(shapes[top])
            if prod(shapes[top]) == 0:
                raise layer.wrong(f"input {top!r} of shape {show(shapes[top])} is empty")


def _of_tops(layer: Layer, bottoms: tuple[Shape, ...], renewed: tuple[Shape, ...] | None) -> tuple[Shape, ...]:
    """Return the shapes of a layer's tops. Raises ShapeError with its place in the file."""
    try:
        tops = renewed or layer.shapes(*bottoms)
        for shape in tops:
            layer.check_top(shape)
    except ShapeError as error:
        if layer.place and layer.place not in error.message:
            error.message = f"{layer.place}: {error.message}"
        raise
    return tops
