"""Which blobs have to share a format, how wide their codes are, and how a precision_param says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..fixed import Format
from ..graph import Graph, Layer
from ..graph.params import Precision
from ..util.union_find import UnionFind

if TYPE_CHECKING:
    from ..blob import Array

Bits = int | tuple[int, int, int]  # one width, or those of inputs, weights and other blobs


def spelled(bits: Bits) -> str:
    """Return widths as text: 8, or 8/6/6."""
    return "/".join(map(str, bits)) if isinstance(bits, tuple) else str(bits)


@dataclass
class Groups:
    """``of``       of each blob the group, named by one of its blobs
    ``read``     blobs of each group whose values something computes with: they decide the format
    ``bits``     width of each group's codes
    ``weights``  width of the weights of each convolution on the overlay
    """

    of: dict[str, str]
    read: dict[str, list[str]] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)


def groups(graph: Graph, placed: Collection[str], bits: Bits, wider: Mapping[str, int] | None = None) -> Groups:
    """Return groups of a rewritten graph whose layers of ``placed`` run on the overlay.

    Three widths are taken as they are: of the network's inputs, of weights, and of all other blobs.

    With 6 bits, only what the multipliers read has 6: a blob that no convolution on the overlay reads, and the first
    layer (inputs and weights), keep 8, which costs no multiplier anything. ``wider`` are widths by layer that the user
    asks for: of its weights and of what it reads.
    """
    found = Groups(_tied(graph, placed))
    exact = isinstance(bits, tuple)
    of_inputs, of_weights, of_blobs = bits if isinstance(bits, tuple) else (8, bits, bits)
    narrow: set[str] = set()
    first = {found.of[b] for b in graph.inputs if b in found.of}
    asked: dict[str, int] = {}
    for layer in graph.layers:
        if layer.convolution is None or layer.name not in placed:
            continue
        source = found.of[layer.bottoms[0]]
        wish = next((wider[name] for name in layer.origin if wider and name in wider), None)
        if wish is not None:
            asked[source] = max(asked.get(source, 0), wish)
        narrow.add(source)
        found.weights[layer.name] = wish or (8 if source in first and not exact else of_weights)
    for group in found.of.values():
        width = of_inputs if group in first else of_blobs if exact or group in narrow else 8
        found.bits[group] = asked.get(group) or width
    for layer in graph.layers:
        for blob in layer.bottoms if not layer.same_values else ():
            found.read.setdefault(found.of[blob], []).append(blob)
    for blob in graph.output_blobs:
        found.read.setdefault(found.of[blob], []).append(blob)
    found.read = {g: list(dict.fromkeys(blobs)) for g, blobs in found.read.items()}
    return found


def scores(graph: Graph, placed: Collection[str]) -> set[str]:
    """Averages on the overlay that only a Softmax or the caller reads: they are what classes are told apart by, of which
    8 bits leave a few dozen values, while an average is nearly all that a host with its float32 has to do.
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
        and all(reader.probabilities for reader in read.get(layer.tops[0], []))
    }


def _tied(graph: Graph, placed: Collection[str]) -> dict[str, str]:
    tied = UnionFind()
    inputs = set(graph.inputs)
    met: set[str] = set()
    for layer in graph.layers:
        ties = [layer.tops] if not layer.source else []  # a layer's precision_param has one format for all its tops
        if layer.keeps_format or (layer.merges_formats and layer.name in placed):
            ties.append((*layer.bottoms, *layer.tops))
        # ... and one for those inputs of the network that it is the first to read
        ties.append(tuple(b for b in layer.bottoms if b in inputs - met))
        met.update(layer.bottoms)
        for blobs in ties:
            for blob in blobs[1:]:
                tied.join(blob, blobs[0])
    return {b: tied.root(b) for layer in graph.layers for b in (*layer.bottoms, *layer.tops)}


def precision(
    graph: Graph, layer: Layer, formats: Mapping[str, Format], bits: int | None, weights: Format | Array | None
) -> Precision:
    """Return the precision_param that says a layer's formats; ``weights`` is their fraction, or thresholds per channel."""
    read = next((b for b in layer.bottoms if b in graph.inputs), layer.bottoms[0])
    source, target = formats[read], formats[layer.tops[0]]
    found = Precision(target.scheme, source.bits, target.bits, bits)
    if target.scheme == "Xilinx":
        thresholds = () if weights is None else tuple(map(float, weights))  # type: ignore[arg-type]
        return replace(found, th_layer_in=source.value, th_layer_out=target.value, th_params=thresholds)
    own = int(weights.value) if isinstance(weights, Format) else None
    return replace(found, fl_layer_in=int(source.value), fl_layer_out=int(target.value), fl_params=own)
