"""StepTime: the time of one step; and a picture of steps over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

from ..util import html
from ..util.lazy_dataclass import dataclass

LANES = ("host", "custom", "fpga")  # one row each, in this order; thread ids count from 1
_LEFT, _WIDTH, _LANE = 60, 700, 22  # pixels: lane names, time axis, height of a lane
_NARROW = 2.0  # pixels; narrower neighbours on a lane are drawn as one


@dataclass(frozen=True)
class StepTime:
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

    def timed(self, ms: float, begin: float, device_ms: float | None) -> StepTime:
        """Return the step with these times; ``dataclasses.replace`` takes five times as long, for every Task of a pass."""
        step = object.__new__(StepTime)
        vars(step).update(vars(self), ms=ms, begin=begin, device_ms=device_ms)
        return step

    @property
    def kind(self) -> str:
        """Engine; pack or unpack for a conversion between float32 and codes, which runs on the host."""
        return self.type.lower() if self.engine == "host" and self.type in ("Pack", "Unpack") else self.engine


class Rows(NamedTuple):
    """One step of a schedule, or each Task of a segment, without times; and the bytes of all."""

    steps: tuple[StepTime, ...]
    bytes: int

    @classmethod
    def of(cls, step: StepTime) -> Rows:
        """Return the rows of a single step."""
        return cls((step,), step.bytes)

    def run(self, begin: float, end: float, started: float) -> Run:
        """Return the times of a single step, from seconds of a clock; ``started`` is the start of the pass."""
        return Run(self, ((end - begin) * 1000,), (begin - started) * 1000)


class Run(NamedTuple):
    """The milliseconds of each row in one run, one after the other from ``begin`` on; ``device_ms`` by the device's clock."""

    rows: Rows
    ms: Sequence[float]
    begin: float
    device_ms: Sequence[float | None] | None = None

    def steps(self) -> Iterator[StepTime]:
        """Yield the steps with their times."""
        begins = accumulate(self.ms, initial=self.begin)
        device = self.device_ms or [None] * len(self.ms)
        for row, ms, begin, device_ms in zip(self.rows.steps, self.ms, begins, device):
            yield row.timed(ms, begin, device_ms)


class Steps(Sequence[StepTime]):
    """The steps of a pass in order of their begin; they are made when one is looked at first.

    A pass over a thousand layers would otherwise spend more time on them than between its steps.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    @cached_property
    def _all(self) -> tuple[StepTime, ...]:
        return tuple(sorted(chain.from_iterable(run.steps() for run in self._runs), key=attrgetter("begin")))

    def __len__(self) -> int:
        return sum(len(run.ms) for run in self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __iter__(self) -> Iterator[StepTime]:
        return iter(self._all)

    def __reduce__(self) -> tuple[type[tuple[StepTime, ...]], tuple[tuple[StepTime, ...]]]:
        return tuple, (self._all,)

    def __repr__(self) -> str:
        return repr(self._all)


def placed(steps: Iterable[StepTime]) -> Iterator[tuple[StepTime, str, float]]:
    """Yield steps in order of their begin, with lane and start in microseconds.

    A step starts at its ``begin``, or at the end of the previous step on its lane, whichever is later: steps of one
    lane never overlap.
    """
    free = dict.fromkeys(LANES, 0.0)
    for step in sorted(steps, key=lambda s: s.begin):
        lane = step.engine if step.engine in LANES else "host"
        start = max(step.begin * 1000, free[lane])
        free[lane] = start + step.ms * 1000
        yield step, lane, start


def picture(steps: Iterable[StepTime]) -> str:
    """Return an SVG: a lane per engine, milliseconds from left to right, each step's name as tooltip.

    Steps too short to be visible are drawn together with the following ones.
    """
    bars = list(placed(steps))
    first = min((start for _, _, start in bars), default=0.0)  # late for the last batch of a stream
    full = max((start + step.ms * 1000 for step, _, start in bars), default=0.0) - first or 1.0
    scale = _WIDTH / full
    lanes = [lane for lane in LANES if any(found == lane for _, found, _ in bars)]
    height = _LANE * (len(lanes) + 1)
    parts = [
        f'<svg viewBox="0 0 {_LEFT + _WIDTH + 30} {height}" width="{_LEFT + _WIDTH + 30}" role="img" '
        'aria-label="what ran when">'
    ]
    for tick in range(5):
        x = _LEFT + _WIDTH * tick / 4
        parts.append(f'<path d="M{x:g} {_LANE - 6}V{height}" stroke="currentColor" stroke-opacity=".25"/>')
        words = f"{(first + full * tick / 4) / 1000:.4g}" + (" ms" if tick == 4 else "")
        parts.append(f'<text x="{x:g}" y="11" text-anchor="middle">{words}</text>')
    for row, lane in enumerate(lanes, 1):
        parts.append(f'<text x="0" y="{_LANE * row + 13}">{lane}</text>')
        for start, end, words in _pieces([(s, start) for s, other, start in bars if other == lane], _NARROW / scale):
            parts.append(
                f'<rect x="{_LEFT + (start - first) * scale:.2f}" y="{_LANE * row}" width="{(end - start) * scale:.2f}" '
                f'height="{_LANE - 6}" fill="{html.colour(lane)}"><title>{html.text(words)}</title></rect>'
            )
    return "".join(parts) + "</svg>"


def _pieces(steps: list[tuple[StepTime, float]], least: float) -> Iterator[tuple[float, float, str]]:
    """Yield start, end (microseconds) and tooltip of each bar: one step, or several narrow ones."""
    group: list[tuple[StepTime, float]] = []
    for (step, start), following in zip(steps, [*steps[1:], None]):
        group.append((step, start))
        begin = group[0][1]
        if following is not None and following[1] - begin < least and max(step.ms, following[0].ms) * 1000 < least:
            continue
        busy = sum(s.ms for s, _ in group)
        name = f"{step.name} ({step.type})" if len(group) == 1 else f"{group[0][0].name} .. {step.name} ({len(group)})"
        yield begin, max(start + step.ms * 1000, begin + least / 4), f"{name}  {busy:.3f} ms"
        group = []
