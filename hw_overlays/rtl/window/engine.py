"""The window engine: ``fetch``, ``table``, ``compute`` and ``store`` side by side."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from chai.overlay import Overlay

from ..ports import INPUTS, Stall, window_ports
from ..resets import with_reset
from ..streams import later
from .compute import Compute
from .fetch import Fetch
from .store import Store
from .table import Table

KINDS = ("pool", "eltwise", "copy", "lrn", "upsample", "interleave", "depthwise")


class WindowEngine(wiring.Component):
    """Runs Tasks in order; one is fetched while the one before is computed and the one before that is written."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        super().__init__(window_ports(overlay))

    def elaborate(self, platform: object) -> Module:
        """Return the parts and their connections."""
        m = Module()
        limits = {section.kind: dict(section.limits) for section in self.overlay.tasks}
        unused = 1 << 8  # no descriptor has this opcode
        opcodes = {kind: limits[kind]["opcode"] if kind in limits else unused for kind in KINDS}
        fetch, table, store = Fetch(self.overlay, opcodes), Table(self.overlay), Store(self.overlay, opcodes)
        compute = Compute(self.overlay, opcodes, table.record.shape())
        for name, part in {"fetch": fetch, "table": table, "compute": compute, "store": store}.items():
            m.submodules[name] = with_reset(m, part, name)
        for name in INPUTS[: self.overlay.ports.window]:
            connect(m, flipped(getattr(self, name)), getattr(fetch, name))
        connect(m, flipped(self.output), store.output)
        connect(m, fetch.first, compute.first)
        connect(m, fetch.second, compute.second)
        # a Task is handed to compute and store together
        work, task = fetch.work, self.task
        m.d.comb += [
            fetch.task.valid.eq(task.valid),
            fetch.task.payload.eq(task.payload),
            task.ready.eq(fetch.task.ready),
            work.ready.eq(compute.task.ready & store.task.ready),
            compute.task.valid.eq(work.valid & store.task.ready),
            store.task.valid.eq(work.valid & compute.task.ready),
            compute.task.payload.eq(work.payload),
            store.task.payload.eq(work.payload),
            self.finished.eq(self.output.finished),
        ]
        segments = Signal()  # the table whose beats come is an LRN's
        is_lrn = later(m, fetch.now.opcode == opcodes["lrn"], "is_lrn")
        with m.If(fetch.begin):
            m.d.sync += segments.eq(is_lrn)
        m.d.comb += [
            compute.begin.eq(fetch.begin & is_lrn),
            compute.beat.eq(fetch.beat),
            compute.segment.eq(fetch.write & segments),
            table.begin.eq(fetch.begin & ~is_lrn),
            table.count.eq(fetch.count),
            table.keeps.eq(fetch.keeps),
            table.beat.eq(fetch.beat),
            table.write.eq(fetch.write & ~segments),
            table.claim.eq(compute.record_claim),
            table.read.eq(compute.read),
            fetch.freed.eq(table.freed),
            fetch.done_with.eq(compute.done_with),
            compute.entries.eq(fetch.entries),
            compute.there.eq(table.there),
            compute.two_there.eq(table.two_there),
            compute.record.eq(table.record),
            compute.room.eq(store.room),
            store.claim.eq(compute.claim),
            store.word.eq(compute.word),
            store.write.eq(compute.write),
        ]
        array_there, window_there = self.array_done >= fetch.now.after_array, self.window_done >= fetch.now.after_window
        m.d.sync += fetch.reached.eq(array_there & window_there)
        tasks = Signal(8)  # taken and not finished
        m.d.sync += tasks.eq(tasks + (task.valid & task.ready) - self.finished)
        # of two cycles before
        works, starved, unset = (later(m, getattr(compute, name), name) for name in ("works", "starved", "unset"))
        m.d.sync += [self.mac.eq(works), self.stall.eq(Stall.NONE)]
        with m.If(starved | (unset & fetch.waits)):
            m.d.sync += self.stall.eq(Mux(fetch.waits, Stall.DEPENDENCY, Stall.INPUT))
        with m.Elif(unset):
            m.d.sync += self.stall.eq(Stall.WEIGHTS)
        with m.Elif(~works & (tasks != 0)):  # or it waits until lanes, line memory or port are ready again
            m.d.sync += self.stall.eq(Stall.OUTPUT)
        return m
