"""Weights in the order in which an overlay reads them from DDR.

``Packed`` weights stay in a file or in a board's memory and are read for each use, so that a network's weights are not
held in memory twice.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any, Union

from ..blob import Array, Shape
from ..errors import DeviceError
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from . import manifest, sections

Buffer = bytes | bytearray | memoryview


Piece = Union["ByteSource", "Packed", "Unpacked"]  # a piece of a Task's constants

LONG = 1000  # weights of an output that could overflow an accumulator of 25 bits with its bias: their sums are needed
PART = 1 << 18  # bytes of packed weights that are checked at a time, which stay in a processor's cache
WEIGHT = 127  # -128 would overflow the packed sums of two products in one DSP


class ByteSource:
    """Bytes in memory that can be read repeatedly; a file's are a class derived from this."""

    def __init__(self, data: Buffer) -> None:
        self.bytes = len(data)
        self._data = data

    @property
    def mapped(self) -> Buffer:
        """Return all bytes where they are."""
        return self._data

    def read(self, out: Array, offset: int = 0) -> None:
        """Fill ``out`` (int8 or uint8, one axis) with the bytes from ``offset``."""
        out.view(np.uint8)[...] = np.frombuffer(self._data, np.uint8, len(out), offset)


class Packed:
    """Weights (M, C/group, kh, kw) int8, stored at ``offset`` of ``source`` in the order of ``pack_weights``.

    ``np.asarray`` unpacks them on every call. Raises DeviceError for bytes that ``pack_weights`` does not write: a code of
    -128, or padding that is not zero.
    """

    dtype = "int8"

    def __init__(self, source: ByteSource, offset: int, shape: Shape, group: int, array: sections.Array) -> None:
        self.shape = shape
        self.group = group
        self.axes = _blocks(shape, group, array)
        self.bytes = prod(self.axes)
        self._source, self._offset = source, offset
        self._sums = self._checked(summed=prod(shape[1:]) >= LONG)

    @property
    def size(self) -> int:
        """Return the number of weights, without padding."""
        return prod(self.shape)

    @property
    def mapped(self) -> Array:
        """Return all bytes, with padding, where they are stored (int8, one axis)."""
        view = memoryview(self._source.mapped)  # of its own: an array of numpy 1.21 crashes if it is released
        return np.frombuffer(view, np.int8, self.bytes, self._offset)

    def read(self, out: Array) -> None:
        """Read all bytes, with padding, into ``out`` (int8 or uint8, one axis)."""
        self._source.read(out, self._offset)

    def blocks(self, out: Array) -> Array:
        """Read all bytes into ``out`` and return them as int8 with the axes of ``pack_weights``."""
        self.read(out)
        return out.view(np.int8).reshape(self.axes)

    def magnitudes(self) -> Array:
        """Return the sum of the magnitudes of each output channel's weights, int64 (M,)."""
        sums = self._sums if len(self._sums) else self._checked(summed=True)
        groups = self.axes[0]
        return sums.reshape(groups, -1)[:, : self.shape[0] // groups].reshape(-1)

    def _checked(self, summed: bool) -> Array:
        """Return the sums of magnitudes, int64 (blocks of outputs, outputs), or no blocks unless ``summed``.

        Raises DeviceError for a code of -128, and for a byte that is not zero in the padding of partial blocks.
        """
        groups, each, *_, block, lanes = self.axes
        outputs, inputs = self.shape[0] // groups % lanes, self.shape[1] % block
        sums = np.empty((groups * each if summed else 0, lanes), np.int64)
        wide = np.int32 if self.bytes < 1 << 24 else np.int64  # a code has 7 bits; narrow sums are faster
        count, size = groups * each, prod(self.axes[2:])
        step = max(1, PART // max(1, size))
        buffer = np.empty(min(step, count) * size, np.int8)
        for first in range(0, count, step):
            several = min(step, count - first)
            codes = buffer[: several * size]
            self._source.read(codes, self._offset + first * size)
            blocks = codes.reshape(several, *self.axes[2:])
            least = int(blocks.min(initial=0))
            if least < -WEIGHT:
                raise DeviceError(f"weights: {least} is outside -{WEIGHT}..{WEIGHT}")
            beyond = outputs and blocks[each - 1 - first % each :: each, ..., outputs:].any()
            if beyond or (inputs and blocks[:, -1, :, :, inputs:].any()):
                raise DeviceError("descriptor: the padding of the constants of a conv is not zero")
            if summed:
                rows = np.abs(blocks, blocks).view(np.uint8).reshape(len(blocks), -1, lanes)
                # a byte holds the sum of two, which takes a fraction of the time of wider ones
                if rows.shape[1] % 2 == 0:
                    half = rows.shape[1] // 2
                    rows = rows[:, :half] + rows[:, half:]
                several = gcd(rows.shape[1], 64)  # numpy sums long rows faster
                narrow = rows.reshape(len(rows), -1, several * lanes).sum(1, dtype=wide)
                sums[first : first + len(rows)] = narrow.reshape(len(rows), several, lanes).sum(1)
        return sums

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        m, c, kh, kw = self.shape
        group, mb, cb, _, _, ci, mo = self.axes
        blocks = self.blocks(np.empty(self.bytes, np.int8)).transpose(0, 1, 6, 2, 5, 3, 4)
        codes = blocks.reshape(group, mb * mo, cb * ci, kh, kw)[:, : m // group, :c]
        return np.asarray(codes.reshape(self.shape), dtype or np.int8)


class Unpacked:
    """Weights (M, C/group, kh, kw) int8 that are packed on demand, so that both forms are never in memory at once.

    Raises DeviceError for a code of -128.
    """

    def __init__(self, weights: Array, group: int, array: sections.Array) -> None:
        for code in (int(weights.min(initial=0)), int(weights.max(initial=0))):
            if abs(code) > WEIGHT:
                raise DeviceError(f"weights: {code} is outside -{WEIGHT}..{WEIGHT}")
        self.bytes = weight_bytes(weights.shape, group, array)
        self._given = weights, group, array

    def read(self, out: Array) -> None:
        """Read all bytes, with padding, into ``out`` (int8 or uint8, one axis)."""
        out.view(np.uint8)[...] = np.frombuffer(pack_weights(*self._given), np.uint8)


def pack_weights(weights: Array, group: int, array: sections.Array) -> bytes:
    """Return weights (M, C/group, kh, kw) in the order of DDR, one byte each; partial blocks are padded with zeros.

    From the outermost to the innermost: group; block of ``array.outputs`` output channels of the group; block of
    ``array.inputs`` input channels of the group; row and column of the kernel; input channel of the block; output
    channel of the block. So ``array.outputs`` consecutive bytes are one word of the weight buffer, and the array holds
    ``array.inputs`` such words during one pass of a kernel tap.

    With one input and one output channel per group (depthwise) such blocks would contain a single weight. The order then
    is that of one group of so many output channels with one input each, in blocks of ``array.inputs``.
    """
    m, c = weights.shape[:2]
    group, mb, cb, kh, kw, ci, mo = _blocks(weights.shape, group, array)
    padded = np.zeros((group, mb * mo, cb * ci, kh, kw), np.int8)
    padded[:, : m // group, :c] = weights.reshape(group, m // group, c, kh, kw)
    return padded.reshape(group, mb, mo, cb, ci, kh, kw).transpose(0, 1, 3, 5, 6, 4, 2).tobytes()


def weight_bytes(shape: Shape, group: int, array: sections.Array) -> int:
    """Return the size of packed weights in bytes."""
    return prod(_blocks(shape, group, array))


def block_bytes(shape: Shape, group: int, array: sections.Array) -> int:
    """Return the bytes of the packed weights of one block of outputs."""
    return prod(_blocks(shape, group, array)[2:])


def is_depthwise(shape: Shape, group: int) -> bool:
    """Return whether each group has one input and one output channel."""
    return shape[0] == group and shape[1] == 1


def groups_to_join(shape: Shape, group: int, overlay: manifest.Overlay) -> int:
    """Return how many neighbouring groups of weights (M, C/group, kh, kw) to join into one, a divisor of ``group``.

    The array reads and writes whole words, so inputs and outputs of joined groups are whole words or all channels. Of
    these the one with the fewest passes is best. Depthwise groups stay apart: they have an order of their own.
    """
    m, c = shape[0] // group, shape[1]
    if group == 1 or is_depthwise(shape, group):
        return 1
    word, array = overlay.layout.channels_per_word, overlay.array
    divisors = [n for n in range(1, group + 1) if group % n == 0]
    fitting = [n for n in divisors if n == group or n * c % word == n * m % word == 0]
    return min(fitting, key=lambda n: (group // n * ceil_div(n * m, array.outputs) * ceil_div(n * c, array.inputs), n))


def block_diagonal(weights: Array, group: int, count: int) -> Array:
    """Return weights (M, C/group, kh, kw) with ``count`` neighbouring groups joined: zeros for the other groups' inputs."""
    m, c, *kernel = weights.shape
    joined = np.zeros((group // count, count, m // group, count, c, *kernel), weights.dtype)
    for i in range(count):
        joined[:, i, :, i] = weights.reshape(group // count, count, m // group, c, *kernel)[:, i]
    return joined.reshape(m, count * c, *kernel)


def _blocks(shape: Shape, group: int, array: sections.Array) -> tuple[int, ...]:
    """Return the axes of packed weights, outermost first, as ``pack_weights`` describes them."""
    m, c, kh, kw = shape
    inputs, outputs = array.inputs, array.outputs
    if is_depthwise(shape, group):
        group, inputs, outputs = 1, 1, array.inputs
    return group, ceil_div(m // group, outputs), ceil_div(c, inputs), kh, kw, inputs, outputs
