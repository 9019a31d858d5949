"""Batches: the inputs of passes, checked and in float32; passes of another size than the Plan's; formats from many batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from ..blob import Array, Shape, images_of, show
from ..errors import ChaiError, UsageError
from ..graph import Graph, Layer
from ..text import number_of
from ..util.lazy_numpy import np
from .times import Times, joined as joined_times

if TYPE_CHECKING:
    from ..images.pictures import Feed
    from ..offload.plan import Plan
    from .execution import Execution
    from .lanes import Readiness
    from .renewing import Written
    from .source import Network

Batch = TypeVar("Batch")


def named(graph: Graph, data: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays by name: from those in the order of the inputs, or one mapping, and from those by name.

    Raises UsageError for more arrays than inputs, and for an input with two.
    """
    if len(data) == 1 and isinstance(data[0], Mapping):
        arrays = data[0]
    elif len(data) > len(graph.inputs):
        count = number_of(len(graph.inputs), "input")
        raise UsageError(f"{number_of(len(data), 'array')} for {count}: {', '.join(graph.inputs)}")
    else:
        arrays = dict(zip(graph.inputs, data))
    for name in arrays.keys() & inputs.keys():
        raise UsageError(f"input {name!r} has two arrays", hint="by position, in a dict or by name: one of these")
    return {**arrays, **inputs}


def feeds_of(graph: Graph, network: str, arrays: Mapping[str, Any], own: bool) -> dict[str, Feed]:
    """Return Pictures or one C-contiguous float32 array per input.

    They are in memory of their ``own``, or may be the given arrays. Raises UsageError for a missing or unknown input, and for
    an array that does not hold numbers.
    """
    for name in graph.inputs:
        if name not in arrays:
            hint = f"net.forward({', '.join(f'{n}=array' for n in graph.inputs)})"
            raise UsageError(f"input {name!r} is missing", hint=hint)
    return {input_of(graph, network, name): _feed(name, value, own) for name, value in arrays.items()}


def _feed(name: str, value: Any, own: bool) -> Feed:
    if not isinstance(value, np.ndarray):
        from ..images.pictures import Pictures  # which most passes do without

        if isinstance(value, Pictures):
            return value.copy() if own else value
    return numbers(name, value, own)


def batches_of(
    graph: Graph, read: Callable[[dict[str, Any]], dict[str, Feed]], data: tuple[Any, ...], inputs: Mapping[str, Any]
) -> Iterator[dict[str, Feed]]:
    """Yield the feeds of one batch; of several, each an array or {blob: array}, if ``data`` is one iterator."""
    if len(data) == 1 and isinstance(data[0], Iterator):
        return (read(named(graph, (each,), {})) for each in data[0])
    return iter((read(named(graph, data, inputs)),))


def shows_inputs(graph: Graph, kept: Collection[str]) -> bool:
    """Return whether a blob of ``kept`` (ids) may be in an input's memory, as it is or as a layer's view of it."""
    views = set(graph.inputs)
    for layer in graph.layers:
        if not (layer.new_tops or layer.on_device or layer.engine == "custom" or views.isdisjoint(layer.bottoms)):
            views.update(layer.tops)
    return not views.isdisjoint(kept)


def numbers(name: str, value: Any, own: bool = False) -> Array:
    """Return an input as C-contiguous, aligned float32 array: with ``own`` a copy, else the input itself if it is such an array.

    Raises UsageError if it does not hold numbers.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # a list of lists of different lengths
        raise UsageError(f"input {name!r}: expected numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise UsageError(f"input {name!r}: expected numbers, found dtype {array.dtype}")
    array = array.astype(np.float32, order="C", copy=own)
    return array if array.flags.aligned else array.copy()  # a part of a file, at any byte


def input_of(graph: Graph, network: str, blob: str) -> str:
    """Return the name of an input. Raises UsageError if the network has no input of that name."""
    if blob not in graph.inputs:
        raise UsageError(f"{blob!r} is no input of {network}", hint="inputs: " + ", ".join(graph.inputs))
    return blob


def alike(feeds: Iterable[dict[str, Feed]], shapes: Mapping[str, Shape]) -> Iterator[dict[str, Feed]]:
    """Yield the feeds of a stream. Raises UsageError for one of another size than ``shapes``."""
    for feed in feeds:
        for name, array in feed.items():
            if array.shape != shapes[name]:
                raise UsageError(
                    f"input {name!r} of {show(array.shape)} in a stream of {show(shapes[name])}",
                    hint="batches of one stream have one size; forward takes any",
                )
        yield feed


def run_batches(
    execution: Execution,
    feeds: Mapping[str, Feed],
    keep: Collection[str],
    started: float | None = None,
    written: Written | None = None,
) -> tuple[Mapping[str, Array], Times]:
    """Run a batch whose size may differ from the Plan's; otherwise like ``Execution.run``.

    The batch is split, the last part is padded with copies of the last image, and the results are joined. A blob that does
    not depend on the images, as the boxes of a PriorBox, is taken from one of the passes. Raises UsageError for other blobs
    of ``keep`` without a batch axis.
    """
    if _fits(execution, feeds):
        return execution.run(feeds, keep, started, written)
    started = perf_counter() if started is None else started
    batch, node = execution.plan.batch, execution.plan.graph.counting
    count = next(iter(feeds.values())).shape[0]
    if node:
        raise UsageError(
            f"{number_of(count, 'image')} for a network of {batch}; node {node!r} has numbers for that batch",
            hint=f"feed {number_of(batch, 'image')} at a time, or compile the ONNX file again with --shape",
        )
    passes = [execution.run(part, keep) for part in _parts(feeds, count, batch)]
    blobs = _joined(execution, [blobs for blobs, _ in passes], count)
    return blobs, joined_times([times for _, times in passes], count, (perf_counter() - started) * 1000)


def stream_batches(
    execution: Execution,
    batches: Iterator[tuple[Mapping[str, Feed], Written]],
    keep: Collection[str],
    first: Mapping[str, Feed],
    ready: Readiness | None,
) -> Generator[tuple[Mapping[str, Array], Times], None, None]:
    """Run many batches of the size of ``first``; with ``Execution.stream`` if that is the Plan's size."""
    if _fits(execution, first):
        return execution.stream(batches, keep, ready)
    return (run_batches(execution, feed, keep, None, written) for feed, written in batches)


def rebatched(plan: Plan, count: int) -> dict[str, Shape]:
    """Return the shapes of all blobs of a Plan for ``count`` images, by the layers' shape rules.

    A layer that exists only as Tasks, or has no rule for that many images, keeps all axes of its tops but the first.
    """
    batch = plan.batch
    shapes = {blob: (count, *shape[1:]) if shape[:1] == (batch,) else shape for blob, shape in plan.shapes.items()}
    for layer in plan.graph.layers:
        if not (layer.source or layer.on_device):
            with suppress(ChaiError):
                shapes.update(zip(layer.tops, layer.shapes(*(shapes[blob] for blob in layer.bottoms))))
    return shapes


def _mixed(plan: Plan, rebatched: Mapping[str, Shape]) -> set[str]:
    """Return the blobs that depend on all images of a batch together, and those that are computed from them.

    A custom function that declares nothing about it is assumed to compute each image alone, if its top has a batch axis.
    """
    mixed: set[str] = set()
    for layer in plan.graph.layers:
        own, whole = (tuple(shapes[blob] for blob in layer.bottoms) for shapes in (plan.shapes, rebatched))
        alone = layer.source or layer.on_device or layer.images_alone(own)
        mixes = own != whole and not layer.on_device and (_mixes(layer, own) or _mixes(layer, whole))
        for top in layer.tops:
            grows = rebatched[top][1:] != plan.shapes[top][1:]  # along another axis than that of the images
            same = not alone and rebatched[top] == plan.shapes[top]
            if mixes or grows or same or not mixed.isdisjoint(layer.bottoms):
                mixed.add(top)
    return mixed


def _mixes(layer: Layer, bottoms: tuple[Shape, ...]) -> bool:
    with suppress(ChaiError):  # its rules may refuse another number of images
        return layer.mixes_images(bottoms)
    return False


def _fits(execution: Execution, feeds: Mapping[str, Feed]) -> bool:
    """Return whether the Plan's inputs have exactly these shapes."""
    shapes = execution.shapes
    return all(array.shape == shapes[name] for name, array in feeds.items())


def _parts(feeds: Mapping[str, Feed], count: int, own: int) -> Iterator[dict[str, Feed]]:
    for first in range(0, count, own):
        whole = first + own <= count
        images = slice(first, first + own) if whole else np.minimum(np.arange(first, first + own), count - 1)
        yield {name: feed[images] for name, feed in feeds.items()}


def _joined(execution: Execution, parts: Sequence[Mapping[str, Array]], count: int) -> dict[str, Array]:
    plan, joined = execution.plan, {}
    shapes = rebatched(plan, count)
    mixed = _mixed(plan, shapes)
    for blob, first in parts[0].items():
        shape = execution.shapes[blob]
        every = blob not in mixed and all(part[blob].shape == shape for part in parts)
        whole = shapes[blob] if every else None
        if whole == shape:
            joined[blob] = first
        elif whole == (count, *shape[1:]) and shape[:1] == (plan.batch,):
            joined[blob] = np.concatenate([part[blob] for part in parts])[:count]
        else:
            why = "depends on all images of a batch" if shapes[blob][:1] == (count,) else "has no batch axis"
            raise UsageError(
                f"output {plan.graph.caffe_name(blob)!r} of {show(shape)} {why}: "
                f"{number_of(count, 'image')} cannot be joined from passes of {plan.batch}",
                hint=f"feed {number_of(plan.batch, 'image')} at a time",
            )
    return joined


def ahead(net: Network, batches: Iterable[Batch], feed: Callable[[Batch], Mapping[str, Feed]]) -> Iterator[Batch]:
    """Return the batches, which ``forward`` is to get, after the formats of ``net`` were measured on the first of them.

    These are so many that they have ``IMAGES`` images. A network that has formats, or has nothing on an overlay, needs none. If
    a custom layer would have to run for it, which may have a state, the first pass measures them.
    """
    from .measuring import IMAGES, has_formats, stored  # which most passes do without

    rest = iter(batches)
    if net.overlay is None or net.calibrated or has_formats(net.graph):
        return rest
    first, feeds, images = list[Batch](), list[Mapping[str, "Feed"]](), 0
    while images < IMAGES and (batch := next(rest, None)) is not None:
        first.append(batch)
        feeds.append(feed(batch))
        images += images_of(feeds[-1])
    if feeds:
        net.reshape(**{blob: one.shape for blob, one in feeds[0].items()})
        layers = net.graph.computing(stored(net.offload.plan))
        if not any(layer.engine == "custom" for layer in layers):
            net.calibrate(iter(feeds))
    return chain(first, rest)
