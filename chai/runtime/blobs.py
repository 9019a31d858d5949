"""Blobs: the kept results of a pass, by Caffe's name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..blob import Array, show
from ..errors import UsageError
from ..graph import Graph
from .times import Times


class FinishedPass(NamedTuple):
    """A finished pass: its kept blobs by id, and its times."""

    values: Mapping[str, Array]
    times: Times


class Blobs(Mapping[str, "Array"]):
    """The kept blobs of a forward pass, float32, by Caffe's name.

    A compiled network has no weights to compute blobs that were folded away. They keep their keys and ``net.shapes`` has
    their shapes, but reading their numbers raises UsageError. ``readable`` has all others.
    """

    def __init__(self, network: str, graph: Graph, values: Mapping[str, Array], keep: Collection[str]) -> None:
        self._network = network
        latest = graph.latest.items()
        self._folded = {name: graph.folded[blob] for name, blob in latest if blob in graph.folded and blob in keep}
        self._folded = self._folded if values else {}  # before the first pass there are no blobs
        self._names = [name for name, blob in latest if blob in values or name in self._folded]
        self._ids = {name: blob for name, blob in latest if blob in values}
        self._values = values

    def __getitem__(self, name: str) -> Array:
        if (reason := self.missing(name)) is not None:
            raise reason
        return self._values[self._ids[name]]

    @property
    def readable(self) -> Mapping[str, Array]:
        """Return the blobs that have numbers."""
        return {name: self._values[blob] for name, blob in self._ids.items()}

    def missing(self, name: str) -> UsageError | None:
        """Return the error for reading a blob without numbers; None if it has some."""
        if name not in self._folded:
            return None
        return UsageError(
            f"{self._network} is compiled: blob {name!r} was folded into layer {self._folded[name]!r}, "
            "its numbers cannot be computed any more",
            hint="load the prototxt and the caffemodel",
        )

    def __contains__(self, name: object) -> bool:
        return name in self._ids or name in self._folded

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        shapes = {name: show(value.shape) for name, value in self.readable.items()}
        words = {**shapes, **{name: f"(folded into {layer!r})" for name, layer in self._folded.items()}}
        return f"<Blobs: {', '.join(f'{name} {words[name]}' for name in self)}>"


def kept_blobs(graph: Graph, keep: str | Sequence[str]) -> set[str]:
    """Return the ids of the blobs that ``keep`` names, and those of the outputs. Raises UsageError for an unknown name."""
    if keep == "outputs":
        return set(graph.output_blobs)
    if keep == "all":
        return {*graph.folded, *(t for layer in graph.layers for t in layer.tops)}
    names = [keep] if isinstance(keep, str) else keep
    unknown = [name for name in names if name not in graph.latest]
    if unknown:
        raise UsageError(
            f"keep: there is no blob {unknown[0]!r}",
            hint='"outputs", "all" or a list of: ' + ", ".join(list(graph.latest)[:12]),
        )
    return {*graph.output_blobs, *(graph.latest[name] for name in names)}
