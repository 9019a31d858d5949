"""One float pass over the calibration images: what every later step knows of the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING
from zlib import crc32

from ..errors import ModelError, UsageError
from ..graph import Graph, Layer
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .ranges import Histogram
from .walk import Batch, in_float

if TYPE_CHECKING:
    from ..blob import Array
    from ..tasks.window import Window

KEPT = 64  # images that recipes are judged and weights fitted on; statistics run over all
ROWS = 128  # most positions of a layer looked at in one image
READ = 32  # places of a convolution in one image at which what it reads is kept,
READ_IMAGES = 16  # in the first images
BEHIND_IMAGES = 8  # images whose blob in front of an LRN or an average pool is kept whole


@dataclass
class Observed:
    """``seen``      values of every blob
    ``peaks``     of every blob of four axes: the largest magnitude of each channel in each kept batch; (C,)
    ``batches``   the inputs kept, up to KEPT images
    ``numbers``   which of all kept batches these are
    ``held``      how many of the batches, the last ones, judge alone: nothing is fitted on them
    ``measured``  blobs that tell how good the network is, see ``measured``
    ``wanted``    their float values, batch by batch
    ``rows``      of every convolution: its float sums, bias included, at sampled places of each kept batch; (R, M)
    ``in_front``  what layers read, by layer: of a convolution rows (group, R, K) at a few places, of ``error_sensitive``
                  layers whole blobs; of a few images
    """

    measured: list[str]
    images: int = 0
    seen: dict[str, Histogram] = field(default_factory=dict)
    peaks: dict[str, list[Array]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    held: int = 0
    wanted: list[dict[str, Array]] = field(default_factory=list)
    rows: dict[str, list[Array]] = field(default_factory=dict)
    in_front: dict[str, list[Array]] = field(default_factory=dict)

    @property
    def largest(self) -> dict[str, Array]:
        """Of every blob of four axes: the largest magnitude of each channel; (C,)."""
        return {blob: np.max(each, axis=0) for blob, each in self.peaks.items()}

    @property
    def fitted(self) -> int:
        """Return how many of the batches, the first ones, weights and biases are fitted on."""
        return len(self.batches) - self.held


def observe(graph: Graph, batches: Iterable[Batch], seed: int = 0) -> Observed:
    """Run ``graph`` (rewritten) in float on all batches. Raises ModelError where a value is not finite."""
    found = Observed(measured(graph))
    for feeds in batches:
        size = next((a.shape[0] for a in feeds.values() if a.ndim), 1)
        keep = found.images < KEPT
        found.images += size
        for blob, array in feeds.items():
            _add(found, blob, array, None, graph, keep)
        wanted: dict[str, Array] = {b: feeds[b] for b in found.measured if b in feeds}
        for layer, bottoms, tops in in_float(graph, feeds):
            for blob, array in zip(layer.tops, tops):
                _add(found, blob, array, layer, graph, keep)
                if blob in found.measured:
                    wanted[blob] = array
            if keep and layer.convolution and len(bottoms) == 1:
                window, group = layer.convolution
                sums = layer.forward(bottoms[0])[0] if layer.slope is not None else tops[0]
                at = places(layer, sums.shape[2:], size, len(found.batches), seed)
                found.rows.setdefault(layer.name, []).append(at_places(sums, at))
                if found.images <= READ_IMAGES or layer.name not in found.in_front:
                    few = at[:READ_IMAGES, :: ceil_div(at.shape[1], READ)]
                    read = patches(bottoms[0][:READ_IMAGES], window, group, sums.shape[2:], few)
                    found.in_front.setdefault(layer.name, []).append(read)
            if layer.error_sensitive and (found.images <= BEHIND_IMAGES or layer.name not in found.in_front):
                found.in_front.setdefault(layer.name, []).append(bottoms[0][:BEHIND_IMAGES])
        if keep:
            found.numbers.append(len(found.batches))
            found.batches.append(feeds)
            found.wanted.append(wanted)
    if not found.images:
        raise UsageError("quantize: there is no calibration image")
    return found


def folded(found: Observed) -> list[Observed]:
    """Twice the same: fitted on every other batch and judged by the rest, and the other way round. None of one batch."""
    made = []
    for odd in (0, 1) if len(found.batches) > 1 else ():
        fitted, held = found.numbers[odd::2], found.numbers[1 - odd :: 2]
        order = [*fitted, *held]
        rows = {name: [each[i] for i in fitted] for name, each in found.rows.items()}
        peaks = {blob: [each[i] for i in fitted] for blob, each in found.peaks.items()}
        in_front = {name: each[odd::2] or each for name, each in found.in_front.items()}
        half = replace(found, rows=rows, peaks=peaks, in_front=in_front, numbers=order, held=len(held))
        half.batches, half.wanted = [found.batches[i] for i in order], [found.wanted[i] for i in order]
        made.append(half)
    return made


def equalised(graph: Graph, found: Observed, by_blob: Mapping[str, Array]) -> Observed:
    """Return what would be observed if the channels of some blobs were divided by factors (C,).

    A float pass over the batches to be fitted on; blobs without a factor look as before.
    """
    rows, in_front = dict(found.rows), dict(found.in_front)
    for layer in graph.layers:
        if layer.name in rows and layer.tops[0] in by_blob:
            rows[layer.name] = [r / by_blob[layer.tops[0]].astype(np.float32) for r in rows[layer.name]]
        if layer.name in in_front and layer.bottoms[0] in by_blob:
            r = by_blob[layer.bottoms[0]].astype(np.float32)[:, None, None]
            if layer.convolution:  # a group's columns are its channels' taps
                window, group = layer.convolution
                r = np.repeat(r, prod(window.kernel)).reshape(group, 1, -1)
            in_front[layer.name] = [x / r for x in in_front[layer.name]]
    seen = {blob: h for blob, h in found.seen.items() if blob not in by_blob}
    for feeds in found.batches[: found.fitted]:
        for layer, _, tops in in_float(graph, feeds):
            for blob, array in zip(layer.tops, tops):
                if blob in by_blob:
                    scale = (1 / by_blob[blob]).astype(np.float32)
                    seen.setdefault(blob, Histogram()).add(array * scale[:, None, None])
    return replace(found, seen=seen, rows=rows, in_front=in_front)


def _add(found: Observed, blob: str, array: Array, layer: Layer | None, graph: Graph, keep: bool) -> None:
    largest = np.abs(array).max(initial=0)
    if not np.isfinite(largest):
        what = "input" if layer is None else f"layer {layer.name!r} ({layer.type}): blob"
        raise ModelError(
            f"{what} {graph.caffe_name(blob)!r} has values that are not finite on the calibration images",
            layer=None if layer is None else layer.name,
        )
    found.seen.setdefault(blob, Histogram()).add(array)
    if array.ndim == 4:
        top = np.abs(array).max((0, 2, 3), initial=0)
        known = found.peaks.setdefault(blob, [])
        if keep:
            known.append(top)
        else:  # of images that are not kept, the last batch has it
            known[-1] = np.maximum(known[-1], top)


def measured(graph: Graph) -> list[str]:
    """Return blobs by which a network is judged: its outputs, or what leads to them where those are boxes or indices."""
    writer = {top: layer for layer in graph.layers for top in layer.tops}
    found: list[str] = []
    waiting = graph.output_blobs
    while waiting:
        layer = writer[waiting[0]]
        blob = waiting.pop(0)
        if layer.dynamic or layer.indices:
            waiting += layer.bottoms
        elif blob not in found and not layer.source:
            found.append(blob)
    return found


def cost(graph: Graph, blob: str, wanted: Array, found: Array, temperature: float = 1.0) -> Array:
    """Return how far a blob is from float, image by image: KL(float || fixed) in nats of class probabilities (mean over
    positions), else error energy / signal energy.

    At a higher ``temperature`` T, probabilities are those that logits / T would have.
    """
    writer = next(layer for layer in graph.layers if blob in layer.tops)
    images = len(wanted) if wanted.ndim else 1
    a, b = wanted.astype(np.float64), found.astype(np.float64)
    if writer.probabilities:
        axis = writer.axis(writer.params.axis, wanted.shape)
        p, q = _logarithms(a, axis, temperature), _logarithms(b, axis, temperature)
        nats = (np.exp(p) * (p - q)).sum(axis)
        return np.atleast_1d(nats).reshape(images, -1).mean(1) if axis else np.full(images, nats.mean())
    a, b = a.reshape(images, -1), b.reshape(images, -1)
    signal = (a * a).sum(1)
    error = ((a - b) ** 2).sum(1)
    ratio = error / np.where(signal > 0, signal, 1)
    return np.where(np.isfinite(ratio), ratio, 1e6)


def _logarithms(probabilities: Array, axis: int, temperature: float) -> Array:
    softened: Array = np.log(probabilities + 1e-12) / temperature
    softened -= np.log(np.exp(softened).sum(axis, keepdims=True))
    return softened


def places(layer: Layer, size: tuple[int, ...], images: int, batch: int, seed: int) -> Array:
    """Sampled output positions (images, P), flat, of a convolution; the same for the same seed, layer and batch."""
    area = size[0] * size[1]
    count = min(area, ROWS)
    if count == area:
        return np.broadcast_to(np.arange(area), (images, area))
    draw = np.random.default_rng([seed, crc32(layer.name.encode()), batch])
    return draw.integers(0, area, (images, count))


def at_places(blob: Array, at: Array) -> Array:
    """Return rows (images * P, C) of a blob (N, C, H, W)."""
    n, c = blob.shape[:2]
    picked = np.take_along_axis(blob.reshape(n, c, -1), at[:, None, :], 2)
    return np.ascontiguousarray(picked.transpose(0, 2, 1)).reshape(-1, c)


def patches(blob: Array, window: Window, group: int, size: tuple[int, ...], at: Array) -> Array:
    """Return what a convolution multiplies its weights with at those places: rows (group, images * P, C / group * kh *
    kw)."""
    n, c, h, w = blob.shape
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = window
    padded = np.zeros((n, h + 2 * ph, w + 2 * pw, c), np.float32)
    padded[:, ph : ph + h, pw : pw + w] = blob.transpose(0, 2, 3, 1)
    y, x = at // size[1] * sh, at % size[1] * sw
    image = np.arange(n)[:, None]
    taps = [padded[image, y + i * dh, x + j * dw] for i in range(kh) for j in range(kw)]
    rows = np.stack(taps, -1).reshape(n * at.shape[1], group, -1)  # (rows, group, C / group * kh * kw)
    return np.ascontiguousarray(rows.transpose(1, 0, 2))


def batches_of(inputs: Iterable[Batch], limit: int | None) -> Iterator[Batch]:
    """Batches until ``limit`` images were seen."""
    left = limit
    for feeds in inputs:
        size = next((a.shape[0] for a in feeds.values() if a.ndim), 1)
        if left is None or size <= left:
            yield feeds
        elif left > 0:
            yield {blob: a[:left] for blob, a in feeds.items()}
        left = None if left is None else left - size
        if left is not None and left <= 0:
            return
