"""Equalisation: a channel that is small everywhere is made larger where it is written and smaller where it is read.

A blob has one step for all its channels. Dividing channel c by r_c, in the rows of the layer that writes it, and
multiplying the columns of the layers that read it, changes no float result and lets every channel use the step better.
Legal behind a convolution (with a ReLU, leaky or not) through pools and concats into convolutions and InnerProducts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ..graph import Graph, Layer
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array, Shape

MOST = 8.0  # a channel is divided by this at most, against the mean of its blob,
LEAST = (
    0.5  # and by this at least: a channel that is small in a few images may be large in others, and would be cut off
)
DEAD = 1e-3  # a channel below this share of the largest counts as that large: nothing is known of it


def factors(
    graph: Graph,
    largest: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    share: float,
    placed: Collection[str],
) -> dict[str, Array]:
    """r (C,) of every blob whose channels may be divided by it.

    ``largest`` is each channel's largest magnitude A_c; a ``share`` of 0.5 shares the burden between blob and weights, 1
    looks at the blob alone. r_c is A_c^share / B_c^(1 - share),
    B_c the largest weight its readers have for it (each row in units of its own largest), about a mean of A so that
    branches of one concat come out alike.
    """
    readers: dict[str, list[Layer]] = {}
    for layer in graph.layers:
        for bottom in layer.bottoms:
            readers.setdefault(bottom, []).append(layer)
    found: dict[str, Array] = {}
    for layer in graph.layers:
        if not (layer.convolution and layer.name in placed and len(layer.tops) == 1):
            continue
        blob = layer.tops[0]
        ways = _ways(graph, readers, shapes, blob)
        if not ways or not isinstance(largest.get(blob), np.ndarray):
            continue
        read = [_columns(x, first, shapes[blob][1]) for _, first, x in ways if x is not None]
        columns = [c for c in read if c is not None]
        if not columns:  # read in float alone: nothing to share, and a channel that few images show would be cut off
            continue
        r = _ratio(largest[blob], columns, share)
        for name, first, _ in ways:
            whole = found.setdefault(name, np.ones(shapes[name][1]))
            whole[first : first + len(r)] = r
    return found


def _ways(
    graph: Graph, readers: Mapping[str, list[Layer]], shapes: Mapping[str, Shape], blob: str
) -> list[tuple[str, int, Layer | None]]:
    """Return where a blob's channels go, itself first: (blob, first channel there, a layer that multiplies them);
    empty if they reach a layer that is not linear in each channel, or an output."""
    found: list[tuple[str, int, Layer | None]] = [(blob, 0, None)]
    waiting = [(blob, 0)]
    while waiting:
        name, first = waiting.pop()
        if name in graph.output_blobs or len(shapes[name]) != 4:
            return []
        for layer in readers.get(name, []):
            if layer.multiplies_channels(shapes[name]):
                found.append((name, first, layer))
                continue
            start = layer.channels_from(name, shapes)
            if start is None:
                return []
            waiting.append((layer.tops[0], first + start))
            found.append((*waiting[-1], None))
    return found


def _columns(layer: Layer, first: int, count: int) -> Array | None:
    """Return the largest weight for each of ``count`` channels from ``first`` on, rows in units of their largest; None
    for a layer in float, whose weights have no step."""
    if layer.convolution is None:
        return None
    _, group = layer.convolution
    weights = np.abs(layer.blobs[0]).max((2, 3))
    weights = weights / np.maximum(weights.max(1, keepdims=True), 1e-12)
    each = weights.reshape(group, -1, weights.shape[1]).max(1).reshape(-1)  # by input channel
    part: Array = each[first : first + count]
    return part


def _ratio(largest: Array, columns: list[Array], share: float) -> Array:
    a = np.maximum(largest.astype(np.float64), max(float(largest.max(initial=0)) * DEAD, 1e-30))
    b = np.maximum(np.stack(columns).max(0), 1e-3)
    r = a**share / b ** (1 - share)
    r = np.clip(r / np.exp(np.log(r).mean()), LEAST, MOST)
    found: Array = r * np.exp(np.log(a).mean())
    return found


def apply(graph: Graph, by_blob: Mapping[str, Array]) -> None:
    """Scale the weights of a graph's layers, which become new arrays: the layers must be copies."""
    for layer in graph.layers:
        if layer.bottoms and layer.tops:
            layer.blobs = layer.rescaled(by_blob.get(layer.bottoms[0]), by_blob.get(layer.tops[0]))
