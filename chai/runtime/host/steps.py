"""The steps of a pass on the host: a layer alone, or layers in C that follow each other, together in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain as chained, groupby
from operator import attrgetter, is_
from time import perf_counter
from typing import NamedTuple

from ...blob import Array, Shape
from ...graph import Layer
from ...kernels.native import Link, NativeLayer
from ...kernels.native.chain import NativeChain
from ...kernels.native.library import Library
from ...kernels.native.packed import ChannelTable, PackedFilters
from ..renewing import Written
from ..times import Rows, RunTimes
from .layer import SMALL, PreparedLayer, short_of_memory
from .memory import BlobLog, ChainMemory

APART = 1 << 20  # bytes of a blob of several images that run together, at most; those of one are in nearer caches
_weights = attrgetter("blobs")


class Values:
    """The blobs of a pass that began at ``started``, by id.

    ``log`` is for the peak of memory, None if that is known. ``watch`` is called with each blob that a layer alone wrote.
    ``written`` is what custom layers wrote for this batch.
    """

    def __init__(
        self,
        feeds: Mapping[str, Array],
        started: float,
        log: BlobLog | None,
        watch: Callable[[str, Array], None] | None,
        written: Written,
    ) -> None:
        self.blobs: dict[str, Array] = {}
        self.started, self.log, self.watch, self.written = started, log, watch, written
        for blob, feed in feeds.items():
            self.add(blob, feed)

    def add(self, blob: str, array: Array) -> None:
        """Add a blob."""
        self.blobs[blob] = array
        if self.log is not None:
            self.log.add(blob, array)

    def drop(self, blobs: Sequence[str]) -> None:
        """Remove those of some blobs that are there."""
        for blob in blobs:
            self.blobs.pop(blob, None)
        if self.log is not None:
            self.log.drop(blobs)


class Alone(NamedTuple):
    """A layer; ``dropped`` blobs have no readers after it.

    ``compute`` replaces its forward.
    ``native`` computes the same in C; ``single`` does for one of several images, which then run one after the other.
    """

    layer: PreparedLayer
    compute: Callable[..., tuple[Array, ...]] | None
    dropped: Sequence[str]
    native: NativeLayer | None = None
    single: NativeLayer | None = None

    @property
    def images(self) -> int:
        """Return the number of images that run one after the other."""
        return 1 if self.single is None else self.layer.bottoms[0][0]

    @property
    def small(self) -> bool:
        """Return whether it can run in C together with others."""
        return self.native is not None and self.layer.largest // self.images <= SMALL

    @property
    def in_c(self) -> bool:
        """Return whether C computes something."""
        return self.native is not None and self.native.single is not None

    def run(self, values: Values) -> RunTimes:
        """Run it on the blobs of a pass, and add those that it writes; return the time."""
        layer = self.layer.layer
        bottoms = [values.blobs[b] for b in layer.bottoms]
        if layer.engine == "custom":
            tops, run = self.layer.once(bottoms, values.started, values.written)
        else:
            tops, run = self.layer.run(bottoms, values.started, self.compute)
        for blob, top in zip(layer.tops, tops):
            values.add(blob, top)
            if values.watch is not None:
                values.watch(blob, top)
        return run


class Together(NamedTuple):
    """Consecutive layers that run as one ``chain``.

    ``weights`` are the arrays that it reads, ``packed`` copies of some, which are written again where a program may have changed
    them. It runs for each of several ``images``. ``memory`` is for what is inside a chain.
    """

    chain: NativeChain
    rows: Rows
    layers: Sequence[Layer]
    weights: Sequence[Array]
    packed: Sequence[tuple[Layer, PackedFilters | ChannelTable]]
    dropped: Sequence[str]
    memory: ChainMemory
    images: int

    @classmethod
    def of(cls, steps: Sequence[Alone], kernels: Library, shapes: Mapping[str, Shape], memory: ChainMemory) -> Together:
        """Return the steps, which have a ``native`` each, as one."""
        layers = [step.layer.layer for step in steps]
        finished = {blob for step in steps for blob in step.dropped}
        tops = {top for layer in layers for top in layer.tops}
        images = steps[0].images
        natives = [step.native if images == 1 else step.single for step in steps]
        links = [Link(native, layer.bottoms, layer.tops) for native, layer in zip(natives, layers) if native]
        if images > 1:
            blobs = {*tops, *chained.from_iterable(layer.bottoms for layer in layers)}
            shapes = {blob: (1, *shapes[blob][1:]) for blob in blobs}
        rows = Rows.of([step.layer.rows for step in steps])
        chain = NativeChain(kernels, links, shapes, tops - finished)
        packed = [(layer, each) for layer, link in zip(layers, chain.links) for each in link.native.packed]
        return cls(chain, rows, layers, _weights_of(layers), packed, [*finished.difference(tops)], memory, images)

    @property
    def stale(self) -> bool:
        """Return whether a layer has other arrays of trained parameters by now."""
        arrays = _weights_of(self.layers)
        return len(arrays) != len(self.weights) or not all(map(is_, arrays, self.weights))

    def run(self, values: Values) -> RunTimes:
        """Run the chain on the blobs of a pass, and add those that it writes; return the times."""
        begin, chain, log = perf_counter(), self.chain, values.log
        try:
            for layer, packed in self.packed:
                if layer.lent:
                    packed.write()
            memory = self.memory.take(chain)
            if log is not None:
                log.add(id(chain), memory[: chain.size])
            arrays, times = chain.run(values.blobs, memory, self.images)
        except MemoryError as error:
            raise short_of_memory(self.layers[-1]) from error
        for blob, array in zip(chain.writes, arrays):
            values.add(blob, array)
        if log is not None:
            log.drop((id(chain),))
        self.memory.put(memory)
        return RunTimes(self.rows, times, (begin - values.started) * 1000)


def _weights_of(layers: Iterable[Layer]) -> list[Array]:
    return [*chained.from_iterable(map(_weights, layers))]


def of_one_image(prepared: PreparedLayer, form: NativeLayer | None, rectified: bool) -> NativeLayer | None:
    """Return what computes a layer in C for one of several images; None if ``form``, that of all, does not keep images apart.

    None also for an output of one pixel, as of an inner product: each row of weights is read once for all images.
    """
    shapes = (*prepared.bottoms, *prepared.tops)
    images = shapes[0][0] if shapes and shapes[0] else 0
    if form is None or images < 2 or any(not shape or shape[0] != images for shape in shapes):
        return None
    if form.single is None:
        return NativeLayer(None, parts=min(form.parts, 1)) if form.parts in (0, images) else None
    of = form.single.operation
    if of.images != images or len({*prepared.bottoms}) > 1 or (form.parameters and of.out_height * of.out_width == 1):
        return None
    return prepared.native(rectified, tuple([(1, *bottom[1:]) for bottom in prepared.bottoms]))


def together(
    steps: Iterable[Alone], kernels: Library, shapes: Mapping[str, Shape], memory: ChainMemory
) -> Iterator[Alone | Together]:
    """Yield steps, those in C as chains: consecutive ones with small blobs as one chain, one with large blobs as its own.

    Where blobs are large, images run one after the other, if they can; the steps that follow do so, too, in the same chain.
    """
    apart, chosen = False, list[Alone]()
    for step in steps:
        apart = step.single is not None and (apart or step.layer.largest > APART)
        chosen.append(step if apart else step._replace(single=None))
    for (small, _), group in groupby(chosen, attrgetter("small", "images")):
        some = [*group]
        for part in [some] if small else [[step] for step in some]:
            if any(step.in_c for step in part):
                yield Together.of(part, kernels, shapes, memory)
            else:
                yield from part
