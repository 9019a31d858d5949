"""Pool: the maximum or the sum of each window of a plane, one word of the input a cycle.

Columns first: the last words of a row are in the taps of each channel, and a tree reduces those of a window. Then rows:
the windows of a column that the current row belongs to are in slots of the line memory, and the reduced row goes into all
of them at once. Four banks hold four slots of a column side by side; more take more cycles.
"""

from amaranth import Array, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..streams import later, levels_of
from .reduce import SUM, Bank, Taps, taps_of
from .scan import BANKS, STEP, Scan
from .unit import lanes_of, unit_ports


class Pool(wiring.Component):
    """Sums or maxima of the windows of one plane after the other.

    ``prepare``  begins a Task: 1 for a cycle, with the new ``task``
    ``sums``     the windows row by row, with ``valid``; ``soon`` is 1 in the cycle before
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.channels = lanes_of(overlay)
        self.ports = unit_ports(overlay)
        sums = data.ArrayLayout(SUM, self.channels)
        super().__init__(self.ports | {"prepare": In(1), "soon": Out(1), "sums": Out(sums)})

    def elaborate(self, platform: object) -> Module:
        """Return the scan, the taps of each channel and the banks, in the stages of a pipeline."""
        m = Module()
        m.submodules.scan = scan = Scan(self.overlay)
        average, most = self.task.average, taps_of(self.overlay)
        levels = levels_of(most)
        m.d.comb += [scan.task.eq(self.task), scan.start.eq(self.start), scan.room.eq(self.room)]
        m.d.comb += [scan.first.valid.eq(self.first.valid), self.first.ready.eq(scan.first.ready)]
        m.d.comb += scan.prepare.eq(self.prepare)
        for name in ("ready", "claim", "starved", "held", "works"):
            m.d.comb += getattr(self, name).eq(getattr(scan, name))

        # a step comes from the scan a cycle after its column enters the taps, and two before its row reaches a bank
        reads, late = scan.step, levels - STEP
        for i in range(late):
            reads = later(m, Value.cast(reads), f"step_{i}")
        reads = data.View(scan.step.shape(), Value.cast(reads))
        after = [reads.ends, reads.bank]
        for i in range(3):
            after = [later(m, value, f"{name}_{i}") for name, value in zip(("ends", "bank"), after)]
            if i == 1:
                m.d.comb += self.soon.eq(after[0])
        m.d.comb += self.valid.eq(after[0])

        rows = []
        # the column, a cycle later: it goes to many registers
        names = {"shift": scan.shift, "begins": scan.begins, "there": scan.there, "word": self.first.payload}
        shift, begins, there, word = (later(m, value, name) for name, value in names.items())
        for channel in range(self.channels):
            m.submodules[f"taps_{channel}"] = taps = Taps(most)
            m.d.comb += [
                taps.average.eq(average),
                taps.width.eq(self.task.kernel_w),
                taps.code.eq(word.word_select(channel, 8)),
                taps.shift.eq(shift),
                taps.begins.eq(begins),
                taps.there.eq(there),
            ]
            row = taps.row
            for i in range(-late):
                row = later(m, row, f"row_{channel}_{i}")
            rows.append(row)
        sums = []
        for i in range(BANKS):
            m.submodules[f"bank_{i}"] = bank = Bank(self.overlay.buffers.pool.depth // BANKS, self.channels, most)
            m.d.comb += [bank.average.eq(average), bank.step.eq(reads.slots[i])]
            m.d.comb += [signal.eq(row) for signal, row in zip(bank.row, rows)]
            sums.append(bank.sums.as_value())
        m.d.comb += self.sums.as_value().eq(Array(sums)[after[1]])
        return m
