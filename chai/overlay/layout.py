"""Layout of blobs in an overlay's memory: their sizes, the sharing of memory, and the position of each code.

Layout ``planes``: a word is ``channels_per_word`` codes of one pixel; a plane is such a group of channels, row by row; an
image is its planes, and begins at a multiple of the alignment; a blob is its images. Channels after the last are zero.
Only devices depend on this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from math import prod
from operator import itemgetter
from typing import NamedTuple

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div, round_up
from .sections import BEAT, BURST, Layout

Span = tuple[int, int]  # the first of them, and how many


class Placed(NamedTuple):
    """Location of a blob, in bytes.

    ``offset``         of the blob from the start of the buffer; a view has the offset of its parent
    ``bytes``          of all its images; for a view, the size of its own planes
    ``parent``         the outermost blob that it is a view of, or None
    ``first_channel``  of a view in its parent; its planes are not contiguous, but one run per image
    """

    offset: int
    bytes: int
    parent: str | None = None
    first_channel: int = 0


def spaced(bytes: int) -> int:
    """Return bytes rounded up to the longest bursts, at multiples of which blobs and a Task's constants begin.

    What begins there has a burst that ends with each page, so none is cut in two.
    """
    return round_up(bytes, BURST * BEAT)


def blob_bytes(shape: Shape, layout: Layout) -> int:
    """Return the bytes of a blob (N, C, ...) on the device."""
    return shape[0] * image_bytes(shape, layout)


def image_bytes(shape: Shape, layout: Layout) -> int:
    """Return the bytes from an image of a blob (N, C, ...) to the next: whole words, rounded up to the alignment."""
    return round_up(planes(shape[1], layout) * prod(shape[2:]) * layout.channels_per_word, layout.alignment)


def word_bytes(shape: Shape, layout: Layout) -> int:
    """Return the bytes of the words of a blob (N, C, ...), without the gaps between images."""
    n, c, *size = shape
    return n * planes(c, layout) * prod(size) * layout.channels_per_word


def spans(
    offset: int, shape: Shape, channels: Span, images: Span, rows: Span | None, layout: Layout
) -> Iterable[tuple[int, int]]:
    """Return (begin, end) of the bytes of channels, images and rows, each (first, count): of whole planes if ``rows`` are None.

    The blob of this shape (N, C, H, W) is at ``offset``; what is contiguous is one span. Spans are computed one by one, as a
    damaged file may have any number of them.
    """
    step = layout.channels_per_word
    pitch, plane = prod(shape[2:]) * step, channels[0] // step
    image = image_bytes(shape, layout)
    start = offset + images[0] * image + plane * pitch
    length = (planes(sum(channels), layout) - plane) * pitch
    starts = range(start, start + images[1] * image, image)
    if rows is not None:
        row = shape[3] * step
        first, size = rows[0] * row, rows[1] * row
        return ((at + first, at + first + size) for begin in starts for at in range(begin, begin + length, pitch))
    if length == image:
        return [(start, start + images[1] * image)]
    return ((begin, begin + length) for begin in starts)


def planes(channels: int, layout: Layout) -> int:
    """Return the number of planes (groups of channels that share a word) for ``channels`` channels."""
    return ceil_div(channels, layout.channels_per_word)


# -- sharing


def share(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return offsets of blobs and the total size; blobs with disjoint lifetimes (first, last) may share bytes."""
    largest_first = sorted(lives, key=lambda b: (-sizes[b], lives[b], b))
    if max((first for first, _ in lives.values()), default=0) <= min((last for _, last in lives.values()), default=0):
        ends = accumulate((sizes[b] for b in largest_first), initial=0)  # all are alive at one moment
        return dict(zip(largest_first, ends)), sum(sizes[b] for b in lives)
    crowds = _crowds(lives, sizes)
    crowded_first = sorted(lives, key=lambda b: (-crowds[b], -sizes[b], lives[b], b))
    offsets, size = _in_order(crowded_first, lives, sizes)
    if size > max(crowds.values()):  # neither greedy order is best for every network, and both are fast
        offsets, size = min((offsets, size), _in_order(largest_first, lives, sizes), key=itemgetter(1))
    return offsets, size


def _crowds(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return, for each blob, the maximum of live bytes at any moment of its lifetime."""
    end = max((last for _, last in lives.values()), default=-1)
    change = [0] * (end + 2)
    for blob, (first, last) in lives.items():
        change[first] += sizes[blob]
        change[last + 1] -= sizes[blob]
    alive = [*accumulate(change)]
    return {blob: max(alive[first : last + 1]) for blob, (first, last) in lives.items()}


def _in_order(
    order: list[str], lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Return offsets and size: each blob in turn gets the smallest sufficient gap between blobs alive at the same time."""
    offsets: dict[str, int] = {}
    begun: dict[int, list[str]] = {}  # blobs that have an offset, by the moment of their first use
    alive: dict[int, list[str]] = {}  # and by each moment of their lives
    for blob in order:
        first, last = lives[blob]
        others = chain(alive.get(first, ()), *(begun.get(moment, ()) for moment in range(first + 1, last + 1)))
        taken = sorted((offsets[b], offsets[b] + sizes[b]) for b in others)
        best, least, end = -1, 0, 0
        for start, stop in taken:
            room = start - end
            if room >= sizes[blob] and (best < 0 or room < least):
                best, least = end, room
            end = max(end, stop)
        offsets[blob] = end if best < 0 else best
        begun.setdefault(first, []).append(blob)
        for moment in range(first, last + 1):
            alive.setdefault(moment, []).append(blob)
    return offsets, max(offset + sizes[blob] for blob, offset in offsets.items())


# -- codes


class DeviceBlob(NamedTuple):
    """Codes of a blob, or of some of its channels, in a device's memory.

    ``memory``    bytes (uint8) from the beginning of the outermost blob
    ``layout``    of the overlay
    ``channels``  of the outermost blob
    ``shape``     (N, C, H, W) of the codes
    ``first``     channel of the outermost blob that is the first of the codes: the first of a word
    """

    memory: Array
    layout: Layout
    channels: int
    shape: Shape
    first: int = 0

    @property
    def words(self) -> Array:
        """Return a view of their words: int8 (N, planes, H, W, channels per word)."""
        n, c, h, w = self.shape
        step = self.layout.channels_per_word
        whole, first = (n, self.channels, h, w), self.first // step
        sizes = planes(self.channels, self.layout), h, w, step
        images = self.memory[: blob_bytes(whole, self.layout)].view(np.int8).reshape(n, -1)[:, : prod(sizes)]
        view: Array = images.reshape(n, *sizes)  # splits one axis, so it is no copy
        return view[:, first : first + planes(c, self.layout)]

    def store(self, codes: Array) -> None:
        """Write codes (int8, NCHW), and zeros after the last channel. Other planes of the outermost blob stay as they are."""
        words, step = self.words, self.layout.channels_per_word
        n, c, h, w = codes.shape
        full = c // step
        words[:, :full] = codes[:, : full * step].reshape(n, full, step, h, w).transpose(0, 1, 3, 4, 2)
        if c % step:
            words[:, full, ..., : c % step] = codes[:, full * step :].transpose(0, 2, 3, 1)
            words[:, full, ..., c % step :] = 0

    def fetch(self, out: Array) -> None:
        """Read the codes into ``out`` (int8, NCHW)."""
        words, step = self.words, self.layout.channels_per_word
        n, c, h, w = out.shape
        full = c // step
        out[:, : full * step].reshape(n, full, step, h, w)[...] = words[:, :full].transpose(0, 1, 4, 2, 3)
        out[:, full * step :] = words[:, full:, ..., : c % step].transpose(0, 1, 4, 2, 3).reshape(n, c % step, h, w)
