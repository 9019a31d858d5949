"""Measure formats on the first of many batches, before any of them runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from ..offload.formats import given
from ..offload.headroom import IMAGES
from .measuring import computing, stored

if TYPE_CHECKING:
    from ..images.pictures import Feed
    from .source import Network

Batch = TypeVar("Batch")


def ahead(net: Network, batches: Iterable[Batch], feed: Callable[[Batch], Mapping[str, Feed]]) -> Iterator[Batch]:
    """Return the batches, which ``forward`` is to get, after the formats of ``net`` were measured on the first of them.

    These are so many that they have ``IMAGES`` images. A network that has formats, or has nothing on an overlay, needs none. If
    a custom layer would have to run for it, which may have a state, the first pass measures them.
    """
    rest = iter(batches)
    if net.overlay is None or net.calibrated or given(net.graph):
        return rest
    first, feeds, images = list[Batch](), list[Mapping[str, "Feed"]](), 0
    while images < IMAGES and (batch := next(rest, None)) is not None:
        first.append(batch)
        feeds.append(feed(batch))
        images += next((one.shape[0] for one in feeds[-1].values() if one.ndim), 1)
    if feeds:
        net.reshape(**{blob: one.shape for blob, one in feeds[0].items()})
        layers = computing(net.graph, stored(net.offload.plan)).layers
        if not any(layer.engine == "custom" for layer in layers):
            net.calibrate(iter(feeds))
    return chain(first, rest)
