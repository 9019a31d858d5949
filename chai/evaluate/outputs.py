"""Classify the outputs of a network, and choose the one that is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..blob import show
from ..errors import UsageError
from ..graph import OUTPUT_KINDS, Graph, Layer, OutputKind
from ..net import Net
from ..util.lazy_numpy import np

Choice = tuple[str, OutputKind]  # an output blob and its kind, as the user names them


@dataclass(frozen=True)
class Output:
    """The output that is evaluated, in plain values.

    ``blob``      Caffe's name
    ``kind``      scores, boxes or map, see ``Layer.output_kind``
    ``logits``    the blob that its Softmax, Sigmoid or ArgMax reads, else the blob itself; None for boxes
    ``decision``  softmax, sigmoid or argmax, see ``Layer.decision``
    ``classes``   number of classes; None if the network has no scores per class
    ``first_class``  label of the first class of boxes, see ``Layer.first_class``
    """

    blob: str
    kind: OutputKind
    logits: str | None
    decision: str | None = None
    classes: int | None = None
    first_class: int = 0


def source(graph: Graph, name: str) -> Layer:
    """Return the layer that computes a blob, by Caffe's name: no Reshape, Flatten, Split or Dropout, which only relay it."""
    layer = graph.writers[graph.latest[name]]
    while layer.relays and layer.bottoms[0] in graph.writers:
        layer = graph.writers[layer.bottoms[0]]
    return layer


def kind_of(net: Net, name: str) -> OutputKind | None:
    """Return the kind of an output at the current input sizes; None if it is none of the three."""
    shape = net.shapes.get(name)
    return None if shape is None else source(net.graph, name).output_kind(shape)


def box_classes(net: Net, layer: Layer) -> int | None:
    """Return the number of classes of a layer's boxes; None if it is unknown."""
    return layer.box_classes(*map(net.shapes_of, layer.bottoms))


def output(net: Net, choice: Choice | None = None) -> Output:
    """Return the output that is evaluated: boxes if there are any, else a Softmax's, else the only candidate.

    Raises UsageError if there is no candidate, or if there are several and ``choice`` names none.
    """
    if choice is not None:
        return _described(net, *_checked(net, choice))
    kinds = {name: kind for name in net.outputs if (kind := kind_of(net, name)) is not None}
    boxes = [name for name, kind in kinds.items() if kind == "boxes"]
    sure = [name for name in kinds if source(net.graph, name).decision == "softmax"]
    names = boxes or sure or list(kinds)
    if len({source(net.graph, name).name for name in names}) != 1:
        listed = ", ".join(f"{name} ({_shape(net, name)}, {kinds.get(name, 'no kind')})" for name in net.outputs)
        raise UsageError(
            f"evaluate: one output of class scores, boxes or a map is needed, {net.name} has {listed}",
            hint="--output BLOB=scores|boxes|map names one" if names else "chai check compares every blob with float",
        )
    return _described(net, names[0], kinds[names[0]])


def parse(text: str) -> Choice:
    """Return blob and kind of --output BLOB=KIND. Raises UsageError."""
    name, _, word = text.rpartition("=")
    kind = next((k for k in OUTPUT_KINDS if k == word), None)
    if not name or kind is None:
        raise UsageError(f"--output {text}: expected BLOB={'|'.join(OUTPUT_KINDS)}", hint="e.g. --output prob=scores")
    return name, kind


def _checked(net: Net, choice: Choice) -> Choice:
    name, kind = choice
    if name not in net.outputs:
        raise UsageError(f"--output: {net.name} has no output {name!r}", hint=f"its outputs: {', '.join(net.outputs)}")
    shape = net.shapes.get(name, ())
    fits = {"scores": len(shape) > 1, "boxes": shape[-1:] == (7,), "map": len(shape) == 4}
    expected = {"scores": "a number per class for each image", "boxes": "rows of 7 numbers", "map": "(N, C, H, W)"}
    if not fits[kind]:
        others = " or ".join(f"--output {name}={other}" for other in OUTPUT_KINDS if fits[other])
        message = f"--output {name}={kind}: its shape is {_shape(net, name)}, expected {expected[kind]}"
        raise UsageError(message, hint=others or "name another blob")
    return choice


def _described(net: Net, name: str, kind: OutputKind) -> Output:
    layer = source(net.graph, name)
    if kind == "boxes":
        return Output(name, kind, None, classes=box_classes(net, layer), first_class=layer.first_class)
    logits = net.graph.caffe_name(layer.bottoms[0]) if layer.decision is not None else name
    return Output(name, kind, logits, layer.decision, _classes(kind, layer.decision, net.shapes.get(logits, ())))


def _classes(kind: OutputKind, decision: str | None, logits: Sequence[int]) -> int | None:
    """Return the number of classes for logits of this shape."""
    if kind == "scores":
        return int(np.prod(logits[1:])) if logits else None
    channels = logits[1] if len(logits) == 4 else 1
    if channels == 1 and decision != "argmax":
        return 2 if decision == "sigmoid" else None
    return channels


def _shape(net: Net, name: str) -> str:
    return show(net.shapes[name]) if name in net.shapes else "size unknown"
