"""Read untrusted .npy files of plain numbers.

NumPy's own reader passes the header to Python's parser, which fails in many ways if it is damaged. Here the header must
have the form that ``np.save`` writes: a dict of three known keys.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...errors import ParseError
from ...limits import limits
from ..files import opened_file
from ..lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_HEADER = 10_000  # bytes; np.save writes 118 for most arrays
_ITEM = r"""\s*(['"])(\w+)\1\s*:\s*(True|False|\([\dL, ]*\)|'[^'"]*'|"[^'"]*"|\[[^{}]*\])\s*(,|(?=\}))"""


def mapped(path: str | Path) -> NDArray[Any]:
    """Map an array of numbers from a file; only accessed pages are read. Raises ParseError or OSError."""
    with opened_file(path) as file:
        try:
            dtype, fortran, shape = _header(file)
        except ValueError as error:
            raise ParseError(f"this is no readable .npy array of numbers: {error}", path=str(path)) from None
        begin, size = file.tell(), file.seek(0, 2)
        if dtype.kind not in "fiub":
            raise ParseError(f"expected an array of numbers, found dtype {dtype}", path=str(path))
        needed = begin + dtype.itemsize * prod(shape)
        if needed > limits().array_bytes:
            raise ParseError(limits().exceeded("array_bytes", needed), path=str(path))
        if not prod(shape) or needed > size:
            shown = "x".join(map(str, shape))
            message = (
                f"an array of {shown} takes {needed:,} bytes, the file has {size:,}" if prod(shape) else "no numbers"
            )
            raise ParseError(f"this is no readable .npy array of numbers: {message}", path=str(path))
        array: NDArray[Any] = np.memmap(file, dtype, "r", begin, shape, "F" if fortran else "C")
    return array


def floats(array: NDArray[Any], path: str | Path) -> NDArray[Any]:
    """Copy numbers from a file as float32. Raises ParseError if one is too large for it."""
    with np.errstate(over="ignore"):  # numpy raises it from 1.24 on
        numbers = np.array(array, np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize > 4 and (np.isinf(numbers) & np.isfinite(array)).any():
        raise ParseError("its numbers are too large for float32", path=str(path))
    return numbers


def _header(file: BinaryIO) -> tuple[Any, bool, tuple[int, ...]]:
    """Return element type, order and shape. Raises ValueError that says what is wrong."""
    if file.read(6) != _MAGIC:
        raise ValueError("it does not begin as one")
    version, _ = file.read(2).ljust(2, b"\0")
    size = int.from_bytes(file.read(2 if version == 1 else 4), "little")
    if version not in (1, 2, 3) or size > _HEADER:
        raise ValueError("version or length of its header")
    text = file.read(size).decode("latin-1").strip()
    items, at = {}, 1
    while item := re.compile(_ITEM).match(text, at):
        items[item[2]], at = item[3], item.end()
    if text[:1] != "{" or text[at:].strip() != "}" or set(items) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header is damaged")
    dims = items["shape"].strip("()").replace("L", "").replace(" ", "").removesuffix(",")
    if not re.fullmatch(r"(\d{1,18}(,\d{1,18})*)?", dims) or dims.count(",") >= limits().axes:
        raise ValueError(f"a shape of {items['shape'][:60]}")
    shape = tuple(map(int, dims.split(","))) if dims else ()
    return _dtype(items["descr"]), items["fortran_order"] == "True", shape


def _dtype(descr: str) -> Any:
    """Return the element type. Raises ValueError unless it is a plain number type (e.g. for records)."""
    name = descr.strip("'\"")
    try:
        if not re.fullmatch(r"[<>|=]?[A-Za-z?][0-9]{0,4}", name):
            raise TypeError
        return np.dtype(name)
    except TypeError:
        raise ValueError(f"elements of type {descr[:60]}") from None
