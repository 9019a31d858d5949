"""PriorBox: the default boxes of an SSD feature map."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._detections import few


class PriorBox(Layer):
    """Bottoms: the map and the image, of which only the sizes matter. Top: (1, 2, H * W * boxes * 4).

    Row 0 has corners (xmin, ymin, xmax, ymax) relative to the image, row 1 the variances. Per pixel and min_size s
    (whole pixels, as in SSD's code): a square of s; with max_size m a square of sqrt(s * m); then one box per further
    aspect ratio a, s * sqrt(a) wide and s / sqrt(a) high.
    """

    bottoms_allowed = (2, 2)
    constant = True
    new_tops = True

    @dataclass(frozen=True)
    class Params:
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
