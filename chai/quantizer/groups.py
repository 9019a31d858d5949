"""Group the blobs that must share a format, set the width of their codes, and write both as a precision_param."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..blob import Array
from ..fixed import Coarser, Format, Scaled
from ..graph import Graph, Layer
from ..kernels.codes import quantized
from ..offload.partition import only_scores
from ..overlay import Overlay
from ..tasks.coarser import FACTORS, Sums, fitted
from ..tasks.precision import Precision
from ..util.lazy_numpy import np
from ..util.union_find import UnionFind

Bits = int | tuple[int, int, int]  # one width, or three: inputs, weights, other blobs
Widths = Bits | Literal["mixed"]  # "mixed": 6, and 8 for the layers that are worth it


def spelled(bits: Widths) -> str:
    """Return widths as text: 8, 8/6/6, or 6- and 8."""
    if bits == "mixed":
        return "6- and 8"
    return "/".join(map(str, bits)) if isinstance(bits, tuple) else str(bits)


@dataclass(frozen=True)
class Codes:
    """The codes that recipes may choose: of an overlay, in a scheme, with these widths.

    ``wider``    width by layer, where it differs from ``bits``
    ``signed``   whether all codes are signed, as in CHaiDNN
    """

    overlay: Overlay
    scheme: str
    bits: Bits
    wider: Mapping[str, int] = field(default_factory=dict)
    signed: bool = False


@dataclass
class Groups:
    """Groups of blobs with one format each.

    ``of``       group of each blob, named by one of its blobs
    ``read``     blobs of each group that a layer computes with: they determine the format
    ``bits``     width of each group's codes
    ``unsigned`` groups with unsigned codes
    ``weights``  width of the weights of each layer on the overlay that has some
    """

    of: dict[str, str]
    read: dict[str, list[str]] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    unsigned: set[str] = field(default_factory=set)


def groups(
    graph: Graph,
    placed: Collection[str],
    bits: Bits,
    wider: Mapping[str, int],
    unsigned: Collection[str],
    one_format: Callable[[Layer], bool],
) -> Groups:
    """Return the groups of a rewritten graph whose layers ``placed`` run on the overlay.

    Three widths are used unchanged: of the network's inputs, of weights, of all other blobs. A single width of 6 applies
    only to operands of the multipliers: blobs that no weights on the overlay multiply, and the first layer (inputs and
    weights), keep 8 at no cost. ``wider`` sets the width of a layer's weights and of its input.
    A group is unsigned if all its blobs are in ``unsigned``. ``one_format`` says which layers on the overlay rescale nothing.
    """
    result = Groups(_tied(graph, placed, one_format))
    result.unsigned = {*result.of.values()} - {group for blob, group in result.of.items() if blob not in unsigned}
    exact = isinstance(bits, tuple)
    of_inputs, of_weights, of_blobs = bits if isinstance(bits, tuple) else (8, bits, bits)
    narrow: set[str] = set()
    first = {result.of[b] for b in graph.inputs if b in result.of}
    requested: dict[str, int] = {}
    for layer in graph.layers:
        if not layer.weighted or layer.name not in placed:
            continue
        source = result.of[layer.bottoms[0]]
        wish = next((wider[name] for name in layer.origin if name in wider), None)
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
    """Return the average pools on the overlay that hold class scores."""
    return {x.name for x in graph.layers if x.name in placed and x.averages and only_scores(graph, x)}


def _tied(graph: Graph, placed: Collection[str], one_format: Callable[[Layer], bool]) -> dict[str, str]:
    tied = UnionFind()
    inputs = set(graph.inputs)
    met: set[str] = set()
    for layer in graph.layers:
        ties = [layer.tops] if not layer.source else []  # a precision_param has one format for all tops of a layer
        if layer.keeps_format or (layer.name in placed and one_format(layer)):
            ties.append((*layer.bottoms, *layer.tops))
        # ... and one for all network inputs that this layer is the first to read
        ties.append(tuple(b for b in layer.bottoms if b in inputs - met))
        met.update(layer.bottoms)
        for blobs in ties:
            for blob in blobs[1:]:
                tied.join(blob, blobs[0])
    return {b: tied.root(b) for layer in graph.layers for b in (*layer.bottoms, *layer.tops)}


def fitting(layer: Layer, steps: Array, source: Format, bits: int, overlay: Overlay) -> Sums:
    """Return a layer's weights, with coarser steps where sums could overflow the accumulator, as lowering computes them."""
    assert layer.precision is not None
    bias = None if layer.bias_blob is None else layer.blobs[layer.bias_blob]
    factors = FACTORS[layer.precision.quant_type]
    return fitted(Scaled(layer.weight_rows, bias, steps), source, factors, overlay.array_bound, bits, quantized)


def coarsened(layer: Layer, steps: Array, source: Format, bits: int, overlay: Overlay) -> Coarser | None:
    """Write coarser thresholds into a layer's precision_param where sums could overflow the accumulator.

    ``steps`` (M,) are those of its weights so far. Thresholds that are not written, as in DynamicFixed, follow from the
    weights when the layer is lowered.
    """
    fit, p = fitting(layer, steps, source, bits, overlay), layer.precision
    if fit.coarser is not None and p is not None and p.th_params:
        thresholds = (fit.steps * Format("Xilinx", bits, 0.0).largest).astype(np.float32)
        thresholds = np.where(fit.steps == steps, np.array(p.th_params, np.float32), thresholds)
        layer.precision = replace(p, th_params=tuple(map(float, thresholds)))
    return fit.coarser


def precision(
    graph: Graph, layer: Layer, formats: Mapping[str, Format], bits: int | None, weights: Format | Array | None
) -> Precision:
    """Return the precision_param for a layer's formats; ``weights`` is one fraction, or a threshold per channel."""
    read = next((b for b in layer.bottoms if b in graph.inputs), layer.bottoms[0])
    source, target = formats[read], formats[layer.tops[0]]
    if layer.indices and layer.blobs:  # of a Deconvolution with an ArgMax, whose weights have no format to choose
        bits = source.bits
    param = Precision(target.scheme, source.bits, target.bits, bits)
    param = replace(param, chai_unsigned_in=source.unsigned, chai_unsigned_out=target.unsigned)
    if target.scheme == "Xilinx":
        thresholds = () if weights is None else tuple(map(float, weights))  # type: ignore[arg-type]
        return replace(param, th_layer_in=source.value, th_layer_out=target.value, th_params=thresholds)
    own = int(weights.value) if isinstance(weights, Format) else None
    return replace(param, fl_layer_in=int(source.value), fl_layer_out=int(target.value), fl_params=own)
