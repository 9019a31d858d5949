"""Signatures between the parts of the accelerator: memory ports and engines.

Every signature is seen from the part that asks: an engine's memory port is ``Out(ReadPort(...))``. A stream transfers its
payload in each cycle in which ``valid`` and ``ready`` are both 1; ``valid`` never waits for ``ready``, and a payload that
is offered stays until it is taken.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out, Signature

from chai.overlay import Overlay

from .descriptor import descriptor

BEAT = 8  # bytes of a word, and of a beat of a port that is one word wide
BEATS_BITS = 16  # of the length of a request
TAG = 16  # bits of a descriptor's tag
CONSTANTS = "constants", "constants_too", "constants_three"  # of the array engine
INPUTS = "input", "input_too"  # of the window engine


class Stall(enum.Enum, shape=3):
    """Why an engine with a Task does not compute in a cycle; NONE if it computes or has no Task."""

    NONE = 0
    WEIGHTS = 1
    INPUT = 2
    ACCUMULATORS = 3
    DEPENDENCY = 4
    OUTPUT = 5


def log2(number: int) -> int:
    """Return the exponent of a power of two. Raises ValueError for other numbers."""
    if number < 1 or number & (number - 1):
        raise ValueError(f"{number} is no power of two")
    return number.bit_length() - 1


def result_words(overlay: Overlay) -> int:
    """Return the words of the array's WritePort: single ones, unless several planes leave it together."""
    return overlay.ports.words if overlay.planes_at_once > 1 else 1


class ReadPort(Signature):
    """A port that reads runs of words of 8 bytes, ``words`` of them at a time.

    ``request``  byte address (a multiple of 8) and number of words (``beats``), at least 1; a run may cross any boundary.
                 ``tag`` is that of the Task, for an error
    ``data``     the words of all requests in order, any latency; each run begins with a new group, of which only the last
                 one may have fewer words. A group that is not taken holds up the later ones
    """

    def __init__(self, bits: int = 32, words: int = 1) -> None:
        self.words = words
        self.request = data.StructLayout({"address": unsigned(bits), "beats": unsigned(BEATS_BITS), "tag": TAG})
        group = stream.Signature(unsigned(8 * BEAT * words))
        super().__init__({"request": Out(stream.Signature(self.request)), "data": In(group)})


class WritePort(Signature):
    """A port that writes runs of words of 8 bytes, in beats of ``words``.

    ``request``   as of a ReadPort; ``last`` marks the last run of a Task
    ``data``      the beats of all requests in order, as they are in memory: the first and the last one of a run may have
                  words that are not of it, which are not written. They may come before, with or after their request
    ``finished``  1 for one cycle when the write responses of a run with ``last`` and of all before it have arrived
    """

    def __init__(self, bits: int = 32, words: int = 1) -> None:
        self.words = words
        self.request = data.StructLayout(
            {"address": unsigned(bits), "beats": unsigned(BEATS_BITS), "last": 1, "tag": TAG}
        )
        super().__init__(
            {
                "request": Out(stream.Signature(self.request)),
                "data": Out(stream.Signature(unsigned(8 * BEAT * words))),
                "finished": In(1),
            }
        )


def engine_ports(overlay: Overlay) -> dict[str, object]:
    """Return the members of an engine's signature apart from its memory ports.

    ``task``         descriptors, checked and in order; one may be taken while earlier ones still run
    ``array_done``   Tasks that the array has finished since the start of the chain. An engine compares them with
                     ``after_array`` before it reads or writes a blob; weights and tables may be read earlier
    ``window_done``  the same of the window engine
    ``finished``     1 for one cycle at the end of each Task, when its last write response has arrived
    ``mac``          1 in each cycle in which it computes
    ``stall``        the reason in each cycle in which it has a Task and does not compute
    """
    return {
        "task": In(stream.Signature(descriptor(overlay))),
        "array_done": In(16),
        "window_done": In(16),
        "finished": Out(1),
        "mac": Out(1),
        "stall": Out(Stall),
    }


def array_ports(overlay: Overlay) -> dict[str, object]:
    """Return the members of the array engine's signature.

    ``CONSTANTS``  read weights and tables (ports 0, 1 and 2), as many as ``ports`` says
    ``even``       reads input planes 0, 2, ... of each word of the array's inputs (port 1)
    ``odd``        reads the others (port 2); not there if a word is one plane
    ``output``     writes results (port 0)
    ``output_too`` writes every other plane of those that leave it together (port 2); only there if ``ports`` says so
    """
    bits, words = overlay.address_bits, overlay.ports.words
    planes = overlay.array.inputs // overlay.layout.channels_per_word
    odd = {"odd": Out(ReadPort(bits, words))} if planes > 1 else {}
    write = WritePort(bits, result_words(overlay))
    return engine_ports(overlay) | {
        **{name: Out(ReadPort(bits, words)) for name in CONSTANTS[: overlay.ports.constants]},
        "even": Out(ReadPort(bits, words)),
        **odd,
        **{name: Out(write) for name in ("output", "output_too")[: overlay.ports.outputs]},
    }


def window_ports(overlay: Overlay) -> dict[str, object]:
    """Return the members of the window engine's signature.

    ``INPUTS``  read blobs and tables (port 3), and second inputs (port 2) if ``ports`` says so; ``output`` writes (port 3)
    """
    bits = overlay.address_bits
    inputs = {name: Out(ReadPort(bits, overlay.ports.words)) for name in INPUTS[: overlay.ports.window]}
    return engine_ports(overlay) | {**inputs, "output": Out(WritePort(bits))}
