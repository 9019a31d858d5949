"""What the array engine must know of a Task: fields of its descriptor, and what follows from them.

The input ring is a row of words (of ``array.inputs`` channels of a pixel) after the other, and each row has the words of
all blocks of inputs. An address in it is linear: row y of image n is ``(n * height + y) * row_words`` after the first,
whether it is loaded or not, modulo the depth. Rows of padding above the first image have negative addresses.
"""

from functools import reduce
from operator import or_

from amaranth import Module, Mux, Signal, signed, unsigned
from amaranth.hdl import Shape, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import descriptor
from ..ports import log2
from ..requantise import RULE
from ..streams import later, levels, product, register

WORDS = 26  # bits of a distance in an image, in words or pixels: 4095 rows of up to 8192
SIDE = 14  # bits of a row or column, with padding and sign

# of the descriptor, as they are
FIELDS = (
    *("input", "input_pitch", "input_image", "output", "output_pitch", "output_image", "weights", "table"),
    *("input_height", "input_width", "output_height", "output_width", "tile_rows", "tile_columns", "tiles", "batch"),
    *("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w"),
    *("after_array", "after_window", "input_zero", "tag", "output_channels", "lookup"),
    *("pooled_width", "pool_kernel_h", "pool_kernel_w", "pool_stride_h", "pool_stride_w"),
    *("pool_pad_h", "pool_pad_w", "pool_over_h", "pool_over_w"),
    *("input_row", "output_row"),
)

# (name, bits, factor, factor) in the order in which one multiplier computes them
PRODUCTS = (
    ("taps", 16, "kernel_h", "kernel_w"),
    ("all_blocks", 13, "groups", "blocks"),
    ("row_words", 16, "input_width", "all_blocks"),
    ("group_words", 16, "input_width", "blocks"),
    ("passes", 24, "taps", "blocks"),
    ("runs", 24, "batch", "tiles"),
    ("reach", 12, "below", "dilation_h"),  # rows from the first to the last of a window
    ("tile_step", 16, "tile_rows", "stride_h"),  # rows from tile to tile
    ("tile_width", 16, "tile_columns", "stride_w"),  # columns from tile to tile
    ("output_step", WORDS, "tile_rows", "output_columns"),
    ("row_step", 16, "stride_h", "row_words"),
    ("tap_step", 16, "dilation_h", "row_words"),
    ("pad_pixels", WORDS, "pad_h", "columns"),  # of the blob, of which a strip has some
    ("step_pixels", WORDS, "tile_step", "columns"),
    ("tile_pixels", WORDS, "tile_height", "columns"),
    ("image_pixels", WORDS, "input_height", "columns"),
    ("pad_words", WORDS, "pad_h", "row_words"),
    ("step_words", WORDS, "tile_step", "row_words"),
    ("tile_words", WORDS, "tile_height", "row_words"),
    ("image_words", WORDS, "input_height", "row_words"),
)


def plan(overlay: Overlay) -> wiring.Signature:
    """Return the signature of a plan: ``FIELDS``, ``PRODUCTS``, and the following.

    ``rule``        of requantisation
    ``depthwise``   one input and one output channel per group: computed as one group on the array's diagonal
    ``groups``, ``inputs``, ``outputs``  groups as computed, and the channels of each
    ``planes``, ``blocks``  of a group's inputs
    ``outside``, ``between``  whether blocks of outputs are the outer loop: of all images, of each image
    ``keep``        weights are used several times and stay in their ring
    ``shares``, ``shared``  they stay there for the next Task, which has the same; they are there, of the Task before it
    ``strip``       rows of the input are apart in memory: by ``input_row`` pixels
    ``pooled``      codes are pooled before they are written: rows of a tile are no step in the output
    """
    fields = {f.name: Shape(f.width, f.signed) for f in overlay.descriptor.fields}
    members = {name: fields.get(name, unsigned(1)) for name in FIELDS}
    members |= {name: unsigned(bits) for name, bits, *_ in PRODUCTS}
    members |= {"rule": RULE, "depthwise": 1, "groups": 16, "inputs": 16, "outputs": 16, "planes": 13, "blocks": 13}
    members |= {"outside": 1, "between": 1, "keep": 1, "shares": 1, "shared": 1, "strip": 1, "pooled": 1}
    return wiring.Signature({name: Out(shape) for name, shape in members.items()})


class Planner(wiring.Component):
    """Plans from descriptors, about 140 cycles each, 156 with groups: one multiplier, and a divider for groups.

    ``plan``, ``valid``, ``ready``  the plan stays until it is taken
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        super().__init__(
            {
                "task": In(stream.Signature(descriptor(overlay))),
                "plan": Out(plan(overlay)),
                "valid": Out(1),
                "ready": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the divider, the multiplier, and what follows from their results."""
        m = Module()
        task = register(self.task.payload.shape(), "task")
        plan = self.plan
        products = {name: register(bits, name) for name, bits, *_ in PRODUCTS}
        m.d.comb += [getattr(plan, name).eq(product) for name, product in products.items()]
        fields = {f.name for f in self.overlay.descriptor.fields}
        m.d.comb += [getattr(plan, name).eq(task[name]) for name in FIELDS if name in fields]
        m.d.comb += [plan.pooled.eq(plan.pooled_width.any()), plan.strip.eq(plan.input_row.any())]
        with m.If(plan.pooled):
            m.d.comb += plan.output_step.eq(0)
        m.d.comb += [plan.rule[name].eq(task[name]) for name in ("shift", "leaky", "low", "high")]
        if self.overlay.wide_bits is not None:
            m.d.comb += plan.rule.wide.eq(task.wide)
        if self.overlay.unsigned:
            m.d.comb += plan.rule.zero.eq(task.output_zero)
        shared = Signal()  # the weights of this Task are there, since the one before it shares them
        m.d.comb += [plan.shares.eq(task.shares & (task.stays == 3)), plan.shared.eq(shared)]
        inputs, outputs = self._groups(m, task)
        self._stays(m, task, products)

        below = later(m, (task.kernel_h - 1)[:8], "below")
        rest = later(m, products["reach"] - task.stride_h + 1, "rest")
        height = later(m, (products["tile_step"] + rest)[:16], "height")
        groups, blocks = later(m, plan.groups, "groups_later"), later(m, plan.blocks, "blocks_later")
        own = {"groups": groups, "blocks": blocks, "below": below, "tile_height": height}
        for name, row, width in (
            ("columns", "input_row", "input_width"),
            ("output_columns", "output_row", "output_width"),
        ):
            own[name] = later(m, Mux(plan.strip, getattr(plan, row), task[width]), name)
        factors = own | products
        a, b = register(16, "a"), register(16, "b")
        steps = register(len(PRODUCTS), "steps")  # one is 1
        result, settle = product(m, a, b, 32, "product"), register(range(levels(b) + 1), "settle")
        for factor, names in zip((a, b), zip(*(pair for _, _, *pair in PRODUCTS))):
            values = (factors[name] if name in factors else task[name] for name in names)
            m.d.sync += factor.eq(reduce(or_, (Mux(step, value, 0) for step, value in zip(steps, values))))

        count = register(range(16), "count")
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.task.ready.eq(1)
                m.d.sync += [task.eq(self.task.payload), count.eq(15), steps.eq(1)]
                with m.If(self.task.valid):
                    m.next = "START"
            with m.State("START"):
                for quotient, rest, channels in inputs, outputs:
                    m.d.sync += [quotient.eq(channels), rest.eq(0)]
                m.next = "FACTORS"
                with m.If((task.group > 1) & ~plan.depthwise):
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):
                for quotient, rest, _ in inputs, outputs:
                    divide(m, quotient, rest, task.group)
                m.d.sync += count.eq(count - 1)
                with m.If(count == 0):
                    m.next = "FACTORS"
            with m.State("FACTORS"):
                m.d.sync += settle.eq(levels(b))
                m.next = "PRODUCT"
            with m.State("PRODUCT"):
                m.d.sync += settle.eq(settle - 1)
                for step, (name, *_) in zip(steps, PRODUCTS):
                    with m.If(step):
                        m.d.sync += products[name].eq(result)
                with m.If(settle == 0):
                    m.d.sync += steps.eq(steps << 1)
                    m.next = "FACTORS"  # which may rest on this product
                    with m.If(steps[-1]):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.valid.eq(1)
                with m.If(self.ready):
                    m.d.sync += shared.eq(plan.shares)
                    m.next = "IDLE"
        return m

    def _groups(self, m: Module, task: data.View) -> list[tuple[Signal, Signal, Value]]:
        """Return (quotient, rest, dividend) of inputs and outputs, and set what follows from the quotients."""
        array, step = self.overlay.array, self.overlay.layout.channels_per_word
        plan = self.plan
        inputs = register(16, "inputs"), register(17, "inputs_rest"), task.input_channels
        outputs = register(16, "outputs"), register(17, "outputs_rest"), task.output_channels
        m.d.comb += [
            plan.depthwise.eq((task.group == task.input_channels) & (task.group == task.output_channels)),
            plan.groups.eq(Mux(plan.depthwise, 1, task.group)),
            plan.inputs.eq(inputs[0]),
            plan.outputs.eq(outputs[0]),
            plan.planes.eq((plan.inputs + (step - 1)) >> log2(step)),
            plan.blocks.eq((plan.inputs + (array.inputs - 1)) >> log2(array.inputs)),
        ]
        return [inputs, outputs]

    def _stays(self, m: Module, task: data.View, products: dict[str, Signal]) -> None:
        plan, weights = self.plan, self.overlay.buffers.weights
        words = weights.depth * weights.banks
        fits = Signal()  # what is used again: all weights, or those of a block of outputs
        m.d.comb += [
            plan.between.eq(task.stays == 1),
            plan.outside.eq(task.stays == 2),
        ]
        with m.If(plan.depthwise):
            m.d.comb += fits.eq(Mux(task.stays == 3, products["passes"], products["taps"]) <= words)
        with m.Else():
            m.d.comb += fits.eq((task.stays == 3) | (products["passes"] <= words // self.overlay.load_cycles))
        again = Mux(plan.between, task.tiles > 1, products["runs"] > 1)
        # known long before the last products are
        m.d.comb += plan.keep.eq(later(m, task.stays.any() & later(m, fits, "fits") & later(m, again, "again"), "keep"))


def divide(m: Module, quotient: Signal, rest: Signal, divisor: Value) -> None:
    """Add one step of a division: the dividend, in ``quotient``, moves bit by bit into ``rest``."""
    tried = Signal(len(rest), name=f"{quotient.name}_tried")
    less = Signal(signed(len(rest) + 1), name=f"{quotient.name}_less")
    m.d.comb += [tried.eq((rest << 1) | quotient[-1]), less.eq(tried - divisor)]
    m.d.sync += [rest.eq(Mux(less < 0, tried, less)), quotient.eq((quotient << 1) | (less >= 0))]
