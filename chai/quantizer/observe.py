"""One float pass over the calibration images, which collects the statistics that all later steps use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

from ..blob import Array, images_of, on_device
from ..errors import ModelError, UsageError
from ..fixed import largest_magnitudes, without_lowest
from ..graph import Graph, Layer
from ..tasks.window import Window
from ..util.data.shelf import Shelf
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .boxes import box_outputs
from .ranges import Histogram
from .walk import Batch, in_float

KEPT = 64  # images for judging recipes and fitting weights; range statistics use all images
ROWS = 128  # positions sampled per layer and image, at most
READ = 32  # positions per convolution and image at which its inputs are kept
READ_IMAGES = 16  # images for which these inputs are kept
WHOLE_IMAGES = 8  # images for which the whole input of an LRN or average pool is kept
USELESS = 1e6  # cost of an output that is not finite


@dataclass
class Observed:
    """Statistics of the blobs of a calibration run.

    ``seen``      histogram of each blob's values; of those without, ``count`` returns one
    ``count``     count the blobs that ``seen`` does not have, on first use
    ``peaks``     largest magnitude per channel (C,), per kept batch, of each blob with four axes
    ``batches``   the kept inputs, up to KEPT images
    ``numbers``   index of each of these among all kept batches
    ``held``      number of batches, at the end, that only judge: nothing is fitted on them
    ``measured``  blobs by which a network is judged, see ``measured``;  ``boxes``  whether these are rows of boxes
    ``wanted``    their float values, batch by batch
    ``rows``      float sums (R, M) of each layer with weights, bias included, at sampled positions of each kept batch
    ``in_front``  inputs by layer, for a few images: rows (group, R, K) of one with weights at a few positions, whole blobs
                  of ``error_sensitive`` layers
    ``results``   largest magnitude per channel (M,) of each such layer's sums in the kept batches, before a ReLU
    ``shelf``     where inputs, rows and whole blobs lie
    """

    measured: list[str]
    boxes: bool = False
    images: int = 0
    shelf: Shelf = field(default_factory=Shelf)
    seen: dict[str, Histogram] = field(default_factory=dict)
    count: Callable[[], dict[str, Histogram]] = dict
    peaks: dict[str, list[Array]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    held: int = 0
    wanted: list[dict[str, Array]] = field(default_factory=list)
    rows: dict[str, list[Array]] = field(default_factory=dict)
    in_front: dict[str, list[Array]] = field(default_factory=dict)
    results: dict[str, Array] = field(default_factory=dict)

    @property
    def largest(self) -> dict[str, Array]:
        """Return the largest magnitude of each channel (C,), for every blob with four axes."""
        return {blob: np.max(each, axis=0) for blob, each in self.peaks.items()}

    def greatest(self, blob: str) -> float:
        """Return the largest magnitude of a blob, 0 for one without values."""
        if blob in self.seen:
            return self.seen[blob].largest
        return float(np.max(self.peaks[blob], initial=0)) if blob in self.peaks else 0.0

    def histogram(self, blobs: Iterable[str]) -> Histogram:
        """Return the histogram of the values of several blobs."""
        merged = Histogram()
        for blob in blobs:
            if blob not in self.seen and blob in self.peaks:
                self.seen.update(self.count())
            if blob in self.seen:
                merged.merge(self.seen[blob])
        return merged

    @property
    def sizes(self) -> list[int]:
        """Return the number of costs of each kept batch, see ``cost``: one for each image."""
        if self.boxes:
            return [images_of(feeds) for feeds in self.batches]
        return [max(len(value) if value.ndim else 1 for value in wanted.values()) for wanted in self.wanted]

    @property
    def fitted(self) -> int:
        """Return the number of batches, at the start, that weights and biases are fitted on."""
        return len(self.batches) - self.held


def observe(
    graph: Graph,
    batches: Iterable[Batch],
    seed: int = 0,
    kept: int = KEPT,
    read: int = READ_IMAGES,
    boxes: bool = False,
) -> Observed:
    """Run a rewritten graph in float on all batches. Raises ModelError for a value that is not finite.

    ``kept``  images that are kept for judging recipes and fitting weights
    ``read``  images for which the inputs of convolutions are kept
    ``boxes`` whether a network is judged by its boxes, instead of by what they are made from
    """
    observed = Observed(box_outputs(graph) if boxes else measured(graph), boxes)
    shelf = observed.shelf
    for feeds in batches:
        size = images_of(feeds)
        keep = observed.images < kept
        observed.images += size
        for blob, array in feeds.items():
            _add(observed, blob, array, None, graph, keep)
        reference: dict[str, Array] = {}
        for layer, bottoms, tops in in_float(graph, feeds):
            for blob, array in zip(layer.tops, tops):
                _add(observed, blob, array, layer, graph, keep)
                if blob in observed.measured:
                    reference[blob] = array
            reads = observed.images <= read or layer.name not in observed.in_front
            if (keep or reads) and len(bottoms) == 1 and (convolved := layer.convolved(bottoms[0].shape)):
                area = on_device(tops[0].shape)[2:]
                at = places(layer, area, size, len(observed.batches), seed)
                if keep:
                    _keep_sums(observed, layer, bottoms[0], tops[0], at)
                if reads:
                    few = at[:read, :: ceil_div(at.shape[1], READ)]
                    source = bottoms[0].reshape(on_device(bottoms[0].shape))[:read]
                    rows = patches(source, *convolved, area, few)
                    observed.in_front.setdefault(layer.name, []).append(shelf.put(rows))
            if layer.error_sensitive and (observed.images <= WHOLE_IMAGES or layer.name not in observed.in_front):
                observed.in_front.setdefault(layer.name, []).append(shelf.put(bottoms[0][:WHOLE_IMAGES]))
        if keep:
            observed.numbers.append(len(observed.batches))
            observed.batches.append({blob: shelf.put(array) for blob, array in feeds.items()})
            observed.wanted.append(reference)
        shelf.rest()
    if not observed.images:
        raise UsageError("quantize: there is no calibration image")
    return observed


def _keep_sums(observed: Observed, layer: Layer, bottom: Array, top: Array, at: Array) -> None:
    """Keep the sums of a convolution, before its ReLU, at some places of its top, and their largest magnitudes."""
    sums = layer.forward(bottom)[0] if layer.slope is not None else top
    most = largest_magnitudes(sums, (0, *range(2, sums.ndim)))
    observed.results[layer.name] = np.maximum(observed.results.get(layer.name, most), most)
    rows = at_places(sums.reshape(*sums.shape[:2], *on_device(top.shape)[2:]), at)
    observed.rows.setdefault(layer.name, []).append(observed.shelf.put(rows))


def folded(observed: Observed) -> list[Observed]:
    """Return two cross-validation halves: each fits on every other batch and judges on the rest. Empty for one batch."""
    halves = []
    for odd in (0, 1) if len(observed.batches) > 1 else ():
        fitted, held = observed.numbers[odd::2], observed.numbers[1 - odd :: 2]
        order = [*fitted, *held]
        rows = {name: [each[i] for i in fitted] for name, each in observed.rows.items()}
        peaks = {blob: [each[i] for i in fitted] for blob, each in observed.peaks.items()}
        in_front = {name: each[odd::2] or each for name, each in observed.in_front.items()}
        half = replace(observed, rows=rows, peaks=peaks, in_front=in_front, numbers=order, held=len(held))
        half.batches, half.wanted = [observed.batches[i] for i in order], [observed.wanted[i] for i in order]
        halves.append(half)
    return halves


def equalised(graph: Graph, observed: Observed, by_blob: Mapping[str, Array]) -> Observed:
    """Return the observations that result if the channels of some blobs are divided by factors (C,).

    Blobs without a factor keep their statistics. The histograms of the others take a float pass over the fitting batches,
    which is run on first use.
    """
    rows, in_front, peaks = dict(observed.rows), dict(observed.in_front), dict(observed.peaks)
    results = dict(observed.results)
    for blob, r in by_blob.items():
        peaks[blob] = [each / r.astype(np.float32) for each in peaks[blob]]
    for layer in graph.layers:
        if layer.name in rows and layer.tops[0] in by_blob:
            factors = by_blob[layer.tops[0]].astype(np.float32)
            rows[layer.name] = [observed.shelf.put(r / factors) for r in rows[layer.name]]
            results[layer.name] = results[layer.name] / factors
        if layer.name in in_front and layer.bottoms[0] in by_blob:
            r = by_blob[layer.bottoms[0]].astype(np.float32)[:, None, None]
            if layer.weighted:  # a group's columns are its channels' taps
                group, _, taps = in_front[layer.name][0].shape
                r = np.repeat(r, group * taps // len(r)).reshape(group, 1, taps)
            in_front[layer.name] = [observed.shelf.put(x / r) for x in in_front[layer.name]]
    seen = {blob: h for blob, h in observed.seen.items() if blob not in by_blob}
    batches = observed.batches[: observed.fitted]
    count = partial(_divided, graph, batches, by_blob)
    return replace(observed, seen=seen, count=count, rows=rows, in_front=in_front, peaks=peaks, results=results)


def _divided(graph: Graph, batches: Iterable[Batch], by_blob: Mapping[str, Array]) -> dict[str, Histogram]:
    """Return the histograms of blobs whose channels are divided by factors (C,)."""
    scales = {blob: (1 / r).astype(np.float32)[:, None, None] for blob, r in by_blob.items()}
    seen: dict[str, Histogram] = {}
    for feeds in batches:
        for layer, _, tops in in_float(graph, feeds):
            for blob, array in zip(layer.tops, tops):
                if blob in scales:
                    seen.setdefault(blob, Histogram()).add(array * scales[blob])
    return seen


def _add(observed: Observed, blob: str, array: Array, layer: Layer | None, graph: Graph, keep: bool) -> None:
    array = without_lowest(array)
    largest = largest_magnitudes(array)
    if not np.isfinite(largest):
        what = f"{graph.caffe_name(blob)!r} has values that are not finite on the calibration images"
        raise ModelError(f"input {what}") if layer is None else layer.failure(ModelError(f"blob {what}"))
    observed.seen.setdefault(blob, Histogram()).add(array)
    if array.ndim == 4:
        top = largest_magnitudes(array, (0, 2, 3))
        peaks = observed.peaks.setdefault(blob, [])
        if keep or not peaks:
            peaks.append(top)
        else:  # fold batches that are not kept into the last one that is
            peaks[-1] = np.maximum(peaks[-1], top)


def measured(graph: Graph) -> list[str]:
    """Return the blobs by which a network is judged: its outputs, or the inputs of layers that output boxes or indices."""
    blobs: list[str] = []
    waiting = graph.output_blobs
    while waiting:
        blob = waiting.pop(0)
        layer = graph.writers[blob]
        if layer.dynamic or layer.indices:
            waiting += layer.bottoms
        elif blob not in blobs and not layer.source:
            blobs.append(blob)
    return blobs


def cost(graph: Graph, blob: str, exact: Array, quantised: Array, temperature: float = 1.0) -> Array:
    """Return a blob's error against float for each image.

    For class probabilities that is KL(float || fixed) in nats (mean over positions), with softmax(logits / T) at
    ``temperature`` T; for other blobs it is error energy / signal energy. An error that is not finite costs USELESS.
    """
    writer = graph.writers[blob]
    images = len(exact) if exact.ndim else 1
    a, b = exact.astype(np.float64), quantised.astype(np.float64)
    if writer.decision == "softmax":
        axis = writer.axis(writer.params.axis, exact.shape)
        p, q = _logarithms(a, axis, temperature), _logarithms(b, axis, temperature)
        nats = (np.exp(p) * (p - q)).sum(axis)
        each = np.atleast_1d(nats).reshape(images, -1).mean(1) if axis else np.full(images, nats.mean())
        return np.where(np.isfinite(each), each, USELESS)
    a, b = a.reshape(images, -1), b.reshape(images, -1)
    signal = (a * a).sum(1)
    error = ((a - b) ** 2).sum(1)
    ratio = error / np.where(signal > 0, signal, 1)
    return np.where(np.isfinite(ratio), ratio, USELESS)


def _logarithms(probabilities: Array, axis: int, temperature: float) -> Array:
    softened: Array = np.log(probabilities + 1e-12) / temperature
    softened -= np.log(np.exp(softened).sum(axis, keepdims=True))
    return softened


def places(layer: Layer, size: tuple[int, ...], images: int, batch: int, seed: int) -> Array:
    """Sample flat output positions (images, P) of a convolution, reproducible by seed, layer and batch."""
    area = size[0] * size[1]
    count = min(area, ROWS)
    if count == area:
        return np.broadcast_to(np.arange(area), (images, area))
    draw = np.random.default_rng([seed, crc32(layer.name.encode()), batch])
    return draw.integers(0, area, (images, count))


def at_places(blob: Array, at: Array) -> Array:
    """Return the rows (images * P, C) of a blob (N, C, H, W) at these positions."""
    n, c = blob.shape[:2]
    picked = np.take_along_axis(blob.reshape(n, c, -1), at[:, None, :], 2)
    return np.ascontiguousarray(picked.transpose(0, 2, 1)).reshape(-1, c)


def patches(blob: Array, window: Window, group: int, size: tuple[int, ...], at: Array) -> Array:
    """Return the inputs of a convolution at these output positions (im2col): (group, images * P, C / group * kh * kw)."""
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
    """Yield batches up to a total of ``limit`` images; the last one is cut to fit."""
    left = sys.maxsize if limit is None else limit
    for feeds in inputs if left > 0 else ():
        size = images_of(feeds)
        yield feeds if size <= left else {blob: array[:left] for blob, array in feeds.items()}
        left -= size
        if left <= 0:
            return
