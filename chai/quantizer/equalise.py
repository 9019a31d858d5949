"""Equalisation: scale small channels up in the layer that writes them, and down in the layers that read them.

A blob has one step for all its channels. Dividing channel c by r_c in the rows of the layer that writes it, and
multiplying by r_c in the columns of the layers that read it, leaves float results unchanged and uses the codes better.
Valid from a convolution (with or without a plain or leaky ReLU) through pools and concats to convolutions and
InnerProducts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..blob import Array, Shape
from ..graph import Graph, Layer
from ..util.lazy_numpy import np

MOST = 8.0  # largest divisor of a channel, relative to the mean of its blob
# Smallest divisor: a channel that is small in a few images may be large in others, and would saturate.
LEAST = 0.5
DEAD = 1e-3  # channels below this share of the largest were hardly active: they are treated as this large


def factors(
    graph: Graph,
    largest: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    share: float,
    placed: Collection[str],
) -> dict[str, Array]:
    """Return the divisors r (C,) of every blob that can be equalised.

    r_c is A_c^share / B_c^(1 - share): A_c the channel's ``largest`` magnitude, B_c the largest weight of its readers for
    it (each row relative to its own largest). A ``share`` of 0.5 balances blob and weights, 1 ignores the weights. r is
    scaled to the geometric mean of A so that the branches of a concat come out alike.
    """
    divisors: dict[str, Array] = {}
    for layer in graph.layers:
        if not (layer.weighted and layer.name in placed and len(layer.tops) == 1):
            continue
        blob = layer.tops[0]
        ways = _ways(graph, shapes, blob)
        if not ways or not isinstance(largest.get(blob), np.ndarray):
            continue
        readers_of = ((shapes[name], first, x) for name, first, x in ways if x is not None and x.name in placed)
        columns = [_columns(x, shape, first, shapes[blob][1]) for shape, first, x in readers_of]
        if not columns:  # only read in float: nothing to gain, and a rarely active channel could saturate
            continue
        r = _ratio(largest[blob], columns, share)
        for name, first, _ in ways:
            whole = divisors.setdefault(name, np.ones(shapes[name][1]))
            whole[first : first + len(r)] = r
    return divisors


def _ways(graph: Graph, shapes: Mapping[str, Shape], blob: str) -> list[tuple[str, int, Layer | None]]:
    """Return where a blob's channels go, starting with the blob itself.

    Each way is (blob, first channel there, layer that multiplies them or None). The list is empty if the channels reach an
    output or a layer that is not linear in each channel.
    """
    ways: list[tuple[str, int, Layer | None]] = [(blob, 0, None)]
    waiting = [(blob, 0)]
    while waiting:
        name, first = waiting.pop()
        if name in graph.output_blobs or len(shapes[name]) != 4:
            return []
        for layer in graph.readers.get(name, []):
            if layer.multiplies_channels(shapes[name]):
                ways.append((name, first, layer))
                continue
            start = layer.channels_from(name, shapes)
            if start is None:
                return []
            waiting.append((layer.tops[0], first + start))
            ways.append((*waiting[-1], None))
    return ways


def _columns(layer: Layer, bottom: Shape, first: int, count: int) -> Array:
    """Return the largest weight for each of ``count`` channels from ``first`` on, rows relative to their largest."""
    convolved = layer.convolved(bottom)
    assert convolved
    _, group = convolved
    weights = np.abs(layer.weight_rows).reshape(len(layer.weight_rows), bottom[1] // group, -1).max(2)
    weights = weights / np.maximum(weights.max(1, keepdims=True), 1e-12)
    each = weights.reshape(group, -1, weights.shape[1]).max(1).reshape(-1)  # by input channel
    part: Array = each[first : first + count]
    return part


def _ratio(largest: Array, columns: list[Array], share: float) -> Array:
    a = np.maximum(largest.astype(np.float64), max(float(largest.max(initial=0)) * DEAD, 1e-30))
    b = np.maximum(np.stack(columns).max(0), 1e-3)
    r = a**share / b ** (1 - share)
    r = np.clip(r / np.exp(np.log(r).mean()), LEAST, MOST)
    ratio: Array = r * np.exp(np.log(a).mean())
    return ratio


def apply(graph: Graph, by_blob: Mapping[str, Array]) -> None:
    """Scale the weights of a graph's layers. The layers must be copies; their arrays are replaced, not written to."""
    for layer in graph.layers:
        if layer.bottoms and layer.tops:
            layer.blobs = layer.rescaled(by_blob.get(layer.bottoms[0]), by_blob.get(layer.tops[0]))
