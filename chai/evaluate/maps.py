"""Measure maps: pixels of the same class, mean intersection over union, KL divergence and SQNR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..blob import Array
from ..images.pictures import Feed
from ..images.preprocess import PictureWindow
from ..net import Net
from ..util.lazy_numpy import np
from .measure import LogitSums, Measure, Record, forward, logit_rows, of_logits, share

IGNORED = 255  # true class of pixels that do not count: the border of an object, or unknown


class Answer(NamedTuple):
    """One side of one image: its map (C, H, W), the logits, and the class of each pixel (H, W) if the map has classes."""

    values: Array
    logits: Array
    classes: Array | None


def class_map(values: Array, decision: str | None) -> Array | None:
    """Return the class of each pixel of a map (C, H, W).

    It is the channel of the largest score, the index that an ArgMax returns, or 1 where the only channel of a Sigmoid is
    above 0.5. None for any other single channel.
    """
    if decision == "argmax":
        indices: Array = values[0].astype(np.int64)
        return indices
    if len(values) == 1:
        return (values[0] > 0.5).astype(np.int64) if decision == "sigmoid" else None
    best: Array = values.argmax(0)
    return best


def seen_in(classes: Array, window: PictureWindow, size: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Return the rows and columns of an image of ``size`` (height, width) inside a window, and the map's classes there.

    Each pixel of the image has the class of the map's pixel that contains its centre.
    """
    left, top, right, bottom = window[:4]
    rows, y = _nearest(size[0], top, bottom, classes.shape[0])
    columns, x = _nearest(size[1], left, right, classes.shape[1])
    return rows, columns, classes[np.ix_(y, x)]


def _nearest(count: int, low: float, high: float, pixels: int) -> tuple[Array, Array]:
    at = (np.arange(count) + 0.5 - low) / (high - low) * pixels
    inside = np.flatnonzero((at >= 0) & (at < pixels))
    return inside, at[inside].astype(np.int64)


def counts(expected: Array, actual: Array) -> list[list[int]]:
    """Return [class, pixels in both, in the first, in the second] for each class of two lists of pixels."""
    labels = np.union1d(expected, actual)
    sizes = len(labels)
    a, b = np.searchsorted(labels, expected.ravel()), np.searchsorted(labels, actual.ravel())
    each = [np.bincount(x, minlength=sizes) for x in (a[a == b], a, b)]
    rows: list[list[int]] = np.stack([labels.astype(np.int64), *each], 1).tolist()
    return rows


@dataclass
class Overlaps:
    """Pixels per class: {class: [in both sides, in the first, in the second]}."""

    classes: dict[int, list[int]] = field(default_factory=dict)

    def add(self, rows: Iterable[Sequence[int]]) -> None:
        """Add the ``counts`` of an image."""
        for label, *pixels in rows:
            before = self.classes.get(label, [0, 0, 0])
            self.classes[label] = [a + b for a, b in zip(before, pixels)]

    @property
    def same(self) -> int:
        """Number of pixels with the same class."""
        return sum(both for both, _, _ in self.classes.values())

    @property
    def pixels(self) -> int:
        """Number of all pixels."""
        return sum(one for _, one, _ in self.classes.values())

    @property
    def mean_iou(self) -> float | None:
        """Mean intersection over union of the classes that occur on either side; None without any."""
        each = [both / (one + other - both) for _, (both, one, other) in sorted(self.classes.items()) if one + other]
        return sum(each) / len(each) if each else None


@dataclass
class MapSums(LogitSums):
    """The sums of one side: its classes against the first side's and against the ground truth."""

    first: Overlaps = field(default_factory=Overlaps)
    truth: Overlaps = field(default_factory=Overlaps)

    def add(self, answer: Any, first: Any, truth: Any) -> None:
        self.images += 1
        if answer["truth"] is not None:
            self.known += 1
            self.truth.add(answer["truth"])
        if first is not None:
            self.add_logits(answer)
            self.first.add(answer["classes"] or ())

    def compared(self) -> dict[str, Any]:
        return {
            "pixel_agreement": share(self.first.same, self.first.pixels),
            "mean_iou": self.first.mean_iou,
            **self.compared_logits(),
        }

    def judged(self) -> dict[str, Any]:
        if not self.known:
            return {}
        return {"pixel_accuracy": share(self.truth.same, self.truth.pixels), "mean_iou_truth": self.truth.mean_iou}


class Maps(Measure):
    """One score, class or value per pixel."""

    def answers(self, net: Net, feed: Mapping[str, Feed], windows: Sequence[PictureWindow]) -> list[Any]:
        values, logits = forward(net, self.output, feed)
        return [Answer(v, x, class_map(v, self.output.decision)) for v, x in zip(values, logits)]

    def record(self, answers: Mapping[str, Any], window: PictureWindow, target: Array | None) -> Record:
        (name, exact), *others = answers.items()
        record: Record = {name: {"truth": self._against(exact, window, target)}}
        for side, answer in others:
            record[side] = {
                "classes": None if exact.classes is None else counts(exact.classes, answer.classes),
                **of_logits(self.output, exact.values, answer.values, exact.logits, answer.logits),
                "truth": self._against(answer, window, target),
            }
        return record

    def side(self) -> MapSums:
        return MapSums()

    def rows(self, sides: Mapping[str, Any]) -> list[list[str]]:
        (reference, first), *others = sides.items()
        rows: list[list[str]] = []
        if others:
            rest = [side for _, side in others]
            rows.append(["same class, pixels", "", *(counted_share(s.first) for s in rest)])
            rows.append([f"mean IoU with {reference}", "", *(number(s.first.mean_iou) for s in rest)])
            rows += logit_rows(self.output, reference, rest)
        if first.known:
            rows.append(["right class, pixels", *(counted_share(s.truth) for s in sides.values())])
            rows.append(["mean IoU with the truth", *(number(s.truth.mean_iou) for s in sides.values())])
        return rows

    def _against(self, answer: Answer, window: PictureWindow, target: Array | None) -> list[list[int]] | None:
        if target is None or answer.classes is None:
            return None
        rows, columns, classes = seen_in(answer.classes, window, target.shape)
        expected = target[np.ix_(rows, columns)]
        valid = expected != IGNORED
        return counts(expected[valid], classes[valid])


def counted_share(overlaps: Overlaps) -> str:
    """Return the percentage of pixels of the same class as text."""
    return f"{100 * overlaps.same / overlaps.pixels:.2f} %" if overlaps.pixels else "-"


def number(value: float | None) -> str:
    """Return a fraction as text."""
    return "-" if value is None else f"{value:.4f}"
