"""VTA as an architecture: what a manifest says of it, which Tasks it runs, and what a segment becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.architecture import Bus, Design
from ..tasks import CompiledTask, Task
from ..tasks.conv import Conv
from ..tasks.work import Work
from .checks import Machine
from .cycles import Rates, cycles as cycles
from .isa import BLOCK, ENTRY_BYTES, LEFT, RIGHT, Memory
from .program import VtaSegment, restored as restored, saved as saved

if TYPE_CHECKING:
    from .drive import Blocks


@dataclass(frozen=True)
class Bitstream:
    """A published file: its address, licence, size, digest, and the encoding that it understands."""

    url: str
    license: str
    bytes: int
    sha256: str
    encoding: str


@dataclass(frozen=True)
class Facts:
    """Facts of a manifest that are of VTA alone; ``fclk`` drives the design, ``registers`` as they are listed there."""

    machine: Machine
    rates: Rates
    fclk: int
    registers: Mapping[str, Any]
    bitstreams: tuple[Bitstream, ...]


def sections(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of an Overlay that only the array has, as far as anything outside it reads them."""
    stated, bitstreams = value["machine"], tuple(Bitstream(**each) for each in value["bitstreams"])
    depths = tuple(stated["memories"][memory.name.lower()] for memory in Memory)
    machine = Machine(stated["encoding"], depths, **stated["queues"])
    rates = Rates(**stated["cycles"], bytes=value["memory_mb_per_s"] / value["clock_mhz"])
    buffers = ("input", Memory.INP), ("weights", Memory.WGT), ("accumulators", Memory.ACC), ("pool", Memory.ACC)
    block = {"banks": 1, "copies": 1, "memory": "block"}
    no_record = {"version": 1, "bytes": 4, "endian": "little", "fields": []}
    return {
        "machine": Facts(machine, rates, value["fclk"], value["registers"], bitstreams),
        "vlnv": "",
        "resources": {"dsp": 0, "block_ram": 0, "ultra_ram": 0},
        "array": {"inputs": BLOCK, "outputs": BLOCK, "lanes": 1, "chain": 1, "pack_shift": 0},
        "macs_per_dsp": 1,
        "dsp": {"array": 0, "requant": 0},
        "accumulator_bits": 25,
        "requant": {"mult_bits": LEFT + 1, "shift_max": LEFT + RIGHT, "lanes": BLOCK},
        "window": {"read_bytes": BLOCK, "write_bytes": BLOCK},
        "overhead": {"task_cycles": 0, "tile_cycles": rates.start},
        "buffers": {
            name: {"word_bits": 8 * ENTRY_BYTES[memory], "depth": depths[memory], **block} for name, memory in buffers
        },
        "tasks": {kind: {"opcode": i + 1, **limits} for i, (kind, limits) in enumerate(value["tasks"].items())},
        "registers": {"window": 4096, "errors": [], "list": []},
        "descriptor": no_record,
        "table": no_record,
    }


def bitstream(overlay: Overlay) -> Bitstream:
    """Return the published file that chai fetches for an overlay."""
    bitstream: Bitstream = overlay.machine.bitstreams[0]
    return bitstream


def design(overlay: Overlay) -> Design:
    """Return how the bitstream is brought up: of the published files, those that understand the manifest's encoding."""
    known: Facts = overlay.machine
    files = [each for each in known.bitstreams if each.encoding == known.machine.encoding]
    size, blocks = known.registers["window"], known.registers["blocks"]
    return Design(files, known.fclk, {name: (at, size) for name, at in blocks.items()})


def driver(overlay: Overlay, windows: Mapping[str, Bus]) -> Blocks:
    """Return what runs programs through the four blocks' registers."""
    from .drive import Blocks  # which holds a program of its own: a simulator needs none

    return Blocks(overlay, windows)


def refusal(overlay: Overlay, task: Task, shapes: Mapping[str, Shape]) -> str | None:
    """Return why VTA cannot run a Task, or should not; None if it can."""
    from . import segment as lowering  # what runs a compiled network lowers nothing

    del overlay
    if isinstance(task, Conv) and shapes[task.output][2:] == (1, 1):
        return "it has one position: fetching its weights takes longer than the host"
    return lowering.refusal(task)


def speed(overlay: Overlay, segments: Sequence[VtaSegment]) -> str:
    """Return the modelled time of a pass as text. Layers on the host are not in it: they were not measured."""
    every = [segment.times for segment in segments]
    total, gemm = (sum(getattr(each, name) for each in every) for name in ("total", "gemm"))
    share = f"GEMM {100 * gemm / total:.0f} % of it" if total else "nothing runs there"
    clock = f"modelled at {overlay.clock_mhz:g} MHz ({overlay.name})"
    return f"{total / overlay.clock_mhz / 1000:.2f} ms a pass on VTA alone, {share}, {clock}; the host's layers are not measured"


def segment(work: Work) -> VtaSegment:
    """Return the program of a segment. Raises DeviceError, with the Task."""
    from . import segment as lowering  # as above

    for task in work.tasks:
        if isinstance(task, CompiledTask):
            raise task.unknown
    return lowering.segment(work)
