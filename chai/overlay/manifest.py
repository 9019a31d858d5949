"""Overlays, read from their ``overlay.json``: the structure and limits of an accelerator.

The manifest is the single source for partitioning, the emulator, the cycle model, the RTL and the driver: no other file
contains an offset, a width or a limit. ``hw_overlays/overlay.schema.json`` explains each number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ..errors import DeviceError, ParseError, UsageError
from ..text import visible
from ..util.data.dataclass_io import restore
from ..util.files import handwritten, sha256
from ..util.paths import shipped
from ..util.rounding import ceil_div
from ..util.suggest import did_you_mean
from . import sections
from .sections import ARRAY, BURST, HOST_MODEL, NARROW, RUN, L

if TYPE_CHECKING:
    from pathlib import Path

    from .architecture import Architecture

default = "pynq-z2"
EXACT = "exact"  # the arithmetic of a manifest without the key: sums are exact, and rounded once

# changing these does not invalidate a bitstream or a compiled network
_PROSE = "title", "boards", "vlnv", "about", "coherent"
_FIGURES = "assumed", "clock_mhz", "memory_mb_per_s", "memory_port", "overhead", HOST_MODEL


@dataclass(frozen=True, repr=False)
class Overlay:
    """One manifest, in ``file``. ``assumed`` names figures that were never measured; times derived from them must be marked.

    ``unsigned`` is whether it computes with unsigned codes; otherwise all blobs have signed formats. ``wide_bits`` are those
    of the sums of a wide Task of the array; None: all sums have ``accumulator_bits``. ``coherent`` is whether
    its memory ports go through the processor's caches; otherwise these are flushed and invalidated. ``arithmetic`` names what its
    Tasks compute, see ``tasks/arithmetic.py``. One that is ``emulated`` exists on the emulator alone: its sections about memory,
    clock and registers describe no hardware.
    """

    file: str
    name: str
    title: str
    part: str
    boards: tuple[sections.BoardModel, ...]
    family: str
    vlnv: str
    clock_mhz: float
    memory_mb_per_s: float
    assumed: tuple[str, ...]
    resources: sections.FpgaResources
    array: sections.Array
    macs_per_dsp: int
    dsp: sections.Dsp
    bits: tuple[int, ...]
    schemes: tuple[str, ...]
    accumulator_bits: int
    requant: sections.Requant
    window: sections.WindowRate
    batch_max: int
    overhead: sections.Overhead
    buffers: sections.OnChipBuffers
    tasks: tuple[sections.TaskSection, ...]
    layout: sections.Layout
    registers: sections.RegisterMap
    descriptor: sections.Record
    table: sections.Record
    digest: str  # hexadecimal SHA-256 of everything that a bitstream or a compiled network depends on
    memory_port: sections.PortLimits | None = None  # None: it has room for any number of bursts
    ports: sections.PortSize = NARROW
    unsigned: bool = False
    wide_bits: int | None = None
    coherent: bool = False
    architecture: str = ARRAY
    arithmetic: str = EXACT
    emulated: bool = False
    machine: Any = None  # what only its architecture knows

    def __repr__(self) -> str:
        return visible(f"<Overlay {self.name}, build {self.build:08x}>")

    @cached_property
    def path(self) -> Path:
        """Return the path of its manifest."""
        from pathlib import Path

        return Path(self.file)

    @property
    def own(self) -> Architecture | None:
        """Return what its architecture does in its own way; None for chai's array."""
        return named(self.architecture)

    @property
    def simulator(self) -> str:
        """Return the device that runs on any host what is compiled for this overlay."""
        return "emulator" if self.own is None else f"{self.architecture}sim"

    @property
    def address_bits(self) -> int:
        """Return the bits of an address in DDR: a Zynq-7000 has 32, an UltraScale+ 40."""
        return 32 if self.family == "zynq7000" else 40

    @property
    def burst_words(self) -> int:
        """Return the most words in a burst: AXI3's 16 beats of 64 bits, or an UltraScale+'s own."""
        return 16 if self.family == "zynq7000" else BURST

    @property
    def burst_beats(self) -> int:
        """Return the most beats in a burst."""
        return self.burst_words // self.ports.words

    def rates(self, run: float = RUN, step: int = 0) -> tuple[float, float]:
        """Return the words a cycle that a memory port reads and writes, in runs of so many words.

        They begin at multiples of ``step`` words from where a blob or constants begin, 0 at multiples of bursts.
        """
        if self.memory_port is None:
            return self.ports.words, self.ports.words
        return self.memory_port.rates(self.ports, self.burst_words, run, step)

    def memory_cycles(self, bytes: float) -> float:
        """Return the cycles in which the memory moves so many bytes at its full rate, with its refreshes."""
        return bytes * self.clock_mhz / (self.memory_mb_per_s * self.moving)

    @property
    def moving(self) -> float:
        """Return the share of cycles in which memory is not refreshed: 1 if the manifest says nothing of it."""
        return self.memory_port.moving if self.memory_port else 1.0

    @property
    def build(self) -> int:
        """Return the value of the register BUILD: the first 32 bits of the digest."""
        return _build(self.digest)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates per clock cycle."""
        return self.array.inputs * self.array.outputs * self.array.lanes

    @property
    def planes_at_once(self) -> int:
        """Return the planes whose codes of a pixel leave the array together."""
        return ceil_div(self.requant.lanes, self.layout.channels_per_word)

    @property
    def written_ports(self) -> tuple[str, ...]:
        """Return the names of the memory ports that are written to: the array's results, those of the window engine."""
        return ("m0", "m3") if self.ports.outputs == 1 else ("m0", "m2", "m3")

    @property
    def constants_at_once(self) -> int:
        """Return the words of constants that the array stores in a cycle: what wide ports make is a word of the weight buffer."""
        return self.weight_rows * self.array.outputs // self.layout.channels_per_word if self.ports.words > 1 else 1

    @property
    def constants_rate(self) -> float:
        """Return the words of constants a cycle that come through their ports and are stored.

        While memory is refreshed, those are stored that have come before, since ports bring more than is stored.
        """
        come, most, port = self.ports.constants * self.rates()[0], self.constants_at_once, self.memory_port
        if port is None or come <= most:
            return min(come, most)
        trip = port.latency_cycles + self.burst_beats  # all that is on its way in this time has room in the ports
        waiting = trip * (come / self.moving / most - 1)
        return most * (1 - max(0.0, port.refresh_cycles - waiting) / port.refresh_period)

    @property
    def weight_rows(self) -> int:
        """Return the inputs whose weights are one word of the weight buffer, and are loaded in one cycle."""
        return self.buffers.weights.word_bits // (8 * self.array.outputs)

    @property
    def load_cycles(self) -> int:
        """Return the cycles in which the array loads the weights of all its inputs."""
        return self.array.inputs // self.weight_rows

    @property
    def accumulator_bound(self) -> int:
        """Return the bound that the magnitude of sums must stay below, but for those of wide Tasks."""
        return 1 << (self.accumulator_bits - 1)

    @property
    def array_bits(self) -> int:
        """Return the bits of the array's sums, those of wide Tasks included."""
        return self.wide_bits or self.accumulator_bits

    @property
    def array_bound(self) -> int:
        """Return the bound that the magnitude of the array's sums must stay below."""
        return 1 << (self.array_bits - 1)

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
        known = self._limits
        if (kind, cls) not in known:
            candidates = (cls(**dict(section.limits)) for section in self.tasks if section.kind == kind)
            known[kind, cls] = next(candidates, None)
        section_limits: L | None = known[kind, cls]
        return section_limits

    @cached_property
    def _limits(self) -> dict[tuple[str, type], Any]:
        """Return the limits that were asked for, by kind and class: every Task of a file asks several times."""
        return {}


def names(architecture: str | None = None) -> list[str]:
    """Return the names of the shipped overlays, the folders with a manifest.

    With an ``architecture`` those that are hardware of that one, and not only emulated.
    """
    folder = shipped("hw_overlays")
    folders = sorted(name for name in os.listdir(folder) if os.path.isfile(f"{folder}/{name}/overlay.json"))
    if architecture is None:
        return folders
    overlays = map(load, folders)
    return [known.name for known in overlays if known.architecture == architecture and not known.emulated]


def load(name_or_path: str | Path = default, *, build: int | None = None) -> Overlay:
    """Return the shipped overlay of that name, or the manifest at a path (a Path, or text with a slash or ``.json``).

    A shipped manifest of this ``build`` was checked when a network was compiled for it, and is not checked again. Raises
    DeviceError for an unknown name, ParseError (with line) for an invalid manifest, OSError if it cannot be read.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, os.PathLike) or "/" in text or "\\" in text or text.endswith(".json"):
        path, build = os.path.join(text, "overlay.json") if os.path.isdir(text) else text, None
    elif text in names():
        path = shipped("hw_overlays", text, "overlay.json")
    else:
        hint = did_you_mean(text.lower(), names(), listed="overlays")
        raise DeviceError(f"there is no overlay {text!r}", hint=hint)
    return _parsed(path, handwritten(path), build)


@lru_cache(maxsize=16)
def _parsed(path: str, text: str, build: int | None) -> Overlay:
    """Return the overlay of a manifest's text. It is cached, since every network loads one."""
    value, digest = {}, ""
    if build is not None:
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            digest = _digest(value)
    if not digest or build != _build(digest):  # a manifest of the build has nothing that an error could be about
        from .checks import checked  # schemas, which most networks that were compiled do not need

        value = checked(text, path)
        digest = _digest(value)
    own = named(value.get("architecture", ARRAY))
    return _overlay(path, digest, value, {} if own is None else own.sections(value))


def named(name: str) -> Architecture | None:
    """Return the architecture of that name, see ``overlay/architecture.py``; None for chai's own array."""
    return None if name == ARRAY else cast("Architecture", import_module(f"chai.{name}.architecture"))


# -- from JSON to dataclasses, after the schema has checked keys and types


def _overlay(path: str, digest: str, value: Mapping[str, Any], own: Mapping[str, Any]) -> Overlay:
    """Return the Overlay of a manifest, with the sections ``own`` of its architecture in place of the manifest's."""
    every = {**value, **own}
    tasks = [
        {"kind": kind, "limits": [(k, tuple(v) if isinstance(v, list) else v) for k, v in limits.items()]}
        for kind, limits in every["tasks"].items()
    ]
    facts = {key: {"name": key, **every[key]} for key in ("descriptor", "table")}
    known = {f.name for f in fields(Overlay)} if own else every.keys() - {"schema", HOST_MODEL}
    facts |= {key: item for key, item in every.items() if key in known and key not in (*facts, "tasks")}
    whole = {**facts, "file": path, "tasks": tasks, "digest": digest}
    return restore(Overlay, whole, lambda where, text: ParseError(f"{where.lstrip('.')}: {text}", path=path))


def _digest(value: Any) -> str:
    """Return the SHA-256 of what a bitstream or a compiled network depends on."""
    return sha256(json.dumps(_facts(value), sort_keys=True).encode())


def _build(digest: str) -> int:
    return int(digest[:8], 16)


def _facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _facts(v) for k, v in value.items() if k not in (*_PROSE, *_FIGURES)}
    return [_facts(v) for v in value] if isinstance(value, list) else value
