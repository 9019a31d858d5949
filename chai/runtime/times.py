"""Times of a pass, as it measures them: of each step, and of the whole; and the bytes of its blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, chain
from math import fsum
from operator import attrgetter
from typing import Any, NamedTuple

from ..blob import Array
from ..graph import Composed


class StepTime(NamedTuple):
    """One step: layer, engine, milliseconds, multiply-accumulates and bytes written (both per pass).

    ``reads`` and ``writes`` are blob ids; a Pack or Unpack reads and writes the same one. ``begin`` is in milliseconds
    from the start of the pass. ``device_ms`` is the part of ``ms`` that the accelerator counted itself, None if unknown.
    ``layers`` are the prototxt layers that it computes, none for a conversion.
    """

    name: str
    type: str
    engine: str
    ms: float
    macs: int
    bytes: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    begin: float = 0.0
    device_ms: float | None = None
    layers: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Engine; pack or unpack for a conversion between float32 and codes, which runs on the host."""
        return self.type.lower() if self.engine == "host" and self.type in ("Pack", "Unpack") else self.engine


class Rows:
    """One step of a schedule, or each Task of a segment, without times; and the bytes of all."""

    __slots__ = ("bytes", "steps")

    def __init__(self, steps: Iterable[StepTime]) -> None:
        self.steps = tuple(steps)
        self.bytes = sum([step.bytes for step in self.steps])

    def run(self, begin: float, end: float, started: float) -> RunTimes:
        """Return the times of a single step, from seconds of a clock; ``started`` is the start of the pass."""
        return RunTimes(self, ((end - begin) * 1000,), (begin - started) * 1000)


class RunTimes(NamedTuple):
    """The milliseconds of each row in one run, one after the other from ``begin`` on; ``device_ms`` by the device's clock."""

    rows: Rows
    ms: Sequence[float]
    begin: float
    device_ms: Sequence[float | None] | None = None

    def steps(self) -> Iterator[StepTime]:
        begins = accumulate(self.ms, initial=self.begin)
        device = self.device_ms or [None] * len(self.ms)
        for row, ms, begin, device_ms in zip(self.rows.steps, self.ms, begins, device):
            yield row._replace(ms=ms, begin=begin, device_ms=device_ms)


class Steps(Sequence[StepTime]):
    """The steps of a pass in order of their begin; they are made when one is looked at first.

    A pass over a thousand layers would otherwise spend more time on them than between its steps.
    """

    def __init__(self, runs: Sequence[RunTimes]) -> None:
        self._runs = runs

    @cached_property
    def _all(self) -> tuple[StepTime, ...]:
        return tuple(sorted(chain.from_iterable(run.steps() for run in self._runs), key=attrgetter("begin")))

    def __len__(self) -> int:
        return sum(len(run.ms) for run in self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __repr__(self) -> str:
        return repr(self._all)


class ModelledTime:
    """A device that emulates or simulates hardware, as ``word`` says; the overlay's throughput alone is that of a model.

    The model computes it when it is first asked for.
    """

    def __init__(self, word: str, model: Callable[[], float]) -> None:
        self.word, self._model = word, model

    @cached_property
    def images_per_second(self) -> float:
        """Return the modelled throughput of the overlay alone; 0 if nothing runs there."""
        return self._model()

    def __reduce__(self) -> tuple[type[ModelledTime], tuple[str, Callable[[], float]]]:
        return ModelledTime, (self.word, partial(float, self.images_per_second))


class BlobLog:
    """Arrays as they came and went in a pass. As a number it is the bytes that existed at once, computed when it is asked for."""

    def __init__(self) -> None:
        # a name, the owner of its memory, its bytes; or a name alone, which is dropped
        self._events: list[tuple[Any, ...]] = []

    def add(self, name: Hashable, array: Array) -> None:
        """Note an array, which has to exist until ``drop``; it replaces one of the same name. Views of one count once."""
        base = array.base
        self.note(name, id(array if base is None else base), array.nbytes)

    def note(self, name: Hashable, owner: Hashable, size: int) -> None:
        """Note so many bytes in the memory of an owner."""
        self._events.append((name, owner, size))

    def drop(self, names: Iterable[Hashable]) -> None:
        """Note that the arrays of these names are gone, those that there are."""
        self._events.extend(zip(names))

    def __int__(self) -> int:
        alive = peak = 0
        owners: dict[Hashable, Hashable] = {}
        # of each owner of memory: the number of its names, and the bytes that they count
        arrays: dict[Hashable, tuple[int, int]] = {}
        for name, *added in self._events:
            if (owner := owners.pop(name, None)) is not None:
                names, counted = arrays.pop(owner)
                if names > 1:
                    arrays[owner] = names - 1, counted
                else:
                    alive -= counted
            if added:
                owner, size = added
                owners[name] = owner
                names, counted = arrays.get(owner, (0, 0))
                arrays[owner] = names + 1, max(size, counted)
                alive += max(size - counted, 0)
                peak = max(peak, alive)
        return peak


@dataclass(frozen=True, eq=False, repr=False)
class Times:
    """The steps of a forward pass, in order, and what it measured besides; ``chai.PerfInfo`` shows them.

    If the formats were measured, ``converted`` is the number of codes that crossed between host and overlay, and ``saturated``
    how many of them are at an end of their format; else both are 0.
    """

    steps: Sequence[StepTime] = ()
    wall_ms: float = 0.0
    batch: int = 1
    peak_bytes: int | BlobLog = 0  # activations alive at once
    blob_bytes: int = 0  # all activations together
    feed_ms: float = 0.0
    between_ms: float = 0.0
    composed: Mapping[str, Composed] = field(default_factory=dict)
    converted: int = 0
    saturated: int = 0
    emulation: ModelledTime | None = None


def joined(parts: Sequence[Times], batch: int, wall_ms: float) -> Times:
    """Return the sum, row by row, of several runs of the same steps, as one pass of ``batch`` images."""
    runs = [dict(labelled(p.steps)) for p in parts]
    steps = tuple(_summed([run[label] for run in runs]) for label, _ in labelled(parts[0].steps))
    feed, between = fsum(p.feed_ms for p in parts), fsum(p.between_ms for p in parts)
    sums = {name: sum(getattr(p, name) for p in parts) for name in ("blob_bytes", "converted", "saturated")}
    return replace(parts[-1], steps=steps, wall_ms=wall_ms, batch=batch, feed_ms=feed, between_ms=between, **sums)


def labelled(rows: Sequence[StepTime]) -> Iterator[tuple[tuple[str, str, int], StepTime]]:
    """Yield each row with a label that is the same in every pass, as lanes may finish their steps in any order."""
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        yield (row.name, row.type, seen[row.name, row.type]), row
        seen[row.name, row.type] += 1


def _summed(rows: Sequence[StepTime]) -> StepTime:
    counted = [row.device_ms for row in rows if row.device_ms is not None]
    return rows[0]._replace(
        ms=fsum(row.ms for row in rows),
        macs=sum(row.macs for row in rows),
        bytes=sum(row.bytes for row in rows),
        device_ms=fsum(counted) if counted else None,
    )
