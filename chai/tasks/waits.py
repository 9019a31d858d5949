"""Waits: what an engine waits for at the two ends of a Task, in cycles.

A Task begins when its first rows are there: the memory's latency after the Tasks that it waits for have finished, and their
beats at the rate of a port. It has finished when the last response to its writes is there, after its last sums are drained.
While an engine works on another Task, neither costs anything.
"""

from __future__ import annotations

from typing import NamedTuple

from ..overlay import Overlay

START, DRAIN = (
    15,
    48,
)  # cycles of the array: from a count that is reached to a request; from the last product to its codes


class Waits(NamedTuple):
    """The cycles of a Task and, of the array, what it takes of buffers and of its port.

    ``lead``   from the finish of the Tasks that it waits for to the first product
    ``work``   from there to the last product, if all input and constants are there and nothing else is drained
    ``tail``   from there to its finish
    ``constants``  words of constants
    ``held``   words that the weight buffer holds, which may arrive before the Task works
    ``rows``, ``keeps``  the share of the input buffer that its first rows take, and of those that it has to its last product
    ``reading``  cycles in which a port reads all of its rows
    ``room``     for so many of them, a share, the input buffer has room
    ``first_sums``  from the first product until the first sums are complete, which are drained after those of the Task before
    ``draining``  of its last sums
    """

    lead: float
    work: float
    tail: float
    constants: float = 0
    held: float = 0
    rows: float = 0
    keeps: float = 0
    reading: float = 0
    room: float = 0
    first_sums: float = 0
    draining: float = 0


def latency(overlay: Overlay) -> int:
    """Return the cycles from an address to its first beat, 0 if the manifest does not say."""
    return overlay.memory_port.latency_cycles if overlay.memory_port else 0


def of_window(overlay: Overlay, cycles: float) -> Waits:
    """Return the waits of a Task of the window engine, which works so long: for its first word, and for its last response."""
    return Waits(latency(overlay), cycles, latency(overlay))
