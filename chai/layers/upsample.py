"""Upsample: pixels moved back to the positions of a max pooling's maxima, or every pixel repeated as a square."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph.params import MessageFields, size
from ..util.lazy_numpy import np
from .repeat import RepeatLayer


class Upsample(RepeatLayer):
    """Two forks have a type of this name; they differ in the number of bottoms.

    SegNet: the bottoms are x and the second top of a Pooling, which holds the index of each element of x in the top; all
    others are 0; the default factor is 2. MobileNet-YOLO: one bottom; every pixel becomes a square of scale x scale; the
    default scale is 1.
    """

    bottoms_allowed = (1, 2)
    fork = "alexgkendall/caffe-segnet; eric612/MobileNet-YOLO"

    class Params(MessageFields):
        """upsample_h and upsample_w are the top's size; scale, or scale_h and scale_w, its factor.

        pad_out_h and pad_out_w remove one row or column again (scale 2 only).
        """

        scale: int | None = size()
        scale_h: int | None = size()
        scale_w: int | None = size()
        pad_out_h: bool = False
        pad_out_w: bool = False
        upsample_h: int | None = size()
        upsample_w: int | None = size()

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        n, c, *old = self.spatial(bottoms[0])
        if len(bottoms) == 1:
            if any(f is not None for f in (p.scale_h, p.scale_w, p.upsample_h, p.upsample_w)):
                raise self.wrong("of one bottom only scale can be given")
            return ((n, c, *(d * (p.scale or 1) for d in old)),)
        if bottoms[1] != bottoms[0]:
            raise self.wrong(f"the places {show(bottoms[1])} are not of the blob {show(bottoms[0])}")
        if p.upsample_h and p.upsample_w:
            return ((n, c, p.upsample_h, p.upsample_w),)
        new = []
        for d, factor, less in zip(old, (p.scale_h, p.scale_w), (p.pad_out_h, p.pad_out_w)):
            factor = factor or p.scale or 2
            if less and factor != 2:
                raise self.wrong(f"pad_out_h and pad_out_w need scale 2, found {factor}")
            new.append(d * factor - less)
        return ((n, c, *new),)

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return bottoms[0]  # the other bottom holds indices

    def repeats(self, bottom: Shape) -> tuple[int, int]:
        scale = self.params.scale or 1
        return scale, scale

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        if len(bottoms) == 1:
            return (x.repeat(self.params.scale or 1, 2).repeat(self.params.scale or 1, 3),)
        n, c, h, w = self.shapes(x.shape, bottoms[1].shape)[0]
        places = bottoms[1].reshape(n * c, -1).astype(np.intp)
        if places.size and not 0 <= places.min() <= places.max() < h * w:
            what = f"places from {places.min()} to {places.max()} in a map of {h}x{w}: is it the pooling's input size?"
            raise self.failure(ModelError(what))
        y = np.zeros((n * c, h * w), np.float32)
        # row by row, so that the last of several pixels with one index wins, as in a loop
        y[np.arange(n * c).reshape(-1, 1), places] = x.reshape(n * c, -1)
        return (y.reshape(n, c, h, w),)
