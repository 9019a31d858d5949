"""Overlays: what an accelerator is made of and what it can do, read from its ``overlay.json``.

The manifest is the one source for partitioning, the emulator, the cycle model, the RTL and the driver: no other file
knows an offset, a width or a limit. ``hw_overlays/overlay.schema.json`` says what each number means.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..errors import DeviceError, ParseError
from ..util.data import jsonfile
from ..util.data.dataclass_io import restore
from ..util.paths import resource
from ..util.suggest import did_you_mean
from .checks import check

default = "pynq-z2"

# a bitstream and a compiled network stay valid when these change
_PROSE = ("title", "boards", "assumed", "clock_mhz", "memory_mb_per_s", "overhead", "host", "about")


@dataclass(frozen=True)
class Board:
    """A board by its usual name, and its chip by Vivado's."""

    name: str
    part: str


@dataclass(frozen=True)
class Resources:
    """What the part has: DSP slices, RAMB36, URAM288."""

    dsp: int
    block_ram: int
    ultra_ram: int


@dataclass(frozen=True)
class Array:
    """``inputs`` x ``outputs`` channels for ``lanes`` pixels in each cycle.

    A DSP multiplies one input by two weights that stand ``pack_shift`` bits apart; ``chain`` of them add up before
    the two sums are parted.
    """

    inputs: int
    outputs: int
    lanes: int
    chain: int
    pack_shift: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.inputs * self.outputs * self.lanes


@dataclass(frozen=True)
class Dsp:
    """DSP slices used."""

    array: int
    requant: int


@dataclass(frozen=True)
class Requant:
    """Width of the unsigned multipliers in bits, largest shift in bits, results per cycle and lane of the array."""

    mult_bits: int
    shift_max: int
    lanes: int


@dataclass(frozen=True)
class Overhead:
    """Cycles that are not work."""

    task_cycles: int
    tile_cycles: int


@dataclass(frozen=True)
class Host:
    """What the board's processor does in a microsecond of one thread, and what starting a segment takes it.

    ``macs_per_us`` of matrix products, ``elements_per_us`` that any other layer reads, ``convert_bytes_per_us`` of
    float32 packed or unpacked, ``call_us`` from the first register written to the end being seen.
    """

    macs_per_us: float
    elements_per_us: float
    convert_bytes_per_us: float
    call_us: float


@dataclass(frozen=True)
class Buffer:
    """A memory on the chip: ``copies`` times ``banks`` times ``depth`` words of ``word_bits``."""

    word_bits: int
    depth: int
    banks: int
    copies: int
    memory: str

    @property
    def bytes(self) -> int:
        """All copies and banks together."""
        return self.word_bits * self.depth * self.banks * self.copies // 8


@dataclass(frozen=True)
class Buffers:
    """Rows of the input, weights, accumulators, and unfinished windows of a pooling."""

    input: Buffer
    weights: Buffer
    accumulators: Buffer
    pool: Buffer


@dataclass(frozen=True)
class Limits:
    """What every kind of Task is limited by; each kind adds its own. Sizes are heights and widths in pixels.

    ``channel_step``  the first channel of a slice, in a blob that is read or written, is a multiple of it
    """

    opcode: int
    channels_max: int
    size_max: int
    channel_step: int


L = TypeVar("L", bound=Limits)


@dataclass(frozen=True)
class Section:
    """What the manifest says of one kind of Task: the names and values of its ``Limits``."""

    kind: str
    limits: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Layout:
    """How blobs lie in DDR. Only devices look inside; ``alignment`` is in bytes."""

    kind: str
    channels_per_word: int
    images_per_word: int
    alignment: int


@dataclass(frozen=True)
class Bits:
    """A part of a register."""

    name: str
    bit: int
    width: int


@dataclass(frozen=True)
class Register:
    """32 bits at ``offset`` bytes. ``access`` is r, w, rw or w1c; ``value`` what a constant reads as, or None."""

    name: str
    offset: int
    access: str
    about: str
    value: int | None = None
    bits: tuple[Bits, ...] = ()

    def mask(self, name: str) -> int:
        """Return the bits of that name, set. KeyError if there are none."""
        for bits in self.bits:
            if bits.name == name:
                return ((1 << bits.width) - 1) << bits.bit
        raise KeyError(name)


@dataclass(frozen=True)
class Registers:
    """The AXI-Lite window, in bytes; what the causes of an error mean; the registers by name."""

    window: int
    errors: tuple[str, ...]
    list: tuple[Register, ...]

    def __getitem__(self, name: str) -> Register:
        for register in self.list:
            if register.name == name:
                return register
        raise KeyError(name)


@dataclass(frozen=True)
class Field:
    """``width`` bits from ``bit`` of 32-bit ``word`` on; more than 32 go on into the next word.

    ``multiple``  every value is a multiple of it (an alignment); values are stored as they are
    """

    name: str
    word: int
    bit: int
    width: int
    signed: bool
    about: str
    multiple: int = 1

    @cached_property
    def position(self) -> int:
        """The lowest bit, counted from the start of the record."""
        return 32 * self.word + self.bit

    @cached_property
    def mask(self) -> int:
        """As many ones as it has bits."""
        return (1 << self.width) - 1

    @cached_property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return 0, (1 << self.width) - 1


@dataclass(frozen=True)
class Record:
    """The layout of ``bytes`` bytes in DDR: little-endian 32-bit words, bits that no field has are zero."""

    name: str
    version: int
    bytes: int
    endian: str
    fields: tuple[Field, ...]

    @cached_property
    def unused(self) -> int:
        """Ones where no field has a bit."""
        return (1 << 8 * self.bytes) - 1 & ~sum(field.mask << field.position for field in self.fields)


@dataclass(frozen=True)
class Overlay:
    """One manifest. ``assumed`` names the figures that nobody has measured: times made of them must say so."""

    path: Path
    name: str
    title: str
    part: str
    boards: tuple[Board, ...]
    family: str
    vlnv: str
    clock_mhz: float
    memory_mb_per_s: float
    assumed: tuple[str, ...]
    resources: Resources
    array: Array
    macs_per_dsp: int
    dsp: Dsp
    bits: tuple[int, ...]
    schemes: tuple[str, ...]
    accumulator_bits: int
    requant: Requant
    batch_max: int
    overhead: Overhead
    buffers: Buffers
    tasks: tuple[Section, ...]
    layout: Layout
    registers: Registers
    descriptor: Record
    table: Record
    digest: str  # sha256 of all that a bitstream or a compiled network depends on, hexadecimal
    host: Host | None = None  # None: nobody has said, and no layer is moved for its cost

    @property
    def build(self) -> int:
        """Return what the register BUILD reads: the first 32 bits of the digest."""
        return int(self.digest[:8], 16)

    @property
    def macs(self) -> int:
        """Multiply-accumulates per clock cycle."""
        return self.array.inputs * self.array.outputs * self.array.lanes

    @property
    def accumulator_bound(self) -> int:
        """Sums stay below this in magnitude."""
        return 1 << (self.accumulator_bits - 1)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of Task it runs."""
        return tuple(section.kind for section in self.tasks)

    def limits(self, kind: str, cls: type[L]) -> L | None:
        """Return the limits of a kind of Task, whose class says which there are; None if the overlay lacks it."""
        return next((cls(**dict(section.limits)) for section in self.tasks if section.kind == kind), None)


def names() -> list[str]:
    """Return the names of the shipped overlays: the folders that have a manifest."""
    return sorted(p.parent.name for p in resource("hw_overlays").glob("*/overlay.json"))


def load(name_or_path: str | Path = default) -> Overlay:
    """Return the shipped overlay of that name, or the manifest at a path (a Path, or text with a slash or ``.json``).

    Raises DeviceError for an unknown name, ParseError (with line) for a wrong manifest; OSError passes.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith(".json"):
        path = Path(name_or_path)
        path = path / "overlay.json" if path.is_dir() else path
    elif text in names():
        path = resource("hw_overlays", text, "overlay.json")
    else:
        hint = did_you_mean(text.lower(), names(), listed="overlays")
        raise DeviceError(f"there is no overlay {text!r}", hint=hint)
    document = jsonfile.load(path)
    jsonfile.validate(document, _schema())
    check(document)
    return _build(path, document.value)


@lru_cache(maxsize=1)
def _schema() -> Mapping[str, Any]:
    schema: Mapping[str, Any] = jsonfile.load(resource("hw_overlays", "overlay.schema.json")).value
    return schema


# -- from JSON to dataclasses; the schema has checked keys and types


def _build(path: Path, value: Mapping[str, Any]) -> Overlay:
    sections = [
        {"kind": kind, "limits": [(k, tuple(v) if isinstance(v, list) else v) for k, v in limits.items()]}
        for kind, limits in value["tasks"].items()
    ]
    facts = {key: {"name": key, **value[key]} for key in ("descriptor", "table")}
    facts |= {key: item for key, item in value.items() if key not in (*facts, "tasks", "schema")}
    digest = hashlib.sha256(json.dumps(_facts(value), sort_keys=True).encode()).hexdigest()
    whole = {**facts, "path": path, "tasks": sections, "digest": digest}
    return restore(Overlay, whole, lambda where, text: ParseError(f"{where.lstrip('.')}: {text}", path=str(path)))


def _facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _facts(v) for k, v in value.items() if k not in _PROSE}
    return [_facts(v) for v in value] if isinstance(value, list) else value
