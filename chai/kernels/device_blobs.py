"""Conversions between arrays of the host and codes in a device's memory, in the layout that the device reads.

Each is one pass in C, before or after a copy of codes that are not contiguous. Without a library it is what it is defined as: a
conversion of ``kernels.codes``, and ``DeviceBlob.store`` or ``fetch``. An operation in C is prepared once for shapes, layout and
format; the address of the memory may be another in each call.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ..blob import Array, Shape, is_plain
from ..errors import DeviceError
from ..fixed import Format
from ..overlay.layout import DeviceBlob, blob_bytes, image_bytes
from ..overlay.sections import Layout
from ..tasks.unfold import Unfold
from ..tasks.window import POINT, Window
from ..util.lazy_numpy import np
from .codes import Scale, conversion, pack, unfolded, unpack
from .native import library
from .native.library import Library
from .native.single import INPUT, KEPT, OUTPUT, Prepared
from .native.table import PACKS, SIZE, Kind, plain_strides

RATE = 3  # codes that C converts in a nanosecond, roughly
MAX_WORD = 256  # channels of a word in C, at most
READS = Kind.UNPACK_WORDS, Kind.FROM_WORDS  # kinds whose words are the input
AS_IT_IS: Scale = (1.0, 0, -128, 127)
PLAIN = Unfold(POINT, 1)


def pack_into(x: Array, format: Format, target: DeviceBlob) -> None:
    """Write the codes of float32 values (N, C, H, W). Raises ModelError for NaN; the target is then written in part."""
    if format.step and format.nearest and is_plain(x):
        words = _words(Kind.PACK_WORDS, x.shape, target, (format.step, format.zero, *format.packed))
        if words is not None:
            nan = np.zeros(1, np.uint8)
            words.write(x, target.memory, nan)
            if nan[0]:
                format.quantize(x)  # which says what is wrong
            return
    store(pack(x, format), target)


def unpack_from(source: DeviceBlob, format: Format) -> Array:
    """Return the float32 values (N, C, H, W) of codes."""
    words = _words(Kind.UNPACK_WORDS, source.shape, source, (format.step, format.zero, -128, 127))
    if words is not None:
        values = np.empty(source.shape, np.float32)
        words.write(source.memory, values)
        return values
    codes = np.empty(source.shape, np.int8)
    fetch(source, codes)
    return unpack(codes, format)


def unfold_into(codes: Array, unfold: Unfold, zero: int, target: DeviceBlob) -> None:
    """Write codes (int8, NCHW) unfolded; ``zero`` is the code of 0, which padding gets."""
    words = _words(Kind.UNFOLD_WORDS, codes.shape, target, (1.0, zero, -128, 127), unfold)
    if words is None:
        store(unfolded(codes, unfold, zero), target)
    else:
        words.write(np.ascontiguousarray(codes), target.memory)


def store(codes: Array, target: DeviceBlob) -> None:
    """Do what ``target.store`` does: write codes (int8, NCHW), and zeros after the last channel."""
    words = _words(Kind.TO_WORDS, codes.shape, target)
    if words is None:
        target.store(codes)
    else:
        words.write(np.ascontiguousarray(codes), target.memory)


def fetch(source: DeviceBlob, out: Array) -> None:
    """Do what ``source.fetch`` does: read the codes into ``out`` (int8, NCHW)."""
    words = _words(Kind.FROM_WORDS, out.shape, source)
    if words is None:
        source.fetch(out)
        return
    codes = out if out.flags.c_contiguous else np.empty(out.shape, np.int8)
    words.write(source.memory, codes)
    if codes is not out:
        out[...] = codes


def _words(
    kind: int, shape: Shape, blob: DeviceBlob, scale: Scale = AS_IT_IS, unfold: Unfold = PLAIN
) -> Prepared | None:
    """Return the operation from an array of the host (N, C, H, W) to a blob, or back; None if numpy does its work."""
    layout, memory = blob.layout, blob.memory
    words = _prepared(library.library(), kind, shape, (layout, blob.channels, blob.first, blob.shape), scale, unfold)
    if words is not None:
        size = words.sizes[INPUT if kind in READS else OUTPUT]
        if memory.strides != (1,) or memory.size < size:
            raise DeviceError(f"memory of {memory.size} bytes for a blob that takes {size}")
    return words


@lru_cache(maxsize=KEPT)
def _prepared(
    used: Library | None, kind: int, shape: Shape, key: tuple[Layout, int, int, Shape], scale: Scale, unfold: Unfold
) -> Prepared | None:
    """Return what ``_words`` does; ``key`` is what determines the places of a blob's codes."""
    layout, channels, first, codes = key
    word = layout.channels_per_word
    if (
        used is None
        or layout.images_per_word != 1
        or word > MAX_WORD
        or not all(0 < n <= SIZE for n in (*shape, *codes))
    ):
        return None
    if codes != (expected := unfold.shape(shape)):
        raise DeviceError(f"{Kind.name(kind)}: codes of shape {expected} for a blob of shape {codes}")
    n, _, h, w = codes
    memory, pitch = blob_bytes((n, channels, h, w), layout), image_bytes((n, channels, h, w), layout)
    there = first // word * h * w * word, pitch, h * w * word, w * word, word
    size = 4 if kind in (Kind.PACK_WORDS, Kind.UNPACK_WORDS) else 1
    here = 0, *plain_strides(shape, size)
    ends = [(here, size * prod(shape)), (there, memory)]
    (source, read), (target, written) = reversed(ends) if kind in READS else ends
    window = unfold.window
    form = conversion(kind, scale, Window((unfold.rows, window.kernel[1]), window.stride, window.pad))
    operation = form.operation(shape, codes, [(INPUT, *source)], (OUTPUT, *target))
    sizes = (read, written, 1) if kind in PACKS else (read, written)
    try:
        return Prepared(used, operation, sizes, prod(codes) / RATE)
    except DeviceError:
        if kind == Kind.UNFOLD_WORDS:  # the window is too large for the scratch memory of the kernel
            return None
        raise
