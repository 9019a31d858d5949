"""The AXI masters: bursts within AXI3's limits, any latency, several clients, and a stop in the middle."""

import random

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from amaranth.hdl import Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from chai.devices.rtlsim.simulation import Simulation, rtlil
from chai.devices.rtlsim.tools import missing
from chai.errors import DeviceError
from chai.hw_overlays.rtl.axi import IN_FLIGHT, AxiRead, AxiReader, AxiWrite, AxiWriter, Splitter
from chai.hw_overlays.rtl.ports import ReadPort, WritePort
from chai.overlay.sections import ChannelLimits, PortLimits, PortSize

if missing():
    pytest.skip(missing(), allow_module_level=True)


class Masters(wiring.Component):
    """A reader with two clients and a writer, with beats of so many words; one client and the writer's have ``width``."""

    def __init__(self, words: int = 1, width: int = 1) -> None:
        self.words, self.width = words, width
        super().__init__(
            {
                "reads": Out(AxiRead(32, words=words)),
                "writes": Out(AxiWrite(32, words=words)),
                "client0": In(ReadPort(words=width)),
                "client1": In(ReadPort()),
                "client": In(WritePort(words=width)),
                "urgent": In(2),
                **{name: In(1) for name in ("stop", "clear")},
                **{name: Out(1) for name in ("idle", "failed")},
            }
        )

    def elaborate(self, platform):
        m = Module()
        words, width = self.words, self.width
        reader, writer = AxiReader(32, (width, 1), words=words), AxiWriter(32, words=words, width=width)
        m.submodules.reader = ResetInserter(self.clear)(reader)
        m.submodules.writer = ResetInserter(self.clear)(writer)
        connect(m, flipped(self.client0), reader.client0)
        connect(m, flipped(self.client1), reader.client1)
        connect(m, flipped(self.client), writer.client)
        connect(m, flipped(self.reads), reader.axi)
        connect(m, flipped(self.writes), writer.axi)
        m.d.comb += [
            reader.urgent.eq(self.urgent),
            reader.stop.eq(self.stop),
            writer.stop.eq(self.stop),
            self.idle.eq(reader.idle & writer.idle),
            self.failed.eq(reader.error.any() | writer.error),
        ]
        return m


@pytest.fixture(scope="module")
def masters() -> str:
    return rtlil(Masters())


WIDTHS = (1, 1), (2, 1), (2, 2)  # words of a beat, and of a client's group


@pytest.fixture(scope="module", params=WIDTHS, ids=lambda pair: "{}-{}".format(*pair))
def wide(request: pytest.FixtureRequest) -> tuple[str, int, PortSize]:
    """Masters of each width, the words of the wide client, and the ports."""
    words, width = request.param
    return rtlil(Masters(words, width)), width, PortSize(8 * words)


def runs(chosen: random.Random, count: int, size: int) -> list[tuple[int, int]]:
    """Addresses and lengths: short ones, and some across many boundaries."""
    spans = []
    for _ in range(count):
        beats = chosen.choice([1, 2, 7, 16, 17, 33, 300])
        spans.append((8 * chosen.randrange(size // 8 - beats), beats))
    return spans


def words(memory: np.ndarray, asked: list[tuple[int, int]]) -> list[int]:
    return [int(word) for at, beats in asked for word in memory[at : at + 8 * beats].view("<u8")]


def ungrouped(groups: list[int], asked: list[tuple[int, int]], width: int) -> list[int]:
    """The words of runs that come in groups of ``width``."""
    words, at = [], 0
    for _, beats in asked:
        words += [groups[at + i // width] >> 64 * (i % width) & (1 << 64) - 1 for i in range(beats)]
        at += -(-beats // width)
    assert at == len(groups)
    return words


@pytest.mark.parametrize("urgent", [0, 1, 2])
def test_bursts_of_an_urgent_client_go_first(masters: str, urgent: int) -> None:
    """Of two that want 2,048 words each: the other one has a burst or two before the urgent one has all; else they take turns."""
    simulation = Simulation(masters, 1)
    simulation.memory(0, np.zeros(1 << 15, np.uint8))
    simulation.axi_reads("reads", 1, 20, 0)
    simulation.set("urgent", urgent)
    got = []
    for i in range(2):
        simulation.source(f"client{i}__request").feed((1 << 14) * i | 2048 << 32)
        got.append(simulation.sink(f"client{i}__data"))
    first, other = reversed(got) if urgent == 2 else got
    while len([*first]) < 2048:
        simulation.tick(16)
    assert len([*other]) <= 48 if urgent else len([*other]) > 1900
    simulation.tick(5000)
    assert len([*other]) == 2048


@pytest.mark.parametrize("seed", range(4))
def test_clients_get_their_data_in_order(wide: tuple[str, int, PortSize], seed: int) -> None:
    masters, width, _ = wide
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
        assert ungrouped(list(got[i]), asked[i], 1 if i else width) == words(memory, asked[i])


def beats_of(words: np.ndarray, address: int, width: int) -> list[bytes]:
    """Beats of so many words, as they are in memory; what is not of the run is noise."""
    before, after = address // 8 % width, -(address // 8 + words.size) % width
    noise = np.random.default_rng(0).integers(0, 1 << 63, before + after, dtype=np.uint64)
    whole = np.concatenate([noise[:before], words, noise[before:]])
    return [row.tobytes() for row in whole.reshape(-1, width)]


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_written_and_the_last_one_is_told(wide: tuple[str, int, PortSize], seed: int) -> None:
    masters, width, _ = wide
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
        sent = noise.integers(0, 1 << 63, count, dtype=np.uint64)
        expected[address : address + 8 * count] = sent.view(np.uint8)
        last = i % 8 == 7
        requests.feed(address | count << 32 | last << 48)
        beats.feed(*beats_of(sent, address, width))
        if last:
            simulation.run("client__finished", 400_000)
            assert simulation.get("idle")
            assert np.array_equal(memory, expected)
    simulation.tick(1000)
    assert told[1] == 3


@pytest.mark.parametrize("address", [0, 8])
def test_a_whole_run_takes_a_beat_per_cycle_at_150_cycles_of_latency(
    wide: tuple[str, int, PortSize], address: int
) -> None:
    masters, width, _ = wide
    simulation = Simulation(masters)
    simulation.memory(0, np.zeros(1 << 15, np.uint8))
    simulation.axi_reads("reads", 150, 150)
    simulation.axi_writes("writes", 150, 150)
    simulation.source("client0__request").feed(address | 1024 << 32)
    simulation.source("client__request").feed(0x4000 + address | 1024 << 32 | 1 << 48)
    simulation.source("client__data").feed(*beats_of(np.arange(1024, dtype=np.uint64), address, width))
    got = simulation.sink("client0__data")
    cycles = simulation.run("client__finished", 2000)
    assert len(list(got)) == 1024 // width
    assert cycles < 1024 // width + 150 + 20


ZYNQ = ChannelLimits(bursts_min=14, bursts_max=70, issued=8, fifo_bytes=1024)
SMALL = ChannelLimits(bursts_min=2, bursts_max=4, issued=2, fifo_bytes=256)


@pytest.mark.parametrize("limits", [ZYNQ, SMALL, ZYNQ._replace(bursts_min=4), ZYNQ._replace(fifo_bytes=512)])
@pytest.mark.parametrize("write", [False, True])
def test_a_port_with_little_room_holds_a_run_up(
    wide: tuple[str, int, PortSize], limits: ChannelLimits, write: bool
) -> None:
    """As many bursts as have room are on their way at a time: the model's rate, which the cycle model uses.

    Where the client takes one of a beat's two words in a cycle, a burst keeps its room for some cycles longer.
    """
    masters, width, ports = wide
    limits = limits._replace(fifo_bytes=limits.fifo_bytes * ports.words)
    simulation = Simulation(masters)
    memory = np.random.default_rng(0).integers(0, 256, 1 << 15, dtype=np.uint8)
    expected = memory.copy()
    simulation.memory(0, memory)
    channel = simulation.axi_writes("writes", 150, 150) if write else simulation.axi_reads("reads", 150, 150)
    channel.limit(limits)
    got = simulation.sink("client0__data")
    words = expected.view("<u8")[: 8 * 256]
    if write:
        simulation.source("client__request").feed(0x4000 | words.size << 32 | 1 << 48)
        simulation.source("client__data").feed(*beats_of(words, 0, width))
    else:
        simulation.source("client0__request").feed(words.size << 32)
    simulation.tick(50)
    most = channel.open
    cycles = 50
    while channel.open:
        simulation.tick()
        cycles, most = cycles + 1, max(most, channel.open)
    if write:
        assert np.array_equal(memory[0x4000:].view("<u8"), words)
    else:
        assert ungrouped(list(got), [(0, words.size)], width) == words.tolist()
    assert most <= limits.bursts_min
    rate = min(width, PortLimits(150, 1, 0, limits, limits).rates(ports, 16 * ports.words)[write])
    longer = 1 + 16 * (ports.words - width) / (150 + 16)
    assert words.size / rate * 0.95 < cycles < words.size / rate * 1.03 * longer + 150


@pytest.mark.parametrize(("most", "right"), [(IN_FLIGHT, True), (IN_FLIGHT - 1, False)])
@pytest.mark.parametrize("write", [False, True])
def test_the_masters_own_bound(masters: str, write: bool, most: int, right: bool) -> None:
    """A port that takes every burst sees no more open ones than the master allows itself, and all of those."""
    simulation = Simulation(masters)
    simulation.memory(0, np.zeros(1 << 14, np.uint8))
    channel = simulation.axi_writes("writes", 900, 900) if write else simulation.axi_reads("reads", 900, 900)
    channel.limit(ChannelLimits(most, most, 1000, 1 << 20), refuse=True)
    simulation.source("client__request" if write else "client0__request").feed(1024 << 32)
    simulation.source("client__data").feed(*range(1024))
    simulation.sink("client0__data")
    if right:
        simulation.tick(800)
        assert channel.open == most
    else:
        with pytest.raises(DeviceError, match=f"{most} bursts are open, and the port takes no more"):
            simulation.tick(800)


def test_single_beats_are_more_bursts(masters: str) -> None:
    simulation = Simulation(masters)
    simulation.memory(0, np.zeros(1 << 14, np.uint8))
    channel = simulation.axi_reads("reads", 900, 900)
    channel.limit(SMALL)
    simulation.source("client0__request").feed(*(i << 8 | 1 << 32 for i in range(9)))
    simulation.tick(200)
    assert channel.open == SMALL.bursts_max


def test_nothing_moves_while_memory_refreshes_itself(masters: str) -> None:
    simulation = Simulation(masters)
    simulation.memory(0, np.zeros(1 << 14, np.uint8))
    simulation.axi_reads("reads")
    simulation.refresh(100, 25)
    simulation.source("client0__request").feed(1200 << 32)
    simulation.sink("client0__data")
    beats = simulation.histogram("reads__rvalid")
    simulation.tick(1000)
    assert 735 <= beats[1] <= 752


SPLITTERS = (16, 1), (32, 1), (16, 2)  # beats of a burst, and words of a beat


class Splitters(wiring.Component):
    """One of each of these, which are compiled together."""

    def __init__(self) -> None:
        self.parts = {f"{burst}_{wide}": Splitter(32, burst, wide) for burst, wide in SPLITTERS}
        ports = [(name, part.signature.members) for name, part in self.parts.items()]
        super().__init__({f"{port}_{name}": members[port] for name, members in ports for port in ("request", "burst")})

    def elaborate(self, platform):
        m = Module()
        for name, part in self.parts.items():
            m.submodules[name] = part
            for port in ("request", "burst"):
                connect(m, flipped(getattr(self, f"{port}_{name}")), getattr(part, port))
        return m


@pytest.fixture(scope="module")
def splitters() -> str:
    return rtlil(Splitters())


@pytest.mark.parametrize("address", [0, 0x48, 0xF08, 0xFF8, 0x1FC8])
@pytest.mark.parametrize(("burst", "wide"), SPLITTERS)
def test_no_burst_is_shorter_than_it_must_be(splitters: str, address: int, burst: int, wide: int) -> None:
    """Ends are those of the run, of pages, and with 32 beats the first one's at an even beat."""
    simulation = Simulation(splitters)
    simulation.source(f"request_{burst}_{wide}").feed(address | 600 << 32 | 1 << 48 | 0xABCD << 49)
    bursts = simulation.sink(f"burst_{burst}_{wide}")
    simulation.tick(200)
    size = 8 * wide
    expected, first, end = [], address // size, -(-(address + 8 * 600) // size)
    beat = first
    while beat < end:
        length = min(burst - (burst == 32 and beat % 2), 4096 // size - beat % (4096 // size), end - beat)
        place = beat == first, beat + length == end, address % size != 0, (address + 8 * 600) % size != 0
        expected.append((beat * size, length, place if wide > 1 else (), beat + length == end, 0xABCD))
        beat += length
    fields = (32, burst.bit_length() - 1, *(1 for _ in expected[0][2]), 1, 16)
    parts = []
    for each in bursts:
        values = [each >> sum(fields[:i]) & (1 << width) - 1 for i, width in enumerate(fields)]
        at, more, *place, last, tag = values
        parts.append((at, more + 1, tuple(map(bool, place)), bool(last), tag))
    assert parts == expected


@pytest.mark.parametrize("at", [3, 37, 90, 260, 400])
def test_a_stop_ends_what_is_open_and_forgets_the_rest(wide: tuple[str, int, PortSize], at: int) -> None:
    masters, width, _ = wide
    memory = np.full(1 << 14, 7, np.uint8)
    simulation = Simulation(masters, at)
    simulation.memory(0, memory)
    simulation.axi_reads("reads", 5, 60, 60)
    simulation.axi_writes("writes", 5, 60, 60)
    simulation.source("client0__request").feed(*(i << 7 | 100 << 32 for i in range(9)))
    simulation.source("client__request").feed(0x2000 | 900 << 32 | 1 << 48)
    data = simulation.source("client__data")
    words = np.arange(at // 3 // width * width, dtype=np.uint64)
    data.feed(*beats_of(words, 0, width))  # then no more: the burst that is open has to be filled
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
    assert set(written[words.size :]) == {0x0707070707070707}  # beats that fill a burst write nothing


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
