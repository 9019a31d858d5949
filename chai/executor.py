"""One forward pass on the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from .dump import dump
from .errors import ModelError
from .graph import Graph, Layer, Shape, last_readers, show
from .lazy import np
from .perf import PerfInfo, StepTime

if TYPE_CHECKING:
    from .graph import Array


def run_layer(layer: Layer, bottoms: Sequence[Array]) -> tuple[Array, ...]:
    """A layer's float32 tops. numpy 1 makes float64 of scalars; a blob is float32 whatever its size."""
    return tuple(np.asarray(top, np.float32) for top in layer.forward(*bottoms))


def run(
    graph: Graph, shapes: Mapping[str, Shape], feeds: Mapping[str, Array], keep: Collection[str]
) -> tuple[dict[str, Array], PerfInfo]:
    """The blobs of ``keep`` (ids) and what the pass took. Blobs are dropped after their last reader.

    Layers run one by one in prototxt order. Raises PluginError for a failing custom layer, ModelError when memory runs out.
    """
    values: dict[str, Array] = dict(feeds)
    steps = []
    peak = total = 0
    started = perf_counter()
    with np.errstate(all="ignore"):  # as Caffe: an overflow is inf, not a message
        for layer, finished in zip(graph.layers, last_readers(graph.layers)):
            if not layer.source:
                bottoms = [values[b] for b in layer.bottoms]
                begin = perf_counter()
                try:
                    tops = run_layer(layer, bottoms)
                except MemoryError as error:
                    raise ModelError(
                        f"layer {layer.name!r} ({layer.type}): not enough memory",
                        layer=layer.name,
                        hint="a smaller batch needs less",
                    ) from error
                ms = (perf_counter() - begin) * 1000
                for blob, top in zip(layer.tops, tops):
                    if top.shape != shapes[blob] and not layer.dynamic:
                        raise layer.wrong(f"wrote {show(top.shape)}, its shape rule says {show(shapes[blob])}")
                    values[blob] = top
                    dump(blob, layer.name, top)
                written = sum(t.nbytes for t in tops)
                macs = layer.macs(tuple(b.shape for b in bottoms), tuple(t.shape for t in tops))
                steps.append(
                    StepTime(
                        layer.name,
                        layer.type,
                        layer.engine,
                        ms,
                        macs,
                        written,
                        layer.bottoms,
                        layer.tops,
                        (begin - started) * 1000,
                    )
                )
                total += written
            peak = max(
                peak,
                sum(v.nbytes for v in {id(v.base if v.base is not None else v): v for v in values.values()}.values()),
            )
            for blob in finished:
                if blob not in keep:
                    values.pop(blob, None)
    wall = (perf_counter() - started) * 1000
    total += sum(f.nbytes for f in feeds.values())
    batch = next((f.shape[0] for f in feeds.values() if f.ndim), 1)
    return values, PerfInfo(tuple(steps), wall, batch, peak, total)
