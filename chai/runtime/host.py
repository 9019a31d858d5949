"""One forward pass on the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain as chained, groupby
from math import prod
from operator import attrgetter, is_
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ..blob import Shape, is_plain, show
from ..env import env
from ..errors import NO_PARAMETERS, ModelError, PluginError
from ..graph import Graph, Layer
from ..kernels.compiled import compiled
from ..kernels.native.links import Link, Native
from ..util.lazy_numpy import np
from .dump import dump
from .perf import PerfInfo
from .step_time import Rows, Run, Steps, StepTime

if TYPE_CHECKING:
    from ..blob import Array
    from ..kernels.native.chain import Chain
    from ..kernels.native.floats import Floats

_shape, _weights = attrgetter("shape"), attrgetter("blobs")
CLAIMED = 24 << 20  # bytes at most
SMALL = 4 << 20  # bytes of a blob whose layers run together: their calls take a part of their time


class PreparedLayer:
    """A layer that is to run many times on bottoms of the shapes in ``shapes``; its tops take ``size`` bytes per number."""

    def __init__(self, layer: Layer, shapes: Mapping[str, Shape], size: int = 4) -> None:
        self.layer, self._size = layer, size
        self.bottoms = tuple([shapes[b] for b in layer.bottoms])
        self.tops = tuple([shapes[t] for t in layer.tops])
        self.rows = self._of(self.bottoms, self.tops)

    def run(
        self, bottoms: Sequence[Array], started: float, compute: Callable[..., tuple[Array, ...]] | None = None
    ) -> tuple[tuple[Array, ...], Run]:
        """Return the tops in float32, after the layer's fused ReLU if it has one, and the time.

        ``compute`` replaces the layer's forward: on codes, which the tops are then, too, or in place. ``started`` is the
        start of the pass. Raises ShapeError if the tops do not have the shapes of the layer's rule, ModelError if memory
        runs out, and any error of the layer.
        """
        layer = self.layer
        with layer.turn:
            begin = perf_counter()
            try:
                tops = _forward(layer, bottoms) if compute is None else compute(*bottoms)
            except MemoryError as error:
                raise _short_of_memory(layer) from error
            end = perf_counter()
        rows, read, written = self.rows, tuple(map(_shape, bottoms)), tuple(map(_shape, tops))
        if written != self.tops or read != self.bottoms:
            rows = self._unplanned(read, written)
        if env().dump is not None:
            for blob, top in zip(layer.tops, tops):
                dump(blob, layer.name, top)
        return tops, rows.run(begin, end, started)

    def _unplanned(self, read: tuple[Shape, ...], written: tuple[Shape, ...]) -> Rows:
        """Return the row of a layer after one whose tops have a variable number of rows, or that is such a layer."""
        expected = self.tops if read == self.bottoms else self.layer.shapes(*read)
        for top, shape in zip(written, expected):
            if top != shape and not self.layer.dynamic:
                raise self.layer.wrong(f"wrote {show(top)}, its shape rule says {show(shape)}")
        return self._of(read, written)

    def _of(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> Rows:
        layer, written = self.layer, self._size * sum([prod(top) for top in tops])
        ends, macs = (layer.bottoms, layer.tops), layer.macs(bottoms, tops)
        return Rows.of(StepTime(layer.name, layer.type, layer.engine, 0.0, macs, written, *ends, layers=layer.origin))


def run_layer(
    layer: Layer,
    bottoms: Sequence[Array],
    shapes: Mapping[str, Shape],
    started: float,
    compute: Callable[..., tuple[Array, ...]] | None = None,
) -> tuple[tuple[Array, ...], StepTime]:
    """Run a layer once, see ``PreparedLayer.run``."""
    tops, run = PreparedLayer(layer, shapes).run(bottoms, started, compute)
    (step,) = run.steps()
    return tops, step


def _short_of_memory(layer: Layer) -> ModelError:
    what = f"layer {layer.name!r} ({layer.type}): not enough memory"
    return ModelError(what, layer=layer.name, hint="a smaller batch needs less")


def _forward(layer: Layer, bottoms: Sequence[Array]) -> tuple[Array, ...]:
    # numpy 1 converts scalars to float64; a blob is always float32
    tops = tuple([np.asarray(top, np.float32) for top in layer.forward(*bottoms)])
    if layer.slope is not None and not layer.clamps:
        slope = np.float32(layer.slope)
        tops = tuple([np.where(t < 0, slope * t, t) if slope else np.maximum(t, 0) for t in tops])
    if layer.ceiling is not None:
        tops = tuple([np.minimum(t, np.float32(layer.ceiling)) for t in tops])
    return tops


def _read_by_custom(layers: Sequence[Layer]) -> set[str]:
    """Return the blobs that custom functions read, and may keep; also those that they read as a view of their memory."""
    read: set[str] = set()
    for layer in reversed(layers):
        if layer.engine == "custom" or not (layer.new_tops or read.isdisjoint(layer.tops)):
            read.update(layer.bottoms)
    return read


def _unchanged(*bottoms: Array) -> tuple[Array, ...]:
    return bottoms


def check_weights(layers: Iterable[Layer], shapes: Mapping[str, Shape]) -> None:
    """Check that layers have the trained parameters for these sizes. Raises ShapeError."""
    for layer in layers:
        expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
        for i, (blob, shape) in enumerate(zip(layer.blobs, expected)):
            if blob.shape != shape:
                raise layer.wrong(
                    f"at these input sizes its weights (blob {i}) would be {show(shape)}, they are {show(blob.shape)}"
                )


def claimed(shapes: Mapping[str, Shape]) -> int:
    """Return the bytes in float32 of the two largest blobs, and as many again for a kernel's scratch memory."""
    return min(2 * 4 * sum(sorted(map(prod, shapes.values()))[-2:]), CLAIMED)


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
        if name in self._owners:
            self.drop(name)
        owner, size = id(array if array.base is None else array.base), array.nbytes
        names, counted = self._arrays.get(owner, (0, 0))
        self._owners[name] = owner
        self._arrays[owner] = names + 1, size if size > counted else counted
        if size > counted:
            self.bytes += size - counted
            if self.bytes > self.peak:
                self.peak = self.bytes

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
        total = sum([row.bytes for row in rows])
        return cls(chain, Rows(rows, total), layers, _weights_of(layers), [*finished.difference(tops)])

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
    ) -> tuple[dict[str, Array], PerfInfo]:
        """Return the blobs of ``keep`` (ids) and the times of the pass since ``started`` (default: now).

        Blobs are dropped after their last reader, which may overwrite them. A ReLU may be computed with the layer before
        it, and a Concat where its bottoms are; they take no time of their own then. ``watch`` is called with each blob
        that a layer wrote. Raises PluginError for a failing custom layer, ModelError if memory runs out.
        """
        started = perf_counter() if started is None else started
        key = frozenset(keep), watch is not None or env().dump is not None
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
        return values, PerfInfo(Steps(runs), wall, batch, peak, total, before, between, composed=composed)

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
            raise _short_of_memory(step.layers[-1]) from error
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
) -> tuple[dict[str, Array], PerfInfo]:
    """Run a graph once, see ``HostPass.run``."""
    return HostPass(graph, shapes).run(feeds, keep, watch=watch)


def prepare(layer: Layer, shapes: Mapping[str, Shape], without_weights: bool) -> None:
    """Prepare a layer before the first image. ``without_weights``: it may lack its trained parameters."""
    try:
        layer.prepare(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops if t in shapes))
    except PluginError as error:
        if not without_weights or error.hint != NO_PARAMETERS:
            raise
        # its function may need missing parameters: that is an error when it runs, but not when it is planned
