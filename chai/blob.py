"""Types of a blob's array and shape, and their display."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from math import prod
from operator import attrgetter, index
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import UsageError
from .util.lazy_numpy import np

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
else:
    Array = Any  # an annotation must not import numpy

Shape = tuple[int, ...]
shape_of = attrgetter("shape")  # of an array


def shape_for(blob: str, value: Any) -> Shape:
    """Return the shape that an input is to have. Raises UsageError for what is no sequence of whole numbers."""
    try:
        return tuple(map(index, value))
    except TypeError:
        raise UsageError(
            f"input {blob!r}: expected a shape, found {repr(value)[:80]}",
            hint="whole numbers, for example (1, 3, 224, 224)",
        ) from None


class View(NamedTuple):
    """Channels of another blob, from ``first_channel`` on."""

    base: str
    first_channel: int


def bases(blob: str, views: Mapping[str, View]) -> Iterator[View]:
    """Yield the view of a blob in itself, in the blob that it is a part of, and so on outwards."""
    first = 0
    yield View(blob, 0)
    while blob in views:
        blob, start = views[blob]
        first += start
        yield View(blob, first)


def outermost(blob: str, views: Mapping[str, View], among: Collection[str] | None = None) -> View:
    """Return the view of a blob in the largest blob that it is a part of, which may be itself.

    If ``among`` is given, larger blobs that are not in it do not count.
    """
    itself, *outwards = bases(blob, views)
    return [itself, *(view for view in outwards if among is None or view.base in among)][-1]


class Wholes(dict[str, View]):
    """The view of each blob in the largest one that it is a part of, determined when it is first asked for."""

    def __init__(self, views: Mapping[str, View]) -> None:
        super().__init__()
        self.views = views

    def __missing__(self, blob: str) -> View:
        view = self[blob] = outermost(blob, self.views)
        return view


def codes_of(blob: str, blobs: dict[str, Array], shapes: Mapping[str, Shape], views: Mapping[str, View]) -> Array:
    """Return the codes of a blob, created if missing; a view's are a numpy view of its parent's."""
    if (codes := blobs.get(blob)) is not None:
        return codes
    missing = list(takewhile(lambda part: part not in blobs, (view.base for view in bases(blob, views))))
    for part in reversed(missing):
        view, shape = views.get(part), shapes[part]
        if view is None:
            blobs[part] = np.empty(shape, np.int8)
        else:
            blobs[part] = blobs[view.base][:, view.first_channel : view.first_channel + shape[1]]
    return blobs[blob]


def show(shape: Shape) -> str:
    """Return a shape as text: 1x3x224x224; () is a scalar."""
    return "x".join(map(str, shape)) if shape else "scalar"


def on_device(shape: Shape) -> Shape:
    """Return a blob's shape on a device, where vectors (N, C) have a height and width of 1."""
    return (*shape, 1, 1) if len(shape) == 2 else shape


def count(shape: Shape) -> int:
    """Return the number of elements."""
    return prod(shape)


def batch_of(shapes: Iterable[Shape]) -> int:
    """Return the number of images of blobs of these shapes: the first size of the first one with axes, 1 if none has any."""
    return next((shape[0] for shape in shapes if shape), 1)


def images_of(feeds: Mapping[str, Any]) -> int:
    """Return the number of images of a batch, of arrays or Pictures by input."""
    return batch_of(map(shape_of, feeds.values()))


def plain(array: Array) -> Array:
    """Return an array as C reads it, see ``is_plain``."""
    return array if is_plain(array) else np.require(array, np.float32, ["C", "A"])


def is_plain(array: Array) -> bool:
    """Return whether C can read an array: contiguous, aligned float32."""
    flags = array.flags
    return bool(flags.c_contiguous and flags.aligned and array.dtype == np.float32)
