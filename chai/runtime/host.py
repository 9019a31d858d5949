"""One forward pass on the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain as chained, groupby
from math import prod
from operator import attrgetter, is_
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ..blob import Shape, is_plain
from ..env import env
from ..graph import Graph, Layer
from ..kernels.compiled import compiled
from ..kernels.native.links import Link, Native
from ..util.lazy_numpy import np
from .layers import Alive, PreparedLayer, check_weights, short_of_memory
from .times import Rows, Run, Steps, Times

if TYPE_CHECKING:
    from ..blob import Array
    from ..kernels.native.chain import Chain
    from ..kernels.native.floats import Floats

_weights = attrgetter("blobs")
SMALL = 4 << 20  # bytes of a blob whose layers run together: their calls take a part of their time


def _read_by_custom(layers: Sequence[Layer]) -> set[str]:
    """Return the blobs that custom functions read, and may keep; also those that they read as a view of their memory."""
    read: set[str] = set()
    for layer in reversed(layers):
        if layer.engine == "custom" or not (layer.new_tops or read.isdisjoint(layer.tops)):
            read.update(layer.bottoms)
    return read


def _unchanged(*bottoms: Array) -> tuple[Array, ...]:
    return bottoms


class _Step(NamedTuple):
    """A layer in a pass that keeps certain blobs; a source of inputs is None.

    ``compute`` replaces its forward. It may overwrite ``spare`` if nothing else is in the same memory.
    ``native`` computes the same in C.
    """

    layer: PreparedLayer | None
    compute: Callable[..., tuple[Array, ...]] | None
    spare: str
    dropped: Sequence[str]
    native: Native | None = None


class _Together(NamedTuple):
    """Consecutive layers that run as one ``chain``; ``weights`` are the arrays that it reads."""

    chain: Chain
    rows: Rows
    layers: Sequence[Layer]
    weights: Sequence[Array]
    dropped: Sequence[str]

    @classmethod
    def of(cls, steps: Sequence[_Step], kernels: Floats, shapes: Mapping[str, Shape]) -> _Together:
        """Return the steps, which have a ``native`` each, as one."""
        layers = [step.layer.layer for step in steps if step.layer is not None]
        finished = {blob for step in steps for blob in step.dropped}
        tops = {top for layer in layers for top in layer.tops}
        links = [Link(step.native, layer.bottoms, layer.tops) for step, layer in zip(steps, layers) if step.native]
        rows = tuple([row for step in steps if step.layer is not None for row in step.layer.rows.steps])
        chain = kernels.chain(links, shapes, tops - finished)
        return cls(chain, Rows(*rows), layers, _weights_of(layers), [*finished.difference(tops)])

    @property
    def stale(self) -> bool:
        """Return whether a layer has other arrays of trained parameters by now."""
        arrays = _weights_of(self.layers)
        return len(arrays) != len(self.weights) or not all(map(is_, arrays, self.weights))


def _weights_of(layers: Iterable[Layer]) -> list[Array]:
    return [*chained.from_iterable(map(_weights, layers))]


class _Kept:
    """The steps of the passes that keep the same blobs, and the bytes of blobs alive at once; None if these are to be counted.

    They are the same in every pass, unless sizes are known in the pass only. What a ReLU may overwrite is counted, too.
    """

    def __init__(self, steps: Sequence[_Step | _Together]) -> None:
        self.steps = steps
        self.peak: int | None = None
        self._together = [step for step in steps if isinstance(step, _Together)]
        alone = [step for step in steps if isinstance(step, _Step)]
        self.fixed = not any(step.spare or (step.layer is not None and step.layer.layer.dynamic) for step in alone)

    @property
    def stale(self) -> bool:
        """Return whether a layer in C has other arrays of trained parameters by now."""
        return any(step.stale for step in self._together)


class HostPass:
    """The layers of a graph, prepared to run one by one, in prototxt order, on blobs of certain shapes.

    Raises ShapeError if their trained parameters have other shapes than they need.
    """

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape]) -> None:
        self.graph, self.shapes = graph, shapes
        check_weights(graph.layers, shapes)
        self._layers = [None if layer.source else PreparedLayer(layer, shapes) for layer in graph.layers]
        self._kept: dict[tuple[frozenset[str], bool], _Kept] = {}
        self._custom = _read_by_custom(graph.layers)
        self._memory: list[Array] = []  # of chains, for each pass that runs at a time

    def _keeping(self, keep: frozenset[str], every: bool) -> _Kept:
        """Return the steps of passes that keep these blobs; ``every`` blob is to be written, also those before a ReLU."""
        joined = frozenset[int]() if every else self.graph.rectified
        new: set[str] = set()  # blobs whose memory is the pass's own
        computed, steps = -1, list[_Step]()  # place of a ReLU that is computed already
        kernels = None if every else compiled()
        varying: set[str] = set()  # blobs whose shapes are known in the pass only
        for i, (prepared, finished) in enumerate(zip(self._layers, self.graph.last_readers)):
            dropped, spare, compute = [blob for blob in finished if blob not in keep], "", None
            native = None
            if prepared is not None:
                layer = prepared.layer
                if layer.dynamic or not varying.isdisjoint(layer.bottoms):
                    varying.update(layer.tops)
                if i == computed:
                    compute = _unchanged
                elif i in joined and layer.tops[0] not in keep:
                    compute, computed = layer.rectified, i + 1
                elif layer.overwrites and layer.bottoms[0] in new and layer.bottoms[0] in dropped:
                    spare = layer.bottoms[0]
                if layer.new_tops:
                    new.update(set(layer.tops) - self._custom)
                if kernels is not None and varying.isdisjoint((*layer.bottoms, *layer.tops)):
                    native = Native(None) if i == computed else _native(prepared, rectified=computed > i)
            steps.append(_Step(prepared, compute, spare, dropped, native))
        return _Kept(steps if kernels is None else [*_together(steps, kernels, self.shapes)])

    def run(
        self,
        feeds: Mapping[str, Array],
        keep: Collection[str],
        started: float | None = None,
        watch: Callable[[str, Array], None] | None = None,
    ) -> tuple[dict[str, Array], Times]:
        """Return the blobs of ``keep`` (ids) and the times of the pass since ``started`` (default: now).

        Blobs are dropped after their last reader, which may overwrite them. A ReLU may be computed with the layer before
        it, and a Concat where its bottoms are; they take no time of their own then. ``watch`` is called with each blob
        that a layer wrote. Raises PluginError for a failing custom layer, ModelError if memory runs out.
        """
        started = perf_counter() if started is None else started
        key = frozenset(keep), watch is not None or bool(env().dump)
        kept = self._kept.get(key)
        if kept is None or kept.stale:
            kept = self._kept[key] = self._keeping(*key)
        values: dict[str, Array] = dict(feeds)
        runs: list[Run] = []
        alive, between = Alive() if kept.peak is None else None, 0.0
        for blob, feed in feeds.items():
            if alive is not None:
                alive.add(blob, feed)
        last = perf_counter()
        before = (last - started) * 1000
        with np.errstate(all="ignore"):  # as in Caffe, an overflow is inf without a warning
            for step in kept.steps:
                ms = 0.0
                if isinstance(step, _Together):
                    run = self._run_together(step, values, alive, started)
                    runs.append(run)
                    ms = sum(run.ms)
                elif step.layer is not None:
                    prepared, compute, spare = step.layer, step.compute, step.spare
                    layer = prepared.layer
                    if spare and alive is not None and alive.alone(spare):
                        compute = layer.overwrite
                    tops, run = prepared.run([values[b] for b in layer.bottoms], started, compute)
                    for blob, top in zip(layer.tops, tops):
                        values[blob] = top
                        if alive is not None:
                            alive.add(blob, top)
                        if watch is not None:
                            watch(blob, top)
                    runs.append(run)
                    (ms,) = run.ms
                for blob in step.dropped:
                    if alive is not None:
                        alive.drop(blob)
                    values.pop(blob, None)
                now = perf_counter()
                between += (now - last) * 1000 - ms
                last = now
        total = sum([run.rows.bytes for run in runs]) + sum([f.nbytes for f in feeds.values()])
        batch = next((f.shape[0] for f in feeds.values() if f.ndim), 1)
        peak = alive.peak if alive is not None else kept.peak or 0
        if kept.fixed:
            kept.peak = peak
        wall, composed = (perf_counter() - started) * 1000, self.graph.composed
        return values, Times(Steps(runs), wall, batch, peak, total, before, between, composed=composed)

    def _run_together(self, step: _Together, values: dict[str, Array], alive: Alive | None, started: float) -> Run:
        """Run a chain on the blobs of a pass, and add those that it writes; return the times."""
        begin, chain = perf_counter(), step.chain
        try:
            try:
                memory = self._memory.pop()
            except IndexError:  # passes in other threads have it
                memory = chain.memory()
            if memory.nbytes < chain.size:
                memory = chain.memory()
            if alive is not None:
                alive.add(chain, memory)
            arrays, times = chain.run(values, memory)
        except MemoryError as error:
            raise short_of_memory(step.layers[-1]) from error
        for blob, array in zip(chain.writes, arrays):
            values[blob] = array
            if alive is not None:
                alive.add(blob, array)
        if alive is not None:
            alive.drop(chain)
        if memory.nbytes <= 2 * SMALL:  # more would be missing where blobs are large
            self._memory.append(memory)
        return Run(step.rows, times, (begin - started) * 1000)


def _native(prepared: PreparedLayer, rectified: bool) -> Native | None:
    """Return a layer in C, if its blobs are small, and C can read its weights where they are."""
    layer, shapes = prepared.layer, (*prepared.bottoms, *prepared.tops)
    if layer.slope is not None or layer.ceiling is not None or max(map(prod, shapes), default=0) > SMALL // 4:
        return None
    native = layer.native(prepared.bottoms, rectified)
    return native if native is not None and all(map(is_plain, native.parameters)) else None


def _together(steps: Iterable[_Step], kernels: Floats, shapes: Mapping[str, Shape]) -> Iterator[_Step | _Together]:
    """Yield steps, with those in C that follow each other as one."""
    for native, group in groupby(steps, lambda step: step.native is not None):
        some = [*group]
        if native and any(step.native is not None and step.native.single is not None for step in some):
            yield _Together.of(some, kernels, shapes)
        else:
            yield from some


def run(
    graph: Graph,
    shapes: Mapping[str, Shape],
    feeds: Mapping[str, Array],
    keep: Collection[str],
    watch: Callable[[str, Array], None] | None = None,
) -> tuple[dict[str, Array], Times]:
    """Run a graph once, see ``HostPass.run``."""
    return HostPass(graph, shapes).run(feeds, keep, watch=watch)
