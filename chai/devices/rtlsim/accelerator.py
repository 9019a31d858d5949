"""A simulated accelerator as a host sees it: registers, memory and an interrupt."""

from __future__ import annotations

from collections.abc import Callable

from ...overlay.sections import MEMORY_PORTS, PortLimits
from .simulation import Simulation, untold

ANSWER = 100  # cycles in which a register must answer
READS = tuple(f"{port}_read" for port in MEMORY_PORTS)


class Accelerator:
    """The registers of an overlay's accelerator, by offset, and DDR at its ports.

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
        """Return a register's value."""
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
        """Write a register."""
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
