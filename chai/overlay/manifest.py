"""Overlays: the structure and limits of an accelerator, read from its ``overlay.json``.

The manifest is the single source for partitioning, the emulator, the cycle model, the RTL and the driver: no other file
contains an offset, a width or a limit. ``hw_overlays/overlay.schema.json`` explains each number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..errors import DeviceError, ParseError, UsageError
from ..util.data import jsonfile
from ..util.data.dataclass_io import restore
from ..util.lazy_dataclass import dataclass
from ..util.paths import resource
from ..util.suggest import did_you_mean
from .architecture import ARRAY, Architecture, named
from .checks import check

default = "pynq-z2"

# changing these does not invalidate a bitstream or a compiled network
_PROSE = ("title", "boards", "assumed", "clock_mhz", "memory_mb_per_s", "overhead", "host", "about")


@dataclass(frozen=True)
class Board:
    """The usual name of a board, and Vivado's name of its chip."""

    name: str
    part: str


@dataclass(frozen=True)
class Resources:
    """Resources of the part: DSP slices, RAMB36, URAM288."""

    dsp: int
    block_ram: int
    ultra_ram: int


@dataclass(frozen=True)
class Array:
    """``inputs`` x ``outputs`` channels for ``lanes`` pixels in each cycle.

    A DSP multiplies one input by two weights that are ``pack_shift`` bits apart; ``chain`` DSPs are summed before the two
    sums are separated.
    """

    inputs: int
    outputs: int
    lanes: int
    chain: int
    pack_shift: int

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates per cycle."""
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
class WindowRate:
    """Bytes that the window engine reads and writes in each cycle."""

    read_bytes: int
    write_bytes: int


@dataclass(frozen=True)
class Overhead:
    """Cycles that are spent without computing."""

    task_cycles: int
    tile_cycles: int


@dataclass(frozen=True)
class Host:
    """Speed of the board's processor (one thread), and its time to start a segment.

    ``macs_per_us`` of matrix products, ``elements_per_us`` read by any other layer, ``convert_bytes_per_us`` of float32
    packed or unpacked, ``call_us`` from writing the first register to seeing the end.
    """

    macs_per_us: float
    elements_per_us: float
    convert_bytes_per_us: float
    call_us: float


@dataclass(frozen=True)
class Buffer:
    """An on-chip memory: ``copies`` times ``banks`` times ``depth`` words of ``word_bits``."""

    word_bits: int
    depth: int
    banks: int
    copies: int
    memory: str

    @property
    def bytes(self) -> int:
        """Return the bytes of all copies and banks."""
        return self.word_bits * self.depth * self.banks * self.copies // 8


@dataclass(frozen=True)
class Buffers:
    """Buffers for input rows, weights, accumulators, and unfinished pooling windows."""

    input: Buffer
    weights: Buffer
    accumulators: Buffer
    pool: Buffer


@dataclass(frozen=True)
class Limits:
    """The limits of every kind of Task; each kind adds its own. Sizes are heights and widths in pixels.

    ``channel_step``  the first channel of a view that is read or written is a multiple of it
    """

    opcode: int
    channels_max: int
    size_max: int
    channel_step: int

    def excluded(self, kind: str, **values: int | bool | str) -> str | None:
        """Return why they exclude a Task of this kind with these values; None if they do not.

        A number ``size`` is at most ``size_max``, a flag ``leaky`` needs the flag ``leaky``, a word ``method`` is one of
        ``methods``.
        """
        for name, value in values.items():
            if isinstance(value, str):
                if value not in getattr(self, f"{name}s"):
                    return f"the overlay has no {value}"
            elif isinstance(value, bool):
                if value and not getattr(self, name):
                    return f"the overlay has no {name} {kind}"
            elif value > getattr(self, f"{name}_max"):
                return f"{name} {value} is more than the overlay's {getattr(self, f'{name}_max')}"
        return None


L = TypeVar("L", bound=Limits)


@dataclass(frozen=True)
class Section:
    """The manifest's section of one kind of Task: the names and values of its ``Limits``."""

    kind: str
    limits: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Layout:
    """Layout of blobs in DDR, which only devices depend on; ``alignment`` is in bytes."""

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
    """32 bits at ``offset`` bytes. ``access`` is r, w, rw or w1c; ``value`` is a constant's value, or None."""

    name: str
    offset: int
    access: str
    about: str
    value: int | None = None
    bits: tuple[Bits, ...] = ()

    def mask(self, name: str) -> int:
        """Return a mask of the bits of that name. Raises KeyError if there are none."""
        for bits in self.bits:
            if bits.name == name:
                return ((1 << bits.width) - 1) << bits.bit
        raise KeyError(name)


@dataclass(frozen=True)
class Registers:
    """Size of the AXI-Lite window in bytes, descriptions of the error causes, and the registers by name."""

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
    """``width`` bits from ``bit`` of 32-bit ``word``; a field may extend into the next words.

    ``multiple``  every value is a multiple of it (an alignment); values are not divided by it
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
        """Return the lowest bit, counted from the start of the record."""
        return 32 * self.word + self.bit

    @cached_property
    def mask(self) -> int:
        """Return a mask of ``width`` ones, not shifted."""
        return (1 << self.width) - 1

    @cached_property
    def range(self) -> tuple[int, int]:
        """Return the smallest and largest value."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return 0, (1 << self.width) - 1


@dataclass(frozen=True)
class Record:
    """The layout of ``bytes`` bytes in DDR: little-endian 32-bit words; unused bits are zero."""

    name: str
    version: int
    bytes: int
    endian: str
    fields: tuple[Field, ...]

    @cached_property
    def values(self) -> dict[str, Field]:
        """Return the fields that have a value in each record, by name: all but ``version``, which is the record's own."""
        return {field.name: field for field in self.fields if field.name != "version"}

    @cached_property
    def version_bits(self) -> int:
        """Return the version at its place in a record."""
        return next((self.version << field.position for field in self.fields if field.name == "version"), 0)

    @cached_property
    def unused(self) -> int:
        """Return a mask of the bits that belong to no field."""
        return (1 << 8 * self.bytes) - 1 & ~sum(field.mask << field.position for field in self.fields)


@dataclass(frozen=True)
class Overlay:
    """One manifest. ``assumed`` names figures that were never measured; times derived from them must be marked.

    ``unsigned`` is whether it computes with unsigned codes; otherwise all blobs have signed formats.
    """

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
    window: WindowRate
    batch_max: int
    overhead: Overhead
    buffers: Buffers
    tasks: tuple[Section, ...]
    layout: Layout
    registers: Registers
    descriptor: Record
    table: Record
    digest: str  # hexadecimal SHA-256 of everything that a bitstream or a compiled network depends on
    host: Host | None = None  # None: unknown, so no layer is moved because of its cost
    unsigned: bool = False
    architecture: str = ARRAY
    machine: Any = None  # what only its architecture knows

    @property
    def own(self) -> Architecture | None:
        """Return what its architecture does in its own way; None for chai's array."""
        return named(self.architecture)

    @property
    def simulator(self) -> str:
        """Return the device that runs on any host what is compiled for this overlay."""
        return "emulator" if self.own is None else f"{self.architecture}sim"

    @property
    def build(self) -> int:
        """Return the value of the register BUILD: the first 32 bits of the digest."""
        return int(self.digest[:8], 16)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates per clock cycle."""
        return self.array.inputs * self.array.outputs * self.array.lanes

    @property
    def accumulator_bound(self) -> int:
        """Return the bound that the magnitude of sums must stay below."""
        return 1 << (self.accumulator_bits - 1)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of Task it runs."""
        return tuple(section.kind for section in self.tasks)

    def scheme(self, asked: str | None) -> str:
        """Return the scheme for formats: the one asked for, else the overlay's first. Raises UsageError if it lacks it."""
        if asked is not None and asked not in self.schemes:
            raise UsageError(
                f"scheme {asked}: overlay {self.name} has {', '.join(self.schemes)}, since nothing multiplies its sums",
                hint=f"--scheme {self.schemes[0]}, or leave it out",
            )
        return asked or self.schemes[0]

    def limits(self, kind: str, cls: type[L]) -> L | None:
        """Return the limits of a kind of Task as an instance of ``cls``; None if the overlay lacks it."""
        return next((cls(**dict(section.limits)) for section in self.tasks if section.kind == kind), None)


def names(architecture: str | None = None) -> list[str]:
    """Return the names of the shipped overlays, the folders with a manifest; of one architecture, if it is not None."""
    found = sorted(p.parent.name for p in resource("hw_overlays").glob("*/overlay.json"))
    return found if architecture is None else [name for name in found if load(name).architecture == architecture]


def load(name_or_path: str | Path = default) -> Overlay:
    """Return the shipped overlay of that name, or the manifest at a path (a Path, or text with a slash or ``.json``).

    Raises DeviceError for an unknown name, ParseError (with line) for an invalid manifest, OSError if it cannot be read.
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
    return _parsed(path, jsonfile.read(path))


@lru_cache(maxsize=8)
def _parsed(path: Path, text: str) -> Overlay:
    """Return the overlay of a manifest's text. It is cached: every network loads one, and the checks take 40 ms."""
    document = jsonfile.parse(text, path)
    architecture = _architecture(document)
    jsonfile.validate(document, _schema("overlay" if architecture == ARRAY else architecture))
    own = named(architecture)
    if own is not None:
        return _build(path, document.value, own.sections(document.value))
    check(document)
    return _build(path, document.value, {})


def _architecture(document: jsonfile.Document) -> str:
    """Return the architecture of a manifest: one that has a schema. Raises ParseError for another."""
    value = document.value
    name = value.get("architecture", ARRAY) if isinstance(value, dict) else ARRAY
    known = [ARRAY, *sorted(p.name.removesuffix(".schema.json") for p in resource("hw_overlays").glob("*.schema.json"))]
    known.remove("overlay")
    if name not in known:
        hint = did_you_mean(str(name), known, listed="architectures")
        raise document.error(f"architecture: there is no {name!r}", ("architecture",), hint=hint)
    return str(name)


@lru_cache(maxsize=4)
def _schema(name: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = jsonfile.load(resource("hw_overlays", f"{name}.schema.json")).value
    return schema


# -- from JSON to dataclasses, after the schema has checked keys and types


def _build(path: Path, value: Mapping[str, Any], own: Mapping[str, Any]) -> Overlay:
    """Return the Overlay of a manifest, with the sections ``own`` of its architecture in place of the manifest's."""
    every = {**value, **own}
    sections = [
        {"kind": kind, "limits": [(k, tuple(v) if isinstance(v, list) else v) for k, v in limits.items()]}
        for kind, limits in every["tasks"].items()
    ]
    facts = {key: {"name": key, **every[key]} for key in ("descriptor", "table")}
    known = {f.name for f in fields(Overlay)} if own else every.keys() - {"schema"}
    facts |= {key: item for key, item in every.items() if key in known and key not in (*facts, "tasks")}
    digest = hashlib.sha256(json.dumps(_facts(value), sort_keys=True).encode()).hexdigest()
    whole = {**facts, "path": path, "tasks": sections, "digest": digest}
    return restore(Overlay, whole, lambda where, text: ParseError(f"{where.lstrip('.')}: {text}", path=str(path)))


def _facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _facts(v) for k, v in value.items() if k not in _PROSE}
    return [_facts(v) for v in value] if isinstance(value, list) else value
