"""Write a network as Caffe's two files, with Caffe's own types in place of custom layers that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...blob import Array
from ...graph import Graph
from ...parser.caffemodel import write_caffemodel
from ...parser.text import Block, layers_of, parse, read_source
from ...util.paths import resource
from ...util.source import edited

_KEPT = ("name", "bottom", "top", "include", "exclude")  # fields of a layer that do not depend on its type


class Same(NamedTuple):
    """A layer of Caffe's: its type, the text of its parameters, and its weights."""

    type: str
    params: str
    blobs: Sequence[Array] = ()


def caffe(graph: Graph, folder: Path) -> tuple[Path, Path]:
    """Return the paths of prototxt and caffemodel, written to ``folder``.

    Only chai's own custom layers (folder ``custom``) of a type in ``SAME`` are replaced: code of others may do anything.
    """
    folder_of_chai = resource("custom")
    changed = {
        layer.name: SAME[layer.type](layer)
        for layer in graph.layers
        if layer.engine == "custom" and layer.type in SAME and Path(layer.defined or "").is_relative_to(folder_of_chai)
    }
    places = {layer.name: layer.place for layer in graph.layers}
    source = read_source(graph.path)
    prototxt, weights = folder / "net.prototxt", folder / "net.caffemodel"
    edits = [
        (start, layer.end, _layer(source.text, layer, changed[name]))
        for name, start, layer in layers_of(source, parse(source), places)
        if name in changed
    ]
    prototxt.write_text(edited(source.text, edits), encoding="utf-8")
    trained = ((layer.name, changed.get(layer.name, layer)) for layer in graph.layers if layer.blobs)
    write_caffemodel(weights, graph.name, [(name, written.type, written.blobs) for name, written in trained])
    return prototxt, weights


def replaced(graph: Graph, other: Graph) -> list[str]:
    """Return the custom layers of a network that have a type of Caffe's in ``other``."""
    left = {layer.name for layer in other.layers if layer.engine == "custom"}
    return [layer.name for layer in graph.layers if layer.engine == "custom" and layer.name not in left]


def _layer(text: str, layer: Block, same: Same) -> str:
    """Return the text of a layer with another type."""
    kept = [text[field.start : field.value.end] for field in layer.fields if field.name in _KEPT]
    return "\n".join(["", "layer {", *kept, f'type: "{same.type}"', same.params, "}", ""])


def _gemm(layer: Any) -> Same:
    outputs = int(layer.values["num_output"])
    weights, *bias = layer.blobs
    params = f"inner_product_param {{ num_output: {outputs} bias_term: {'true' if bias else 'false'} }}"
    return Same("InnerProduct", params, [weights.reshape(outputs, -1), *(b.reshape(-1) for b in bias)])


def _leaky_relu(layer: Any) -> Same:
    return Same("ReLU", f"relu_param {{ negative_slope: {layer.values['negative_slope']} }}")


def _lrn(layer: Any) -> Same:
    v = layer.values
    numbers = f"local_size: {v['local_size']} alpha: {v['alpha']} beta: {v['beta']} k: {v['k']}"
    return Same("LRN", f"lrn_param {{ {numbers} norm_region: {v['norm_region']} }}")


SAME: dict[str, Callable[[Any], Same]] = {"gemm": _gemm, "LeakyReLU": _leaky_relu, "LRN": _lrn}
