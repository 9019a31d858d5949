"""Boxes that a detector begins with.

PriorBox: the default boxes of an SSD feature map.
Proposal: the regions of interest of a Faster R-CNN, from scores and box deltas at every pixel of a map.
"""

from __future__ import annotations

from math import sqrt

from ..blob import Array, Shape, count, show
from ..graph import Layer
from ..graph.params import SIZE, MessageFields, size, within
from ..kernels.boxes import Suppression, suppress
from ..util.lazy_numpy import np
from ._detections import few


class PriorBox(Layer):
    """Bottoms: the map and the image, of which only the sizes matter. Top: (1, 2, H * W * boxes * 4).

    Row 0 has corners (xmin, ymin, xmax, ymax) relative to the image, row 1 the variances. Per pixel and min_size s
    (whole pixels, as in SSD's code): a square of s; with max_size m a square of sqrt(s * m); then one box per further
    aspect ratio a, s * sqrt(a) wide and s / sqrt(a) high.
    """

    bottoms_allowed = (2, 2)
    constant = new_tops = True

    class Params(MessageFields):
        """Sizes in pixels of the image; step is the distance between neighbouring boxes, 0 means image size / map size."""

        min_size: tuple[float, ...] = within(1e-6, 1e6, ())
        max_size: tuple[float, ...] = within(1e-6, 1e6, ())
        aspect_ratio: tuple[float, ...] = within(1e-6, 1e6, ())
        flip: bool = True
        clip: bool = False
        variance: tuple[float, ...] = within(1e-12, 1e6, ())
        img_size: int | None = within(1, SIZE)
        img_h: int | None = within(1, SIZE)
        img_w: int | None = within(1, SIZE)
        step: float | None = within(1e-6, 1e6)
        step_h: float | None = within(1e-6, 1e6)
        step_w: float | None = within(1e-6, 1e6)
        offset: float = 0.5

    def _ratios(self) -> list[float]:
        ratios = [1.0]
        for ratio in self.params.aspect_ratio:
            if all(abs(ratio - r) >= 1e-6 for r in ratios):
                ratios.append(ratio)
                if self.params.flip:
                    ratios.append(1 / ratio)
        return ratios

    def _boxes(self) -> list[tuple[float, float]]:
        """Return width and height in pixels of each box of a pixel."""
        p = self.params
        if not p.min_size:
            raise self.wrong("min_size is missing")
        if p.max_size and len(p.max_size) != len(p.min_size):
            raise self.wrong(f"{len(p.max_size)} max_size for {len(p.min_size)} min_size")
        boxes = []
        for i, smallest in enumerate(p.min_size):
            size = int(smallest)
            boxes.append((float(size), float(size)))
            if p.max_size:
                if p.max_size[i] <= smallest:
                    raise self.wrong(f"max_size {p.max_size[i]} is not larger than min_size {smallest}")
                side = sqrt(size * int(p.max_size[i]))
                boxes.append((side, side))
            boxes += [(size * sqrt(r), size / sqrt(r)) for r in self._ratios() if abs(r - 1) >= 1e-6]
        return boxes

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        (_, _, h, w), _ = (self.spatial(b) for b in bottoms)
        if len(p.variance) not in (0, 1, 4):
            raise self.wrong(f"{len(p.variance)} variance; expected 1 or 4")
        for one, pair in (("img_size", ("img_h", "img_w")), ("step", ("step_h", "step_w"))):
            sides = [getattr(p, name) is not None for name in pair]
            if any(sides) and (getattr(p, one) is not None or not all(sides)):
                raise self.wrong(f"give {one}, or both {pair[0]} and {pair[1]}")
        priors = h * w * len(self._boxes())
        few(self, boxes=priors)
        return ((1, 2, priors * 4),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        h, w = bottoms[0].shape[2:]
        image = p.img_w or p.img_size or bottoms[1].shape[3], p.img_h or p.img_size or bottoms[1].shape[2]
        steps = p.step_w or p.step or image[0] / w, p.step_h or p.step or image[1] / h
        places = np.stack(np.meshgrid(np.arange(w), np.arange(h)), 2)[:, :, None].astype(np.float32)  # x, y
        centers = (places + np.float32(p.offset)) * np.array(steps, np.float32)
        half = np.array(self._boxes(), np.float32) / 2  # (boxes, 2): width, height
        corners = np.concatenate([centers - half, centers + half], 3) / np.array([*image, *image], np.float32)
        if p.clip:
            np.clip(corners, 0, 1, out=corners)
        variances = np.resize(np.array(p.variance or (0.1,), np.float32), corners.size)  # 0.1 is SSD's default
        return (np.stack([corners.ravel(), variances])[None],)


class Proposal(Layer):
    """Bottoms: scores (1, 2 * A, H, W), background first, then objects; deltas (1, 4 * A, H, W); image (1, 3) or more.

    A = ratios * scales. The image's numbers are its height, its width, and the scale it was resized by (height's, then
    width's, if there are two), which multiplies min_size; PVANET gives both scales twice. Tops: regions (K, 5), best first:
    0, x1, y1, x2, y2; and optionally their scores (K,). The shape rule gives the maximum of K.

    An anchor of ratio r and scale s is round(sqrt(base_size^2 / r)) * s wide and round(width before s * r) * s high, both
    corners included. A region below min_size is kept, with score 0. Equal scores are ordered by pixel, then anchor; in the
    fork, whose quicksort is not stable, their order is undefined.

    With chai_python it is py-faster-rcnn's layer in Python, with its numbers for tests: small regions are left out, and the
    scores are (K, 1).
    """

    fork = "openvinotoolkit/training_toolbox_caffe"
    bottoms_allowed = (3, 3)
    tops_allowed = (1, 2)
    dynamic = True

    class Params(MessageFields):
        """In pixels of the image: feat_stride per pixel of the map, base_size of the anchors' square, min_size of a region.

        The best pre_nms_topn regions enter suppression, at most post_nms_topn are kept.
        """

        feat_stride: int = size(16)
        base_size: int = size(16)
        min_size: int = within(0, SIZE, 16)
        ratio: tuple[float, ...] = within(1e-6, 1e6, ())
        scale: tuple[float, ...] = within(1e-6, 1e6, ())
        pre_nms_topn: int = within(1, 2**31 - 1, 6000)
        post_nms_topn: int = within(1, 2**31 - 1, 300)
        nms_thresh: float = within(0, 1e6, 0.7)
        chai_python: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        scores, deltas, image = bottoms
        h, w = self.spatial(scores)[2:]
        anchors = len(p.ratio) * len(p.scale)
        if not anchors:
            raise self.wrong(
                "ratio or scale is missing", hint="ratio: 0.5 ratio: 1 ratio: 2 scale: 8 scale: 16 scale: 32"
            )
        if scores != (1, 2 * anchors, h, w) or deltas != (1, 4 * anchors, h, w):
            raise self.wrong(
                f"scores {show(scores)} and deltas {show(deltas)}; expected one image of {anchors} anchors: "
                f"1x{2 * anchors}x{h}x{w} and 1x{4 * anchors}x{h}x{w}"
            )
        if count(image) < 3:
            raise self.wrong(f"expected height, width and one or two scales of the image, found {show(image)}")
        boxes = anchors * h * w
        few(self, boxes=boxes)
        most = min(boxes, p.pre_nms_topn, p.post_nms_topn)
        return ((most, 5), (most, 1)[: 1 + p.chai_python])[: len(self.tops)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        image = bottoms[2].reshape(-1)
        corners = np.minimum(self._moved(bottoms[1]), np.tile(image[1::-1] - 1, 2))
        corners = np.fmax(corners, 0)  # nan becomes 0, as in C
        sides = corners[:, 2:] - corners[:, :2] + 1
        large = (sides >= p.min_size * image[2:4][[-1, 0]]).all(1)
        scores = bottoms[0][0, len(bottoms[0][0]) // 2 :].transpose(1, 2, 0).reshape(-1) * large
        order = np.argsort(-scores, kind="stable")
        order = (order[large[order]] if p.chai_python else order)[: p.pre_nms_topn]
        area = sides.prod(1)[order]
        low, high = corners[order, :2].T, corners[order, 2:].T
        rule = Suppression(p.nms_thresh, edge=1, most=p.post_nms_topn)
        kept = order[suppress(low, high, area, rule)]
        regions = np.zeros((len(kept), 5), np.float32)
        regions[:, 1:] = corners[kept]
        return (regions, scores[kept].reshape(-1, *(1,) * p.chai_python))[: len(self.tops)]

    def _anchors(self) -> Array:
        """Return widths and heights (A, 2), with scales varying fastest."""
        p = self.params
        base, ratio = np.float32(p.base_size), np.array(p.ratio, np.float32)
        wide = np.floor(np.sqrt(base * base / ratio) + np.float32(0.5))
        high = np.floor(wide * ratio + np.float32(0.5))
        sides = np.stack([wide, high], 1)[:, None] * np.array(p.scale, np.float32)[:, None]
        return sides.reshape(-1, 2)

    def _moved(self, deltas: Array) -> Array:
        """Return the corners (H * W * A, 4) of the anchors at every pixel, moved and scaled by the deltas."""
        h, w = deltas.shape[2:]
        sides = self._anchors()
        by = deltas.reshape(len(sides), 4, h, w).transpose(2, 3, 0, 1)  # (H, W, A, 4)
        places = np.stack(np.meshgrid(np.arange(w), np.arange(h)), 2)[:, :, None].astype(np.float32)
        centers = places * np.float32(self.params.feat_stride) + self.params.base_size / 2 + by[..., :2] * sides
        half = np.exp(by[..., 2:]) * sides / 2
        return np.concatenate([centers - half, centers + half], 3).reshape(-1, 4)
