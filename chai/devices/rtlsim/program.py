"""Networks on a simulated accelerator: memory full of noise, one chain after the other, run to the interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from ...blob import Array
from ...codegen.chain import Chain
from ...codegen.compile import chain, check_descriptors
from ...driver.registers import Registers
from ...env import env
from ...errors import DeviceError
from ...overlay import Overlay
from ...overlay.sections import MEMORY_PORTS, PortLimits
from ...tasks.work import Work
from ...util.lazy_numpy import np
from ...util.log import meter
from ...util.sharing import Mutex
from ..base import Device, Program
from ..placed import PAGE, PlacedProgram, SimulatedBuffers, check_hardware
from .simulation import Simulation, fastest, rtlil, untold
from .tools import check, forget, kept, missing

LATENCY = 150  # cycles from an address to its first beat, where the manifest does not say
KEPT = 16  # generated accelerators, of megabytes each: each change of chai's sources makes others
PATIENCE = 20, 100_000  # most cycles of a chain: a multiple of the cycle model's, plus some
ANSWER = 100  # cycles in which a register must answer
READS = tuple(f"{port}_read" for port in MEMORY_PORTS)


class NoisyBuffers(SimulatedBuffers):
    """Memory that was never written: noise. An access beyond a region is an error."""

    first, gap = 0x1000_0000, PAGE

    def fill(self, data: Array) -> None:
        data[:] = np.random.default_rng(len(data)).integers(0, 256, len(data), dtype=np.uint8)


class Accelerator:
    """The registers of an overlay's accelerator, by offset, its interrupt, and DDR at its ports.

    ``latency``  least and most cycles from an address to its first beat, or from a last beat to its response
    ``pause``    in how many of 256 cycles a channel does nothing
    ``bytes_per_cycle``  that all ports share; 0: no limit
    ``port``  what each port has room for, and when memory refreshes itself; its latency is not asked for
    ``channels``  models of the ports' reads and writes, by name
    """

    def __init__(
        self,
        simulation: Simulation,
        latency: tuple[int, int] = (1, 1),
        pause: int = 0,
        bytes_per_cycle: float = 0,
        port: PortLimits | None = None,
    ) -> None:
        self.simulation = simulation
        simulation.bandwidth(bytes_per_cycle)
        self.channels = {name: simulation.axi_reads(name, *latency, pause) for name in READS}
        writes = [f"{port}_write" for port in MEMORY_PORTS if simulation.has(f"{port}_write__awvalid")]
        self.channels |= {name: simulation.axi_writes(name, *latency, pause) for name in writes}
        if port:
            simulation.refresh(port.refresh_period, port.refresh_cycles)
            for name, channel in self.channels.items():
                channel.limit(port.reads if name in READS else port.writes)

    def read(self, offset: int) -> int:
        s = self.simulation
        s.set("bus__araddr", offset)
        s.set("bus__arvalid", 1)
        s.run("bus__arready", ANSWER)
        s.set("bus__arvalid", 0)
        s.set("bus__rready", 1)
        while not s.get("bus__rvalid"):
            s.tick()
        value = s.get("bus__rdata")
        s.tick()
        s.set("bus__rready", 0)
        return value

    def write(self, offset: int, value: int) -> None:
        s = self.simulation
        for name, now in {"awaddr": offset, "wdata": value, "wstrb": 15, "awvalid": 1, "wvalid": 1}.items():
            s.set(f"bus__{name}", now)
        s.run("bus__awready", ANSWER)
        s.set("bus__awvalid", 0)
        s.set("bus__wvalid", 0)
        s.set("bus__bready", 1)
        s.run("bus__bvalid", ANSWER)
        s.set("bus__bready", 0)

    def wait(self, cycles: int, tell: Callable[[int], None] = untold) -> int:
        """Run until the interrupt; return the cycles, 0 if there is none in that many. ``tell`` gets them now and then."""
        return self.simulation.run_for("interrupt", cycles, tell)


class Simulated:
    """The accelerator of an overlay, of which this process has one.

    ``lock``  is held while a chain runs
    ``busy``  whether a chain runs, or has not ended well: it may still run, or a fork has cut it off
    """

    busy = False

    def __init__(self, overlay: Overlay, latency: tuple[int, int] | None = None) -> None:
        self.lock = Mutex()
        self.overlay = overlay
        self.simulation = Simulation(generated(overlay), 0, env().rtl_vcd, fastest())
        port = overlay.memory_port
        cycles = port.latency_cycles if port else LATENCY
        rate = overlay.memory_mb_per_s / overlay.clock_mhz
        self.accelerator = Accelerator(self.simulation, latency or (cycles, cycles), 0, rate, port)
        self.registers = Registers(overlay, self.accelerator)
        self.registers.write("IRQ_ENABLE", self.registers.mask("IRQ_ENABLE", "done", "error"))

    def run(self, segment: Chain, memory: NoisyBuffers) -> int:
        """Run a chain that is in memory; return its clock cycles. Raises DeviceError that names the layer."""
        self.simulation.forget_memory()
        for region, data in memory.bytes.items():
            self.simulation.memory(memory.addresses[region], data)
        registers = self.registers
        registers.start(segment.entry(memory.addresses), len(segment.tasks))
        limit = PATIENCE[0] * segment.cycles + PATIENCE[1]
        with meter("simulated cycles") as tell:
            total = segment.cycles  # modelled
            ended = self.accelerator.wait(limit, lambda cycles: tell(min(cycles, total), total))
        status = registers.read("STATUS")
        registers.write("IRQ", registers.mask("IRQ", "done", "error"))
        if registers.bits("STATUS", "error", status):
            raise registers.failed(segment.tasks)
        if not ended or sum(registers.done().values()) != len(segment.tasks):
            raise registers.late(segment.tasks, "" if ended else f"{limit:,} cycles")
        return registers.cycles()


class RtlProgram(PlacedProgram):
    """A Chain."""

    segment: Chain
    _memory = NoisyBuffers

    def _start(self, memory: NoisyBuffers) -> float:
        with _alone(self.segment.overlay) as simulated:
            return simulated.run(self.segment, memory) / (self.segment.overlay.clock_mhz * 1000)


class RtlSim(Device):
    """A library per overlay is compiled at the first use, and kept in the user's cache."""

    fixed = True
    word = "simulated"
    placed = True
    hidden = True

    def status(self) -> tuple[bool, str]:
        reason = missing()
        return reason is None, reason or "simulated: some 100,000 clock cycles per second"

    def compile(self, work: Work) -> Program:
        check_hardware(work.overlay)
        check_descriptors(work)
        check()
        segment: Chain = work.chain or chain(work)
        return RtlProgram(segment, work.views)


@contextmanager
def _alone(overlay: Overlay) -> Iterator[Simulated]:
    """Wait for the accelerator of an overlay; a new one, which begins with a reset, if that one stays ``busy``."""
    while True:
        simulated = accelerator(overlay)
        with simulated.lock:
            if not simulated.busy:
                simulated.busy = True
                yield simulated  # an exception leaves it busy, Ctrl-C's too
                simulated.busy = False
                return
            if accelerator(overlay) is simulated:
                accelerator.cache_clear()


@lru_cache(maxsize=2)
def accelerator(overlay: Overlay) -> Simulated:
    return Simulated(overlay)


@lru_cache(maxsize=2)
def generated(overlay: Overlay) -> str:
    """Return the RTLIL of an overlay's accelerator, which takes Amaranth seconds: it is kept for the processes that follow.

    Raises DeviceError for a manifest that the generator cannot make.
    """
    module = import_module("chai.hw_overlays.rtl.generate")  # needs Amaranth

    def make(folder: Path) -> Path:
        try:
            text = rtlil(module.accelerator(overlay))
        except ValueError as error:
            raise DeviceError(f"overlay {overlay.name}: the RTL's generator cannot make it: {error}") from error
        forget(".il", KEPT - 1)
        (folder / "accelerator.il").write_text(text)
        return folder / "accelerator.il"

    values = repr(astuple(replace(overlay, file="")))  # its digest alone would be the manifest's, whatever was replaced
    return kept(".il", make, values, *_sources(module)).read_text()


def _sources(module: ModuleType) -> Iterator[str]:
    """Yield what the RTLIL depends on besides the manifest: Amaranth, the generator, and what that imports of chai."""
    yield version("amaranth")
    for folder in Path(__file__).parents[2], Path(str(module.__file__)).parent:
        for path in sorted(folder.rglob("*.py")):
            yield path.read_text()


device = RtlSim("rtlsim", "an accelerator's RTL, simulated cycle by cycle")
