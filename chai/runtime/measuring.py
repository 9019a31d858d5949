"""Measure what the formats of a network need: the largest magnitudes of the blobs that an overlay stores, in float passes.

Only the layers that these blobs are computed from run. In a pass that the user asked for, custom layers run once: what they
wrote while the formats were measured is what they write in that pass (``Written``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..blob import Array, Shape, images_of
from ..errors import ModelError
from ..fixed import Format, largest_magnitudes, without_lowest
from ..graph import Graph
from ..images.pictures import Feed, in_floats
from ..offload.formats import brought, calibrated, has_formats as has_formats, unsigned_blobs
from ..offload.headroom import IMAGES as IMAGES, Basis
from ..offload.plan import Plan
from ..passes.infer_shapes import infer_shapes
from ..tasks.arithmetic import arithmetic
from ..util.lazy_numpy import np
from ..util.log import logger
from .renewing import Renewing, Shown, Written
from .steps.forward import run
from .steps.layers import check_weights

log = logger("chai")


def choose(
    graph: Graph, plan: Plan, batches: Iterable[Mapping[str, Feed]], bits: int, scheme: str, keep: bool
) -> tuple[Mapping[str, Format], Basis | None, Mapping[str, Shown]]:
    """Return the formats of a network's blobs on an overlay: those that it brings, else measured on these batches.

    And what they are based on if they were measured, and what custom layers wrote in that pass, if that is to be kept.
    ``plan`` is without formats. If nothing is on the overlay, there is nothing to measure.
    """
    if (formats := brought(plan)) is not None:
        return formats, None, {}
    if not (blobs := stored(plan)):
        return {}, None, {}
    images, ranges, shown = measure(graph, blobs, batches, keep)
    basis = Basis(images, bits, scheme)
    return _covering(plan, basis.widened(ranges), bits, scheme), basis, shown


def placeholders(plan: Plan, bits: int, scheme: str) -> tuple[Mapping[str, Format], bool]:
    """Return formats to show a schedule with before the first batch: the network's own, which is True then, or any."""
    if (formats := brought(plan)) is not None:
        return formats, True
    ones = {blob: 1.0 for layer in plan.graph.layers for blob in (*layer.bottoms, *layer.tops)}
    return _covering(plan, ones, bits, scheme), False


def _covering(plan: Plan, ranges: Mapping[str, float], bits: int, scheme: str) -> dict[str, Format]:
    """Return the formats that cover these largest magnitudes on the overlay of a Plan."""
    host = plan.partition.reasons
    unsigned = unsigned_blobs(plan.graph, plan.overlay, host)
    return calibrated(plan.graph, ranges, bits, scheme, host, unsigned, arithmetic(plan.overlay).one_format)


def unsigned_dropped(plan: Plan) -> int:
    """Return how many blobs have signed codes only because the overlay has no unsigned ones."""
    precisions = [layer.precision for layer in plan.graph.layers if layer.precision is not None]
    return 0 if plan.overlay.unsigned else sum(precision.chai_unsigned_out for precision in precisions)


def stored(plan: Plan) -> set[str]:
    """Return the blobs that the overlay may store as codes, by a Plan without formats. Weights may still refuse some."""
    blobs = {blob for layer in plan.partition.on("fpga") for blob in (*layer.bottoms, *layer.tops)}
    on_host = arithmetic(plan.overlay).on_host
    for layer in plan.graph.layers if blobs else ():
        bottoms = tuple(plan.shapes[b] for b in layer.bottoms)
        if not layer.source and layer.beside(on_host).takes_codes(bottoms):
            blobs.update(layer.tops)
    return blobs


def measure(
    graph: Graph, blobs: set[str], batches: Iterable[Mapping[str, Feed]], keep: bool
) -> tuple[int, Mapping[str, float], Mapping[str, Shown]]:
    """Run batches through the layers that ``blobs`` are computed from; return number of images and largest magnitudes.

    ``keep`` what custom layers wrote, of one batch, which is returned, too.
    """
    part = replace(graph, layers=graph.computing(blobs))
    custom = frozenset(layer.name for layer in part.layers if keep and layer.engine == "custom")
    renewing, images, ranges, shown = Renewing(part.layers), 0, dict[str, float](), list[Mapping[str, Shown]]()

    def watch(blob: str, values: Array) -> None:
        if blob in blobs:  # np.maximum, unlike max, returns NaN if one of both is
            ranges[blob] = float(np.maximum(ranges.get(blob, 0.0), largest_magnitudes(without_lowest(values))))

    for feeds in batches:
        images += images_of(feeds)
        for sizes, one in single(part, feeds):
            values = in_floats(one)
            for blob, feed in values.items():
                watch(blob, feed)
            written = Written(custom) if keep else renewing.batch()
            renewing.planned(partial(_run, part, sizes, values, watch, written))
            shown.append(written.shown if keep else {})
    return images, ranges, _joined(shown)


def _run(
    graph: Graph,
    sizes: Mapping[str, Shape],
    feeds: Mapping[str, Array],
    watch: Callable[[str, Array], None],
    written: Written,
) -> None:
    if written.sizes:
        sizes = infer_shapes(graph, {blob: feed.shape for blob, feed in feeds.items()}, renewed=written.sizes)
    run(graph, sizes, feeds, (), watch, written)


def _joined(images: Sequence[Mapping[str, Shown]]) -> Mapping[str, Shown]:
    """Return what custom layers wrote for a batch from what they wrote for each image."""
    joined: dict[str, Shown] = {}
    for name, first in images[0].items() if images else ():
        every = [shown[name] for shown in images]
        tops = first.tops if len(every) == 1 else tuple(map(np.concatenate, zip(*(shown.tops for shown in every))))
        joined[name] = Shown(tops, sum(shown.ms for shown in every))
    return joined


def single(graph: Graph, feeds: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Shape], Mapping[str, Any]]]:
    """Yield each image of a batch on its own with the shapes of all blobs; the batch if it cannot be split.

    So memory does not grow with the images, and the numbers do not depend on how many a batch has: a matrix product may
    round differently in another size.
    """
    whole = {blob: feed.shape for blob, feed in feeds.items()}
    sizes = infer_shapes(graph, whole)
    count = images_of(feeds)
    one: Mapping[str, Shape] = {}
    if all(layer.images_alone(tuple(sizes[b] for b in layer.bottoms)) for layer in graph.layers):
        try:
            one = infer_shapes(graph, {blob: (1, *shape[1:]) for blob, shape in whole.items()})
            check_weights(graph.layers, one)
        except ModelError:
            one = {}  # a layer has the number of images in its parameters
    alone = one.keys() == sizes.keys()
    if alone and all(s[:1] == (count,) and one[b] == (1, *s[1:]) for b, s in sizes.items()):
        yield from ((one, {blob: feed[i : i + 1] for blob, feed in feeds.items()}) for i in range(count))
    else:
        yield sizes, feeds
