"""Fetch a chain's descriptors, check them, and hand each to its engine."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from chai import tasks
from chai.overlay import Overlay
from chai.tasks.eltwise import OPERATIONS

from .descriptor import descriptor
from .ports import BEAT, ReadPort
from .streams import Queue, later, register

SETTLE = 6  # cycles from the last word of a descriptor until it is checked
AHEAD = 4  # descriptors in the queue of an engine
ENGINES = ("array", "window")
FIELDS = {  # of the descriptor, that a limit is for; any other limit is for the field of its name, or both axes of it
    "channels": ("input_channels", "output_channels"),
    "size": ("input_height", "input_width", "output_height", "output_width"),
    "group": ("group",),
    "local_size": ("kernel_h",),
    "factor": ("stride_h", "stride_w"),
    "pool_columns": ("pooled_width",),
    "columns": ("input_width",),
}
# of kinds without a window, or without a pooling after it, on the array
POINT = {"kernel_max": 1, "stride_max": 1, "pad_max": 0, "dilation_max": 1, "pool_kernel_max": 0, "pool_columns_max": 0}
MAY_BE_ZERO = ("pad_h", "pad_w", "shift", "lookup", "operation", "vector", "wide")
MAY_BE_ZERO += ("pool_kernel_h", "pool_kernel_w", "pooled_width")
# of loops of the array, that its kinds have no limits for: with 0 they would not end
LOOPS = ("kernel_h", "kernel_w", "stride_h", "stride_w", "group", "tile_rows", "tile_columns", "tiles")


class Fetch(Component):
    """Reads ``count`` descriptors from ``address`` when ``start`` is 1 for a cycle; ``fetched`` are in queues or engines.

    ``error`` is 1 for a cycle when one cannot be run: ``cause`` is a number in the manifest's errors, ``tag`` its own.
    It then stays still until it is reset.
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        layout = descriptor(overlay)
        super().__init__(
            {
                "memory": Out(ReadPort(overlay.address_bits)),
                "start": In(1),
                "address": In(overlay.address_bits),
                "count": In(32),
                "fetched": Out(32),
                "error": Out(1),
                "cause": Out(8),
                "tag": Out(16),
                **{engine: Out(stream.Signature(layout)) for engine in ENGINES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        overlay, memory = self.overlay, self.memory
        size = overlay.descriptor.bytes
        beats = size // BEAT
        layout = descriptor(overlay)
        bits = register(8 * size, "bits")
        task = data.View(layout, bits)
        address, left, beat = (
            register(self.address.shape(), "address"),
            register(32, "left"),
            register(range(beats), "beat"),
        )

        queues = {}
        for engine in ENGINES:
            queue = Queue(width=layout.size, depth=AHEAD)
            m.submodules[engine] = queues[engine] = queue
            out = getattr(self, engine)
            m.d.comb += [
                queue.w_data.eq(bits),
                out.payload.as_value().eq(queue.r_data),
                out.valid.eq(queue.r_rdy),
                queue.r_en.eq(out.ready),
            ]

        m.d.comb += [
            memory.request.payload.address.eq(address),
            memory.request.payload.beats.eq(beats),
            memory.request.payload.tag.eq(self.fetched),
            self.tag.eq(task.tag),
        ]
        m.d.sync += self.cause.eq(self._cause(m, task))
        right = later(m, self.cause == 0, "right")
        goes_to = {engine: later(m, self._goes_to(engine, task.opcode) & right, f"to_{engine}") for engine in ENGINES}
        some, settle = later(m, left != 0, "some"), Signal(range(SETTLE + 1))
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [address.eq(self.address), left.eq(self.count), self.fetched.eq(0)]
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += memory.request.valid.eq(some)
                with m.If(~some):
                    m.next = "IDLE"
                with m.Elif(memory.request.ready):
                    m.d.sync += [left.eq(left - 1), address.eq(address + size), beat.eq(0)]
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += memory.data.ready.eq(1)
                with m.If(memory.data.valid):
                    m.d.sync += [bits.eq(Cat(bits[8 * BEAT :], memory.data.payload)), beat.eq(beat + 1)]
                    with m.If(beat == beats - 1):
                        m.d.sync += settle.eq(SETTLE)
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += settle.eq(settle - 1)
                with m.If(settle == 0):
                    m.next = "PUSH"
            with m.State("PUSH"):
                for engine, queue in queues.items():
                    with m.If(goes_to[engine]):
                        m.d.comb += queue.w_en.eq(1)
                        with m.If(queue.w_rdy):
                            m.d.sync += self.fetched.eq(self.fetched + 1)
                            m.next = "ASK"
                with m.If(~right):
                    m.next = "ERROR"
            with m.State("ERROR"):
                m.d.comb += self.error.eq(1)
                m.next = "STUCK"
            with m.State("STUCK"):
                pass
        return m

    def _goes_to(self, engine: str, opcode: Value) -> Value:
        """Return whether an opcode is that of a kind of Task that the engine runs."""
        return Cat(opcode == number for kind, number in self._opcodes() if kind.engine == engine).any()

    def _opcodes(self) -> Iterator[tuple[type[tasks.Task], int]]:
        for name in self.overlay.kinds:
            kind = tasks.find(name)
            limits = kind.limits(self.overlay)
            assert limits is not None
            yield kind, limits.opcode

    def _cause(self, m: Module, task: data.View) -> Value:
        """Return the number of what is wrong with a descriptor, 0 if nothing is, with ``SETTLE`` - 2 registers before it."""
        record = self.overlay.descriptor
        crooked = [task[field.name] & (field.multiple - 1) != 0 for field in record.fields if field.multiple > 1]
        known = Cat(self._goes_to(engine, task.opcode) for engine in ENGINES).any()
        large = Cat((task.opcode == opcode) & self._beyond(m, task, kind) for kind, opcode in self._opcodes())
        first = 0
        for words, wrong in [
            ("address not aligned", later(m, Cat(crooked).any(), "crooked")),
            ("a value beyond the limits of its kind", later(m, large, "large").any()),
            ("unknown opcode", later(m, ~known, "unknown")),
            ("descriptor of another version", later(m, task.version != record.version, "other_version")),
        ]:
            first = Mux(wrong, self.overlay.registers.errors.index(words), first)
        return first

    def _beyond(self, m: Module, task: data.View, kind: type[tasks.Task]) -> Value:
        """Return whether a value of a descriptor is beyond a limit of its kind, or a size or a step is 0; two registers later."""
        limits = vars(kind.limits(self.overlay))
        largest: dict[str, ValueLike] = {"shift": self.overlay.requant.shift_max, "batch": self.overlay.batch_max}
        counts: set[str] = set()
        if kind.engine == "array":
            limits = POINT | limits
            pixels = self.overlay.buffers.accumulators.depth * self.overlay.array.lanes
            largest |= dict.fromkeys(("tile_rows", "tile_columns"), pixels)
            counts.update(LOOPS)
        for name, limit in limits.items():
            if name.endswith("_max") and name != "global_max":
                what = name.removesuffix("_max")
                largest |= dict.fromkeys(FIELDS.get(what, (f"{what}_h", f"{what}_w")), limit)
        if "global_max" in limits:
            sides = ("kernel_h", "kernel_w")
            covers = Cat(
                task.kernel_h == task.input_height, task.kernel_w == task.input_width, task.pad_h == 0, task.pad_w == 0
            )
            most = Mux(later(m, covers.all(), f"covers_{kind.kind}"), limits["global_max"], limits["kernel_max"])
            largest |= dict.fromkeys(sides, later(m, most, f"most_{kind.kind}"))
        if "factor_max" in limits:
            counts.add("tiles")
        largest = {name: limit for name, limit in largest.items() if name in self.overlay.descriptor.values}
        most = {"lookup": limits["lookup"], "wide": kind.engine == "array" and self.overlay.wide_bits is not None}
        if "operations" in limits:
            most |= {"operation": max(map(OPERATIONS.index, limits["operations"])), "vector": limits["vector"]}
        largest |= {name: limit for name, limit in most.items() if name in self.overlay.descriptor.values}
        beyond = [task[field] > limit for field, limit in largest.items()]
        zeros = [task[field] == 0 for field in sorted(counts.union(largest).difference(MAY_BE_ZERO))]
        return later(m, Cat(*beyond, *zeros), f"beyond_{kind.kind}").any()
