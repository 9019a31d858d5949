"""The array of multipliers: in each cycle a pixel of ``inputs`` channels gives ``outputs`` sums, in each of the lanes.

A DSP multiplies an input by ``(w1 << shift) + w0`` and adds the result of the DSP before it in its chain. The lower
``shift`` bits of a chain's result are the sum of the products with w0, the next ones that with w1, less the borrow of a
negative lower sum. With weights within +-127 the sums of a chain fit (hw_overlays/README.md).

A manifest may have fewer DSPs than that (``dsp.logic``): then look-up tables make the sums of the last chains, which are there in
the same cycles.
"""

from collections.abc import Sequence

from amaranth import Module, signed
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..streams import later, product, register

CODE = signed(8)
Tap = tuple[Value, tuple[Value, Value]]  # a code, and the weights that it is multiplied by


def sum_latency(overlay: Overlay) -> int:
    """Return the cycles from ``codes`` to the ``sums`` they give: B and A/D, AD, M, P, the chain, halves, the tree."""
    array = overlay.array
    return 4 + (array.chain - 1) + 1 + (array.inputs // array.chain - 1).bit_length()


def sum_bits(overlay: Overlay) -> int:
    """Return the bits of a sum over all inputs: a chain's, and one for each level of the tree."""
    array = overlay.array
    return array.pack_shift + (array.inputs // array.chain - 1).bit_length()


def sums_layout(overlay: Overlay) -> data.ArrayLayout:
    """Return the layout of the sums of a pixel."""
    return data.ArrayLayout(signed(sum_bits(overlay)), overlay.array.outputs)


class Multipliers(wiring.Component):
    """The DSPs, the weights that they hold, and the trees that add up their chains.

    ``codes``    a pixel for each lane: lanes x inputs x int8
    ``row``      a word of the weight buffer: the weights of some inputs, for all outputs; with ``load`` they are kept as the
                 next ones of the inputs of word ``at``
    ``swap``     the next weights become those of these pixels and of the following ones
    ``sums``     of the pixels ``sum_latency`` cycles ago: lanes x outputs

    Input k of a chain works k cycles after the first one, and the inputs of word k are the k-th of chains. So a word of weights
    may be loaded from the cycle after ``swap`` on, if words come in order.
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay, array = overlay, overlay.array
        self.rows = overlay.weight_rows
        self.span = self.rows * array.chain  # neighbouring inputs that are those of as many chains as a word has inputs
        super().__init__(
            {
                "codes": In(data.ArrayLayout(data.ArrayLayout(CODE, array.inputs), array.lanes)),
                "row": In(data.ArrayLayout(data.ArrayLayout(CODE, array.outputs), self.rows)),
                "at": In(range(overlay.load_cycles)),
                "load": In(1),
                "swap": In(1),
                "sums": Out(data.ArrayLayout(sums_layout(overlay), array.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the next weights, which the lanes share, and the lanes."""
        m = Module()
        array = self.overlay.array
        held = [register(data.ArrayLayout(CODE, array.outputs), f"next_{i}") for i in range(array.inputs)]
        for i, weights in enumerate(held):
            with m.If(self.load & (self.at == i // self.rows)):
                m.d.sync += weights.eq(self.row[i % self.rows])
        swap = [self.swap]
        for k in range(1, array.chain):
            swap.append(later(m, swap[-1], f"swap_{k}"))
        for lane in range(array.lanes):
            self._lane(m, lane, held, swap)
        return m

    def _lane(self, m: Module, lane: int, held: list[Value], swap: list[Value]) -> None:
        """Add the chains of all pairs of outputs, and their trees."""
        array = self.overlay.array
        codes = [
            later(m, self.codes[lane][i], f"code_{lane}_{i}", i % self.span // self.rows) for i in range(array.inputs)
        ]
        chains = array.inputs // array.chain  # of a pair of outputs
        # chains of this lane that DSPs make: the first ones
        of_dsps = self.overlay.dsp.array // array.chain - lane * array.outputs // 2 * chains
        for pair in range(array.outputs // 2):
            sums = []
            for i in range(chains):
                first = i // self.rows * self.span + i % self.rows
                inputs = range(first, first + self.span, self.rows)
                taps = [(codes[k], (held[k][2 * pair], held[k][2 * pair + 1])) for k in inputs]
                make = self._chain if pair * chains + i < of_dsps else self._chain_in_logic
                sums.append(make(m, taps, swap, f"{lane}_{pair}_{inputs.start}"))
            for half, (values, name) in enumerate(zip(zip(*sums), ("low", "high"))):
                m.d.comb += self.sums[lane][2 * pair + half].eq(self._tree(m, [*values], f"{name}_{lane}_{pair}"))

    def _chain(self, m: Module, taps: Sequence[Tap], swap: Sequence[Value], name: str) -> tuple[Value, Value]:
        """Return the sums of a chain of DSPs, of the products with each of two weights."""
        shift, result = self.overlay.array.pack_shift, None
        for k, (code, weights) in enumerate(taps):
            result = self._dsp(m, code, weights, swap[k], result, f"{name}_{k}")
        low, high = register(signed(shift), f"low_{name}"), register(signed(shift), f"high_{name}")
        m.d.sync += [low.eq(result[:shift]), high.eq(result[shift : 2 * shift] + result[shift - 1])]
        return low, high

    def _chain_in_logic(self, m: Module, taps: Sequence[Tap], swap: Sequence[Value], name: str) -> tuple[Value, ...]:
        """Return the same sums of look-up tables: a product takes a cycle more than a DSP, and nothing follows the last one."""
        results: list[Value | None] = [None, None]
        for k, (code, weights) in enumerate(taps):
            b = later(m, code, f"b_{name}_{k}")
            for half, weight in enumerate(weights):
                a = register(CODE, f"a_{name}_{k}_{half}")
                with m.If(swap[k]):
                    m.d.sync += a.eq(weight)
                both = product(m, a, b, 2 * CODE.width, f"product_{name}_{k}_{half}")
                total, before = register(signed(self.overlay.array.pack_shift), f"sum_{name}_{k}_{half}"), results[half]
                m.d.sync += total.eq(both if before is None else before + both)
                results[half] = total
        return tuple(results)

    def _dsp(
        self, m: Module, code: Value, weights: tuple[Value, Value], swap: Value, carry: Value | None, name: str
    ) -> Value:
        """Add one DSP with registers A, D, AD, B (two), M, P, and return P."""
        shift = self.overlay.array.pack_shift
        bits = shift + 8 + 8 + 2  # of a chain's result
        a = register(CODE, f"a_{name}")
        d = register(CODE, f"d_{name}")
        both = register(signed(shift + 8), f"ad_{name}")  # weights are within +-127: 25 bits, as the DSP multiplies
        b1 = register(CODE, f"b1_{name}")
        b2 = register(CODE, f"b2_{name}")
        product = register(signed(shift + 16), f"m_{name}")
        p = register(signed(max(bits, 2 * shift)), f"p_{name}")
        with m.If(swap):
            m.d.sync += [d.eq(weights[0]), a.eq(weights[1])]
        m.d.sync += [
            b1.eq(code),
            both.eq((a << shift) + d),
            b2.eq(b1),
            product.eq(both * b2),
            p.eq(product if carry is None else carry + product),
        ]
        return p

    def _tree(self, m: Module, values: list[Value], name: str) -> Value:
        """Return the sum of values, a register after each level."""
        level = 0
        while len(values) > 1:
            pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
            values = []
            for i, pair in enumerate(pairs):
                total = register(signed(len(pair[0]) + 1), f"tree_{name}_{level}_{i}")
                m.d.sync += total.eq(sum(pair[1:], start=pair[0]))
                values.append(total)
            level += 1
        return values[0]
