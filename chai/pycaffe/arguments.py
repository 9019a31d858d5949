"""Arguments of calls, checked: each function returns what a call works with, or raises UsageError.

And names that pycaffe had until 2015, for a hint what took their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any

from ..blob import Array
from ..errors import UsageError
from ..runtime.batches import numbers

_TRANSFORMER = "caffe.io.Transformer has it; a Classifier's is net.transformer"
_NAMES = {
    "set_phase_test": "the phase is an argument: caffe.Net(network, weights, caffe.TEST)",
    "set_phase_train": "the phase is an argument: caffe.Net(network, weights, caffe.TRAIN)",
    "set_mode_cpu": "caffe.set_mode_cpu()",
    "set_mode_gpu": "caffe.set_mode_gpu()",
    "set_device": "caffe.set_device(0)",
    **dict.fromkeys(("set_mean", "set_raw_scale", "set_input_scale", "set_channel_swap"), _TRANSFORMER),
    **dict.fromkeys(("preprocess", "deprocess"), _TRANSFORMER),
}
OPTIONS = {"gpu": "caffe.set_mode_gpu()", "mean_file": "mean=numpy.load(mean_file)"}


def order_of(what: str, order: Sequence[int], places: str, count: int) -> tuple[int, ...]:
    """Return an order as whole numbers from 0 on. Raises UsageError unless there is each of them once."""
    with suppress(TypeError):  # for what is no sequence of whole numbers
        if sorted(numbered := tuple(map(index, order))) == list(range(count)):
            return numbered
    raise UsageError(f"{what} {order}: expected the {places} 0 to {count - 1} in some order", hint="e.g. (2, 0, 1)")


def size_of(what: str, dims: Sequence[int] | Array) -> tuple[int, int]:
    """Return a height and width as whole numbers. Raises UsageError for anything else."""
    with suppress(TypeError, ValueError):  # for what is no sequence of numbers
        height, width = map(int, dims)
        if min(height, width) > 0:
            return height, width
    raise UsageError(f"{what} {dims}: expected height and width in pixels", hint="e.g. (227, 227)")


def pictures(what: str, images: Iterable[Array]) -> list[Array]:
    """Return images as arrays of float32. Raises UsageError for what are none."""
    if not isinstance(images, Iterable):
        raise UsageError(f"{what}: expected images (H, W, K), found {type(images).__name__}", hint="[image]")
    return [numbers("image", im) for im in images]


def windows_of(images_windows: Any) -> Iterator[tuple[str | Path, Iterable[Any]]]:
    """Yield image files and their windows. Raises UsageError for anything else."""
    for entry in images_windows if isinstance(images_windows, Iterable) else (images_windows,):
        if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not isinstance(entry[1], Iterable):
            raise UsageError(
                f"detect_windows: expected an image file and its windows, found {repr(entry)[:60]}",
                hint='detect_windows([("cat.jpg", [(ymin, xmin, ymax, xmax), ...]), ...])',
            )
        yield entry[0], entry[1]


def edges_of(window: Any) -> tuple[int, int, int, int]:
    """Return a window as whole numbers. Raises UsageError for anything else."""
    with suppress(TypeError, ValueError, OverflowError):
        top, left, bottom, right = map(int, window)
        return top, left, bottom, right
    raise UsageError(f"window {window}: expected (ymin, xmin, ymax, xmax) in pixels")


class Renamed(UsageError, AttributeError):
    """A name that Caffe no longer has."""


def missing(owner: str, name: str) -> AttributeError:
    """Return the error for a name that a module or a net does not have."""
    if name in _NAMES:
        return Renamed(f"{owner} has no {name} since 2015", hint=_NAMES[name])
    return AttributeError(f"{owner} has no attribute {name!r}")
