"""A network as Caffe has it: losses are layers of it; labels, and inputs that nothing reads, are blobs with contents."""

from __future__ import annotations

from dataclasses import replace

from ..blob import Shape
from ..errors import ShapeError
from ..graph import Graph
from ..net import Net
from ..passes.infer_shapes import infer_shapes


def with_losses(net: Net) -> tuple[Graph, dict[str, Shape]]:
    """Return a network's graph with its losses and their labels, and the shape of every blob by Caffe's name.

    Inputs that nothing reads are outputs, too. A label or such an input of unknown size has one number per item. If the
    losses cannot take labels of these sizes, they are left out.
    """
    graph, shapes = net.graph, dict(net.shapes)
    unread = {b: shape or (net.batch,) for b, shape in graph.unread.items()}
    shapes.update(unread)
    graph = replace(graph, inputs={**graph.inputs, **unread}, outputs=[*graph.outputs, *unread])
    losses = graph.losses
    if losses is None:
        return graph, shapes
    labels = {b: shape or (net.batch,) for b, shape in losses.inputs.items()}
    read = {b for layer in losses.layers for b in layer.bottoms}
    known = {t: net.shapes_of(t) for layer in graph.layers for t in layer.tops if t in read and t not in labels}
    try:
        all_shapes = infer_shapes(replace(losses, inputs={**known, **labels}))
    except ShapeError:
        return graph, shapes
    latest = {**graph.latest, **losses.latest}
    shapes.update((name, all_shapes[blob]) for name, blob in latest.items() if blob in labels or name in losses.latest)
    outputs = [name for name in graph.outputs if graph.latest[name] not in read] + losses.outputs
    inputs = {**graph.inputs, **labels}
    layers = graph.layers + losses.layers
    return replace(graph, layers=layers, inputs=inputs, latest=latest, outputs=outputs), shapes
