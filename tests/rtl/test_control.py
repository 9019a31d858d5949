"""Chains through the whole accelerator, from registers to interrupt, with engines that copy."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from chai import overlay as overlays
from chai.devices.rtlsim.program import Accelerator
from chai.devices.rtlsim.simulation import Simulation, fastest, rtlil
from chai.devices.rtlsim.tools import missing
from chai.hw_overlays.rtl.watch import PATIENCE
from chai.overlay.records import pack

if missing():
    pytest.skip(missing(), allow_module_level=True)

from .copying import accelerator

OVERLAY = overlays.load()
OPCODES = {"array": 1, "window": 5}
CHAIN, CONSTANTS, BLOBS, SIZE = 0x1000_0000, 0x2000_0000, 0x3000_0000, 1 << 16


@pytest.fixture(scope="module")
def text() -> str:
    return rtlil(accelerator(OVERLAY))


class Bench:
    """An accelerator, its memory, and the registers by name."""

    def __init__(self, text: str, seed: int = 0, latency: tuple[int, int] = (1, 1), pause: int = 0) -> None:
        noise = np.random.default_rng(seed)
        self.chain, self.constants, self.blobs = (noise.integers(0, 256, SIZE, dtype=np.uint8) for _ in range(3))
        self.simulation = Simulation(text, seed, simulator=fastest())
        for address, data in ((CHAIN, self.chain), (CONSTANTS, self.constants), (BLOBS, self.blobs)):
            self.simulation.memory(address, data)
        self.accelerator = Accelerator(self.simulation, latency, pause)

    def read(self, name: str) -> int:
        return self.accelerator.read(OVERLAY.registers[name].offset)

    def write(self, name: str, value: int) -> None:
        self.accelerator.write(OVERLAY.registers[name].offset, value)

    def start(self, descriptors: Sequence[bytes], at: int = 0) -> None:
        data = b"".join(descriptors)
        self.chain[at : at + len(data)] = np.frombuffer(data, np.uint8)
        self.write("IRQ_ENABLE", 3)
        self.write("CHAIN_LO", CHAIN + at)
        self.write("CHAIN_HI", 0)
        self.write("COUNT", len(descriptors))
        self.write("CONTROL", 1)

    def status(self) -> list[str]:
        value = self.read("STATUS")
        return [bits.name for bits in OVERLAY.registers["STATUS"].bits if value >> bits.bit & 1]


def copy(
    engine: str, source: int, target: int, words: int, tag: int = 0, after: tuple[int, int] = (0, 0), **more
) -> bytes:
    values = {field.name: 0 for field in OVERLAY.descriptor.fields if field.name != "version"}
    sizes = dict.fromkeys(("input_channels", "output_channels", "input_height", "output_height", "output_width"), 1)
    window = dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    tiles = dict.fromkeys(("group", "tile_rows", "tile_columns", "tiles"), 1)
    values |= {**sizes, **window, **tiles, "batch": 1, "input_width": words, "opcode": OPCODES[engine], "tag": tag}
    values |= {"input": BLOBS + source, "output": BLOBS + target, "weights": CONSTANTS}
    return pack(OVERLAY.descriptor, {**values, "after_array": after[0], "after_window": after[1], **more})


def test_registers_hold_what_the_manifest_says(text: str) -> None:
    bench = Bench(text)
    assert bench.read("ID") == OVERLAY.registers["ID"].value
    assert bench.read("BUILD") == OVERLAY.build
    for name in ("CHAIN_LO", "CHAIN_HI", "COUNT", "IRQ_ENABLE"):
        bench.write(name, 0xDEADBEEF)
        assert bench.read(name) == 0xDEADBEEF
    bench.write("ID", 5)
    assert bench.read("ID") == OVERLAY.registers["ID"].value
    assert bench.read("CONTROL") == 0
    assert bench.accelerator.read(OVERLAY.registers.window - 4) == 0


def test_a_chain_of_one_task_ends_with_an_interrupt(text: str) -> None:
    bench = Bench(text, latency=(30, 30))
    expected = bench.blobs[:800].copy()
    bench.start([copy("array", 0, 0x1000, 100)])
    assert bench.status() == ["busy"]
    assert bench.accelerator.wait(1000)
    assert np.array_equal(bench.blobs[0x1000 : 0x1000 + 800], expected)
    assert bench.status() == ["done"]
    assert bench.read("DONE") == 1
    assert bench.read("IRQ") == 1
    assert bench.read("MAC_CYCLES") == 100
    cycles = bench.read("CYCLES")
    assert 100 < cycles < 1000
    assert bench.read("CYCLES_HI") == 0
    bench.write("IRQ", 1)
    assert bench.read("IRQ") == 0
    assert not bench.simulation.get("interrupt")


@pytest.mark.parametrize("seed", range(12))
def test_tasks_that_wait_for_each_other(text: str, seed: int) -> None:
    """A random chain of copies, with the counts that its bytes need and no others, equals one copy after the other."""
    chosen = random.Random(seed)
    bench = Bench(text, seed, (1, chosen.choice([1, 50, 300])), chosen.choice([0, 30, 128]))
    expected = bench.blobs.copy()
    slots, length = 24, 40
    touched: dict[int, list[tuple[str, int, bool]]] = {}
    counts = {"array": 0, "window": 0}
    chain = []
    for tag in range(chosen.choice([1, 5, 30])):
        engine = chosen.choice(["array", "window"])
        source, target = chosen.sample(range(slots), 2)
        after = {"array": 0, "window": 0}
        for slot, writes in ((source, False), (target, True)):
            for other, number, wrote in touched.get(slot, []):
                if writes or wrote:
                    after[other] = max(after[other], number)
        counts[engine] += 1
        touched.setdefault(source, []).append((engine, counts[engine], False))
        touched.setdefault(target, []).append((engine, counts[engine], True))
        words = chosen.randint(1, length)
        chain.append(copy(engine, source * 512, target * 512, words, tag, (after["array"], after["window"])))
        expected[target * 512 : target * 512 + 8 * words] = expected[source * 512 : source * 512 + 8 * words]
    bench.start(chain, at=64 * chosen.randrange(8))
    assert bench.accelerator.wait(200_000)
    assert np.array_equal(bench.blobs, expected)
    assert bench.read("DONE") == counts["array"] | counts["window"] << 16
    assert bench.status() == ["done"]


def test_a_second_chain_counts_from_zero(text: str) -> None:
    bench = Bench(text)
    for _ in range(2):
        bench.start([copy("window", 0, 512, 9), copy("array", 512, 1024, 9, 1, (0, 1)), copy("array", 0, 4096, 3, 2)])
        assert bench.accelerator.wait(2000)
        assert np.array_equal(bench.blobs[1024:1096], bench.blobs[:72])
        assert bench.read("DONE") == 1 << 16 | 2
        bench.write("IRQ", 3)


def test_an_empty_chain_is_done_at_once(text: str) -> None:
    bench = Bench(text)
    bench.start([])
    assert bench.accelerator.wait(100)
    assert bench.status() == ["done"]


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("unknown opcode", {"opcode": 77}),
        ("a value beyond the limits of its kind", {"batch": 257}),
        ("a value beyond the limits of its kind", {"kernel_h": 12}),
        ("a value beyond the limits of its kind", {"input_height": 0}),
        ("a value beyond the limits of its kind", {"shift": 41}),
        ("a value beyond the limits of its kind", {"stride_h": 0}),
        ("a value beyond the limits of its kind", {"kernel_w": 0}),
        ("a value beyond the limits of its kind", {"group": 0}),
        ("a value beyond the limits of its kind", {"tile_columns": 0}),
        ("bus error while reading", {"input": 0x7000_0000}),
        ("bus error while reading", {"weights": 0x7000_0000}),
        ("bus error while writing", {"output": 0x7000_0000}),
    ],
)
def test_what_cannot_be_run_stops_the_chain_with_its_tag(text: str, words: str, more: dict[str, int]) -> None:
    bench = Bench(text, 3, (20, 60), 20)
    good = [copy("array", 0, 512, 30, 0), copy("window", 0, 2048, 30, 1)]
    bench.start([*good, copy("array", 0, 1024, 30, 2, (1, 1), **more), copy("window", 0, 4096, 30, 3, (2, 1))])
    assert bench.accelerator.wait(5000)
    assert bench.status() == ["error"]
    assert bench.read("ERROR") == OVERLAY.registers.errors.index(words) | 2 << 16
    assert bench.read("IRQ") == 2
    before = bench.blobs.copy()
    bench.simulation.tick(1000)
    assert np.array_equal(bench.blobs, before)
    bench.write("CONTROL", 2)
    assert bench.status() == []
    bench.write("IRQ", 3)
    bench.start(good)
    assert bench.accelerator.wait(2000)
    assert bench.status() == ["done"]
    assert np.array_equal(bench.blobs[512:752], bench.blobs[:240])


def test_no_task_of_the_window_engine_is_wide(text: str) -> None:
    bench = Bench(text)
    bench.start([copy("array", 0, 512, 30, 0, wide=1), copy("window", 0, 2048, 30, 1, wide=1)])
    assert bench.accelerator.wait(5000)
    words = "a value beyond the limits of its kind"
    assert bench.read("ERROR") == OVERLAY.registers.errors.index(words) | 1 << 16


@pytest.mark.parametrize(
    ("words", "byte", "value"), [("descriptor of another version", 0, 99), ("address not aligned", 8, 4)]
)
def test_bytes_that_no_host_packs(text: str, words: str, byte: int, value: int) -> None:
    bench = Bench(text)
    wrong = bytearray(copy("array", 0, 512, 30, 0))
    wrong[byte] = value
    bench.start([bytes(wrong)])
    assert bench.accelerator.wait(1000)
    assert bench.read("ERROR") == OVERLAY.registers.errors.index(words)


@pytest.mark.parametrize("cycles", [1, 60, 150, 200, 333, 600])
def test_a_reset_stops_a_chain_at_any_time(text: str, cycles: int) -> None:
    bench = Bench(text, cycles, (5, 90), 50)
    chain = [copy(("array", "window")[i % 2], 0, 512 * i, 60, i) for i in range(1, 12)]
    bench.start(chain)
    bench.simulation.tick(cycles)
    bench.write("CONTROL", 2)
    for _ in range(2000):
        if "busy" not in bench.status():
            break
    assert bench.status() == []
    assert bench.read("DONE") == 0
    before = bench.blobs.copy()
    bench.simulation.tick(500)
    assert np.array_equal(bench.blobs, before)
    bench.start(chain)
    assert bench.accelerator.wait(20_000)
    assert bench.read("DONE") == 5 << 16 | 6 or bench.read("DONE") == 6 << 16 | 5


def test_a_reset_in_the_cycle_of_an_error_leaves_no_error(text: str) -> None:
    """A reset some cycles later, until it comes after the error: one of them is in its cycle."""
    for wait in range(80, 120):
        bench = Bench(text)
        bench.start([copy("array", 0, 512, 30, 7, opcode=77)])
        bench.simulation.tick(wait)
        late = bench.simulation.get("interrupt")
        bench.write("CONTROL", 2)
        bench.simulation.tick(300)
        assert (bench.status(), bench.read("ERROR")) == ([], 0), wait
        if late:
            break
    assert late and wait > 80


def test_dependencies_are_counted_as_stalls(text: str) -> None:
    bench = Bench(text)
    bench.start([copy("window", 0, 512, 60), copy("array", 512, 1024, 60, 1, (0, 1))])
    assert bench.accelerator.wait(2000)
    assert bench.read("STALL_DEPENDENCY") > 30
    assert bench.read("STALL_WEIGHTS") == bench.read("STALL_OUTPUT") == 0


# -- faults of memory ports


def tasks(count: int, words: int = 30) -> list[bytes]:
    """Copies of both engines in turns, of two bursts each, that read what nobody writes."""
    return [copy(("array", "window")[i % 2], 0, 512 * (i + 1), words, i) for i in range(count)]


def run_well(bench: Bench, chain: Sequence[bytes]) -> None:
    """Run a chain of ``tasks``: every word must be right."""
    bench.blobs[512:] = 0
    bench.write("IRQ", 3)
    bench.start(chain)
    assert bench.accelerator.wait(20_000)
    assert bench.status() == ["done"]
    for i in range(len(chain)):
        assert np.array_equal(bench.blobs[512 * (i + 1) :][:240], bench.blobs[:240])
    assert not any(channel.open for channel in bench.accelerator.channels.values())


@pytest.mark.parametrize("kind", ["slverr", "decerr"])
@pytest.mark.parametrize(
    ("channel", "after", "tag"),
    [
        ("m0_read", 0, 0),  # a descriptor
        *(("m1_read", burst, burst // 2 * 2) for burst in (0, 3, 11)),  # two bursts of each Task of the array
        *(("m2_read", burst, burst * 2) for burst in (0, 4)),  # one of each
        *(("m3_read", burst, burst // 2 * 2 + 1) for burst in (1, 6)),
        *(("m0_write", burst, burst // 2 * 2) for burst in (0, 7)),
        *(("m3_write", burst, burst // 2 * 2 + 1) for burst in (2, 11)),
    ],
)
def test_an_error_on_each_port_has_the_tag_of_its_task(
    text: str, kind: str, channel: str, after: int, tag: int
) -> None:
    bench = Bench(text, after, (20, 200), 20)
    chain = tasks(12)
    bench.accelerator.channels[channel].fail(kind, after)
    bench.start(chain)
    assert bench.accelerator.wait(20_000)
    assert bench.status() == ["error"]
    words = f"bus error while {'reading' if channel.endswith('read') else 'writing'}"
    assert bench.read("ERROR") == OVERLAY.registers.errors.index(words) | tag << 16
    assert not any(channel.open for channel in bench.accelerator.channels.values())  # what was begun has ended
    run_well(bench, chain)


@pytest.mark.parametrize("field", ["input", "weights", "output"])
def test_an_error_of_a_task_that_is_ahead_of_an_unfinished_one(text: str, field: str) -> None:
    """The one before it has still to write: the error is not its own."""
    bench = Bench(text, latency=(400, 400))
    bench.start([copy("array", 0, 0x4000, 900, 0), copy("array", 0, 512, 30, 1, **{field: 0x7000_0000})])
    assert bench.accelerator.wait(20_000)
    assert bench.read("DONE") == (field == "output")
    assert bench.read("ERROR") >> 16 == 1


@pytest.mark.parametrize("wait", [0, 70, 190, 240, 333, 410])
def test_a_reset_ends_all_bursts_first(text: str, wait: int) -> None:
    """Whatever is open at a reset: the engine is not ready again before, and the next chain is right."""
    bench = Bench(text, wait, (20, 200), 60)
    chain = tasks(12)
    bench.start(chain)
    bench.simulation.tick(wait)
    channels = bench.accelerator.channels.values()
    bench.write("CONTROL", 2)
    while bench.status() == ["busy"]:
        bench.simulation.tick()
    assert not any(channel.open for channel in channels)
    run_well(bench, chain)


def test_bursts_are_open_at_those_resets(text: str) -> None:
    bench = Bench(text, 190, (20, 200), 60)
    bench.start(tasks(12))
    bench.simulation.tick(190)
    assert sum(channel.open for channel in bench.accelerator.channels.values()) > 4


@pytest.mark.parametrize("kind", ["silent", "deaf"])
@pytest.mark.parametrize("channel", ["m0_read", "m1_read", "m2_read", "m3_read", "m0_write", "m3_write"])
def test_a_stuck_port_is_named_and_every_further_start_is_refused(text: str, kind: str, channel: str) -> None:
    bench = Bench(text, 1, (20, 60), 20)
    chain = tasks(4)
    bench.accelerator.channels[channel].fail(kind, 1)
    bench.start(chain)
    cycles = bench.accelerator.wait(4 * PATIENCE)
    assert PATIENCE < cycles < 2 * PATIENCE + 5000
    assert bench.status() == ["busy", "error"]
    cause = OVERLAY.registers.errors.index(f"memory port {channel[:2]} does not answer")
    error = bench.read("ERROR")
    assert error & 0xFF == cause
    for _ in range(2):
        bench.write("IRQ", 3)
        assert not bench.simulation.get("interrupt")
        bench.write("CONTROL", 2)  # a reset does not help
        bench.simulation.tick(100)
        bench.start(chain)
        assert bench.accelerator.wait(100)
        assert bench.status() == ["busy", "error"] and bench.read("ERROR") == error


@pytest.mark.slow  # another accelerator to compile
def test_an_ultrascale_copies_in_bursts_of_32_beats() -> None:
    """From an odd beat on, through ports with room for 8 bursts, and across pages."""
    bench = Bench(rtlil(accelerator(overlays.load("zcu104"))), 4, (150, 150))
    port = overlays.load("zcu104").memory_port
    assert port
    for name, channel in bench.accelerator.channels.items():
        channel.limit(port.reads if name.endswith("read") else port.writes)
    lengths = {name: bench.simulation.histogram(f"{name}len") for name in ("m1_read__ar", "m3_write__aw")}
    expected = bench.blobs[8 : 8 + 8 * 900].copy()
    bench.start([copy("array", 8, 0x4018, 900), copy("window", 0x4018, 0x8008, 900, 1, (1, 0))])
    cycles = bench.accelerator.wait(20_000)
    assert bench.status() == ["done"]
    assert np.array_equal(bench.blobs[0x8008 : 0x8008 + 8 * 900], expected)
    assert all(length[31] for length in lengths.values())
    assert 0 < cycles < 2 * (900 + 2 * 150 + 100) + 500  # a beat in nearly each cycle, at any latency
