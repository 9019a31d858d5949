"""DetectionOutput: SSD's boxes after decoding, thresholds and non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..blob import Shape, count, show
from ..graph import Layer, OutputKind
from ..graph.params import SIZE, choice, nested, within
from ..limits import limits
from ..util.lazy_numpy import np
from ._boxes import Suppression, suppress

if TYPE_CHECKING:
    from ..blob import Array


@dataclass(frozen=True)
class NonMaximumSuppression:
    """Drop the weaker of two boxes that overlap by more than nms_threshold; eta < 1 lowers the threshold step by step."""

    nms_threshold: float = within(0, 1e6, 0.3)
    top_k: int | None = within(-1, 2**31 - 1)
    eta: float = within(1e-6, 1, 1.0)


@dataclass(frozen=True)
class DetectionOutputParams:
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


class DetectionOutput(Layer):
    """Bottoms: locations (N, boxes * 4), scores (N, boxes * classes), priors (1, 2, boxes * 4).

    Top: (1, 1, found, 7), a row per box: image, label, score, xmin, ymin, xmax, ymax; sorted by image, then label, then
    descending score. If no box is found, there is one row per image: its number and six times -1. The number of rows is
    known only at run time; the shape rule gives 1, as in SSD.

    With no_permute the bottoms are the scores of each feature map (N, classes, boxes of a pixel, H * W), then its locations
    (N, boxes of a pixel * 4, H, W) likewise, then the priors; boxes are ordered by map, box of a pixel, and pixel.
    """

    message = "detection_output_param"
    Params = DetectionOutputParams
    bottoms_allowed = (3, None)
    dynamic = True

    def output_kind(self, top: Shape) -> OutputKind | None:
        return "boxes"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        if p.num_classes < 1:
            raise self.wrong("num_classes is missing")
        if p.no_permute:
            bottoms = self._together(*bottoms)
        elif len(bottoms) > 4:
            raise self.wrong(f"{len(bottoms)} bottoms; expected locations, scores and priors, or no_permute")
        location, score, prior = bottoms[:3]
        if len(prior) != 3 or prior[1] != 2 or prior[2] % 4:
            raise self.wrong(f"the priors must be (1, 2, boxes * 4), found {show(prior)}")
        if not location or not score or location[0] != score[0]:
            raise self.wrong(f"locations {show(location)} and scores {show(score)} must be of the same images")
        priors = prior[2] // 4
        images = location[0]
        locations = count(location[1:]), priors * 4 * (1 if p.share_location else p.num_classes)
        scores = count(score[1:]), priors * p.num_classes
        for what, (found, wanted) in (("locations", locations), ("scores", scores)):
            if found != wanted:
                raise self.wrong(
                    f"{found} {what} per image for {priors} priors and {p.num_classes} classes; expected {wanted}"
                )
        for limit, size in (("boxes", priors), ("scores", scores[1])):
            if size > getattr(limits(), limit):
                raise self.wrong("too many boxes: " + limits().exceeded(limit, size))
        return ((1, 1, 1, 7),) if images else ((1, 1, 0, 7),)

    def _together(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the usual bottoms from those of no_permute."""
        maps, p = self.params.nbottom, self.params
        if len(bottoms) != 2 * maps + 1:
            raise self.wrong(f"{len(bottoms)} bottoms for {maps} feature maps; expected {2 * maps + 1}")
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
            scores.append(score.transpose(0, 2, 3, 1).reshape(n, -1))
            locations.append(location.reshape(n, c // 4, 4, h * w).transpose(0, 1, 3, 2).reshape(n, -1))
            part = boxes[:, first : first + c * h * w].reshape(2, h * w, c // 4, 4)
            priors.append(part.transpose(0, 2, 1, 3).reshape(1, 2, -1))
            first += c * h * w
        return np.concatenate(locations, 1), np.concatenate(scores, 1), np.concatenate(priors, 2)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        if p.no_permute:
            bottoms = self._gathered(*bottoms)
        priors, variances = bottoms[2].reshape(-1)[: bottoms[2].shape[2] * 2].reshape(2, -1, 4)
        images, boxes = len(bottoms[0]), len(priors)
        groups = 1 if p.share_location else p.num_classes
        locations = bottoms[0].reshape(images, boxes, groups, 4)
        scores = bottoms[1].reshape(images, boxes, p.num_classes)
        rows = []
        for image in range(images):
            decoded = {g: self._decode(locations[image, :, g], priors, variances) for g in range(groups)}
            detections: list[tuple[int, int]] = []  # (label, box)
            for label in range(p.num_classes):
                if label != p.background_label_id:
                    kept = self._suppress(decoded[0 if p.share_location else label], scores[image, :, label])
                    detections += [(label, box) for box in kept]
            if 0 <= p.keep_top_k < len(detections):
                detections.sort(key=lambda f: -scores[image, f[1], f[0]])
                detections = sorted(detections[: p.keep_top_k], key=lambda f: f[0])
            for label, box in detections:
                rows.append((image, label, scores[image, box, label], *decoded[0 if p.share_location else label][box]))
        if not rows:
            rows = [(image, *(-1,) * 6) for image in range(images)]
        return (np.array(rows, np.float32).reshape(1, 1, -1, 7),)

    def _decode(self, location: Array, priors: Array, variances: Array) -> Array:
        """Return the corners (boxes, 4) of the boxes that ``location`` describes relative to the priors."""
        if not self.params.variance_encoded_in_target:
            location = location * variances
        size: Array = priors[:, 2:] - priors[:, :2]
        corners: Array
        if self.params.code_type == "CORNER":
            corners = priors + location
        elif self.params.code_type == "CORNER_SIZE":
            corners = priors + location * np.tile(size, 2)
        else:
            center = (priors[:, :2] + priors[:, 2:]) / 2 + location[:, :2] * size
            half = np.exp(location[:, 2:]) * size / 2
            corners = np.concatenate([center - half, center + half], 1)
        return corners

    def _suppress(self, boxes: Array, scores: Array) -> list[int]:
        """Return the indices of the boxes kept for one class, best first."""
        nms = self.params.nms_param or NonMaximumSuppression()
        threshold = self.params.confidence_threshold
        candidates = np.arange(len(scores)) if threshold is None else np.flatnonzero(scores > threshold)
        order = candidates[np.argsort(-scores[candidates], kind="stable")]
        if nms.top_k is not None and nms.top_k >= 0:
            order = order[: nms.top_k]
        low, high = boxes[order, :2], boxes[order, 2:]
        sides = high - low
        area = np.where((sides < 0).any(1), 0, sides.prod(1))
        rule = Suppression(nms.nms_threshold, eta=nms.eta)
        return [int(order[i]) for i in suppress(low, high, area, rule)]
