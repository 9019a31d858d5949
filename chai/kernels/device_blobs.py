"""Conversions between float32 of the host and codes in a device's memory, in the layout that the device reads.

Each equals a conversion of ``kernels.codes`` and a copy (``DeviceBlob.store`` and ``fetch``), without the array between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.lazy_numpy import np
from .codes import pack, unpack
from .unfold import unfolded

if TYPE_CHECKING:
    from ..blob import Array
    from ..fixed import Format
    from ..overlay.layout import DeviceBlob
    from ..tasks.unfold import Unfold


def pack_into(x: Array, format: Format, target: DeviceBlob) -> None:
    """Write the codes of float32 values (N, C, H, W). Raises ModelError for NaN; the target is then written in part."""
    target.store(pack(x, format))


def unpack_from(source: DeviceBlob, format: Format) -> Array:
    """Return the float32 values (N, C, H, W) of codes."""
    codes = np.empty(source.shape, np.int8)
    source.fetch(codes)
    return unpack(codes, format)


def unfold_into(codes: Array, unfold: Unfold, zero: int, target: DeviceBlob) -> None:
    """Write codes (int8, NCHW) unfolded; ``zero`` is the code of 0, which padding gets."""
    target.store(unfolded(codes, unfold, zero))
