"""Hardware described in Amaranth, simulated: how it is compiled, its ports by name, and models of what surrounds it in C++.

Amaranth -> RTLIL -> yosys (``pyosys``) -> C++ of CXXRTL, or Verilog and C++ of Verilator -> a C++ compiler. CXXRTL compiles
small designs sooner, and writes waves; Verilator is several times as fast, and of a large design the first, too. A design is
compiled once.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ...blob import Array
from ...errors import DeviceError
from ...overlay.sections import ChannelLimits
from ...util.interpreter import Uncollected
from ...util.lazy_numpy import np
from . import cxxrtl, verilator
from .tools import FLAGS, HARNESS, check, compiler, kept, release

FAULTS = {"slverr": 2, "decerr": 3, "silent": 4, "deaf": 5}  # of the harness
VALUES = 64  # of a histogram
SLICE = 20_000  # cycles of one call: a fraction of a second for a large design
# "waves" can write every wire into a file; it takes longer to compile
SIMULATORS: dict[str, Callable[[str, Path, Sequence[str]], Path]] = {
    "cxxrtl": cxxrtl.build,
    "waves": partial(cxxrtl.build, waves=True),
    "verilator": verilator.build,
}
# a memory that begins as zeros: Amaranth says so in as many digits, of which yosys would make as many lines of C++
_ZEROS = re.compile(r"^  cell \$meminit_v2 .*\n(?:    .*\n)*?    connect \\DATA \d+'0+\n(?:    .*\n)*?  end\n", re.M)


def fastest() -> str:
    """Return the simulator for a whole accelerator: Verilator, where it is installed."""
    return "verilator" if verilator.found() else "cxxrtl"


def rtlil(component: Any) -> str:
    """Return a component's RTLIL; its clock and reset are the ports ``clk`` and ``rst``. Memories of zeros have no content."""
    from amaranth.back import rtlil as backend

    with Uncollected():  # it takes a third less time, and for zcu102 half a gigabyte more
        return _ZEROS.sub("", str(backend.convert(component, name="top", emit_src=False)))


def library(text: str, simulator: str = "cxxrtl") -> Path:
    """Return the path of the library that simulates RTLIL. Raises DeviceError if a tool is missing or fails."""
    check()
    command = [*compiler(), *FLAGS]
    tools = [version("pyosys"), release(compiler()), str(verilator.found()), verilator.version()]
    sources = *sorted(HARNESS.iterdir()), Path(cxxrtl.__file__), Path(verilator.__file__)
    texts = (path.read_text() for path in sources)
    return kept(
        ".so",
        lambda folder: SIMULATORS[simulator](text, folder, command),
        *(text, simulator, *command, *tools, *texts),
    )


def untold(cycles: int) -> None:
    """Show nothing."""


class Simulation:
    """A design after its reset, with noise in its memories. ``text`` is its RTLIL; one ``seed``, one behaviour of the models.

    ``simulator`` is cxxrtl or verilator; ``waves`` is a file for every change of every wire, by CXXRTL.

    Models have a name (that of their ports, without ``__valid`` and the like), a latency in cycles from ``least`` to
    ``most`` where they have one, and ``pause``, in how many of 256 cycles they do nothing. All of them raise DeviceError,
    from the next call of ``run`` on, when the design breaks a rule: a request for memory that is not there, a payload that
    changes while it waits.
    """

    def __init__(self, text: str, seed: int = 0, waves: str | Path = "", simulator: str = "cxxrtl") -> None:
        self._handle: int | None = None
        self._computing = False
        self._library = _loaded(library(text, "waves" if waves else simulator))
        self._handle = self._library.rtl_create(seed)
        self._ports: dict[str, tuple[int, int]] = {}
        self._kept: list[Array] = []  # memory that the design writes
        if waves and self._library.rtl_trace(self._handle, str(waves).encode()):
            raise self._error()

    @classmethod
    def of(cls, component: Any, seed: int = 0, waves: str | Path = "") -> Simulation:
        return cls(rtlil(component), seed, waves)

    def close(self) -> None:
        """Release the design's memory; what is asked of it, or of its models, after that raises DeviceError.

        Where a fork has cut off its computation, the memory may be in any state, and stays.
        """
        if self._handle and not self._computing:
            self._library.rtl_destroy(self._handle)
        self._handle = None

    __del__ = close

    @property
    def _open(self) -> int:
        if self._handle is None:
            raise DeviceError("the simulation is closed")
        return self._handle

    # -- ports

    def has(self, name: str) -> bool:
        return bool(self._library.rtl_port(self._open, name.encode(), ctypes.byref(ctypes.c_uint())) >= 0)

    def get(self, name: str) -> int:
        """Return the value of a port, unsigned."""
        index, width = self._port(name)
        out = (ctypes.c_uint8 * (-(-width // 32) * 4))()
        self._library.rtl_get(self._open, index, out, len(out))
        return int.from_bytes(bytes(out), "little") & (1 << width) - 1

    def set(self, name: str, value: int) -> None:
        """Set an input; a negative value in two's complement."""
        index, width = self._port(name)
        data = (value & (1 << width) - 1).to_bytes(-(-width // 8), "little")
        self._library.rtl_set(self._open, index, data, len(data))

    def _port(self, name: str) -> tuple[int, int]:
        if name not in self._ports:
            width = ctypes.c_uint()
            index = self._library.rtl_port(self._open, name.encode(), ctypes.byref(width))
            if index < 0:
                raise DeviceError(f"the design has no port {name!r}")
            self._ports[name] = index, width.value
        return self._ports[name]

    # -- time

    @property
    def now(self) -> int:
        """Return the cycles since the reset."""
        return int(self._library.rtl_now(self._open))

    def tick(self, cycles: int = 1) -> None:
        self._run(-1, cycles)

    def run(self, until: str, limit: int) -> int:
        """Run until after a cycle in which a port is not zero; return the cycles. Raises DeviceError after ``limit``."""
        cycles = self.run_for(until, limit)
        if not cycles:
            raise DeviceError(f"{until} is 0 after {limit:,} cycles")
        return cycles

    def run_for(self, until: str, limit: int, tell: Callable[[int], None] = untold) -> int:
        """Run as ``run`` does; return 0 after ``limit`` cycles. ``tell`` gets the cycles so far now and then."""
        cycles, met = self._run(self._port(until)[0], limit, tell)
        return cycles if met else 0

    def _run(self, until: int, limit: int, tell: Callable[[int], None] = untold) -> tuple[int, bool]:
        """Run in slices of a fraction of a second, after each of which Ctrl-C works and ``tell`` gets the cycles."""
        met = ctypes.c_int()
        cycles = 0
        while not met.value and cycles < limit:
            some = min(SLICE, limit - cycles)
            self._computing = True
            try:
                cycles += int(self._library.rtl_run(self._open, until, some, ctypes.byref(met)))
            finally:  # Ctrl-C is raised here
                self._computing = False
            if self._library.rtl_error(self._open):
                raise self._error()
            tell(cycles)
        return cycles, bool(met.value)

    def _error(self) -> DeviceError:
        return DeviceError(f"RTL: {self._library.rtl_error(self._open).decode()}")

    # -- models

    def memory(self, address: int, data: Array) -> None:
        """Put an array (uint8, contiguous) into memory at an address; the design reads and writes the array itself."""
        if data.dtype != np.uint8 or not data.flags.c_contiguous:
            raise DeviceError("memory of a simulation is a contiguous array of uint8")
        self._kept.append(data)
        self._library.rtl_memory(self._open, address, data.ctypes.data, data.size)

    def forget_memory(self) -> None:
        self._library.rtl_forget_memory(self._open)
        self._kept.clear()

    def reader(self, name: str, least: int = 1, most: int = 1, pause: int = 0) -> None:
        """Answer a ReadPort from memory."""
        self._model("reader", name, least, most, pause)

    def writer(self, name: str, least: int = 1, most: int = 1, pause: int = 0) -> None:
        """Answer a WritePort; what is written reaches memory with the response, after the latency."""
        self._model("writer", name, least, most, pause)

    def axi_reads(self, name: str, least: int = 1, most: int = 1, pause: int = 0) -> AxiChannel:
        """Answer an AXI port's reads from memory, and check the master's bursts; an error where no memory is."""
        return AxiChannel(self, self._model("axi_reads", name, least, most, pause))

    def axi_writes(self, name: str, least: int = 1, most: int = 1, pause: int = 0) -> AxiChannel:
        """Answer an AXI port's writes in the same way; a burst reaches memory at once or with its response."""
        return AxiChannel(self, self._model("axi_writes", name, least, most, pause))

    def refresh(self, period: int, pause: int) -> None:
        """Let memory move nothing in ``pause`` cycles of every ``period``; 0 for never."""
        self._library.rtl_refresh(self._open, period, pause)

    def bandwidth(self, bytes_per_cycle: float) -> None:
        """Limit the bytes that all AXI ports together transfer per cycle."""
        self._library.rtl_bandwidth(self._open, round(256 * bytes_per_cycle))

    def source(self, name: str, pause: int = 0) -> StreamSource:
        """Return the model of a stream that the design takes."""
        return StreamSource(self, self._model("source", name, 0, 0, pause))

    def sink(self, name: str, pause: int = 0) -> StreamSink:
        """Return the model of a stream that the design gives."""
        return StreamSink(self, self._model("sink", name, 0, 0, pause))

    def histogram(self, name: str) -> PortHistogram:
        """Return the counts of a port's values below 64, from now on."""
        return PortHistogram(self, self._model("histogram", name, 0, 0, 0))

    def monitor(self, engine: str) -> Monitor:
        """Return the record of what an engine of the accelerator does, from now on."""
        return Monitor(self, self._model("monitor", engine, 0, 0, 0))

    def _model(self, kind: str, name: str, least: int, most: int, pause: int) -> int:
        number = int(self._library.rtl_model(self._open, kind.encode(), name.encode(), least, most, pause))
        if number < 0:
            raise self._error()
        return number


class _PortModel:
    def __init__(self, simulation: Simulation, number: int) -> None:
        self._simulation, self._library, self._number = simulation, simulation._library, number

    @property
    def _handle(self) -> int:
        return self._simulation._open


class AxiChannel(_PortModel):
    """Reads or writes of an AXI port."""

    def limit(self, limits: ChannelLimits, refuse: bool = False) -> None:
        """Hold READY down as a port of the processor does; or ``refuse`` what it has no room for, which is an error."""
        numbers = limits.bursts_max, limits.bursts_min, limits.issued, limits.fifo_bytes
        self._library.rtl_limit(self._handle, self._number, *numbers, refuse)

    def fail(self, kind: str, after: int = 0) -> None:
        """Let the burst after so many others end with "slverr" or "decerr"; or let the port be "silent" or "deaf" from it on.

        A silent port takes addresses and data, and does not answer; a deaf one does not take them.
        """
        self._library.rtl_fault(self._handle, self._number, FAULTS[kind], after)

    @property
    def open(self) -> int:
        """Return the bursts that were begun and have not ended."""
        return int(self._library.rtl_open(self._handle, self._number))


class StreamSource(_PortModel):
    """A stream that the design takes."""

    def feed(self, *payloads: int | bytes) -> None:
        """Add payloads: numbers, or bytes with the lowest bits first."""
        for payload in payloads:
            data = payload if isinstance(payload, bytes) else payload.to_bytes(payload.bit_length() // 8 + 1, "little")
            self._library.rtl_feed(self._handle, self._number, data, len(data))


class StreamSink(_PortModel):
    """A stream that the design gives; iterate to see all payloads since the beginning as unsigned numbers."""

    def __iter__(self) -> Iterator[int]:
        data, each = ctypes.POINTER(ctypes.c_uint8)(), ctypes.c_uint()
        count = self._library.rtl_sunk(self._handle, self._number, ctypes.byref(data), ctypes.byref(each))
        whole = bytes(data[: count * each.value])
        for i in range(count):
            yield int.from_bytes(whole[i * each.value : (i + 1) * each.value], "little")


class PortHistogram(_PortModel):
    """Cycles in which a port had each value."""

    def __getitem__(self, value: int) -> int:
        if not 0 <= value < VALUES:
            raise IndexError(value)
        return int(self._library.rtl_histogram(self._handle, self._number)[value])


class Activity(NamedTuple):
    """Count what an engine did up to the end of a Task, in cycles since the end of the one before it.

    ``cycle``    in which it ended, since the reset
    ``idle``     without a Task, or with nothing to wait for
    ``mac``      computing
    the others   stalls, by reason
    """

    cycle: int
    idle: int
    weights: int
    input: int
    accumulators: int
    dependency: int
    output: int
    unknown: int
    mac: int


class Monitor(_PortModel):
    """The Tasks that an engine has finished, in order."""

    def __iter__(self) -> Iterator[Activity]:
        data = ctypes.POINTER(ctypes.c_uint64)()
        count = self._library.rtl_monitored(self._handle, self._number, ctypes.byref(data))
        size = len(Activity._fields)
        return iter([Activity(*data[i * size : (i + 1) * size]) for i in range(count)])


@lru_cache(maxsize=8)
def _loaded(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    handle, text, number, wide = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64
    small = ctypes.c_uint
    bytes_ = ctypes.c_void_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rtl_create": (handle, [wide]),
        "rtl_destroy": (None, [handle]),
        "rtl_error": (text, [handle]),
        "rtl_now": (wide, [handle]),
        "rtl_port": (number, [handle, text, ctypes.POINTER(small)]),
        "rtl_get": (None, [handle, number, bytes_, small]),
        "rtl_set": (None, [handle, number, text, small]),
        "rtl_memory": (None, [handle, wide, bytes_, wide]),
        "rtl_forget_memory": (None, [handle]),
        "rtl_bandwidth": (None, [handle, small]),
        "rtl_refresh": (None, [handle, small, small]),
        "rtl_limit": (None, [handle, number, small, small, small, small, number]),
        "rtl_fault": (None, [handle, number, small, wide]),
        "rtl_open": (wide, [handle, number]),
        "rtl_trace": (number, [handle, text]),
        "rtl_model": (number, [handle, text, text, small, small, small]),
        "rtl_feed": (None, [handle, number, text, small]),
        "rtl_sunk": (wide, [handle, number, bytes_, bytes_]),
        "rtl_histogram": (ctypes.POINTER(wide), [handle, number]),
        "rtl_monitored": (wide, [handle, number, bytes_]),
        "rtl_run": (wide, [handle, number, wide, ctypes.POINTER(number)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
