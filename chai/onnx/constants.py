"""Constants: tensors of an ONNX file, read when their numbers are needed, and what is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ..blob import Array, Shape, show
from ..limits import limits
from ..parser.wire import Walk, WireField
from ..util.data import malloc
from ..util.lazy_numpy import np
from .fields import Fields, numbers, one
from .store import ModelBytes

# TensorProto.DataType: name, and numpy's type of the stored numbers
TYPES = {
    1: ("float32", "<f4"), 2: ("uint8", "|u1"), 3: ("int8", "|i1"), 4: ("uint16", "<u2"), 5: ("int16", "<i2"),
    6: ("int32", "<i4"), 7: ("int64", "<i8"), 9: ("bool", "|b1"), 10: ("float16", "<f2"), 11: ("float64", "<f8"),
    12: ("uint32", "<u4"), 13: ("uint64", "<u8"), 16: ("bfloat16", "<u2"),
}  # fmt: skip
# the fields with the numbers if raw_data has them not; int32_data has those of all other types
_FIELDS = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
_FIELDS |= dict.fromkeys(("uint32", "uint64"), "uint64_data")
_OTHERS = {8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2"}
_OTHERS |= {20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2"}


WHOLE = ("int64", "int32")  # what layers have as float32 if they are indices or truth values
FLOATS = ("float32", "float16", "float64", "bfloat16")  # what layers compute as float32


def type_name(number: int) -> str:
    return TYPES[number][0] if number in TYPES else _OTHERS.get(number, f"type {number}")


class Constant:
    """Numbers that are known while the file is read. ``dtype`` is their name in numpy."""

    def __init__(self, array: Array) -> None:
        self.shape: Shape = tuple(map(int, array.shape))
        self.dtype = str(array.dtype)
        self._array = array

    def array(self) -> Array:
        return self._array


class StoredTensor(Constant):
    """A tensor of the file. Raises ParseError if the file does not have as many numbers as its shape says."""

    def __init__(self, walk: Walk, values: Fields, store: ModelBytes) -> None:
        self.name: str = one(values, "name", "")
        self._walk, self._store = walk, store
        number = one(values, "data_type", 0)
        if number not in TYPES:
            raise walk.bad(f"tensor {self.name!r} has numbers of {type_name(number)}, which chai does not read", 0)
        self.dtype, self._stored = TYPES[number]
        self._field = field = _FIELDS.get(self.dtype, "int32_data")
        self.shape = tuple(walk.integers(values.get("dims", [])))
        self.elements = prod(self.shape)
        if min(self.shape, default=0) < 0 or prod(filter(None, self.shape)) > limits().blob_elements:
            raise walk.bad(f"tensor {self.name!r} of shape {show(self.shape)}", 0)
        self._raw: WireField | None = one(values, "raw_data")
        self._parts: Sequence[WireField] = values.get(field, ())
        self._outside: tuple[str, int] | None = None
        self._size = size = self.elements * int(self._stored[-1])  # bytes
        if one(values, "data_location", 0) == 1:
            self._outside = self._external(values)
        elif self._raw is not None and self._raw.end - self._raw.start != size:
            self._wrong(f"{self._raw.end - self._raw.start:,} bytes, expected {size:,}")
        elif self._raw is None and not self._parts and size:
            self._wrong("no numbers")
        elif self._raw is None and field in ("float_data", "double_data"):
            count = sum(_count(part, int(self._stored[-1])) for part in self._parts)
            if count != self.elements:
                self._wrong(f"{count:,} numbers")

    def _wrong(self, what: str) -> None:
        shape = f"{self.dtype} of shape {show(self.shape)}"
        raise self._walk.bad(f"tensor {self.name!r}, {shape}, has {what}", 0)

    def _external(self, values: Fields) -> tuple[str, int]:
        """Return the other file that has its numbers, and their offset there."""
        size = self._size
        entries = {one(entry, "key", ""): one(entry, "value", "") for entry in values.get("external_data", [])}
        offset, length = (entries.get(key, "") or default for key, default in (("offset", "0"), ("length", str(size))))
        if not (offset.isdecimal() and length.isdecimal() and len(offset) < 20 and len(length) < 20):
            self._wrong(f"external data of offset {offset[:30]!r} and length {length[:30]!r}")
        if int(length) != size:
            self._wrong(f"{int(length):,} bytes of external data, expected {size:,}")
        return self._store.beside(entries.get("location", ""), int(offset), size), int(offset)

    @property
    def external(self) -> int:
        """Return the bytes that it has in another file."""
        return self._size if self._outside is not None else 0

    def array(self) -> Array:
        if self._outside is not None:
            values = np.frombuffer(self._store.piece(*self._outside, self._size), self._stored)
        elif self._raw is not None:
            values = np.frombuffer(self._store.read(self._raw.start, self._size), self._stored)
        else:
            values = self._typed()
        if self.dtype == "bfloat16":
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        shaped: Array = values.reshape(self.shape)
        return shaped

    def _typed(self) -> Array:
        """Return numbers of the field for their type, some of which holds others: bits of float16 are in int32_data."""
        arrays = []
        for part in self._parts:
            walk = Walk(self._store.read(part.start, part.end - part.start), self._store.path)
            here = part._replace(start=0, end=part.end - part.start)
            arrays.append(numbers(walk, [here], self._stored if self._field[0] in "fd" else "<i8", self.elements))
        values: Array = np.concatenate(arrays) if arrays else np.empty(0, self._stored)
        if len(values) != self.elements:
            self._wrong(f"{len(values):,} numbers")
        if self._field[0] in "fd":
            return values
        if self.dtype == "bool":
            return np.not_equal(values, 0)
        if self.dtype in ("float16", "bfloat16"):
            return values.astype("<u2").view(self._stored)
        return values.astype(self._stored)


def _count(part: WireField, size: int) -> int:
    return (part.end - part.start) // size if part.wire == 2 else part.repeats


def unchanged(array: Array) -> Array:
    return array


@dataclass(frozen=True)
class TrainedBlob:
    """A layer's trained parameter: a constant, and what is done to its float32 numbers to get ``shape``."""

    constant: Constant
    shape: Shape
    change: Callable[[Array], Array] = unchanged

    def then(self, shape: Sequence[int], change: Callable[[Array], Array] = unchanged) -> TrainedBlob:
        """Return the parameter after a further change."""
        before = self.change
        return TrainedBlob(self.constant, tuple(shape), lambda array: change(before(array)))

    def load(self, room: malloc.Room | None = None) -> Array:
        """Return its numbers as a float32 array of its own, in ``room`` if there is one."""
        values = self.constant.array()
        with np.errstate(over="ignore"):
            values = values.astype(np.float32, copy=False)
        out = np.empty(self.shape, np.float32) if room is None else room.take(self.shape)
        np.copyto(out, self.change(values).reshape(self.shape))
        return out
