"""Blobs: the kept results of a pass, by Caffe's name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..blob import Array, show
from ..errors import UsageError
from ..graph import Graph
from ..util.suggest import did_you_mean
from .times import Times


class FinishedPass(NamedTuple):
    """A finished pass: its kept blobs by id, and its times."""

    values: Mapping[str, Array]
    times: Times


class NoBlob(UsageError, KeyError):
    """A name under which no blob is kept."""


class Blobs(Mapping[str, "Array"]):
    """The kept blobs of a forward pass, float32, by Caffe's name.

    A compiled network has no weights to compute blobs that were folded away. They keep their keys and ``net.shapes`` has
    their shapes, but reading their numbers raises UsageError. ``readable`` has all others.
    """

    def __init__(self, network: str, graph: Graph, values: Mapping[str, Array], keep: Collection[str]) -> None:
        self._network, self._values, self._folded, self._known = network, values, graph.folded, graph.latest
        folded = graph.folded.keys() & keep if values else ()  # before the first pass there are no blobs
        self._ids = {name: blob for name, blob in graph.latest.items() if blob in values or blob in folded}

    def __getitem__(self, name: str) -> Array:
        if (reason := self.missing(name)) is not None:
            raise reason
        if name not in self._ids:
            raise self._absent(name)
        return self._values[self._ids[name]]

    def _absent(self, name: str) -> NoBlob:
        if name not in self._known:
            return NoBlob(f"there is no blob {name!r} in {self._network}", hint=did_you_mean(str(name), self._known))
        if not self._values:
            return NoBlob(f"{self._network} has no blobs: its first pass is to come, or it is closed")
        return NoBlob(f"blob {name!r} of {self._network} was not kept", hint=f'Net(..., keep=[{name!r}]), or "all"')

    @property
    def readable(self) -> Mapping[str, Array]:
        """Return the blobs that have numbers."""
        return {name: self._values[blob] for name, blob in self._ids.items() if blob in self._values}

    def missing(self, name: str) -> UsageError | None:
        """Return the error for reading a blob without numbers; None if it has some."""
        blob = self._ids.get(name)
        if blob is None or blob in self._values:
            return None
        return UsageError(
            f"{self._network} is compiled: blob {name!r} was folded into layer {self._folded[blob]!r}, "
            "its numbers cannot be computed any more",
            hint="load the prototxt and the caffemodel",
        )

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        words = {name: f"(folded into {self._folded.get(blob)!r})" for name, blob in self._ids.items()}
        words |= {name: show(value.shape) for name, value in self.readable.items()}
        return f"<Blobs: {', '.join(f'{name} {word}' for name, word in words.items())}>"


def kept_blobs(graph: Graph, keep: str | Sequence[str]) -> set[str]:
    """Return the ids of the blobs that ``keep`` names, and those of the outputs. Raises UsageError for an unknown name."""
    if keep == "outputs":
        return set(graph.output_blobs)
    if keep == "all":
        return {*graph.folded, *graph.writers}
    names = [keep] if isinstance(keep, str) else keep
    unknown = [name for name in names if name not in graph.latest]
    if unknown:
        raise UsageError(
            f"keep: there is no blob {unknown[0]!r}",
            hint='"outputs", "all" or a list of: ' + ", ".join(list(graph.latest)[:12]),
        )
    return {*graph.output_blobs, *(graph.latest[name] for name in names)}
