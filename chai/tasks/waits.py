"""Waits: what an engine waits for at the two ends of a Task, in cycles.

A Task begins when its first rows are there: the memory's latency after the Tasks that it waits for have finished, and their
beats at the rate of a port. It has finished when the last response to its writes is there, after its last sums are drained.
While an engine works on another Task, neither costs anything.
"""

from __future__ import annotations

from typing import NamedTuple

from ..overlay import Overlay

# cycles of the array: from a count that is reached to a request; from the last product to its codes
START, DRAIN = 15, 48
TABLES = 4  # blocks of outputs whose constants come ahead of the drain


class Waits(NamedTuple):
    """The cycles of a Task and, of the array, what it takes of buffers and of its ports.

    ``delay``  from the finish of the Tasks that it waits for to the first word of its input
    ``work``   from its begin to the last product, if all input and constants are there and nothing else is drained
    ``tail``   from there to its finish
    ``first``, ``reading``  in which the rows come with which it may begin, and all of them
    ``rows``, ``chunk``, ``all``  the shares of the input buffer that its first rows take, further ones (at a time), and all
    ``keeps``  the share that it has to its last product
    ``constants``  in which its constants come
    ``held``   the share of them that may come before it works: of few blocks, as far as the weight buffer holds them
    ``blocks``   of outputs that it drains, of each tile
    ``first_sums``  from the first product until the first sums are complete, which are drained after those of the Task before
    ``draining``  of its last sums
    """

    delay: float
    work: float
    tail: float
    first: float = 0
    reading: float = 0
    rows: float = 0
    chunk: float = 0
    all: float = 0
    keeps: float = 0
    constants: float = 0
    held: float = 1
    blocks: int = 1
    first_sums: float = 0
    draining: float = 0

    @property
    def lead(self) -> float:
        """Return the cycles from the finish of the Tasks that it waits for until it begins."""
        return self.delay + self.first


def latency(overlay: Overlay) -> int:
    """Return the cycles from an address to its first beat, 0 if the manifest does not say."""
    return overlay.memory_port.latency_cycles if overlay.memory_port else 0
