"""Weights in the order in which an overlay reads them from DDR: how codes get there, and what stays in that order.

``Packed`` weights are those of a file or of a board's memory. They stay there: whoever computes with them reads them when
it does, into memory of its own, so a network's weights exist once however many stand in line to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import DeviceError
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from . import manifest as overlays

    Buffer = bytes | bytearray | memoryview

WEIGHT = 127  # -128 breaks the sums of two products in one DSP


class Source(Protocol):
    """Bytes that can be read again and again."""

    def __len__(self) -> int: ...

    def read(self, offset: int, out: Array) -> None:
        """Fill ``out`` (int8 or uint8, one axis) with the bytes from ``offset`` on."""


class Held:
    """A Source in memory."""

    def __init__(self, data: Buffer) -> None:
        self.data: Array = np.frombuffer(data, np.uint8)

    def __len__(self) -> int:
        return len(self.data)

    def read(self, offset: int, out: Array) -> None:
        out.view(np.uint8)[...] = self.data[offset : offset + len(out)]


class Packed:
    """Weights (M, C/group, kh, kw) int8 that lie in ``source`` from ``offset`` on, as ``pack_weights`` writes them.

    numpy sees the array they stand for, which is made anew each time. Raises DeviceError for bytes that ``pack_weights``
    does not write: a code of -128, or padding that is not zero.
    """

    dtype = "int8"

    def __init__(self, source: Source, offset: int, shape: Shape, group: int, array: overlays.Array) -> None:
        self.shape = shape
        self.group = group
        self.axes = _blocks(shape, group, array)
        self.bytes = prod(self.axes)
        self._source, self._offset = source, offset
        blocks = self.blocks(np.empty(self.bytes, np.int8))
        least = int(blocks.min(initial=0))
        if least < -WEIGHT:
            raise DeviceError(f"weights: {least} is outside -{WEIGHT}..{WEIGHT}")
        if _padded(blocks, shape, group):
            raise DeviceError("descriptor: the padding of the constants of a conv is not zero")

    @property
    def size(self) -> int:
        """Number of weights, without padding."""
        return prod(self.shape)

    def read(self, out: Array) -> None:
        """All bytes, with padding, into ``out`` (int8 or uint8, one axis)."""
        self._source.read(self._offset, out)

    def blocks(self, out: Array) -> Array:
        """``read``, as int8 with the axes of ``pack_weights``."""
        self.read(out)
        return out.view(np.int8).reshape(self.axes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        m, c, kh, kw = self.shape
        blocks = self.blocks(np.empty(self.bytes, np.int8))
        if blocks.ndim == 4:
            made = blocks.transpose(0, 3, 1, 2).reshape(-1, 1, kh, kw)[:m]
        else:
            group, mb, cb, _, _, ci, mo = self.axes
            made = blocks.transpose(0, 1, 6, 2, 5, 3, 4).reshape(group, mb * mo, cb * ci, kh, kw)[:, : m // group, :c]
        return np.array(made.reshape(self.shape), dtype or np.int8)


class Unpacked:
    """Weights (M, C/group, kh, kw) int8 as they are, that become bytes when these are asked for: nobody holds both.

    Raises DeviceError for a code of -128.
    """

    def __init__(self, weights: Array, group: int, array: overlays.Array) -> None:
        _check_codes(weights)
        self.bytes = weight_bytes(weights.shape, group, array)
        self._given = weights, group, array

    def read(self, out: Array) -> None:
        """All bytes, with padding, into ``out`` (int8 or uint8, one axis)."""
        out.view(np.uint8)[...] = np.frombuffer(pack_weights(*self._given), np.uint8)


def _check_codes(weights: Array) -> None:
    for code in (int(weights.min(initial=0)), int(weights.max(initial=0))):
        if abs(code) > WEIGHT:
            raise DeviceError(f"weights: {code} is outside -{WEIGHT}..{WEIGHT}")


def _padded(blocks: Array, shape: Shape, group: int) -> bool:
    """Return whether something stands where a block is not full."""
    m, c = shape[:2]
    if blocks.ndim == 4:
        return bool(m % blocks.shape[3] and blocks[-1, ..., m % blocks.shape[3] :].any())
    outputs, inputs = (m // group) % blocks.shape[6], c % blocks.shape[5]
    beyond = outputs and blocks[:, -1, ..., outputs:].any()
    return bool(beyond or (inputs and blocks[:, :, -1, :, :, inputs:].any()))


Piece = bytes | Packed | Unpacked | Source  # of a Task's constants


def size_of(piece: Piece) -> int:
    """Return bytes of a piece of constants."""
    return piece.bytes if isinstance(piece, (Packed, Unpacked)) else len(piece)


def put(piece: Piece, out: Array) -> None:
    """Write a piece of constants into uint8 of its size."""
    if isinstance(piece, bytes):
        out[...] = np.frombuffer(piece, np.uint8)
    elif isinstance(piece, (Packed, Unpacked)):
        piece.read(out)
    else:
        piece.read(0, out)


def joined(pieces: Iterable[Piece]) -> bytes:
    """Return pieces of constants, one behind the other."""
    listed = list(pieces)
    out = np.empty(sum(map(size_of, listed)), np.uint8)
    end = 0
    for piece in listed:
        put(piece, out[end : end + size_of(piece)])
        end += size_of(piece)
    return out.tobytes()


def pack_weights(weights: Array, group: int, array: overlays.Array) -> bytes:
    """Return weights (M, C/group, kh, kw) in the order of DDR, one byte each, zeros where a block is not full.

    From the outermost to the innermost: group; block of ``array.outputs`` output channels of the group; block of
    ``array.inputs`` input channels of the group; row and column of the kernel; input channel of the block; output
    channel of the block. So ``array.outputs`` bytes in a row are one word of the weight buffer, and ``array.inputs``
    such words are what the array holds while the pixels of one tap pass.

    With one input and one output channel in each group (depthwise) blocks like these would be empty but for one
    weight. Then: block of ``array.inputs`` channels; row and column; channel of the block.

    Raises DeviceError for a code of -128.
    """
    _check_codes(weights)
    blocks = _blocks(weights.shape, group, array)
    m, c, kh, kw = weights.shape
    if is_depthwise(weights.shape, group):
        padded = np.zeros((blocks[0] * array.inputs, kh, kw), np.int8)
        padded[:m] = weights[:, 0]
        ordered = padded.reshape(blocks[0], array.inputs, kh, kw).transpose(0, 2, 3, 1)
    else:
        _, mb, cb, *_ = blocks
        padded = np.zeros((group, mb * array.outputs, cb * array.inputs, kh, kw), np.int8)
        padded[:, : m // group, :c] = weights.reshape(group, m // group, c, kh, kw)
        ordered = padded.reshape(group, mb, array.outputs, cb, array.inputs, kh, kw).transpose(0, 1, 3, 5, 6, 4, 2)
    return ordered.tobytes()


def matrices(weights: Array | Packed, group: int, take: Callable[..., Array]) -> Array:
    """float32 (group, M/group, K), K being (C/group, kh, kw): what a matrix product wants.

    It lies in ``take("weights", *shape)``, and bytes on their way in ``take("bytes", size)``, float32 arrays both.
    """
    m, c, kh, kw = weights.shape
    if not isinstance(weights, Packed) or len(weights.axes) == 4:
        flat = take("weights", group, m // group, c * kh * kw)
        np.copyto(flat, np.asarray(weights).reshape(flat.shape))
        return flat
    blocks = weights.blocks(take("bytes", ceil_div(weights.bytes, 4)).view(np.int8)[: weights.bytes])
    _, mb, cb, _, _, ci, mo = weights.axes
    wide = take("weights", group, cb, ci, kh, kw, mb, mo)
    np.copyto(wide, blocks.transpose(0, 2, 5, 3, 4, 1, 6))  # runs of ``mo`` bytes stay together
    rows = wide.reshape(group, cb * ci * kh * kw, mb * mo)[:, : c * kh * kw, : m // group]
    return rows.transpose(0, 2, 1)


def weight_bytes(shape: Shape, group: int, array: overlays.Array) -> int:
    """Return bytes of packed weights."""
    return prod(_blocks(shape, group, array))


def is_depthwise(shape: Shape, group: int) -> bool:
    """Return whether each channel has weights of its own and nobody else's."""
    return shape[0] == group and shape[1] == 1


def _blocks(shape: Shape, group: int, array: overlays.Array) -> tuple[int, ...]:
    """Return the axes of packed weights, outermost first."""
    m, c, kh, kw = shape
    if is_depthwise(shape, group):
        return ceil_div(m, array.inputs), kh, kw, array.inputs
    mb, cb = ceil_div(m // group, array.outputs), ceil_div(c, array.inputs)
    return group, mb, cb, kh, kw, array.inputs, array.outputs
