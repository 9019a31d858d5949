"""Work: the Tasks of one segment with all that compiling them needs, whatever they are compiled for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..blob import Shape, View
from ..overlay import Overlay
from . import Task


class Work(NamedTuple):
    """Tasks in order, and the blobs they use.

    ``tasks``   for all images of their blobs; only a Chain cuts them
    ``shapes``  of every blob of the Tasks, and of the parents of views
    ``views``   blobs that are views of another
    ``reads``   the inputs, which exist before a run
    ``writes``  the outputs; a device that works in the host's memory needs neither reads nor writes
    ``chain``   the same Tasks as a Chain, or what the overlay's architecture has instead, if they were read from a file
    """

    overlay: Overlay
    tasks: Sequence[Task]
    shapes: Mapping[str, Shape]
    views: Mapping[str, View] = MappingProxyType({})
    reads: Collection[str] = ()
    writes: Collection[str] = ()
    chain: Any = None
