"""The window of a convolution or pooling."""

from __future__ import annotations

from typing import NamedTuple


class Seen(NamedTuple):
    """Rows, or columns, of an image that some windows see: ``size`` of them from ``first`` on, and the ``pad`` before them."""

    first: int
    size: int
    pad: int


class Window(NamedTuple):
    """Each pair is (height, width) in elements."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)

    def extent(self, i: int) -> int:
        """Return the number of pixels that the kernel spans along axis ``i``, dilation included."""
        return self.dilation[i] * (self.kernel[i] - 1) + 1

    def seen(self, i: int, some: tuple[int, int] | None, size: int) -> Seen:
        """Return what ``some`` outputs (first, count) along axis ``i`` see of an image of this size; all of it for None.

        Padding beyond the image's end is not part of it.
        """
        if some is None:
            return Seen(0, size, self.pad[i])
        begin = some[0] * self.stride[i] - self.pad[i]
        first, end = max(0, begin), begin + (some[1] - 1) * self.stride[i] + self.extent(i)
        return Seen(first, max(1, min(size, end) - first), first - begin)

    def of_rows(self, rows: tuple[int, int] | None, height: int) -> Window:
        """Return the window of some rows of the output (first, count), or all: with the padding above what they see."""
        return self._replace(pad=(self.seen(0, rows, height).pad, self.pad[1]))

    def covers(self, size: tuple[int, ...]) -> bool:
        """Return whether the kernel is as large as an image (height, width), without padding."""
        return self.kernel == tuple(size) and not any(self.pad)

    def sizes(self, size: tuple[int, ...]) -> tuple[int, int]:
        """Return a convolution's output height and width for an image (height, width), rounded down."""
        (h, w), (ph, pw), (sh, sw) = size, self.pad, self.stride
        return (h + 2 * ph - self.extent(0)) // sh + 1, (w + 2 * pw - self.extent(1)) // sw + 1


POINT = Window((1, 1), (1, 1), (0, 0))


class Filtering(NamedTuple):
    """A convolution but for its numbers; ``rectified``: numbers below 0 are 0."""

    window: Window
    group: int = 1
    rectified: bool = False
