"""Give layers the formats of a quantised file, as a prototxt gives them by precision_param."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..fixed import SINGLE, Format, Precision
from ..graph import Graph, Layer

_COPIES = {"BatchReindex", "Crop", "Permute", "Reshape", "ShuffleChannel", "Tile"}


def assign(graph: Graph, encoded: Mapping[str, Format], thresholds: Mapping[str, tuple[float, ...]]) -> None:
    """Give each layer its format; one that reads or writes a blob without codes runs in float32 on the host.

    ``encoded``     formats of the blobs that the file has as codes
    ``thresholds``  by layer, of its weights
    """
    formats = _spread(graph, encoded)
    for layer in graph.layers:
        if layer.source and layer.tops[0] in encoded:
            layer.precision = _single(encoded[layer.tops[0]])
        if layer.source or not layer.bottoms or not layer.tops:
            continue
        if all(blob in formats for blob in (*layer.bottoms, *layer.tops)):
            if not layer.merges_formats:
                layer.precision = _precision(graph, layer, formats, thresholds.get(layer.name, ()))
        else:
            stated = [formats[top] for top in layer.tops if top in formats]
            layer.precision = _single(max(stated, key=lambda each: each.value, default=None))


def _precision(graph: Graph, layer: Layer, formats: Mapping[str, Format], thresholds: tuple[float, ...]) -> Precision:
    first = next((blob for blob in layer.bottoms if blob in graph.inputs), layer.bottoms[0])
    source, target = formats[first], formats[layer.tops[0]]
    return Precision(
        target.scheme,
        source.bits,
        target.bits,
        target.bits if layer.weighted else None,
        th_layer_in=source.value,
        th_layer_out=target.value,
        th_params=thresholds,
        chai_unsigned_in=source.unsigned,
        chai_unsigned_out=target.unsigned,
    )


def _single(target: Format | None) -> Precision:
    """Return that a layer runs in float32, and the format in which others read its top, if there is one."""
    if target is None:
        return Precision(SINGLE)
    return Precision(
        SINGLE,
        bw_layer_out=target.bits,
        th_layer_out=target.value,
        chai_unsigned_out=target.unsigned,
        quant_type_out=target.scheme,
    )


def _spread(graph: Graph, encoded: Mapping[str, Format]) -> dict[str, Format]:
    """Return the formats with those of blobs between: copies of others, and sums that a ReLU or factors are folded into."""
    formats = dict(encoded)
    for layer in graph.layers:
        if layer.bottoms and all(blob in formats for blob in layer.bottoms) and _copies(layer):
            own = max((formats[blob] for blob in layer.bottoms), key=lambda each: each.step)
            for top in layer.tops:
                formats.setdefault(top, own)
    readers = Counter(blob for layer in graph.layers for blob in layer.bottoms)
    readers.update(graph.output_blobs)
    for layer in reversed(graph.layers):
        if layer.same_values and len(layer.tops) == 1 and layer.tops[0] in formats:
            own = formats[layer.tops[0]]  # numbers beyond its codes saturate there, if not before
            coarser = {blob for blob in layer.bottoms if blob in formats and formats[blob].step > own.step}
            formats.update({blob: own for blob in coarser if readers[blob] == 1 and blob not in graph.inputs})
        if layer.tops and layer.tops[0] in formats and layer.bottoms and readers[layer.bottoms[0]] == 1:
            before = graph.writers[layer.bottoms[0]]
            folded = (layer.per_channel and (before.convolution or before.per_channel)) or (
                layer.type == "ReLU" and before.can_clamp and 0 <= layer.params.negative_slope <= 1
            )
            if folded:
                formats.setdefault(layer.bottoms[0], formats[layer.tops[0]].signed)
    return formats


def _copies(layer: Layer) -> bool:
    """Return whether no value of a layer's tops is larger than those of its bottoms."""
    if layer.type == "Pad":
        return not layer.params.constant_values
    if layer.type == "ReLU":
        return bool(abs(layer.params.negative_slope) <= 1)
    return layer.same_values or layer.relays or layer.type in _COPIES
