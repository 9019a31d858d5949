"""The simulator itself: a design that copies memory, and the rules that the models watch over."""

import random

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.devices.rtlsim import verilator
from chai.devices.rtlsim.simulation import SLICE, Simulation, rtlil
from chai.devices.rtlsim.tools import missing
from chai.errors import DeviceError
from chai.hw_overlays.rtl.ports import ReadPort, WritePort

if missing():
    pytest.skip(missing(), allow_module_level=True)


class Copier(wiring.Component):
    """Copies runs of beats: the smallest design with both kinds of port."""

    task: In(stream.Signature(data.StructLayout({"source": 32, "target": 32, "beats": 16})))
    input: Out(ReadPort())
    output: Out(WritePort())
    finished: Out(1)
    flaw: In(1)

    def elaborate(self, platform):
        m = Module()
        task, read, write = self.task, self.input, self.output
        asked, told = Signal(), Signal()
        m.d.comb += [
            read.request.payload.address.eq(task.payload.source),
            read.request.payload.beats.eq(task.payload.beats),
            write.request.payload.address.eq(task.payload.target),
            write.request.payload.beats.eq(task.payload.beats),
            write.request.payload.last.eq(1),
            read.request.valid.eq(task.valid & ~asked),
            write.request.valid.eq(task.valid & ~told),
            task.ready.eq((asked | read.request.ready) & (told | write.request.ready)),
            write.data.payload.eq(read.data.payload ^ self.flaw),
            write.data.valid.eq(read.data.valid),
            read.data.ready.eq(write.data.ready),
            self.finished.eq(write.finished),
        ]
        m.d.sync += [
            asked.eq((asked | (read.request.valid & read.request.ready)) & ~(task.valid & task.ready)),
            told.eq((told | (write.request.valid & write.request.ready)) & ~(task.valid & task.ready)),
        ]
        return m


class Store(wiring.Component):
    """A memory that begins as zeros, and one that does not."""

    address: In(4)
    plain: Out(40)
    table: Out(40)

    def elaborate(self, platform):
        m = Module()
        for name, init in (("plain", []), ("table", range(16))):
            m.submodules[name] = submodule = memory.Memory(shape=40, depth=16, init=init)
            port = submodule.read_port(domain="comb")
            m.d.comb += [port.addr.eq(self.address), getattr(self, name).eq(port.data)]
            submodule.write_port()
        return m


@pytest.fixture(scope="module")
def copier() -> str:
    return rtlil(Copier())


@pytest.mark.parametrize("seed", range(6))
def test_memory_is_read_and_written_at_any_latency(copier: str, seed: int) -> None:
    chosen = random.Random(seed)
    noise = np.random.default_rng(seed)
    simulation = Simulation(copier, seed)
    source, target = (noise.integers(0, 256, size, dtype=np.uint8) for size in (4096, 5000))
    expected = target.copy()
    simulation.memory(0x1000, source)
    simulation.memory(0x9000, target)
    pause = chosen.choice([0, 60, 200])
    simulation.reader("input", 1, chosen.choice([1, 7, 300]), pause)
    simulation.writer("output", 1, chosen.choice([1, 5, 200]), pause)
    tasks = simulation.source("task", pause)
    runs = [(0x1000 + 8 * chosen.randrange(400), 0x9000 + 704 * i, chosen.randint(1, 88)) for i in range(7)]
    tasks.feed(*(a | b << 32 | n << 64 for a, b, n in runs))
    for a, b, n in runs:
        simulation.run("finished", 100_000)
        expected[b - 0x9000 : b - 0x9000 + 8 * n] = source[a - 0x1000 : a - 0x1000 + 8 * n]
    assert np.array_equal(target, expected)


@pytest.mark.slow
@pytest.mark.skipif(verilator.found() is None, reason="Verilator is not installed")
def test_both_simulators_agree_in_bits_and_cycles(copier: str) -> None:
    def copied(simulator: str) -> tuple[list[int], bytes]:
        simulation = Simulation(copier, 5, simulator=simulator)
        memory = np.random.default_rng(1).integers(0, 256, 1 << 12, dtype=np.uint8)
        simulation.memory(0, memory)
        simulation.reader("input", 1, 90, 100)
        simulation.writer("output", 1, 90, 100)
        simulation.source("task", 100).feed(*(72 * i | (2048 + 72 * i) << 32 | 9 << 64 for i in range(20)))
        return [simulation.run("finished", 10_000) for _ in range(20)], memory.tobytes()

    assert copied("cxxrtl") == copied("verilator")


def test_the_same_seed_takes_the_same_cycles(copier: str) -> None:
    def cycles(seed: int) -> int:
        simulation = Simulation(copier, seed)
        simulation.memory(0, np.zeros(4096, np.uint8))
        simulation.reader("input", 3, 90, 100)
        simulation.writer("output", 3, 90, 100)
        simulation.source("task").feed(0x400 << 32 | 60 << 64)
        return simulation.run("finished", 10_000)

    assert cycles(1) == cycles(1) != cycles(2)


def test_what_is_written_is_in_memory_with_the_response_and_not_before(copier: str) -> None:
    simulation = Simulation(copier)
    memory = np.arange(256, dtype=np.uint8)
    simulation.memory(0, memory)
    simulation.reader("input")
    simulation.writer("output", 80, 80)
    simulation.source("task").feed(128 << 32 | 4 << 64)
    simulation.tick(60)
    assert memory[128] == 128
    simulation.run("finished", 100)
    assert np.array_equal(memory[128:160], memory[:32])


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (8 << 64 | 0x400 << 32 | 0xFF8, "64 bytes at 0xff8 are in no memory"),
        (8 << 64 | 0xFF8 << 32, "64 bytes at 0xff8 are in no memory"),
        (8 << 64 | 4, "8 beats at 0x4"),
        (0, "0 beats at 0x0"),
    ],
)
def test_a_request_that_breaks_a_rule_is_an_error(copier: str, task: int, words: str) -> None:
    simulation = Simulation(copier)
    simulation.memory(0, np.zeros(4096, np.uint8))
    simulation.reader("input")
    simulation.writer("output")
    simulation.source("task").feed(task)
    with pytest.raises(DeviceError, match=words):
        simulation.run("finished", 1000)


def test_a_payload_that_changes_while_it_waits_is_an_error(copier: str) -> None:
    simulation = Simulation(copier)
    simulation.set("task__valid", 1)
    simulation.set("task__payload", 1 << 64)
    simulation.memory(0, np.zeros(4096, np.uint8))
    simulation.sink("input__request", pause=256)
    simulation.tick(3)
    simulation.set("task__payload", 2 << 64)
    with pytest.raises(DeviceError, match="input__request: a payload changed"):
        simulation.tick(1)


def test_a_long_run_can_be_interrupted(copier: str) -> None:
    simulation = Simulation(copier)
    cycles: list[int] = []

    def tell(now: int) -> None:
        cycles.append(now)
        if len(cycles) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulation.run_for("finished", 10**12, tell)
    assert cycles == [SLICE, 2 * SLICE, 3 * SLICE] and simulation.now == 3 * SLICE
    assert simulation.run_for("finished", SLICE + 1, cycles.append) == 0
    assert cycles[3:] == [SLICE, SLICE + 1]


def test_what_never_comes_and_what_is_not_there_are_errors(copier: str) -> None:
    simulation = Simulation(copier)
    with pytest.raises(DeviceError, match="finished is 0 after 50 cycles"):
        simulation.run("finished", 50)
    with pytest.raises(DeviceError, match="no port 'nothing'"):
        simulation.get("nothing")
    with pytest.raises(DeviceError, match="no port nothing__request__valid"):
        Simulation(copier).reader("nothing")


def test_a_closed_simulation_is_an_error(copier: str) -> None:
    simulation = Simulation(copier)
    simulation.memory(0, np.zeros(4096, np.uint8))
    source, sink, counts = simulation.source("task"), simulation.sink("input__request"), simulation.histogram("flaw")
    simulation.tick(3)
    assert counts[0] == 3
    simulation.close()
    simulation.close()
    for use in (
        lambda: counts[0],
        lambda: [*sink],
        lambda: source.feed(1),
        lambda: simulation.tick(),
        lambda: simulation.get("flaw"),
        lambda: simulation.set("flaw", 1),
        lambda: simulation.now,
        lambda: simulation.histogram("flaw"),
        lambda: simulation.memory(0, np.zeros(8, np.uint8)),
        simulation.forget_memory,
    ):
        with pytest.raises(DeviceError, match="the simulation is closed"):
            use()


def test_memories_begin_as_noise_and_tables_do_not() -> None:
    simulation = Simulation.of(Store(), seed=3)
    plain = []
    for address in range(16):
        simulation.set("address", address)
        plain.append(simulation.get("plain"))
        assert simulation.get("table") == address
    assert len(set(plain)) == 16
    assert any(value >> 39 for value in plain)


def test_a_wave_file_has_the_names_of_the_design(copier: str, tmp_path) -> None:
    simulation = Simulation(copier, waves=tmp_path / "copy.vcd")
    simulation.tick(5)
    simulation.close()
    text = (tmp_path / "copy.vcd").read_text()
    assert "task__payload" in text
    assert "#40" in text


class Packed(wiring.Component):
    """A record of which one field depends on another one in the same cycle."""

    code: In(4)
    after: Out(4)

    def elaborate(self, platform):
        m = Module()
        record = Signal(data.StructLayout({"high": 4, "low": 4}))
        m.d.comb += [record.high.eq(record.low + 1), record.low.eq(self.code)]
        m.d.sync += self.after.eq(record.high)
        return m


def test_what_one_evaluation_of_a_cycle_does_not_compute_is_an_error() -> None:
    with pytest.raises(DeviceError, match="parts of a wire depend on other parts of it: "):
        Simulation.of(Packed())
