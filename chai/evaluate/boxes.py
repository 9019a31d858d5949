"""Measure boxes: precision and recall against the first side, average precision against the ground truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ..blob import Array, show
from ..errors import UsageError
from ..images.boxes import detections
from ..images.pictures import Feed
from ..images.preprocess import PictureWindow
from ..net import Net
from .coco import CocoPrecision
from .measure import Measure, Record, Side, counted, interval, share, wilson
from .outputs import Output

IOU = 0.5  # smallest overlap of two boxes of one object
THRESHOLD = 0.3  # smallest score of a box that counts when two sides are compared
MEANS = {  # names of the figures against the truth
    "map50": "mAP@0.5 (VOC)",
    "coco_map": "mAP@0.5:0.95 (COCO)",
    "coco_map50": "mAP@0.5 (COCO)",
    "coco_map75": "mAP@0.75 (COCO)",
    "coco_map_small": "mAP small (COCO)",
    "coco_map_medium": "mAP medium (COCO)",
    "coco_map_large": "mAP large (COCO)",
}
Corners = Sequence[float]  # left, top, right, bottom
Box = Sequence[float]  # class, score, corners
TrueBox = Sequence[float]  # class, corners


def overlap(one: Corners, other: Corners) -> float:
    """Return the intersection over union of two boxes; 1 for equal ones, also if they have no area."""
    if tuple(one) == tuple(other):
        return 1.0
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if not (width > 0 and height > 0):
        return 0.0
    both = width * height
    union = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - both
    return both / union if union > 0 else 0.0


def pairs(boxes: Iterable[Box], expected: Iterable[Box]) -> list[tuple[Box, Box]]:
    """Return the boxes that match an expected box, each with that one.

    Boxes are matched in descending order of score. Each takes the unmatched expected box of its class with the largest
    intersection over union, if that is at least IOU.
    """
    free = list(expected)
    ranked = sorted(boxes, key=lambda b: -b[1])
    return [(box, free.pop(nearest)) for box in ranked if (nearest := _nearest(box, free)) is not None]


def _nearest(box: Box, others: Sequence[Box | TrueBox]) -> int | None:
    """Return which of the ``others`` of a box's class has the largest overlap with it; None if that is less than IOU."""
    overlaps = {i: overlap(box[2:], other[-4:]) for i, other in enumerate(others) if other[0] == box[0]}
    nearest = max(overlaps, key=lambda i: overlaps[i], default=None)
    return nearest if nearest is not None and overlaps[nearest] >= IOU else None


def hits(boxes: Iterable[Box], truth: Sequence[TrueBox]) -> list[tuple[int, float, bool]]:
    """Return class, score and correctness of each box of an image, by PASCAL VOC's rule.

    Boxes are taken in descending order of score. A box is correct if the true box of its class with the largest
    intersection over union reaches IOU and was not matched by an earlier box.
    """
    taken: set[int | None] = {None}  # true boxes, and that there is none
    judged = []
    for box in sorted(boxes, key=lambda b: -b[1]):
        nearest = _nearest(box, truth)
        judged.append((int(box[0]), float(box[1]), nearest not in taken))
        taken.add(nearest)
    return judged


def average_precision(ranked: Iterable[tuple[float, bool]], positives: int) -> float:
    """Return the area under the precision-recall curve with all-point interpolation, as in PASCAL VOC since 2010.

    ``ranked`` has the score and correctness of every box of a class; ``positives`` is the number of true boxes, at
    least 1. The precision at a recall is the largest at this recall or a higher one.
    """
    hits = list(accumulate(hit for _, hit in sorted(ranked, key=lambda r: -r[0])))
    precisions = [right / count for count, right in enumerate(hits, 1)]
    largest = list(accumulate(reversed(precisions), max))[::-1]
    area = reached = 0.0
    for precision, right in zip(largest, hits):
        area += precision * (right / positives - reached)
        reached = right / positives
    return area


@dataclass
class BoxSums(Side):
    """The sums of one side.

    ``boxes``      number of boxes of at least the threshold;  ``expected``  the same on the first side
    ``pairs``      number of matches, see the function;  ``agree``  images where every box of both sides has a match
    ``ranked``     score and correctness of every box, by class;  ``positives``  number of true boxes, by class
    ``coco``       the same by COCO's rules, if the truth is a file of COCO's; else by VOC's
    """

    threshold: float = THRESHOLD
    boxes: int = 0
    expected: int = 0
    pairs: int = 0
    agree: int = 0
    ranked: dict[int, list[tuple[float, bool]]] = field(default_factory=lambda: defaultdict(list))
    positives: Counter[int] = field(default_factory=Counter)
    coco: CocoPrecision | None = None

    def add(self, answer: Sequence[Box], first: Sequence[Box] | None, truth: Sequence[Any] | None) -> None:
        self.images += 1
        sure = [box for box in answer if box[1] >= self.threshold]
        self.boxes += len(sure)
        if first is not None:
            expected = [box for box in first if box[1] >= self.threshold]
            same = len(pairs(sure, expected))
            self.expected += len(expected)
            self.pairs += same
            self.agree += same == len(sure) == len(expected)
        if truth is not None:
            self.known += 1
            if self.coco is not None:
                self.coco.add(answer, truth)
                return
            self.positives.update(int(box[0]) for box in truth)
            for label, score, right in hits(answer, truth):
                self.ranked[label].append((score, right))

    @property
    def mean_average_precision(self) -> float | None:
        """Mean of the average precision over the classes with true boxes; None if there is none."""
        each = [average_precision(self.ranked[label], n) for label, n in sorted(self.positives.items())]
        return sum(each) / len(each) if each else None

    def compared(self) -> dict[str, Any]:
        return {
            "agree": self.agree,
            "agreement": self.agree / self.images,
            "agreement_95": list(wilson(self.agree, self.images)),
            "boxes": self.boxes,
            "expected": self.expected,
            "matched": self.pairs,
            "precision": share(self.pairs, self.boxes),
            "recall": share(self.pairs, self.expected),
        }

    def judged(self) -> dict[str, Any]:
        if not self.known:
            return {}
        return {"map50": self.mean_average_precision} if self.coco is None else self.coco.figures()


class Boxes(Measure):
    """Rows of image, class, score and corners. Records have the corners in pixels of the image."""

    def __init__(self, output: Output, threshold: float = THRESHOLD, names: Mapping[int, str] | None = None) -> None:
        super().__init__(output)
        self.threshold = threshold
        self.names = names  # of the classes of a truth of COCO's

    def answers(self, net: Net, feed: Mapping[str, Feed], windows: Sequence[PictureWindow]) -> list[Any]:
        value = net.forward(**feed)[self.output.blob]
        if value.shape[-1:] != (7,):
            message = f"evaluate: {self.output.blob!r} is {show(value.shape)}, expected boxes: rows of 7 numbers"
            raise UsageError(message, hint=f"--output {self.output.blob}=scores or =map, if it is one")
        boxes = detections(value, dict(enumerate(windows)), self.output.first_class)
        own = (boxes[boxes[:, 0] == image, 1:].tolist() for image in range(len(windows)))
        return [[[int(label), *rest] for label, *rest in rows] for rows in own]

    def record(self, answers: Mapping[str, Any], window: PictureWindow, target: Array | None) -> Record:
        return dict(answers)

    def side(self) -> BoxSums:
        coco = None if self.names is None else CocoPrecision(dict(self.names))
        return BoxSums(threshold=self.threshold, coco=coco)

    def rows(self, sides: Mapping[str, Any]) -> list[list[str]]:
        first, *others = sides.values()
        rows = [[f"boxes of at least {self.threshold:g}", *(str(s.boxes) for s in sides.values())]]
        if others:
            rows.append(["same boxes, images", "", *(counted(s.agree, s.images) for s in others)])
            rows.append(["  95 % interval", "", *(interval(s.agree, s.images) for s in others)])
            rows.append(["precision", "", *(counted(s.pairs, s.boxes) for s in others)])
            rows.append(["recall", "", *(counted(s.pairs, s.expected) for s in others)])
        if first.known:
            figures = [side.judged() for side in sides.values()]
            for key, name in MEANS.items():
                if key in figures[0]:
                    rows.append([name, *("-" if each[key] is None else f"{each[key]:.4f}" for each in figures)])
            for i, own in enumerate(figures[0].get("coco_classes", ())):
                cells = (f"{each['coco_classes'][i]['ap']:.4f}" for each in figures)
                rows.append([f"  {own['label']}", *cells])
        return rows
