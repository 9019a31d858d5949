"""Feeds: the input arrays of a pass, checked and in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..blob import show
from ..errors import UsageError
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..graph import Graph


def feeds_of(graph: Graph, network: str, data: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return one C-contiguous float32 array per input, from arrays in the order of the inputs or by blob name.

    Raises UsageError for a missing or unknown input, and for an array that does not hold numbers.
    """
    names = list(graph.inputs)
    if len(data) > len(names):
        raise UsageError(f"{len(data)} arrays for {len(names)} inputs: {', '.join(names)}")
    arrays = {**dict(zip(names, data)), **inputs}
    missing = [n for n in names if n not in arrays]
    if missing:
        raise UsageError(
            f"input {missing[0]!r} is missing", hint=f"net.forward({', '.join(f'{n}=array' for n in names)})"
        )
    feeds = {}
    for name, value in arrays.items():
        blob = input_of(graph, network, name)
        feeds[blob] = numbers(blob, value)
    return feeds


def batches_of(
    read: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Array]],
    data: tuple[Any, ...],
    inputs: Mapping[str, Any],
) -> Iterator[dict[str, Array]]:
    """Yield the feeds of one batch; of several, each an array or {blob: array}, if ``data`` is one iterator."""
    if len(data) == 1 and isinstance(data[0], Iterator):
        return (read((), each) if isinstance(each, Mapping) else read((each,), {}) for each in data[0])
    return iter((read(data, inputs),))


def numbers(name: str, value: Any) -> Array:
    """Return an input as C-contiguous float32 array. Raises UsageError if it does not hold numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise UsageError(f"input {name!r}: expected numbers, found dtype {array.dtype}")
    return np.asarray(array, np.float32, order="C")


def input_of(graph: Graph, network: str, blob: str) -> str:
    """Return the name of an input. Raises UsageError if the network has no input of that name."""
    if blob not in graph.inputs:
        raise UsageError(f"{blob!r} is no input of {network}", hint="inputs: " + ", ".join(graph.inputs))
    return blob


def alike(feeds: Iterable[dict[str, Array]], shapes: Mapping[str, Shape]) -> Iterator[dict[str, Array]]:
    """Yield the feeds of a stream. Raises UsageError for one of another size than ``shapes``."""
    for feed in feeds:
        for name, array in feed.items():
            if array.shape != shapes[name]:
                raise UsageError(
                    f"input {name!r} of {show(array.shape)} in a stream of {show(shapes[name])}",
                    hint="batches of one stream have one size; forward takes any",
                )
        yield feed
