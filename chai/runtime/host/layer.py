"""One layer on the host, run once or many times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING

from ...blob import Shape, show
from ...env import env
from ...errors import NO_PARAMETERS, ModelError, PluginError
from ...util.lazy_numpy import np
from ..dump import dump
from ..times import Rows, RunTimes, StepTime

if TYPE_CHECKING:
    from ...blob import Array
    from ...graph import Layer

_shape = attrgetter("shape")


class PreparedLayer:
    """A layer that is to run many times on bottoms of the shapes in ``shapes``; its tops take ``size`` bytes per number."""

    def __init__(self, layer: Layer, shapes: Mapping[str, Shape], size: int = 4) -> None:
        self.layer, self._size = layer, size
        self.bottoms = tuple([shapes[b] for b in layer.bottoms])
        self.tops = tuple([shapes[t] for t in layer.tops])
        self.rows = self._of(self.bottoms, self.tops)
        self._in_turn = layer.turn.run if layer.engine == "custom" else layer.turn.run_alone

    def run(
        self, bottoms: Sequence[Array], started: float, compute: Callable[..., tuple[Array, ...]] | None = None
    ) -> tuple[tuple[Array, ...], RunTimes]:
        """Return the tops in float32, after the layer's fused ReLU if it has one, and the time.

        ``compute`` replaces the layer's forward: on codes, which the tops are then, too, or in place. ``started`` is the
        start of the pass. Raises ShapeError if the tops do not have the shapes of the layer's rule, ModelError if memory
        runs out, and any error of the layer.
        """
        layer = self.layer
        tops, begin, end = self._in_turn(_timed, layer, bottoms, compute)
        rows, read, written = self.rows, tuple(map(_shape, bottoms)), tuple(map(_shape, tops))
        if written != self.tops or read != self.bottoms:
            rows = self._unplanned(read, written)
        if env().dump:
            for blob, top in zip(layer.tops, tops):
                dump(blob, layer.name, top)
        return tops, rows.run(begin, end, started)

    def repeated(self, tops: tuple[Array, ...], ms: float, started: float) -> tuple[tuple[Array, ...], RunTimes]:
        """Return the result of ``run`` for tops that the layer, without its ReLU, wrote in ``ms`` milliseconds before."""
        rows = self.rows if self.tops == (shapes := tuple(map(_shape, tops))) else self._of(self.bottoms, shapes)
        return _clamped(self.layer, tops, False), RunTimes(rows, (ms,), (perf_counter() - started) * 1000)

    def _unplanned(self, read: tuple[Shape, ...], written: tuple[Shape, ...]) -> Rows:
        """Return the row of a layer after one whose tops have a variable number of rows, or that is such a layer."""
        expected = self.tops if read == self.bottoms else self.layer.shapes(*read)
        for top, shape in zip(written, expected):
            if top != shape and not self.layer.dynamic:
                raise self.layer.wrong(f"wrote {show(top)}, its shape rule says {show(shape)}")
        return self._of(read, written)

    def _of(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> Rows:
        layer, written = self.layer, self._size * sum([prod(top) for top in tops])

        def row() -> Iterator[StepTime]:
            kind, ends = (layer.name, layer.type, layer.engine), (layer.bottoms, layer.tops)
            yield StepTime(*kind, 0.0, layer.macs(bottoms, tops), written, *ends, layers=layer.origin)

        return Rows(written, row)


def run_layer(
    layer: Layer,
    bottoms: Sequence[Array],
    shapes: Mapping[str, Shape],
    started: float,
    compute: Callable[..., tuple[Array, ...]] | None = None,
) -> tuple[tuple[Array, ...], StepTime]:
    """Run a layer once, see ``PreparedLayer.run``."""
    tops, run = PreparedLayer(layer, shapes).run(bottoms, started, compute)
    return tops, next(run.steps())


def prepare(layer: Layer, shapes: Mapping[str, Shape], without_weights: bool) -> None:
    """Prepare a layer before the first image. ``without_weights``: it may lack its trained parameters."""
    try:
        layer.prepare(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops if t in shapes))
    except PluginError as error:
        if not without_weights or error.hint != NO_PARAMETERS:
            raise
        # its function may need missing parameters: that is an error when it runs, but not when it is planned


def check_weights(layers: Iterable[Layer], shapes: Mapping[str, Shape]) -> None:
    """Check that layers have the trained parameters for these sizes. Raises ShapeError."""
    for layer in layers:
        expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
        for i, (blob, shape) in enumerate(zip(layer.blobs, expected)):
            if blob.shape != shape:
                raise layer.wrong(
                    f"at these input sizes its weights (blob {i}) would be {show(shape)}, they are {show(blob.shape)}"
                )


def short_of_memory(layer: Layer) -> ModelError:
    """Return the error of a layer for whose arrays there is no memory."""
    what = f"layer {layer.name!r} ({layer.type}): not enough memory"
    return ModelError(what, layer=layer.name, hint="a smaller batch needs less")


def _timed(
    layer: Layer, bottoms: Sequence[Array], compute: Callable[..., tuple[Array, ...]] | None
) -> tuple[tuple[Array, ...], float, float]:
    """Return the tops of a layer, and when it began and ended."""
    begin = perf_counter()
    try:
        tops = _forward(layer, bottoms) if compute is None else compute(*bottoms)
    except MemoryError as error:
        raise short_of_memory(layer) from error
    return tops, begin, perf_counter()


def _forward(layer: Layer, bottoms: Sequence[Array]) -> tuple[Array, ...]:
    # numpy 1 converts scalars to float64; a blob is always float32
    return _clamped(layer, tuple([np.asarray(top, np.float32) for top in layer.forward(*bottoms)]), layer.clamps)


def _clamped(layer: Layer, tops: tuple[Array, ...], rectified: bool) -> tuple[Array, ...]:
    """Return the tops after the ReLU and the ceiling that are part of a layer; ``rectified``: after the ReLU already."""
    if layer.slope is not None and not rectified:
        slope = np.float32(layer.slope)
        tops = tuple([np.where(t < 0, slope * t, t) if slope else np.maximum(t, 0) for t in tops])
    if layer.ceiling is not None:
        tops = tuple([np.minimum(t, np.float32(layer.ceiling)) for t in tops])
    return tops
