"""Weights in the order in which an overlay reads them from DDR: how codes get there, and what stays in that order.

``Packed`` weights are those of a mapped file or of a board's memory, used where they lie.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from .errors import DeviceError
from .lazy import np

if TYPE_CHECKING:
    from . import overlay as overlays
    from .graph import Array, Shape

    Buffer = bytes | bytearray | memoryview

DROP: int | None = getattr(mmap, "MADV_DONTNEED", None)  # Linux
WEIGHT = 127  # -128 breaks the sums of two products in one DSP


class Packed:
    """Weights (M, C/group, kh, kw) int8 as the bytes that ``pack_weights`` makes.

    numpy sees the array they stand for, which is made anew each time. ``data`` is the memory itself, ``blocks`` the same
    with the axes of ``pack_weights``. Raises DeviceError for bytes that it does not make: a code of -128, or padding that
    is not zero.
    """

    def __init__(self, data: Buffer, shape: Shape, group: int, array: overlays.Array) -> None:
        self.shape = shape
        self.group = group
        self.data = memoryview(data)
        self.blocks: Array = np.frombuffer(self.data, np.int8).reshape(_blocks(shape, group, array))
        least = int(self.blocks.min(initial=0))
        if least < -WEIGHT:
            raise DeviceError(f"weights: {least} is outside -{WEIGHT}..{WEIGHT}")
        if self._padded():
            raise DeviceError("descriptor: the padding of the constants of a conv is not zero")
        self.release()

    @property
    def size(self) -> int:
        """Number of weights, without padding."""
        m, c, kh, kw = self.shape
        return m * c * kh * kw

    @property
    def dtype(self) -> Any:
        """int8."""
        return self.blocks.dtype

    def release(self) -> None:
        """Give the pages of a mapped file back: its bytes stay in the system's cache, and no part of this process."""
        file = self.data.obj
        if isinstance(file, mmap.mmap) and self.data.readonly and DROP is not None:
            start = self.blocks.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
            begin = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages: what lies beside may be in use
            end = (start + self.blocks.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
            if end > begin:
                file.madvise(DROP, begin, end - begin)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        m, c, kh, kw = self.shape
        if self.blocks.ndim == 4:
            made = self.blocks.transpose(0, 3, 1, 2).reshape(-1, 1, kh, kw)[:m]
        else:
            ordered = self.blocks.transpose(0, 1, 6, 2, 5, 3, 4)
            group, mb, mo, cb, ci, *_ = ordered.shape
            made = ordered.reshape(group, mb * mo, cb * ci, kh, kw)[:, : m // group, :c].reshape(self.shape)
        return np.array(made, dtype or np.int8)

    def _padded(self) -> bool:
        """Whether something stands where a block is not full."""
        m, c = self.shape[:2]
        if self.blocks.ndim == 4:
            return bool(m % self.blocks.shape[3] and self.blocks[-1, ..., m % self.blocks.shape[3] :].any())
        outputs, inputs = (m // self.group) % self.blocks.shape[6], c % self.blocks.shape[5]
        beyond = outputs and self.blocks[:, -1, ..., outputs:].any()
        return bool(beyond or (inputs and self.blocks[:, :, -1, :, :, inputs:].any()))


def pack_weights(weights: Array | Packed, group: int, array: overlays.Array) -> Buffer:
    """Weights (M, C/group, kh, kw) in the order of DDR, one byte each, zeros where a block is not full.

    From the outermost to the innermost: group; block of ``array.outputs`` output channels of the group; block of
    ``array.inputs`` input channels of the group; row and column of the kernel; input channel of the block; output
    channel of the block. So ``array.outputs`` bytes in a row are one word of the weight buffer, and ``array.inputs``
    such words are what the array holds while the pixels of one tap pass.

    With one input and one output channel in each group (depthwise) blocks like these would be empty but for one
    weight. Then: block of ``array.inputs`` channels; row and column; channel of the block.

    Raises DeviceError for a code of -128.
    """
    blocks = _blocks(weights.shape, group, array)
    if isinstance(weights, Packed) and weights.blocks.shape == blocks:
        return weights.data
    weights = np.asarray(weights)
    if int(np.abs(weights.astype(np.int64)).max(initial=0)) > WEIGHT:
        raise DeviceError(f"weights: {int(weights.min())} is outside -{WEIGHT}..{WEIGHT}")
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


def matrices(weights: Array | Packed, group: int) -> Array:
    """float32 (group, M/group, K), K being (C/group, kh, kw): what a matrix product wants, made anew each time."""
    m, c, kh, kw = weights.shape
    if not isinstance(weights, Packed) or weights.blocks.ndim == 4:
        return np.asarray(weights).reshape(group, m // group, -1).astype(np.float32)
    _, mb, cb, _, _, ci, mo = weights.blocks.shape
    wide = np.empty((group, cb, ci, kh, kw, mb, mo), np.float32)
    np.copyto(wide, weights.blocks.transpose(0, 2, 5, 3, 4, 1, 6))  # runs of ``mo`` bytes stay together
    weights.release()
    rows = wide.reshape(group, cb * ci * kh * kw, mb * mo)[:, : c * kh * kw, : m // group]
    return rows.transpose(0, 2, 1)


def weight_bytes(shape: Shape, group: int, array: overlays.Array) -> int:
    """Bytes of packed weights."""
    bytes = 1
    for size in _blocks(shape, group, array):
        bytes *= size
    return bytes


def is_depthwise(shape: Shape, group: int) -> bool:
    """Whether each channel has weights of its own and nobody else's."""
    return shape[0] == group and shape[1] == 1


def _blocks(shape: Shape, group: int, array: overlays.Array) -> tuple[int, ...]:
    """The axes of packed weights, outermost first."""
    m, c, kh, kw = shape
    if is_depthwise(shape, group):
        return -(-m // array.inputs), kh, kw, array.inputs
    mb, cb = -(-(m // group) // array.outputs), -(-c // array.inputs)
    return group, mb, cb, kh, kw, array.inputs, array.outputs
