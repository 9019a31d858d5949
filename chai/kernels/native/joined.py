"""A BatchNorm, a Scale, or both, computed with the convolution before them, whose sums nothing else reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, pairwise

from ...blob import Array
from ...util.lazy_numpy import np
from . import Link, NativeLayer
from .packed import ChannelTable
from .table import Kind


def joined(links: Sequence[Link], kept: Collection[str]) -> list[Link]:
    """Return consecutive layers of which those after such a convolution are other names of its top.

    ``kept`` blobs are read outside. Every bit is that of layers one by one.
    """
    readers = Counter(chain.from_iterable(link.reads for link in links))
    result = list(links)
    for i, link in enumerate(links):
        if link.native.scaled is None:
            continue
        after = _after(links[i : i + 3], readers, kept)
        if after:
            table, rectified = _table(link.native, [each.native for each in after])
            result[i] = replace(link, native=link.native.scaled(table, rectified))
            for j, each in enumerate(after, i + 1):
                result[j] = replace(each, native=NativeLayer(None))
    return result


def _after(links: Sequence[Link], readers: Counter[str], kept: Collection[str]) -> list[Link]:
    """Return those after a convolution, the first, that can be computed with it: a BatchNorm, a Scale, or both in this order."""
    after: list[Link] = []
    kinds = {Kind.NORMALISE, Kind.SCALE}
    for last, link in pairwise(links):
        (blob,), before, single = last.writes, links[0].native.single, link.native.single
        if before is None or single is None or link.reads != (blob,) or readers[blob] > 1 or blob in kept:
            break
        this, of = single.operation, before.operation
        if this.kind not in kinds or (this.images, this.channels) != (of.images, of.outputs):
            break
        after.append(link)
        if this.kind == Kind.SCALE or this.negative >= 0:
            break
        kinds = {Kind.SCALE}
    return after


def _table(convolution: NativeLayer, after: Sequence[NativeLayer]) -> tuple[ChannelTable, bool]:
    """Return what the layers after a convolution make of its sums, and whether a ReLU follows."""
    assert convolution.single is not None
    operation, norm, scale, rectified = convolution.single.operation, None, tuple[Array, ...](), False
    for layer in after:
        assert layer.single is not None
        last = layer.single.operation
        rectified = last.negative >= 0
        if last.kind == Kind.NORMALISE:
            mean, variance, divisor = layer.parameters
            norm = mean, variance, divisor, float(np.int32(last.factor).view(np.float32))
        else:
            scale = layer.parameters
    bias = convolution.parameters[1] if operation.bias >= 0 else None
    return ChannelTable(int(operation.outputs), bias, norm, scale), rectified
