"""DetectionOutput: SSD's boxes after decoding, thresholds and non-maximum suppression."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..blob import Array, Shape, count, show
from ..graph.params import SIZE, MessageFields, choice, nested, within
from ..kernels.boxes import Suppression, runs, suppress
from ..text import number_of
from ..util.lazy_numpy import np
from ._detections import DetectionLayer, around, few, rows_of, table

LEAST = -3.4028234663852886e38  # FLT_MAX, negative: what SSD has scores exceed without a confidence_threshold


class NonMaximumSuppression(MessageFields):
    """Drop the weaker of two boxes that overlap by more than nms_threshold; eta < 1 lowers the threshold step by step."""

    nms_threshold: float = within(0, 1e6, 0.3)
    top_k: int | None = within(-1, 2**31 - 1)
    eta: float = within(1e-6, 1, 1.0)


class DetectionOutput(DetectionLayer):
    """Bottoms: locations (N, boxes * 4), scores (N, boxes * classes), priors (1, 2, boxes * 4).

    Rows are sorted by image, then label, then descending score.

    With no_permute the bottoms are the scores of each feature map (N, classes, boxes of a pixel, H * W), then its locations
    (N, boxes of a pixel * 4, H, W) likewise, then the priors; boxes are ordered by map, box of a pixel, and pixel.
    """

    bottoms_allowed = (3, None)

    class Params(MessageFields):
        """keep_top_k: boxes kept per image over all classes, -1 for all.

        no_permute and nbottom (the number of feature maps) are the Synopsys fork's.
        """

        num_classes: int = within(0, SIZE, 0)
        share_location: bool = True
        background_label_id: int = 0
        nms_param: NonMaximumSuppression | None = nested(NonMaximumSuppression)
        code_type: str = choice("CORNER", "CENTER_SIZE", "CORNER_SIZE", default="CORNER")
        keep_top_k: int = within(-1, 2**31 - 1, -1)
        variance_encoded_in_target: bool = False
        confidence_threshold: float | None = None
        no_permute: bool = False
        nbottom: int = within(1, 64, 6)

    @property
    def first_class(self) -> int:
        return 1 if self.params.background_label_id == 0 else 0

    def box_classes(self, *bottoms: Shape) -> int:
        return int(self.params.num_classes) - self.first_class

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        if p.num_classes < 1:
            raise self.wrong("num_classes is missing")
        if p.no_permute:
            bottoms = self._together(*bottoms)
        elif len(bottoms) > 4:
            raise self.wrong(
                f"{number_of(len(bottoms), 'bottom')}; expected locations, scores and priors, or no_permute"
            )
        location, score, prior = bottoms[:3]
        if len(prior) != 3 or prior[1] != 2 or prior[2] % 4:
            raise self.wrong(f"the priors must be (1, 2, boxes * 4), found {show(prior)}")
        if not location or not score or location[0] != score[0]:
            raise self.wrong(f"locations {show(location)} and scores {show(score)} must be of the same images")
        priors = prior[2] // 4
        images = location[0]
        locations = count(location[1:]), priors * 4 * (1 if p.share_location else p.num_classes)
        scores = count(score[1:]), priors * p.num_classes
        for what, (shape, wanted) in (("locations", locations), ("scores", scores)):
            if shape != wanted:
                raise self.wrong(
                    f"{shape} {what} per image for {priors} priors and {p.num_classes} classes; expected {wanted}"
                )
        few(self, boxes=priors, scores=scores[1])
        return ((1, 1, 1, 7),) if images else ((1, 1, 0, 7),)

    def _together(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the usual bottoms from those of no_permute."""
        maps, p = self.params.nbottom, self.params
        if len(bottoms) != 2 * maps + 1:
            raise self.wrong(f"{number_of(len(bottoms), 'bottom')} for {maps} feature maps; expected {2 * maps + 1}")
        boxes = 0
        for scores, locations in zip(bottoms[:maps], bottoms[maps:]):
            n, c, h, w = self.spatial(locations)
            if c % 4 or scores != (n, p.num_classes, c // 4, h * w):
                raise self.wrong(f"scores {show(scores)} and locations {show(locations)} are not of the same boxes")
            boxes += c // 4 * h * w
        n = bottoms[0][0]
        return (n, boxes * 4), (n, boxes * p.num_classes), bottoms[-1]

    def _gathered(self, *bottoms: Array) -> tuple[Array, ...]:
        """Return the usual bottoms from those of no_permute."""
        maps, n = self.params.nbottom, len(bottoms[0])
        boxes = bottoms[-1].reshape(-1)[: bottoms[-1].shape[2] * 2].reshape(2, -1)
        scores, locations, priors = [], [], []
        first = 0
        for score, location in zip(bottoms[:maps], bottoms[maps:]):
            _, c, h, w = location.shape
            scores.append(score.transpose(0, 2, 3, 1).reshape(n, count(score.shape[1:])))
            locations.append(location.reshape(n, c // 4, 4, h * w).transpose(0, 1, 3, 2).reshape(n, c * h * w))
            part = boxes[:, first : first + c * h * w].reshape(2, h * w, c // 4, 4)
            priors.append(part.transpose(0, 2, 1, 3).reshape(1, 2, -1))
            first += c * h * w
        return np.concatenate(locations, 1), np.concatenate(scores, 1), np.concatenate(priors, 2)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        if p.no_permute:
            bottoms = self._gathered(*bottoms)
        images, boxes = len(bottoms[0]), bottoms[2].shape[2] // 4
        candidates = self._candidates(bottoms[1].reshape(images, boxes, p.num_classes))
        corners = self._decode(candidates, bottoms[0], bottoms[2].reshape(-1)[: boxes * 8].reshape(2, boxes, 4))
        kept = self._suppress(candidates, corners)
        image, label, _, score = candidates.of(kept)
        return table([rows_of(image, label, score, corners[:, kept])], images)

    def _candidates(self, scores: Array) -> _Candidates:
        """Return boxes of each class whose scores exceed the threshold, the best top_k, best first.

        ``scores`` are (images, boxes, classes).
        """
        p, (_, boxes, classes) = self.params, scores.shape
        exceeding = scores > (LEAST if p.confidence_threshold is None else p.confidence_threshold)
        if 0 <= p.background_label_id < classes:
            exceeding[:, :, p.background_label_id] = False
        most = self._nms.top_k  # None or below 0: all
        if most is not None and most >= 0:
            _limit(exceeding, scores, most)
        at = np.flatnonzero(exceeding)
        place = at // classes
        image, label = place // boxes, at - place * classes
        candidates = _Candidates(image, label, place - image * boxes, scores.reshape(-1)[at])
        # stable: of equal scores the first box is better
        return candidates.of(np.lexsort((-candidates.score, image * classes + label)))

    def _decode(self, candidates: _Candidates, locations: Array, priors: Array) -> Array:
        """Return the corners (4, candidates), for priors (2, boxes, 4): corners and variances."""
        p, (_, boxes, _) = self.params, priors.shape
        groups = 1 if p.share_location else p.num_classes
        row = (candidates.image * boxes + candidates.box) * groups
        location = _columns(locations.reshape(-1, 4), row if p.share_location else row + candidates.label)
        prior = _columns(priors[0], candidates.box)
        if not p.variance_encoded_in_target:
            location *= _columns(priors[1], candidates.box)
        size: Array = prior[2:] - prior[:2]
        corners: Array
        if p.code_type == "CORNER":
            corners = prior + location
        elif p.code_type == "CORNER_SIZE":
            corners = prior + location * np.concatenate([size, size])
        else:
            corners = around((prior[:2] + prior[2:]) / 2 + location[:2] * size, np.exp(location[2:]) * size)
        return corners

    def _suppress(self, candidates: _Candidates, corners: Array) -> list[int]:
        """Return the candidates that are kept, of each class of an image first and then of each image."""
        low, high, keep = corners[:2], corners[2:], self.params.keep_top_k
        sides = high - low
        area = sides[0] * sides[1]
        area[(sides < 0).any(0)] = 0
        rule = Suppression(self._nms.nms_threshold, eta=self._nms.eta)
        kept = list[int]()
        for image in runs(candidates.image):
            first = len(kept)
            for own in runs(candidates.label[image]):
                part = slice(image.start + own.start, image.start + own.stop)
                kept += [part.start + i for i in suppress(low[:, part], high[:, part], area[part], rule)]
            if 0 <= keep < len(kept) - first:
                best = np.argsort(-candidates.score[kept[first:]], kind="stable")[:keep]
                kept[first:] = [kept[first + i] for i in np.sort(best)]
        return kept

    @property
    def _nms(self) -> NonMaximumSuppression:
        return self.params.nms_param or NonMaximumSuppression()


class _Candidates(NamedTuple):
    """Boxes of classes: image, label, box and score of each."""

    image: Array
    label: Array
    box: Array
    score: Array

    def of(self, which: Any) -> _Candidates:
        """Return some of them, in this order."""
        return _Candidates(*[values[which] for values in self])


def _limit(exceeding: Array, scores: Array, most: int) -> None:
    """Have only the ``most`` largest scores of each class of an image exceed; of equal ones the first boxes'."""
    if np.count_nonzero(exceeding) <= most:
        return
    if most == 0:
        exceeding[...] = False
        return
    for own, values in zip(exceeding, scores):  # (boxes, classes)
        for label in range(own.shape[1]):
            chosen, column = own[:, label], values[:, label]
            if np.count_nonzero(chosen) > most:
                least = np.partition(column[chosen], -most)[-most]
                equal = np.flatnonzero(column == least)
                chosen[...] = column > least
                chosen[equal[: most - np.count_nonzero(chosen)]] = True


def _columns(rows: Array, which: Array) -> Array:
    """Return some rows as columns, contiguous: numpy is fast along the last axis."""
    return np.ascontiguousarray(rows[which].T)
