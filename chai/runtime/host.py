"""One forward pass on the host."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import Shape, show
from ..env import env
from ..errors import ModelError, PluginError
from ..graph import Graph, Layer
from ..plugins.failure import NO_PARAMETERS
from ..util.lazy_numpy import np
from .dump import dump
from .perf import PerfInfo, StepTime

if TYPE_CHECKING:
    from ..blob import Array

CLAIMED = 24 << 20  # bytes at most


def run_layer(
    layer: Layer,
    bottoms: Sequence[Array],
    shapes: Mapping[str, Shape],
    started: float,
    compute: Callable[..., tuple[Array, ...]] | None = None,
) -> tuple[tuple[Array, ...], StepTime]:
    """Return a layer's tops in float32, after its fused ReLU if it has one, and its time.

    ``compute`` replaces the layer's forward: on codes, which the tops are then, too, or in place. ``started`` is the
    start of the pass. Raises ShapeError if the tops do not have the shapes of the layer's rule, ModelError if memory
    runs out, and any error of the layer.
    """
    with layer.turn:
        begin = perf_counter()
        try:
            tops = compute(*bottoms) if compute is not None else _forward(layer, bottoms)
        except MemoryError as error:
            what = f"layer {layer.name!r} ({layer.type}): not enough memory"
            raise ModelError(what, layer=layer.name, hint="a smaller batch needs less") from error
        ms = (perf_counter() - begin) * 1000
    given = tuple([b.shape for b in bottoms])
    wanted = tuple([shapes[t] for t in layer.tops])
    if given != tuple([shapes[b] for b in layer.bottoms]):  # after a layer whose tops have a variable number of rows
        wanted = layer.shapes(*given)
    for blob, top, shape in zip(layer.tops, tops, wanted):
        if top.shape != shape and not layer.dynamic:
            raise layer.wrong(f"wrote {show(top.shape)}, its shape rule says {show(shape)}")
        dump(blob, layer.name, top)
    macs = layer.macs(given, tuple([t.shape for t in tops]))
    written = sum([t.nbytes for t in tops])
    return tops, StepTime(
        layer.name,
        layer.type,
        layer.engine,
        ms,
        macs,
        written,
        layer.bottoms,
        layer.tops,
        (begin - started) * 1000,
        layers=layer.origin,
    )


def _forward(layer: Layer, bottoms: Sequence[Array]) -> tuple[Array, ...]:
    # numpy 1 converts scalars to float64; a blob is always float32
    tops = tuple(np.asarray(top, np.float32) for top in layer.forward(*bottoms))
    if layer.slope is not None and not layer.clamps:
        slope = np.float32(layer.slope)
        tops = tuple(np.where(t < 0, slope * t, t) if slope else np.maximum(t, 0) for t in tops)
    if layer.ceiling is not None:
        tops = tuple(np.minimum(t, np.float32(layer.ceiling)) for t in tops)
    return tops


def _unchanged(*bottoms: Array) -> tuple[Array, ...]:
    return bottoms


def claim(graph: Graph, shapes: Mapping[str, Shape]) -> None:
    """Allocate and free memory before the first pass, which would otherwise spend a tenth of its time on this.

    The allocator keeps freed memory; glibc's does so from the second free of a block on, up to 32 MB.
    """
    blobs = ((*layer.bottoms, *layer.tops) for layer in graph.layers)
    largest = max((sum(prod(shapes[b]) for b in around if b in shapes) for around in blobs), default=0)
    size = min(2 * 4 * largest, CLAIMED)  # a kernel needs about as much again as scratch memory
    for _ in range(2):
        np.empty(size, np.uint8)[:: mmap.PAGESIZE] = 0


class Alive:
    """Counts the bytes of arrays that exist at once, by their names; views of one array count once.

    ``peak`` is their largest number so far.
    """

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self._owners: dict[Hashable, int] = {}
        self._arrays: dict[int, tuple[int, int]] = {}  # of each owner of memory: its names, and the bytes they count

    def add(self, name: Hashable, array: Array) -> None:
        """Count an array, which has to exist until ``drop``; it replaces one of the same name."""
        self.drop(name)
        owner = id(array if array.base is None else array.base)
        names, counted = self._arrays.get(owner, (0, 0))
        size = max(counted, array.nbytes)
        self._owners[name] = owner
        self._arrays[owner] = names + 1, size
        self.bytes += size - counted
        self.peak = max(self.peak, self.bytes)

    def alone(self, name: Hashable) -> bool:
        """Return whether no other name is for the same memory."""
        return self._arrays[self._owners[name]][0] == 1

    def drop(self, name: Hashable) -> None:
        """Count the array of this name no longer, if there is one."""
        owner = self._owners.pop(name, None)
        if owner is None:
            return
        names, size = self._arrays.pop(owner)
        if names > 1:
            self._arrays[owner] = names - 1, size
        else:
            self.bytes -= size


def run(
    graph: Graph,
    shapes: Mapping[str, Shape],
    feeds: Mapping[str, Array],
    keep: Collection[str],
    started: float | None = None,
    watch: Callable[[str, Array], None] | None = None,
) -> tuple[dict[str, Array], PerfInfo]:
    """Return the blobs of ``keep`` (ids) and the times of the pass since ``started`` (default: now).

    Layers run one by one in prototxt order; blobs are dropped after their last reader, which may overwrite them. A ReLU may be
    computed with the layer before it, and takes no time of its own then. ``watch`` is called with each blob that a layer
    wrote. Raises PluginError for a failing custom layer, ModelError if memory runs out.
    """
    started = perf_counter() if started is None else started
    values: dict[str, Array] = dict(feeds)
    steps: list[StepTime] = []
    alive, between = Alive(), 0.0
    new: set[str] = set()  # blobs whose memory is the pass's own
    for blob, feed in feeds.items():
        alive.add(blob, feed)
    joined = graph.rectified if watch is None and env().dump is None else frozenset[int]()
    ready = -1  # place of a ReLU that is computed already
    last = perf_counter()
    before = (last - started) * 1000
    with np.errstate(all="ignore"):  # as in Caffe, an overflow is inf without a warning
        for i, (layer, finished) in enumerate(zip(graph.layers, graph.last_readers)):
            ms = 0.0
            if not layer.source:
                only = layer.bottoms[0] if layer.overwrites else ""
                spare = only in new and only in finished and only not in keep and alive.alone(only)
                compute: Callable[..., tuple[Array, ...]] | None = layer.overwrite if spare else None
                if i == ready:
                    compute = _unchanged
                elif i in joined and layer.tops[0] not in keep:
                    compute, ready = layer.rectified, i + 1
                tops, step = run_layer(layer, [values[b] for b in layer.bottoms], shapes, started, compute)
                if layer.new_tops:
                    new.update(layer.tops)
                if layer.engine == "custom":  # its function may have kept them
                    new.difference_update(layer.bottoms)
                for blob, top in zip(layer.tops, tops):
                    values[blob] = top
                    alive.add(blob, top)
                    if watch is not None:
                        watch(blob, top)
                steps.append(step)
                ms = step.ms
            for blob in finished:
                if blob not in keep and blob in values:
                    alive.drop(blob)
                    del values[blob]
            now = perf_counter()
            between += (now - last) * 1000 - ms
            last = now
    total = sum(s.bytes for s in steps) + sum(f.nbytes for f in feeds.values())
    batch = next((f.shape[0] for f in feeds.values() if f.ndim), 1)
    wall = (perf_counter() - started) * 1000
    return values, PerfInfo(tuple(steps), wall, batch, alive.peak, total, before, between)


def prepare(layer: Layer, shapes: Mapping[str, Shape], without_weights: bool) -> None:
    """Prepare a layer before the first image. ``without_weights``: it may lack its trained parameters."""
    try:
        layer.prepare(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops if t in shapes))
    except PluginError as error:
        if not without_weights or error.hint != NO_PARAMETERS:
            raise
        # its function may need missing parameters: that is an error when it runs, but not when it is planned
