"""Pooling: a maximum of a convolution's codes in the same Task, before they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..blob import Array
from ..overlay import TaskLimits
from ..util.lazy_numpy import np
from .window import Window

if TYPE_CHECKING:
    from typing_extensions import Self

GAP = 3  # cycles from a row of codes to the next one in the unit


@dataclass(frozen=True)
class PooledCodes:
    """The ``window`` of a MAX with Caffe's geometry, and its output's size ``out`` (height, width).

    ``blob``, ``origin`` and ``at`` are notes: the blob of the codes, which nothing stores, the pooling's layers, and its place
    among the Tasks of a segment where it is one of its own.
    """

    window: Window
    out: tuple[int, int]
    blob: str = field(default="", compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)
    at: int = field(default=0, compare=False)

    def define(self, codes: Array) -> Array:
        """Return the largest code of each window of (N, C, H, W), clipped to the image: int8."""
        return maxima(codes, self.window, self.out)

    def band(self, rows: tuple[int, int], height: int) -> tuple[Self, tuple[int, int]]:
        """Return the pooling to some rows (first, count) of its output, and the rows of codes that it reads, of ``height``."""
        pooling = replace(self, window=self.window.of_rows(rows, height), out=(rows[1], self.out[1]))
        return pooling, self.window.seen(0, rows, height)[:2]

    def beyond(self, size: Sequence[int]) -> tuple[int, int]:
        """Return how far the last windows extend beyond the lower and the right edge of an image (height, width)."""
        _, stride, pad, _ = self.window
        rows, columns = ((self.out[i] - 1) * stride[i] - pad[i] + self.window.kernel[i] - size[i] for i in range(2))
        return rows, columns

    def excluded(self, limits: TaskLimits | None, planes: int, size: Sequence[int], columns: int) -> str | None:
        """Return why it cannot follow a convolution of so many planes of this size, in tiles of so many columns.

        ``limits`` are those of the convolution's kind. None if it can.
        """
        kernel, stride, pad, dilation = self.window
        for name, value in {"pool_kernel": max(kernel), "pool_columns": planes * self.out[1]}.items():
            if value > (most := getattr(limits, f"{name}_max", 0)):
                return f"{name} {value} is more than the overlay's {most}"
        if columns < size[1] or dilation != (1, 1):
            return "a pooling after it has whole rows in a tile, and no dilation"
        for i, more in enumerate(self.beyond(size)):
            if not (0 < stride[i] <= kernel[i] <= stride[i] + 1):
                return "windows after it share a row and a column at most, and leave out none"
            if not (0 <= pad[i] < kernel[i] and 0 <= more < kernel[i]):
                return "windows after it begin in the image, and the last ones reach its end"
        return None

    def fields(self, size: Sequence[int]) -> dict[str, int]:
        """Return its fields of a descriptor, for a convolution's output (height, width)."""
        kernel, stride, pad, _ = self.window
        pairs = {"kernel": kernel, "stride": stride, "pad": pad, "over": self.beyond(size)}
        sides = {f"pool_{name}_{axis}": pair[i] for name, pair in pairs.items() for i, axis in enumerate("hw")}
        return {**sides, "pooled_width": self.out[1]}

    @classmethod
    def from_fields(cls, values: Mapping[str, int], out: Sequence[int]) -> Self | None:
        """Return the pooling that these fields describe, of this output's size; None for a convolution alone."""
        if not values.get("pooled_width"):
            return None
        pairs = ((values[f"pool_{name}_h"], values[f"pool_{name}_w"]) for name in ("kernel", "stride", "pad"))
        return cls(Window(*pairs), (out[0], out[1]))

    def drained(self, rows: int, size: Sequence[int], last: bool, each: int = 1) -> int:
        """Return the cycles in which a plane of a tile of so many rows is drained, the image's ``last`` tile or another.

        A sum takes ``each`` cycles.
        """
        below, right = self.beyond(size)
        return (rows + below * last) * (each * (size[1] + right) + GAP)


def maxima(codes: Array, window: Window, out: Sequence[int]) -> Array:
    """Return the largest code (int8) of each window, clipped to the image; -128 for a window outside it."""
    return reduced(codes, window, out, lambda part: part.max((2, 3), initial=-128))


def reduced(codes: Array, window: Window, out: Sequence[int], reduce: Callable[[Array], Array]) -> Array:
    """Return what ``reduce`` gives for the codes (N, C, ...) of each window, clipped to the image: (N, C, *out)."""
    n, c, h, w = codes.shape
    result = np.empty((n, c, *out), codes.dtype)
    for i in range(out[0]):
        top = i * window.stride[0] - window.pad[0]
        rows = slice(max(top, 0), max(min(top + window.kernel[0], h), 0))
        for j in range(out[1]):
            left = j * window.stride[1] - window.pad[1]
            columns = slice(max(left, 0), max(min(left + window.kernel[1], w), 0))
            result[:, :, i, j] = reduce(codes[:, :, rows, columns])
    return result
