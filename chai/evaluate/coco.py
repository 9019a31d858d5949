"""Average precision by COCO's rules: ten overlaps, 101 recalls, crowds, sizes of objects, and 100 boxes of an image.

Source: the definition of detection metrics at cocodataset.org, "Detection evaluation".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..blob import Array
from ..util.lazy_numpy import np

MOST = 100  # boxes of a class in an image, the best ones
AREAS = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}  # in pixels


class CocoBox(NamedTuple):
    """A true box: its class and corners, whether it is a crowd, and the area of its object in pixels."""

    label: int
    left: float
    top: float
    right: float
    bottom: float
    crowd: bool
    area: float


class _Judged(NamedTuple):
    """The best boxes of a class in an image: scores (boxes,), whether each is right and whether it counts (overlaps, boxes).

    ``positives``  true boxes that count
    """

    scores: Array
    right: Array
    counts: Array
    positives: int


@dataclass
class CocoPrecision:
    """The boxes of all images, by class and by size of the objects: ``names`` are those of the classes that count."""

    names: dict[int, str]
    judged: dict[tuple[int, str], list[_Judged]] = field(default_factory=lambda: defaultdict(list))

    def add(self, boxes: Sequence[Sequence[float]], truth: Sequence[CocoBox]) -> None:
        """Add an image: boxes [class, score, corners] and the true ones."""
        for label in {int(box[0]) for box in boxes} | {box.label for box in truth}:
            if label not in self.names:
                continue
            own = sorted((box for box in boxes if box[0] == label), key=lambda box: -box[1])[:MOST]
            true = [box for box in truth if box.label == label]
            scores, corners = np.array([box[1] for box in own]), np.array([box[2:] for box in own]).reshape(-1, 4)
            shared = _overlaps(corners, true)
            for name, bounds in AREAS.items():
                self.judged[label, name].append(_judge(scores, corners, true, shared, bounds))

    def averages(self, area: str) -> dict[int, Array]:
        """Return the average precision at each overlap, (10,), of each class with true boxes of a size."""
        means = {}
        for label in sorted(self.names):
            images = self.judged.get((label, area), [])
            if positives := sum(image.positives for image in images):
                means[label] = _average(images, positives)
        return means

    def figures(self) -> dict[str, object]:
        """Return means over classes and overlaps, None where nothing is true, and those of each class, for json.dumps."""
        every = {area: self.averages(area) for area in AREAS}
        means = {area: _mean(list(classes.values())) for area, classes in every.items()}
        whole = np.array(list(every["all"].values())).reshape(-1, 10)
        return {
            "coco_map": means["all"],
            "coco_map50": _mean(whole[:, :1]),
            "coco_map75": _mean(whole[:, 5:6]),
            **{f"coco_map_{area}": means[area] for area in ("small", "medium", "large")},
            "coco_classes": [
                {"index": label, "label": self.names[label], "ap": float(at.mean()), "ap50": float(at[0])}
                for label, at in every["all"].items()
            ],
        }


def _mean(values: Sequence[Array] | Array) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _overlaps(boxes: Array, truth: Sequence[CocoBox]) -> Array:
    """Return the intersection over union (boxes, truth); with a crowd the share of the box that is in it."""
    true = np.array([box[1:5] for box in truth], np.float64).reshape(-1, 4)
    low, high = np.maximum(boxes[:, None, :2], true[:, :2]), np.minimum(boxes[:, None, 2:], true[:, 2:])
    inside = np.prod((high - low).clip(0), 2)
    own, others = (np.prod(each[:, 2:] - each[:, :2], 1) for each in (boxes, true))
    crowd = np.array([box.crowd for box in truth], bool)
    whole = np.where(crowd, own[:, None], own[:, None] + others - inside)
    shares: Array = np.divide(inside, whole, out=np.zeros_like(inside), where=inside > 0)
    return shares


def _judge(
    scores: Array, corners: Array, truth: Sequence[CocoBox], shared: Array, bounds: tuple[float, float]
) -> _Judged:
    """Match boxes, best first, with true ones: those that count before crowds and those of other sizes.

    A box takes the true one that it overlaps most, of equal ones the last, unless that one is taken and no crowd. A box that
    takes one that does not count, or none and has another size itself, does not count either.
    """
    low, high = bounds
    ignored = [box.crowd or not low <= box.area <= high for box in truth]
    order = sorted(range(len(truth)), key=lambda i: ignored[i])
    steps = np.linspace(0.5, 0.95, 10)  # the overlaps at which boxes are judged
    right, counts = np.zeros((len(steps), len(scores)), bool), np.ones((len(steps), len(scores)), bool)
    area = np.prod(corners[:, 2:] - corners[:, :2], 1)
    counts[:, (area < low) | (area > high)] = False
    near = np.flatnonzero(shared.max(1, initial=0) >= steps[0]).tolist()  # the others take none
    for at, step in enumerate(steps.tolist()):
        taken: set[int] = set()
        for box in near:
            best, most = None, min(step, 1 - 1e-10)
            for i in order:
                if (i in taken and not truth[i].crowd) or shared[box, i] < most:
                    continue
                if best is not None and ignored[i] and not ignored[best]:
                    break
                best, most = i, shared[box, i]
            if best is not None:
                taken.add(best)
                right[at, box], counts[at, box] = True, not ignored[best]
    return _Judged(scores, right, counts, len(truth) - sum(ignored))


def _average(images: Sequence[_Judged], positives: int) -> Array:
    """Return the mean precision at recalls 0, 0.01, ..., 1 for each overlap: the largest at this recall or a higher one."""
    order = np.argsort(-np.concatenate([image.scores for image in images]), kind="stable")
    right = np.concatenate([image.right for image in images], 1)[:, order]
    counts = np.concatenate([image.counts for image in images], 1)[:, order]
    hits, misses = (right & counts).cumsum(1), (~right & counts).cumsum(1)
    recalls = np.linspace(0, 1, 101)
    averages = np.zeros(len(hits))
    for at, (hit, miss) in enumerate(zip(hits, misses)):
        precision = np.maximum.accumulate((hit / np.maximum(hit + miss, 1))[::-1])[::-1]
        places = np.searchsorted(hit / positives, recalls, side="left")
        averages[at] = precision[places[places < len(hit)]].sum() / len(recalls)
    return averages
