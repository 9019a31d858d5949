"""Dispatch batches to workers and retry lost ones; each image counts once.

A batch that was lost twice may kill its workers. Its images are then run one at a time, with no other batch dispatched
that could be the cause; an image that is lost twice again is given up.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from ...errors import ChaiError
from ...util.log import logger
from ..measure import Record
from .job import Answer, Place, refusal

log = logger("chai.evaluate")
TRIES = 2
HOPELESS = 3  # batches lost without any answer: the images are not the cause
Part = tuple[Place, ...]
Done = Callable[[Sequence[Record]], None]


class Crew(Protocol):
    """Workers, wherever they are."""

    def room(self) -> int:
        """Return the number of batches that can be dispatched now."""

    def give(self, part: Part) -> None:
        """Dispatch a batch."""

    def wait(self) -> list[tuple[Part, Answer]]:
        """Return the answers that have arrived, after a second at most. An answer may be returned twice."""

    def close(self) -> None:
        """Stop the workers, or disconnect from them, at once."""


def batches(images: Sequence[Place], size: int, done: Collection[int] = ()) -> list[Part]:
    """Return batches of the images that are not ``done``, grouped as in a run from the beginning."""
    runs = (images[i : i + size] for i in range(0, len(images), size))
    parts = (tuple(place for place in run if place[0] not in done) for run in runs)
    return [part for part in parts if part]


def drive(crew: Crew, parts: Iterable[Part], done: Done, proven: bool = False) -> None:
    """Run all batches; call ``done`` with the Records of each image once, in any order.

    ``proven``: these networks have run an image before. Raises the error that a worker refuses a batch with, and
    ChaiError if all batches are lost.
    """
    lost = _through(crew, parts, done, proven)
    for place in sorted(place for part in lost for place in part):
        for why in _through(crew, [(place,)], done, proven=True).values():
            done([{"image": place[0], "error": why}])


def _through(crew: Crew, parts: Iterable[Part], done: Done, proven: bool) -> dict[Part, str]:
    """Run batches, each TRIES times at most. Return the batches that were lost each time, with the reason."""
    waiting, out, tries = deque(parts), set[Part](), Counter[Part]()
    lost: dict[Part, str] = {}
    while waiting or out:
        while waiting and crew.room() > 0:
            part = waiting.popleft()
            out.add(part)
            crew.give(part)
        for part, answer in crew.wait():
            if "refused" in answer:
                raise refusal(answer["refused"])
            if part not in out:  # a copy of this batch was faster
                continue
            out.discard(part)
            if "records" in answer:
                proven = True
                done(answer["records"])
                continue
            tries[part] += 1
            log.info("%s: %s", _name(part), answer["lost"])
            if tries[part] < TRIES:
                waiting.append(part)
            else:
                lost[part] = answer["lost"]
        if len(lost) >= HOPELESS and not proven:
            raise ChaiError(f"no batch comes back: {next(iter(lost.values()))}")
    return lost


def _name(part: Part) -> str:
    return f"{part[0][1]} and {len(part) - 1} more" if len(part) > 1 else part[0][1]
