"""Times of composed layers: the sum of their parts, and the conversions around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from ...graph import Composed
from ..times import StepTime


class Entry(NamedTuple):
    """A custom or composed layer in CHaiDNN's report; all times in milliseconds.

    ``steps``   the parts of a composed layer, with the conversions between them
    ``shared``  steps that compute other layers as well, whose time is not counted
    """

    name: str
    unpack: float
    own: float
    pack: float
    steps: tuple[StepTime, ...] = ()
    shared: tuple[StepTime, ...] = ()


def entries(steps: Sequence[StepTime], composed: Mapping[str, Composed]) -> Iterator[Entry]:
    """Yield the custom layers of a pass and the composed ones, in order.

    A custom layer that is a part of a composed one is not listed separately.
    """
    waiting = dict(composed)
    inside = {name for layer in composed.values() for name in layer.parts}
    for step in steps:
        for name in [n for n, layer in waiting.items() if not set(step.layers).isdisjoint(layer.parts)]:
            yield _composed(name, waiting.pop(name), steps)
        if step.engine == "custom" and inside.isdisjoint(step.layers):
            unpack, pack = conversions(step, steps)
            yield Entry(step.name, unpack, step.ms, pack)


def conversions(step: StepTime, steps: Sequence[StepTime]) -> tuple[float, float]:
    """Return the milliseconds of unpacking a step's inputs and of packing its outputs, see ``PerfInfo.conversions``."""
    unpack = fsum(s.ms for s in steps if s.kind == "unpack" and not set(s.writes).isdisjoint(step.reads))
    pack = fsum(s.ms for s in steps if s.kind == "pack" and not set(s.reads).isdisjoint(step.writes))
    return unpack, pack


def _composed(name: str, layer: Composed, steps: Sequence[StepTime]) -> Entry:
    parts = set(layer.parts)
    inside = [s for s in steps if s.layers and parts.issuperset(s.layers)]
    shared = tuple(s for s in steps if s not in inside and not parts.isdisjoint(s.layers))
    written = {blob for s in inside for blob in s.writes}
    before: list[StepTime] = []
    after: list[StepTime] = []
    for step in steps:
        if step.kind not in ("pack", "unpack"):
            continue
        # a Pack is for readers on the overlay, an Unpack for those on the host
        read = any(step.reads[0] in s.reads and (s.engine == "fpga") == (step.kind == "pack") for s in inside)
        if step.reads[0] not in written:
            before += [step] * read
        else:
            (inside if read else after).append(step)
    inside.sort(key=lambda s: s.begin)
    unpack, ms, pack = (fsum(s.ms for s in part) for part in (before, inside, after))
    return Entry(name, unpack, ms, pack, tuple(inside), shared)
