"""Random Tasks of the window engine, and their memory: everything that a descriptor can vary, noise in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from chai.codegen.dependencies import NONE, Finished
from chai.codegen.encoding import encode
from chai.devices.rtlsim.simulation import Simulation
from chai.fixed import Requantization
from chai.hw_overlays.rtl.ports import INPUTS
from chai.overlay import Overlay
from chai.overlay.layout import DeviceBlob, Placed, blob_bytes
from chai.tasks import Task
from chai.tasks.copy import Copy
from chai.tasks.depthwise import NARROW, Depthwise
from chai.tasks.eltwise import Eltwise
from chai.tasks.fields import Operands
from chai.tasks.interleave import Interleave
from chai.tasks.lrn import LRNTask
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from tests.tasks.common import joined
from tests.tasks.lrns import random_case

BASE = 0x1000_0000
SIZE = 1 << 20
ZEROS = 0, -128


@dataclass
class Case:
    """A Task, the shapes of its blobs, and of the larger blobs that they may be planes of: (channels, first channel)."""

    task: Task
    shapes: dict[str, tuple[int, ...]]
    around: dict[str, tuple[int, int]]
    after: Finished = NONE  # Tasks that must have finished


def shifts(random: Random, overlay: Overlay) -> int:
    return random.choice([0, 1, random.randint(2, 24), overlay.requant.shift_max])


def clamp(random: Random, zero: int) -> tuple[int, int]:
    return random.choice([(-128, 127), (zero, 127), (-32, 31), (zero, zero + 63)])


def images(random: Random, overlay: Overlay) -> tuple[int, int]:
    """A batch and channels: seldom whole planes."""
    return random.choice([1, 1, 2, 3]), random.choice([3, 8, random.randint(1, 30 * overlay.window.planes)])


def larger(random: Random, shape: tuple[int, ...], step: int) -> tuple[int, int]:
    """Channels of a blob that has this one somewhere inside, and its first channel there."""
    if random.random() < 0.5:
        return shape[1], 0
    first = step * random.randint(0, 2)
    return first + shape[1] + random.randint(0, 2 * step), first


def pool(random: Random, overlay: Overlay) -> Case:
    """A maximum or average over windows with Caffe's geometry: every window has a pixel of the image."""
    most = next(dict(s.limits)["kernel_max"] for s in overlay.tasks if s.kind == "pool")
    average, zero, target = random.random() < 0.6, random.choice(ZEROS), random.choice(ZEROS)
    batch, channels = images(random, overlay)
    sizes, out = [], []
    if random.random() < 0.2:
        sizes = [random.choice([7, random.randint(1, 24)]) for _ in range(2)]
        window, out = Window((sizes[0], sizes[1]), (1, 1), (0, 0)), [1, 1]
    else:
        kernel, stride, pad = [], [], []
        for _ in range(2):
            kernel.append(random.choice([2, 3, random.randint(1, most)]))
            stride.append(random.choice([1, 2, 2, random.randint(1, most)]))
            pad.append(random.randint(0, min(kernel[-1] - 1, 14)))
            least = max(1, kernel[-1] - 2 * pad[-1])
            sizes.append(random.randint(least, least + random.choice([2, 16])))
            up = random.choice([0, stride[-1] - 1])
            count = (sizes[-1] + 2 * pad[-1] - kernel[-1] + up) // stride[-1] + 1
            while (count - 1) * stride[-1] - pad[-1] >= sizes[-1]:
                count -= 1
            out.append(count)
        window = Window((kernel[0], kernel[1]), (stride[0], stride[1]), (pad[0], pad[1]))
    r = None
    if average:
        r = Requantization(
            multipliers(random, overlay, (out[0], out[1])),
            shifts(random, overlay),
            *clamp(random, target),
            multipliers(random, overlay, (out[0], out[1])) if random.random() < 0.2 else None,
            target,
        )
    shapes = {"x": (batch, channels, *sizes), "y": (batch, channels, *out)}
    task = Pool(("x",), "y", ("pool",), window, (out[0], out[1]), r, zero if average else 0)
    step = overlay.layout.channels_per_word
    return Case(task, shapes, {name: larger(random, shape, step) for name, shape in shapes.items()})


def multipliers(random: Random, overlay: Overlay, shape: tuple[int, int]) -> np.ndarray:
    bits = random.choice([overlay.requant.mult_bits, 9, 3])
    return np.array([[random.randrange(1 << bits) for _ in range(shape[1])] for _ in range(shape[0])], np.int64)


def factor(random: Random, overlay: Overlay) -> int:
    bits = overlay.requant.mult_bits
    return random.choice(
        [random.randrange(-1 << bits, 1 << bits), random.randrange(-40, 41), 1 << random.randrange(bits)]
    )


def depthwise(random: Random, overlay: Overlay) -> Case:
    """Filters of 3 x 3 over images of at least so many columns as the unit needs, with all paddings and strides."""
    batch, channels = images(random, overlay)
    numbers, zero, target = np.random.default_rng(random.randrange(1 << 30)), random.choice(ZEROS), random.choice(ZEROS)
    stride, pad = (
        [random.choice([1, 1, 2, random.randint(1, 4)]) for _ in range(2)],
        [random.randint(0, 2) for _ in range(2)],
    )
    size = random.randint(max(1, 3 - 2 * pad[0]), 14), random.randint(NARROW, random.choice([9, 40]))
    window = Window((3, 3), (stride[0], stride[1]), (pad[0], pad[1]))
    one = channels, 1, 1
    r = Requantization(
        numbers.integers(0, 1 << random.choice([overlay.requant.mult_bits, 9]), one),
        shifts(random, overlay),
        *clamp(random, target),
        numbers.integers(-1 << 9, 1 << 9, one) if random.random() < 0.3 else None,
        target,
    )
    weights = numbers.integers(-127, 128, (channels, 1, 3, 3)).astype(np.int8)
    bias = numbers.integers(-1 << random.choice([4, 12, 22]), 1 << 22, channels)
    task = Depthwise(("x",), "y", ("filters",), weights, bias, window, channels, r, zero)
    shapes = {"x": (batch, channels, *size), "y": (batch, channels, *window.sizes(size))}
    step = overlay.layout.channels_per_word
    return Case(task, shapes, {name: larger(random, shape, step) for name, shape in shapes.items()})


def eltwise(random: Random, overlay: Overlay) -> Case:
    batch, channels = images(random, overlay)
    shape = batch, channels, random.randint(1, 12), random.randint(1, 12)
    zero = random.choice(ZEROS)
    factors, negative = ((factor(random, overlay), factor(random, overlay)) for _ in range(2))
    r = Requantization(np.array(1), shifts(random, overlay), *clamp(random, zero), zero=zero)
    zeros = random.choice(ZEROS), random.choice(ZEROS)
    task = Eltwise(("x", "z"), "y", ("sum",), factors, negative if random.random() < 0.5 else None, r, zeros)
    step = overlay.layout.channels_per_word
    around = {"y": larger(random, shape, step), "x": larger(random, shape, step), "z": larger(random, shape, step)}
    return Case(task, dict.fromkeys(("x", "z", "y"), shape), around)


def pair(random: Random, overlay: Overlay) -> Case:
    """A product or a maximum of two blobs, or anything of a blob and a vector."""
    case = eltwise(random, overlay)
    task, shape = case.task, case.shapes["x"]
    assert isinstance(task, Eltwise)
    operation = random.choice(["SUM", "PROD", "PROD", "MAX", "MAX"])
    if operation != "SUM":
        task = replace(task, operation=operation, negative=None)
    if operation == "PROD":
        task = replace(task, factors=task.factors[:1])
    around = dict(case.around)
    if vector := operation == "SUM" or random.random() < 0.6:
        task = replace(task, vector=True)
        around["z"] = larger(random, (*shape[:2], 1, 1), overlay.layout.channels_per_word)
    return Case(task, {**case.shapes, "z": (*shape[:2], 1, 1) if vector else shape}, around)


def upsample(random: Random, overlay: Overlay) -> Case:
    """Copies of pixels, or zeros around them; at times more than a run of words in a row."""
    batch, channels = images(random, overlay)
    most = next(dict(s.limits)["factor_max"] for s in overlay.tasks if s.kind == "upsample")
    factors = random.choice([(2, 2), (random.randint(1, most), random.randint(1, most))])
    shape = batch, channels, random.randint(1, 6), random.choice([random.randint(1, 12), random.randint(60, 140)])
    if shape[3] > 12:
        batch, channels, factors = 1, 3, (2, 2)
        shape = batch, channels, 2, shape[3]
    spread = random.random() < 0.5
    zero, r = random.choice(ZEROS), None
    if random.random() < 0.4:
        target = random.choice(ZEROS)
        numbers = shifts(random, overlay), *clamp(random, target)
        r = Requantization(np.array(factor(random, overlay)), *numbers, zero=target)
    task = UpsampleTask(("x",), "y", ("upsample",), factors, spread, r, zero if spread or r is not None else 0)
    shapes = {"x": shape, "y": (*shape[:2], shape[2] * factors[0], shape[3] * factors[1])}
    step = overlay.layout.channels_per_word
    return Case(task, shapes, {name: larger(random, shape, step) for name, shape in shapes.items()})


def interleave(random: Random, overlay: Overlay) -> Case:
    """Parts of one word or more, with others in between or none; at times more than a run of words in a row."""
    step = overlay.layout.channels_per_word
    most = next(dict(s.limits)["factor_max"] for s in overlay.tasks if s.kind == "interleave")
    rows, apart = random.choice([1, 2, 2, random.randint(1, most)]), step * random.randint(1, 3)
    batch, channels = random.choice([1, 1, 2, 3]), random.randint(1, apart)
    height, width = random.randint(1, 6), random.randint(1, 12)
    if random.random() < 0.3:
        batch, rows, height, width = 1, 2, 2, random.randint(60, 140)
    task = Interleave(("x",), "y", ("interleave",), rows, apart)
    shapes = {
        "x": (batch, (2 * rows - 1) * apart + channels, height, width),
        "y": (batch, channels, height * rows, width * 2),
    }
    return Case(task, shapes, {name: larger(random, shape, step) for name, shape in shapes.items()})


def copy(random: Random, overlay: Overlay) -> Case:
    step = overlay.layout.channels_per_word
    batch, channels = images(random, overlay)
    shape = batch, channels, random.randint(1, 12), random.randint(1, 12)
    first = step * random.randint(0, 2)
    whole = batch, first + channels + random.randint(0, 12), *shape[2:]
    zero = random.choice(ZEROS)
    below = np.array(factor(random, overlay)) if random.random() < 0.3 else None
    numbers = shifts(random, overlay), *clamp(random, zero)
    r = None if random.random() < 0.3 else Requantization(np.array(factor(random, overlay)), *numbers, below, zero)
    task = Copy(("x",), "y", ("copy",), first, r, 0 if r is None else random.choice(ZEROS))
    return Case(task, {"x": shape, "y": whole}, {"x": larger(random, shape, step), "y": (whole[1], 0)})


def lrn(random: Random, overlay: Overlay) -> Case:
    """A Task of a layer, or with any table."""
    most = next(dict(s.limits)["local_size_max"] for s in overlay.tasks if s.kind == "lrn")
    task, x, _ = random_case(np.random.default_rng(random.randrange(1 << 32)), most)
    step = overlay.layout.channels_per_word
    shapes = {"x": x.shape, "y": x.shape}
    return Case(task, shapes, {name: larger(random, x.shape, step) for name in shapes})


def looked_up(random: Random, case: Case) -> Case:
    """The same with a table of any codes; an LRN or a maximum as it is, which has none."""
    if isinstance(case.task, LRNTask) or not case.task.looks_up:
        return case
    table = np.array([random.randint(-128, 127) for _ in range(256)], np.int8)
    return replace(case, task=replace(case.task, lookup=table))


KINDS: tuple[Callable[[Random, Overlay], Case], ...] = (
    pool,
    pool,
    depthwise,
    eltwise,
    pair,
    upsample,
    interleave,
    copy,
    lrn,
)


class Bench:
    """Tasks one after the other in a memory of noise; ``check`` compares every byte of it with the definitions' results."""

    def __init__(self, overlay: Overlay, simulation: Simulation, seed: int, size: int = SIZE) -> None:
        self.overlay, self.simulation = overlay, simulation
        self.random, self.noise = Random(seed), np.random.default_rng(seed)
        self.memory = self.noise.integers(0, 256, size, dtype=np.uint8)
        self.expected = self.memory.copy()
        self.end, self.running = 0, False
        self.tasks: list[Task] = []
        simulation.memory(BASE, self.memory)
        slow, self.pause = self.random.choice([1, 20, 150, 300]), self.random.choice([0, 0, 40, 170])
        self.reads = self.writes = self.random.randint(1, slow), slow
        self.source = simulation.source("task", self.random.choice([0, 100]))
        simulation.set("array_done", 0)
        simulation.set("window_done", 0)

    def room(self, size: int, multiple: int) -> int:
        """The offset of some new bytes, at any multiple of ``multiple``."""
        start = self.end + self.random.randrange(0, 300)
        start += -start % multiple
        self.end = start + size
        assert self.end <= len(self.memory)
        return start

    def calm(self) -> None:
        """No pauses, DDR's latency in reads, and none in writes, which the model of a port makes wait for each other."""
        self.reads, self.writes, self.pause = (150, 150), (1, 1), 0

    def add(self, case: Case, code: int | None = None, bands: int = 1) -> None:
        """Put a Task's blobs into memory, inputs of random codes or of one ``code``, and its descriptors into the queue."""
        task, layout = case.task, self.overlay.layout
        address: dict[str, Placed] = {}
        shapes = dict(case.shapes)
        codes = []
        for name in (*task.inputs, task.output):
            channels, first = case.around[name]
            whole = (shapes[name][0], channels, *shapes[name][2:])
            size = blob_bytes(whole, layout)
            offset = self.room(size, 8)
            parent = None
            if whole != shapes[name]:
                parent = f"around {name}"
                shapes[parent] = whole
                address[parent] = Placed(BASE + offset, size)
            address[name] = Placed(BASE + offset, size, parent, first)
            if name in task.inputs:
                numbers = self.noise.integers(-128, 128, shapes[name]).astype(np.int8)
                if self.random.random() < 0.2 or code is not None:
                    numbers[...] = self.random.choice([-128, 127]) if code is None else code
                for memory in (self.memory, self.expected):
                    self._store(numbers, memory, offset, first, channels)
                codes.append(numbers)
        self._fill_tails(case, address)
        averages = isinstance(task, Pool) and task.requantization is not None
        with_records = averages or isinstance(task, (LRNTask, Depthwise))
        records = 64 * 64 * 16 if with_records else 0
        where = self.room(records + 256, 64) if records or task.lookup is not None else 0
        memory = Operands(self.overlay, address, shapes)
        for rows in task.bands(self.overlay, shapes, bands):
            piece, tag = replace(task, rows=rows), len(self.tasks)
            descriptor, parts = encode(piece, memory, BASE + where, tag=tag, after=case.after)
            self.source.feed(descriptor)
            self.tasks.append(piece)
        constants = joined(parts)
        for memory in (self.memory, self.expected):
            memory[where : where + len(constants)] = np.frombuffer(constants, np.uint8)
        channels, first = case.around[task.output]
        start = first + (task.first if isinstance(task, Copy) else 0)
        self._store(task.define(*codes), self.expected, address[task.output].offset - BASE, start, channels)

    def _store(self, codes: np.ndarray, memory: np.ndarray, offset: int, first: int, channels: int) -> None:
        DeviceBlob(memory[offset:], self.overlay.layout, channels, codes.shape, first).store(codes)

    def _fill_tails(self, case: Case, address: dict[str, Placed]) -> None:
        """Noise in the channels after the last of each input."""
        step = self.overlay.layout.channels_per_word
        for name in case.task.inputs:
            n, c, h, w = case.shapes[name]
            channels, first = case.around[name]
            rest = -c % step
            if not rest:
                continue
            image = blob_bytes((1, channels, h, w), self.overlay.layout)
            for i in range(n):
                plane = address[name].offset - BASE + i * image + (first + c) // step * h * w * step
                noise = self.noise.integers(0, 256, (h * w, rest), dtype=np.uint8)
                for memory in (self.memory, self.expected):
                    memory[plane : plane + h * w * step].reshape(-1, step)[:, step - rest :] = noise

    def start(self) -> None:
        """Attach the memory."""
        self.running = True
        for port in INPUTS[: self.overlay.ports.window]:
            self.simulation.reader(port, *self.reads, self.pause)
        self.simulation.writer("output", *self.writes, self.pause)

    def check(self, limit: int = 500_000) -> int:
        """Run all Tasks, and return the cycles."""
        if not self.running:
            self.start()
        begin = self.simulation.now
        for done in range(1, len(self.tasks) + 1):
            self.simulation.run("finished", limit)
            self.simulation.set("window_done", done)
        wrong = np.flatnonzero(self.memory != self.expected)
        assert not wrong.size, f"{wrong.size} bytes from {BASE + wrong[0]:#x} differ after {self.tasks}"
        return self.simulation.now - begin
