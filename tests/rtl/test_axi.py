"""The AXI masters: bursts within AXI3's limits, any latency, several clients, and a stop in the middle."""

import random

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from amaranth.hdl import Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from chai.devices.rtlsim.building import rtlil
from chai.devices.rtlsim.simulation import Simulation
from chai.devices.rtlsim.tools import missing
from chai.errors import DeviceError
from chai.hw_overlays.rtl.axi import AxiRead, AxiReader, AxiWrite, AxiWriter
from chai.hw_overlays.rtl.ports import ReadPort, WritePort

if missing():
    pytest.skip(missing(), allow_module_level=True)


class Masters(wiring.Component):
    """A reader with two clients and a writer."""

    reads: Out(AxiRead(32))
    writes: Out(AxiWrite(32))
    client0: In(ReadPort())
    client1: In(ReadPort())
    client: In(WritePort())
    stop: In(1)
    clear: In(1)
    idle: Out(1)
    failed: Out(1)

    def elaborate(self, platform):
        m = Module()
        reader, writer = AxiReader(32, clients=2), AxiWriter(32)
        m.submodules.reader = ResetInserter(self.clear)(reader)
        m.submodules.writer = ResetInserter(self.clear)(writer)
        connect(m, flipped(self.client0), reader.client0)
        connect(m, flipped(self.client1), reader.client1)
        connect(m, flipped(self.client), writer.client)
        connect(m, flipped(self.reads), reader.axi)
        connect(m, flipped(self.writes), writer.axi)
        m.d.comb += [
            reader.stop.eq(self.stop),
            writer.stop.eq(self.stop),
            self.idle.eq(reader.idle & writer.idle),
            self.failed.eq(reader.error.any() | writer.error),
        ]
        return m


@pytest.fixture(scope="module")
def masters() -> str:
    return rtlil(Masters())


def runs(chosen: random.Random, count: int, size: int) -> list[tuple[int, int]]:
    """Addresses and lengths: short ones, and some across many boundaries."""
    found = []
    for _ in range(count):
        beats = chosen.choice([1, 2, 7, 16, 17, 33, 300])
        found.append((8 * chosen.randrange(size // 8 - beats), beats))
    return found


def words(memory: np.ndarray, asked: list[tuple[int, int]]) -> list[int]:
    return [int(word) for at, beats in asked for word in memory[at : at + 8 * beats].view("<u8")]


@pytest.mark.parametrize("seed", range(8))
def test_clients_get_their_data_in_order(masters: str, seed: int) -> None:
    chosen = random.Random(seed)
    memory = np.random.default_rng(seed).integers(0, 256, 1 << 14, dtype=np.uint8)
    pause = chosen.choice([0, 40, 190])
    simulation = Simulation(masters, seed)
    simulation.memory(0, memory)
    simulation.bandwidth(chosen.choice([0, 3.5, 8]))
    simulation.axi_reads("reads", 1, chosen.choice([1, 40, 300]), pause)
    asked = [runs(chosen, 20, memory.size) for _ in range(2)]
    got = []
    for i in range(2):
        requests = simulation.source(f"client{i}__request", chosen.choice([0, 100]))
        requests.feed(*(address | beats << 32 for address, beats in asked[i]))
        got.append(simulation.sink(f"client{i}__data", chosen.choice([0, 100])))
    simulation.tick(200_000 if pause > 100 else 60_000)
    assert simulation.get("idle")
    for i in range(2):
        assert list(got[i]) == words(memory, asked[i])


@pytest.mark.parametrize("seed", range(8))
def test_runs_are_written_and_the_last_one_is_told(masters: str, seed: int) -> None:
    chosen = random.Random(100 + seed)
    noise = np.random.default_rng(seed)
    memory = noise.integers(0, 256, 1 << 15, dtype=np.uint8)
    expected = memory.copy()
    pause = chosen.choice([0, 40, 190])
    simulation = Simulation(masters, seed)
    simulation.memory(0, memory)
    simulation.axi_writes("writes", 1, chosen.choice([1, 40, 300]), pause)
    requests = simulation.source("client__request", chosen.choice([0, 100]))
    beats = simulation.source("client__data", chosen.choice([0, 100]))
    told = simulation.histogram("client__finished")
    for i, (address, count) in enumerate(runs(chosen, 24, memory.size)):
        given = noise.integers(0, 1 << 63, count, dtype=np.uint64)
        expected[address : address + 8 * count] = given.view(np.uint8)
        last = i % 8 == 7
        requests.feed(address | count << 32 | last << 48)
        beats.feed(*map(int, given))
        if last:
            simulation.run("client__finished", 400_000)
            assert simulation.get("idle")
            assert np.array_equal(memory, expected)
    simulation.tick(1000)
    assert told[1] == 3


def test_a_whole_run_takes_a_beat_per_cycle_at_150_cycles_of_latency(masters: str) -> None:
    simulation = Simulation(masters)
    simulation.memory(0, np.zeros(1 << 14, np.uint8))
    simulation.axi_reads("reads", 150, 150)
    simulation.axi_writes("writes", 150, 150)
    simulation.source("client0__request").feed(0 | 1024 << 32)
    simulation.source("client__request").feed(0x2000 | 1024 << 32 | 1 << 48)
    simulation.source("client__data").feed(*range(1024))
    got = simulation.sink("client0__data")
    cycles = simulation.run("client__finished", 2000)
    assert len(list(got)) == 1024
    assert cycles < 1024 + 150 + 20


@pytest.mark.parametrize("at", [3, 37, 90, 260, 400])
def test_a_stop_ends_what_is_open_and_forgets_the_rest(masters: str, at: int) -> None:
    memory = np.full(1 << 14, 7, np.uint8)
    simulation = Simulation(masters, at)
    simulation.memory(0, memory)
    simulation.axi_reads("reads", 5, 60, 60)
    simulation.axi_writes("writes", 5, 60, 60)
    simulation.source("client0__request").feed(*(i << 7 | 100 << 32 for i in range(9)))
    simulation.source("client__request").feed(0x2000 | 900 << 32 | 1 << 48)
    data = simulation.source("client__data")
    data.feed(*range(at // 3))  # then no more: the burst that is open has to be filled
    simulation.sink("client0__data")
    simulation.tick(at)
    simulation.set("stop", 1)
    told = simulation.histogram("client__finished")
    simulation.run("idle", 5000)
    assert told[1] == 0
    simulation.set("clear", 1)
    simulation.tick(1)
    simulation.set("stop", 0)
    simulation.set("clear", 0)
    before = memory.copy()
    simulation.tick(100)
    assert np.array_equal(memory, before)
    written = memory[0x2000:].view("<u8")
    assert set(written[at // 3 :]) == {0x0707070707070707}  # beats that fill a burst write nothing


@pytest.mark.parametrize("write", [False, True])
def test_no_memory_is_an_error(masters: str, write: bool) -> None:
    simulation = Simulation(masters)
    simulation.memory(0, np.zeros(4096, np.uint8))
    simulation.axi_reads("reads")
    simulation.axi_writes("writes")
    simulation.sink("client0__data")
    simulation.source("client__data").feed(*range(20))
    simulation.source("client__request" if write else "client0__request").feed(0xF80 | 20 << 32)
    simulation.run("failed", 200)


class Careless(wiring.Component):
    """A master that breaks a rule."""

    reads: Out(AxiRead(32))
    writes: Out(AxiWrite(32))
    address: In(32)
    length: In(4)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.reads.araddr.eq(self.address), self.reads.arlen.eq(self.length), self.reads.arvalid.eq(1),
            self.reads.arsize.eq(3), self.reads.arburst.eq(1), self.writes.wvalid.eq(self.address[-1]),
        ]  # fmt: skip
        return m


@pytest.mark.parametrize(
    ("address", "length", "pause", "message"),
    [
        (0xFC0, 15, 0, "cross a boundary of 4 KB"),
        (0x104, 0, 0, "not aligned"),
        (1 << 31, 0, 0, "a beat before its address"),
    ],
)
def test_the_checker_sees_a_broken_rule(address: int, length: int, pause: int, message: str) -> None:
    simulation = Simulation.of(Careless())
    simulation.memory(0, np.zeros(4096, np.uint8))
    simulation.axi_reads("reads")
    simulation.axi_writes("writes")
    simulation.set("address", address)
    simulation.set("length", length)
    with pytest.raises(DeviceError, match=message):
        simulation.tick(5)


def test_the_checker_sees_an_address_that_changes_while_it_waits() -> None:
    simulation = Simulation.of(Careless())
    simulation.memory(0, np.zeros(4096, np.uint8))
    simulation.axi_reads("reads", pause=256)
    simulation.set("address", 8)
    simulation.tick(5)
    simulation.set("address", 16)
    with pytest.raises(DeviceError, match="VALID or a payload changed before READY"):
        simulation.tick(1)
