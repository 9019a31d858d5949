"""Conv in CHaiDNN-v2: sums of 18 bits that saturate, in chunks of input channels.

A chunk has two lanes: channels c with c mod 4 below 2, and the others. With 8 bits a lane's sum has 24 bits and wraps. With 6
bits both images of a pair share one accumulator of 42 bits, the second image 20 bits above the first. Chunks are added in a
buffer of 18 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from ..blob import Array, Shape
from ..kernels.convolution import conv2d
from ..overlay import Overlay
from ..tasks import conv
from ..tasks.unfold import Unfold
from ..tasks.window import Filtering
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from .registers import SUM, accumulated, requantized, saturated, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ..kernels.in_numpy import Kernel

LANE = 24  # bits of a lane's sum of one image
PAIRED = 20  # of each of two images
ADDRESSES = 511  # words of four channels' weights that a chunk has, at most


@dataclass(frozen=True, eq=False, repr=False)
class ChaidnnConv(conv.Conv):
    """``bias`` is added after the multiplication, in units of the product; multipliers have 24 bits.

    Codes are 6 bits wide if the clamp's upper end is 31. ``shift`` is at least 1. Images 2i and 2i + 1 are a pair; the last
    of an odd batch is paired with itself.
    """

    def define(self, *codes: Array) -> Array:
        x = codes[0].astype(np.int64)
        n, _, h, w = x.shape
        m, cg, kh, kw = self.weights.shape
        (ph, pw), (sh, sw), (dh, dw) = self.window.pad, self.window.stride, self.window.dilation
        oh, ow = self.window.sizes((h, w))
        padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
        weights = np.asarray(self.weights).astype(np.int64).reshape(self.group, m // self.group, cg, kh, kw)
        total = np.zeros((n, m, oh, ow), np.int64)
        for chunk in chunks(cg, kh * kw):
            lanes = []
            for lane in (0, 1):
                channels = [c for c in range(chunk.start, chunk.stop) if c % 4 // 2 == lane]
                sums = np.zeros((n, self.group, m // self.group, oh * ow), np.int64)
                for i in range(kh):
                    for j in range(kw):
                        tap = padded[
                            :, :, i * dh : i * dh + sh * (oh - 1) + 1 : sh, j * dw : j * dw + sw * (ow - 1) + 1 : sw
                        ]
                        pixels = tap.reshape(n, self.group, cg, oh * ow)[:, :, channels]
                        sums += np.matmul(weights[:, :, channels, i, j], pixels)
                lanes.append(sums.reshape(n, m, oh, ow))
            total = accumulated(total, self._added(*lanes))
        return requantized(total, self.bias.reshape(-1, 1, 1), self.requantization)

    @property
    def narrow(self) -> bool:
        """Return whether its codes have 6 bits."""
        return self.requantization.high == 31

    def _added(self, low: Array, high: Array) -> Array:
        """Return a chunk's sums of 18 bits from the exact sums of its lanes, (N, M, OH, OW)."""
        if not self.narrow:
            return saturated(wrapped(wrapped(low, LANE) + wrapped(high, LANE), LANE))
        result = np.empty_like(low)
        result[::2] = saturated(wrapped(wrapped(low[::2], PAIRED) + wrapped(high[::2], PAIRED), LANE))
        lanes = []
        for lane in (low, high):
            second = lane[1::2]
            carry = (lane[: 2 * len(second) : 2] + (1 << PAIRED - 1)) >> PAIRED  # of the image below
            lanes.append(wrapped(second + carry, PAIRED))
        result[1::2] = saturated(wrapped(lanes[0] + lanes[1], PAIRED))
        return result

    def largest(self, magnitude: int) -> int:
        """Return a bound of the magnitude of a chunk's sums for codes up to this magnitude."""
        _, cg, kh, kw = self.weights.shape
        weights = np.abs(np.asarray(self.weights).astype(np.int64))
        parts = [weights[:, part].sum((1, 2, 3)).max(initial=0) for part in chunks(cg, kh * kw)]
        return int(max(parts, default=0)) * magnitude

    def joined(self, overlay: Overlay) -> ChaidnnConv:
        return self

    def unfolding(self, overlay: Overlay, source: Shape) -> Unfold | None:
        return None

    def merge_key(self) -> Hashable | None:
        return None


def chunks(channels: int, taps: int) -> Sequence[slice]:
    """Return the input channels of a group that are summed before they are added in the buffer, for so many taps.

    Their number is the smallest power of two with which the weights of four channels at a time take ``ADDRESSES`` words.
    """
    whole, count = round_up(channels, 4), 1
    while whole // count // 4 * taps > ADDRESSES:
        count *= 2
    size = whole // count
    return [slice(first, min(first + size, channels)) for first in range(0, channels, size)]


def kernel(task: ChaidnnConv) -> Kernel:
    """Return a kernel of convolutions in float32, whose sums are exact: a chunk's are below 2^24 where it is used."""
    bias, bound, sums_of = task.bias.reshape(-1, 1, 1), task.largest(1), _chunk_sums(task)

    def run(x: Array, out: Array) -> None:
        magnitude = max(int(x.max(initial=0)), -int(x.min(initial=0)))
        if bound * magnitude >= 1 << (PAIRED if task.narrow else LANE) - 1:
            np.copyto(out, task.define(x))
            return
        for image, result in zip(x, out):  # without a wrap nothing depends on the other image
            sums = (saturated(chunk.astype(np.int64)) for chunk in sums_of(image))
            np.copyto(result, requantized(reduce(accumulated, sums), bias, task.requantization))

    return run


def _chunk_sums(task: ChaidnnConv) -> Callable[[Array], Iterator[Array]]:
    """Return what yields the sums (M, OH, OW) of each chunk of an image (C, H, W), float32."""
    _, cg, kh, kw = task.weights.shape
    parts, filtering = chunks(cg, kh * kw), Filtering(task.window, task.group)
    weights = np.asarray(task.weights).astype(np.float32)
    filters = [np.ascontiguousarray(weights[:, part]) for part in parts]

    def of(image: Array) -> Iterator[Array]:
        channels = image.reshape(task.group, cg, *image.shape[1:])
        for part, own in zip(parts, filters):
            pixels = channels[:, part].reshape(1, -1, *image.shape[1:]).astype(np.float32)
            yield conv2d(pixels, own, None, filtering)[0]

    return of


class Reach(NamedTuple):
    """Largest sums and products of each output channel (M,), float64, as shares of what their registers hold: 2^17 and 2^31.

    A sum from 1 on saturates, a product from 1 on changes its sign: in Xilinx formats the result of 512 output steps.
    """

    sums: Array
    products: Array


def reach(task: ChaidnnConv, x: Array) -> Reach:
    """Return how far a convolution of codes (N, C, H, W) would reach if its registers had no end."""
    m, r, sums_of = len(task.bias), task.requantization, _chunk_sums(task)
    sums, products = np.zeros(m), np.zeros(m)
    for image in x:
        total: Array = np.zeros((m, 1, 1), np.float32)
        for chunk in sums_of(image):
            total = total + chunk
            for values in (chunk, total):
                sums = np.maximum(sums, np.abs(values).max((1, 2), initial=0))
        product = total.astype(np.float64) * r.multiplier + task.bias.reshape(-1, 1, 1)
        products = np.maximum(products, np.abs(product).max((1, 2), initial=0))
    return Reach(sums / 2.0 ** (SUM - 1), products / 2.0**31)
