"""Base of input and data layers: the caller feeds their tops, so they only declare shapes."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Shape
from .layer import Layer
from .params import SIZE, nested, within


@dataclass(frozen=True)
class TransformResize:
    """The fields of SSD's resize_param that set a network's input size."""

    height: int = within(0, SIZE, 0)
    width: int = within(0, SIZE, 0)


@dataclass(frozen=True)
class Transform:
    """Caffe's transform_param: (pixel - mean) * scale after a centre crop (phase TEST), SSD's resize before it."""

    scale: float = 1.0
    mirror: bool = False
    crop_size: int = within(0, SIZE, 0)
    crop_h: int = within(0, SIZE, 0)
    crop_w: int = within(0, SIZE, 0)
    resize_param: tuple[TransformResize, ...] = nested(TransformResize, repeated=True)
    mean_file: str = ""
    mean_value: tuple[float, ...] = ()
    force_color: bool = False
    force_gray: bool = False

    @property
    def crop(self) -> tuple[int, int] | None:
        """Return height and width of the crop, None without one."""
        if self.crop_size:
            return self.crop_size, self.crop_size
        return (self.crop_h, self.crop_w) if self.crop_h and self.crop_w else None

    @property
    def resize(self) -> tuple[int, int] | None:
        """Return height and width that images are resized to; None if not resized, or if training draws from several."""
        sizes = {(r.height, r.width) for r in self.resize_param}
        return next(iter(sizes)) if len(sizes) == 1 and all(next(iter(sizes))) else None


class SourceLayer(Layer):
    """A layer without bottoms. ``declared`` holds the shape of each top in the file, None if the file has none."""

    source = True
    bottoms_allowed = (0, 0)
    tops_allowed = (1, None)

    transform: Transform | None = None

    @property
    def notes(self) -> list[str]:
        """Return the assumptions about the tops' shapes, one text each."""
        return []

    def declared(self) -> list[Shape | None]:
        """Return one shape (or None) per top."""
        return [None] * len(self.tops)
