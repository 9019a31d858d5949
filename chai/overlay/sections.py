"""Parts of an overlay's manifest: a record for each kind of object in ``overlay.json``."""

# annotations are types here, not texts, which typing would compile and ``dataclass_io`` evaluate at every start

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, gcd
from typing import Any, NamedTuple, TypeVar

BEAT = 8  # bytes of a word: 8 codes of a pixel, and a beat of a memory port of 64 bits
BURST = 32  # words of the longest burst: an UltraScale+'s, as many as 16 beats of 128 bits; others have shorter ones
PAGE = 4096  # bytes, at whose end a burst ends
RUN = 64  # beats that the window engine reads or writes in one piece, at most
ANSWER = 10  # cycles from a response to the first beat of the burst it makes room for: by 1 x 1 convolutions in the RTL
MEMORY_PORTS = "m0", "m1", "m2", "m3"  # of chai's own accelerator, which all read; ``Overlay.written_ports`` write, too
ARRAY = "array"  # the architecture of chai's own accelerator, which a manifest without the key describes
HOST_MODEL = "host_model"  # the section that ``host_model`` reads, when somebody asks for it
LIMITS, COST = "limits", "cost"  # what decides which layers run on an overlay: its limits alone, or a host model, too


class BoardModel(NamedTuple):
    """The usual name of a board, Vivado's name of its chip, and that of the file with the board's own settings."""

    name: str
    part: str
    board_file: str = ""


class FpgaResources(NamedTuple):
    """Resources of the part: DSP slices, RAMB36, URAM288."""

    dsp: int
    block_ram: int
    ultra_ram: int


class Array(NamedTuple):
    """``inputs`` x ``outputs`` channels for ``lanes`` pixels in each cycle.

    A DSP multiplies one input by two weights that are ``pack_shift`` bits apart; ``chain`` DSPs are summed before the two
    sums are separated.
    """

    inputs: int
    outputs: int
    lanes: int
    chain: int
    pack_shift: int


class Dsp(NamedTuple):
    """DSP slices used; ``logic``: of the array, those whose products are made of look-up tables instead, in whole chains."""

    array: int
    requant: int
    logic: int = 0


class Requant(NamedTuple):
    """Width of the unsigned multipliers in bits, largest shift in bits, results per cycle."""

    mult_bits: int
    shift_max: int
    lanes: int


class WindowRate(NamedTuple):
    """Bytes that the window engine reads and writes in each cycle: a word of each plane of those that go side by side.

    ``bands``: a descriptor may have some rows of its blobs.
    """

    read_bytes: int
    write_bytes: int
    bands: bool = False

    @property
    def planes(self) -> int:
        """Return the planes that go side by side."""
        return self.read_bytes // BEAT


class Overhead(NamedTuple):
    """Cycles that are spent without computing."""

    task_cycles: int
    tile_cycles: int


class PortSize(NamedTuple):
    """The accelerator's side of its memory ports: ``bytes`` of a beat.

    ``outputs``    ports to which the array writes its results
    ``constants``  ports through which weights and tables come
    ``window``     ports through which the window engine reads blobs
    """

    bytes: int = BEAT
    outputs: int = 1
    constants: int = 2
    window: int = 1

    @property
    def words(self) -> int:
        """Return the words of a beat."""
        return self.bytes // BEAT


NARROW = PortSize()  # those of a manifest that does not say


class ChannelLimits(NamedTuple):
    """Room of a channel of a memory port.

    ``bursts_min``, ``bursts_max``  bursts accepted before the first one has ended: of the longest ones, and of single beats
    ``issued``      accepted bursts that are in flight in memory at a time
    ``fifo_bytes``  bytes of data that it holds between memory and accelerator
    """

    bursts_min: int
    bursts_max: int
    issued: int
    fifo_bytes: int


class PortLimits(NamedTuple):
    """The processor's side of each memory port, and its memory.

    ``latency_cycles``  from an address to its first beat
    ``refresh_period``, ``refresh_cycles``  from one refresh to the next, and those of them in which memory moves nothing
    """

    latency_cycles: int
    refresh_period: int
    refresh_cycles: int
    reads: ChannelLimits
    writes: ChannelLimits

    @property
    def moving(self) -> float:
        """Return the share of cycles in which memory is not refreshed."""
        return 1 - self.refresh_cycles / self.refresh_period

    def rates(self, ports: PortSize, burst: int, run: float = RUN, step: int = 0) -> tuple[float, float]:
        """Return the words a cycle that a port reads and writes, in runs of so many words, cut into bursts of so many.

        Each run begins at a multiple of ``step`` words, 0 for whole bursts: then the end of a page is also that of a burst.
        If it is odd, every other run begins within a beat, which may take a burst more.

        As many bursts as have room are in flight; the next one begins when the first has ended. A read burst has all of its
        room in the FIFO before it is issued. A write burst is in the FIFO as a whole before it is issued, and the next
        one's address and first beat follow its response; those that wait for it come while memory is refreshed. A burst ends
        with its run and at each 4 KB.
        """
        bursts = (ceil(run / burst) + ceil((run + step % ports.words) / burst)) / 2
        words = run / (bursts + run * BEAT / PAGE * (1 - gcd(step, burst) / burst))  # of a burst
        beats = words / ports.words
        issued = self.latency_cycles + beats  # cycles from the address of a burst to its last beat
        reads = min(self.reads.bursts_min, self.reads.issued, self.reads.fifo_bytes // (burst * BEAT)) / issued
        writes = min(self.writes.bursts_min / (issued + beats + ANSWER), self.writes.issued / issued)
        return min(ports.words, words * reads) * self.moving, min(ports.words * self.moving, words * writes)


class OnChipBuffer(NamedTuple):
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


class OnChipBuffers(NamedTuple):
    """Buffers for input rows, weights, accumulators, and unfinished pooling windows."""

    input: OnChipBuffer
    weights: OnChipBuffer
    accumulators: OnChipBuffer
    pool: OnChipBuffer


@dataclass(frozen=True, eq=False)
class TaskLimits:
    """The limits of every kind of Task; each kind adds its own. Sizes are heights and widths in pixels.

    ``channel_step``  the first channel of a view that is read or written is a multiple of it
    ``lookup``        whether the codes of a Task may go through a table
    """

    opcode: int
    channels_max: int
    size_max: int
    channel_step: int
    lookup: bool = field(default=False, kw_only=True)

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


L = TypeVar("L", bound=TaskLimits)


class TaskSection(NamedTuple):
    """The manifest's section of one kind of Task: the names and values of its ``TaskLimits``."""

    kind: str
    limits: tuple[tuple[str, Any], ...]


class Layout(NamedTuple):
    """Layout of blobs in DDR, which only devices depend on; ``alignment`` is in bytes."""

    kind: str
    channels_per_word: int
    images_per_word: int
    alignment: int


class Bits(NamedTuple):
    """A part of a register."""

    name: str
    bit: int
    width: int


class Register(NamedTuple):
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
class RegisterMap:
    """Size of the AXI-Lite window in bytes, descriptions of the error causes, and the registers by name."""

    window: int
    errors: tuple[str, ...]
    list: tuple[Register, ...]

    def __getitem__(self, name: str) -> Register:
        return self._named[name]

    @cached_property
    def _named(self) -> dict[str, Register]:
        return {register.name: register for register in self.list}


@dataclass(frozen=True)
class BitField:
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
    def words(self) -> list[tuple[int, int]]:
        """Return (word, shift) for each of its words: shift it right, or left if negative, to align it with the value."""
        last = (self.position + self.width - 1) // 32
        return [(word, self.position - 32 * word) for word in range(self.word, last + 1)]

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
    fields: tuple[BitField, ...]

    @cached_property
    def values(self) -> dict[str, BitField]:
        """Return the fields that have a value in each record, by name: all but ``version``, which is the record's own."""
        return {field.name: field for field in self.fields if field.name != "version"}

    @cached_property
    def zeros(self) -> dict[str, int]:
        """Return 0 for each of ``values``."""
        return dict.fromkeys(self.values, 0)

    @cached_property
    def places(self) -> list[tuple[str, int, int, int, int]]:
        """Return name, lowest bit, mask, the value's bit that is a sign or 0, and multiple of each of ``values``."""
        return [
            (name, field.position, field.mask, (field.mask + 1 >> 1) * field.signed, field.multiple)
            for name, field in self.values.items()
        ]

    @cached_property
    def version_bits(self) -> int:
        """Return the version at its place in a record."""
        return next((self.version << field.position for field in self.fields if field.name == "version"), 0)

    @cached_property
    def version_mask(self) -> int:
        """Return a mask of the bits of ``version``."""
        return sum(field.mask << field.position for field in self.fields if field.name == "version")

    @cached_property
    def unused(self) -> int:
        """Return a mask of the bits that belong to no field."""
        return (1 << 8 * self.bytes) - 1 & ~sum(field.mask << field.position for field in self.fields)
