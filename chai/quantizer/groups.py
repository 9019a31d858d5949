"""Group the blobs that must share a format, set the width of their codes, and write both as a precision_param."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..fixed import Format
from ..graph import Graph, Layer
from ..graph.params import Precision
from ..util.union_find import UnionFind

if TYPE_CHECKING:
    from ..blob import Array

Bits = int | tuple[int, int, int]  # one width, or three: inputs, weights, other blobs
Widths = Bits | Literal["mixed"]  # "mixed": 6, and 8 for the layers that are worth it


def spelled(bits: Widths) -> str:
    """Return widths as text: 8, 8/6/6, or 6- and 8."""
    if bits == "mixed":
        return "6- and 8"
    return "/".join(map(str, bits)) if isinstance(bits, tuple) else str(bits)


@dataclass
class Groups:
    """Groups of blobs with one format each.

    ``of``       group of each blob, named by one of its blobs
    ``read``     blobs of each group that a layer computes with: they determine the format
    ``bits``     width of each group's codes
    ``weights``  width of the weights of each convolution on the overlay
    """

    of: dict[str, str]
    read: dict[str, list[str]] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)


def groups(graph: Graph, placed: Collection[str], bits: Bits, wider: Mapping[str, int] | None = None) -> Groups:
    """Return the groups of a rewritten graph whose layers ``placed`` run on the overlay.

    Three widths are used unchanged: of the network's inputs, of weights, of all other blobs. A single width of 6 applies
    only to operands of the multipliers: blobs that no convolution on the overlay reads, and the first layer (inputs and
    weights), keep 8 at no cost. ``wider`` sets the width of a layer's weights and of its input.
    """
    result = Groups(_tied(graph, placed))
    exact = isinstance(bits, tuple)
    of_inputs, of_weights, of_blobs = bits if isinstance(bits, tuple) else (8, bits, bits)
    narrow: set[str] = set()
    first = {result.of[b] for b in graph.inputs if b in result.of}
    requested: dict[str, int] = {}
    for layer in graph.layers:
        if layer.convolution is None or layer.name not in placed:
            continue
        source = result.of[layer.bottoms[0]]
        wish = next((wider[name] for name in layer.origin if wider and name in wider), None)
        if wish is not None:
            requested[source] = max(requested.get(source, 0), wish)
        narrow.add(source)
        result.weights[layer.name] = wish or (8 if source in first and not exact else of_weights)
    for group in result.of.values():
        width = of_inputs if group in first else of_blobs if exact or group in narrow else 8
        result.bits[group] = requested.get(group) or width
    for layer in graph.layers:
        for blob in layer.bottoms if not layer.same_values else ():
            result.read.setdefault(result.of[blob], []).append(blob)
    for blob in graph.output_blobs:
        result.read.setdefault(result.of[blob], []).append(blob)
    result.read = {g: list(dict.fromkeys(blobs)) for g, blobs in result.read.items()}
    return result


def scores(graph: Graph, placed: Collection[str]) -> set[str]:
    """Return the average pools on the overlay that only a Softmax or the caller reads.

    They hold the class scores, for which 8 bits leave a few dozen distinct values. Computing such a small layer in float32
    on the host costs little.
    """
    read: dict[str, list[Layer]] = {}
    for layer in graph.layers:
        for blob in layer.bottoms:
            read.setdefault(blob, []).append(layer)
    return {
        layer.name
        for layer in graph.layers
        if layer.name in placed
        and layer.averages
        and all(reader.decision == "softmax" for reader in read.get(layer.tops[0], []))
    }


def _tied(graph: Graph, placed: Collection[str]) -> dict[str, str]:
    tied = UnionFind()
    inputs = set(graph.inputs)
    met: set[str] = set()
    for layer in graph.layers:
        ties = [layer.tops] if not layer.source else []  # a precision_param has one format for all tops of a layer
        if layer.keeps_format or (layer.merges_formats and layer.name in placed):
            ties.append((*layer.bottoms, *layer.tops))
        # ... and one for all network inputs that this layer is the first to read
        ties.append(tuple(b for b in layer.bottoms if b in inputs - met))
        met.update(layer.bottoms)
        for blobs in ties:
            for blob in blobs[1:]:
                tied.join(blob, blobs[0])
    return {b: tied.root(b) for layer in graph.layers for b in (*layer.bottoms, *layer.tops)}


def precision(
    graph: Graph, layer: Layer, formats: Mapping[str, Format], bits: int | None, weights: Format | Array | None
) -> Precision:
    """Return the precision_param for a layer's formats; ``weights`` is one fraction, or a threshold per channel."""
    read = next((b for b in layer.bottoms if b in graph.inputs), layer.bottoms[0])
    source, target = formats[read], formats[layer.tops[0]]
    param = Precision(target.scheme, source.bits, target.bits, bits)
    if target.scheme == "Xilinx":
        thresholds = () if weights is None else tuple(map(float, weights))  # type: ignore[arg-type]
        return replace(param, th_layer_in=source.value, th_layer_out=target.value, th_params=thresholds)
    own = int(weights.value) if isinstance(weights, Format) else None
    return replace(param, fl_layer_in=int(source.value), fl_layer_out=int(target.value), fl_params=own)
