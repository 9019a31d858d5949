"""Measure class scores: the same best class, KL divergence, SQNR of the logits, top-1 and top-5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..blob import Array
from ..images.pictures import Feed
from ..images.preprocess import PictureWindow
from ..net import Net
from ..util.lazy_numpy import np
from .measure import LogitSums, Measure, Record, counted, forward, interval, logit_rows, of_logits, wilson

TOP = 5


@dataclass
class Evaluation(LogitSums):
    """The sums of one side.

    ``agree``   images whose best class is the first side's
    ``hits``    correct answers, [top-1, top-5], among the ``known`` images
    """

    agree: int = 0
    hits: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the share of images that agree (Wilson's)."""
        return wilson(self.agree, self.images)

    def add(self, answer: Any, first: Any, truth: int | None) -> None:
        classes = answer if first is None else answer["best"]
        self.images += 1
        if truth is not None:
            self.known += 1
            self.hits[0] += 1 if classes[0] == truth else 0
            self.hits[1] += 1 if truth in classes else 0
        if first is not None:
            self.agree += 1 if first[0] == classes[0] else 0
            self.add_logits(answer)

    def compared(self) -> dict[str, Any]:
        return {
            "agree": self.agree,
            "agreement": self.agree / self.images,
            "agreement_95": list(self.interval),
            **self.compared_logits(),
        }

    def judged(self) -> dict[str, Any]:
        return dict(zip(("top1", "top5"), self.hits)) if self.known else {}


class Scores(Measure):
    """One score per class for each image."""

    def answers(self, net: Net, feed: Mapping[str, Feed], windows: Sequence[PictureWindow]) -> list[Any]:
        value, logits = forward(net, self.output, feed)
        return list(zip(value.reshape(len(value), -1), logits))

    def record(self, answers: Mapping[str, Any], window: PictureWindow, target: Array | None) -> Record:
        (name, (exact, logits)), *others = answers.items()
        record: Record = {name: self._best(exact)}
        for side, (row, reached) in others:
            record[side] = {"best": self._best(row), **of_logits(self.output, exact, row, logits, reached)}
        return record

    def side(self) -> Evaluation:
        return Evaluation()

    def rows(self, sides: Mapping[str, Any]) -> list[list[str]]:
        (reference, first), *others = sides.items()
        rows: list[list[str]] = []
        if others:
            n, rest = first.images, [side for _, side in others]
            rows.append(["same best class", "", *(counted(s.agree, n) for s in rest)])
            rows.append(["  95 % interval", "", *(interval(s.agree, n) for s in rest)])
            rows += logit_rows(self.output, reference, rest)
        if first.known:
            for i, name in enumerate(("top-1", "top-5")):
                rows.append([name, *(counted(s.hits[i], s.known) for s in sides.values())])
        return rows

    def _best(self, row: Array) -> list[int]:
        return [int(index) for index in row[:TOP]] if self.output.decision == "argmax" else best(row)


def best(row: Array, top: int = TOP) -> list[int]:
    """Return the classes of the largest scores in descending order; equal scores in order of class."""
    classes: list[int] = np.argsort(-row, kind="stable")[:top].tolist()
    return classes
