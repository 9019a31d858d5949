"""Run Tasks on the array engine alone: their blobs and constants in noise, their definition as the oracle."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from chai import overlay as overlays
from chai.codegen.dependencies import NONE, Finished
from chai.codegen.encoding import encode
from chai.devices.rtlsim.simulation import Simulation, fastest, rtlil
from chai.fixed import Requantization
from chai.hw_overlays.rtl.array.engine import ArrayEngine
from chai.hw_overlays.rtl.ports import CONSTANTS
from chai.overlay import Overlay
from chai.overlay.layout import DeviceBlob, Placed, blob_bytes, planes
from chai.overlay.sections import Array as ArraySize, OnChipBuffer, OnChipBuffers
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands
from chai.tasks.tiling import beyond_ring
from chai.tasks.window import Window
from tests.tasks.common import joined, random_pooling

BASE = 0x1000_0000
ROOM = 3 << 19
KINDS = "conv", "grouped", "depthwise", "affine"


def small(inputs: int, outputs: int, pixels: int = 16, ring: int = 128, weights: int = 32, lanes: int = 1) -> Overlay:
    """The default overlay with a small array, and memories in which few things fit."""
    overlay = overlays.load()
    buffers = OnChipBuffers(
        input=OnChipBuffer(8 * inputs, ring, 1, lanes, "block"),
        weights=OnChipBuffer(8 * outputs, weights, 2, 1, "block"),
        accumulators=OnChipBuffer(overlay.array_bits * outputs, pixels, 2, lanes, "block"),
        pool=overlay.buffers.pool,
    )
    return replace(overlay, array=ArraySize(inputs, outputs, lanes, 4, 17), buffers=buffers)


@lru_cache
def engine(overlay: Overlay) -> str:
    """The RTLIL of the overlay's array engine."""
    return rtlil(ArrayEngine(overlay))


class Blob(NamedTuple):
    """Where codes of this shape are: in a blob with more planes before and behind them."""

    offset: int
    shape: tuple[int, ...]
    first: int
    channels: int

    def place(
        self, name: str, overlay: Overlay, address: dict[str, Placed], shapes: dict[str, tuple[int, ...]]
    ) -> None:
        whole = self.shape[0], self.channels, *self.shape[2:]
        shapes[name], shapes[f"{name} whole"] = self.shape, whole
        sizes = (blob_bytes(shape, overlay.layout) for shape in (self.shape, whole))
        address[name] = Placed(self.offset, next(sizes), f"{name} whole", self.first)
        address[f"{name} whole"] = Placed(self.offset, next(sizes))


class Bench:
    """A memory with Tasks in it, and what it must be when they have run."""

    def __init__(self, overlay: Overlay, seed: int) -> None:
        self.overlay, self.seed = overlay, seed
        self.random = np.random.default_rng(seed)
        self.memory = self.random.integers(0, 256, ROOM, dtype=np.uint8)
        self.expected = self.memory.copy()
        self.used = 0
        self.descriptors: list[bytes] = []
        self.shared = 0  # Tasks whose weights were fetched for the one before them

    def add(
        self,
        task: Conv,
        codes: np.ndarray,
        after: Finished = NONE,
        source: Blob | None = None,
        bands: int = 1,
        shares: bool | None = None,
    ) -> Blob:
        """Add a Task, in strips if its rows do not fit or in ``bands``, and its input's codes unless those of ``source``.

        ``shares``: whether these have their weights from one fetch, if they fit; at random if None. Return its output's blob.
        """
        n, m = codes.shape[0], task.weights.shape[0]
        size = task.window.sizes(codes.shape[2:]) if task.pooling is None else task.pooling.out
        target = self._blob((n, m, *size))
        if source is None:
            source = self._blob(codes.shape)
            noise = self.random.integers(
                -128, 128, (n, 8 * planes(codes.shape[1], self.overlay.layout), *codes.shape[2:])
            )
            noise[:, : codes.shape[1]] = codes  # what is beyond the last channel, has no weights
            self._store(source, noise.astype(np.int8), self.memory, self.expected)
        address: dict[str, Placed] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        source.place("x", self.overlay, address, shapes)
        target.place("y", self.overlay, address, shapes)
        where, memory = self._allocate(0), Operands(self.overlay, address, shapes)
        strips = task.strips(self.overlay, shapes)
        pieces = [replace(task, columns=columns) for columns in strips]
        if strips == (None,):
            pieces = [replace(task, rows=rows) for rows in task.bands(self.overlay, shapes, bands)]
        if shares is None:
            shares = self.random.random() < 0.7
        if shares and task.may_share(self.overlay):
            last = len(pieces) - 1
            pieces = [replace(piece, shared=i > 0, shares=i < last) for i, piece in enumerate(pieces)]
            self.shared += last
        for piece in pieces:
            descriptor, parts = encode(piece, memory, where, tag=len(self.descriptors), after=after)
            self.descriptors.append(descriptor)
        constants = np.frombuffer(joined(parts), np.uint8)
        begin = self._allocate(len(constants)) - BASE
        for data in (self.memory, self.expected):
            data[begin : begin + len(constants)] = constants
        self._store(target, task.define(codes), self.expected)
        return target

    def codes(self, blob: Blob) -> np.ndarray:
        """The codes that a blob has when all Tasks so far have run."""
        codes = np.empty(blob.shape, np.int8)
        part = self._part(self.expected, blob)
        DeviceBlob(part, self.overlay.layout, blob.channels, codes.shape, blob.first).fetch(codes)
        return codes

    def _blob(self, shape: tuple[int, ...]) -> Blob:
        step = self.overlay.layout.channels_per_word
        first, more = (step * int(self.random.integers(0, 4)) for _ in range(2))
        channels = step * planes(first + shape[1], self.overlay.layout) + more
        if self.random.random() < 0.5:
            first, channels = 0, shape[1]
        size = blob_bytes((shape[0], channels, *shape[2:]), self.overlay.layout)
        return Blob(self._allocate(size), shape, first, channels)

    def _store(self, blob: Blob, codes: np.ndarray, *memories: np.ndarray) -> None:
        for memory in memories:
            part = self._part(memory, blob)
            DeviceBlob(part, self.overlay.layout, blob.channels, codes.shape, blob.first).store(codes)

    def _part(self, memory: np.ndarray, blob: Blob) -> np.ndarray:
        size = blob_bytes((blob.shape[0], blob.channels, *blob.shape[2:]), self.overlay.layout)
        return memory[blob.offset - BASE :][:size]

    def _allocate(self, size: int) -> int:
        begin = self.used
        self.used += -(-size // 64) * 64
        assert self.used <= ROOM
        return BASE + begin

    def simulation(self, latency: tuple[int, int] = (1, 1), pause: int = 0, slow: str = "") -> Simulation:
        """A simulation with this memory and the Tasks on their way; the port ``slow`` does little."""
        simulation = Simulation(engine(self.overlay), self.seed, simulator=fastest())
        simulation.memory(BASE, self.memory)
        for port in (*CONSTANTS[: self.overlay.ports.constants], *("even", "odd")[: self.overlay.array.inputs // 8]):
            simulation.reader(port, *latency, 245 if slow and port.startswith(slow) else pause)
        for port in ("output", "output_too")[: self.overlay.ports.outputs]:
            simulation.writer(port, *latency, 245 if slow == "output" else pause)
        simulation.source("task", pause).feed(*self.descriptors)
        return simulation

    def run(self, latency: tuple[int, int] = (1, 1), pause: int = 0, limit: int = 20_000_000) -> int:
        """Run all Tasks and compare all memory with what their definitions say; return the cycles."""
        simulation = self.simulation(latency, pause)
        for done in range(len(self.descriptors)):
            simulation.run("finished", limit)
            simulation.set("array_done", done + 1)
        cycles = simulation.now
        simulation.tick(400)  # nothing comes after the last Task
        simulation.close()
        self.check()
        return cycles

    def check(self) -> None:
        """Compare all memory with what it must be."""
        wrong = np.flatnonzero(self.memory != self.expected)
        assert not len(wrong), f"{len(wrong)} bytes differ, the first at {BASE + wrong[0]:#x}"


# -- random Tasks


def random_conv(
    overlay: Overlay, random: np.random.Generator, kind: str, shape: tuple[int, ...] | None = None
) -> tuple[Conv, np.ndarray]:
    """A Task of one of ``KINDS`` that the overlay can run, and its input: of this shape if one is found, or a random one."""
    for attempt in range(1000):
        sizes = _sizes(overlay, random, kind, shape if attempt < 20 else None)
        if sizes is None:
            continue
        task, codes = _task(random, kind, *sizes)
        task = task.joined(overlay)
        if overlay.wide_bits is not None and random.random() < 0.4:
            task = widened(random, task, overlay.array_bound - 1)
        if beyond_ring(overlay, task.window, task.weights.shape, task.group, codes.shape) is None:
            return task, codes
    raise AssertionError(f"no {kind}")


def random_strips(overlay: Overlay, random: np.random.Generator, kind: str) -> tuple[Conv, np.ndarray]:
    """A Task whose rows do not fit, so that it has several strips, and its input."""
    for _ in range(1000):
        n, channels, height = (int(random.integers(1, most)) for most in (3, 60, 12))
        sizes = _sizes(overlay, random, kind, (n, channels, height, int(random.integers(20, 90))))
        if sizes is None:
            continue
        task, codes = _task(random, kind, *sizes)
        task = task.joined(overlay)
        shapes = {"x": codes.shape, "y": (n, task.weights.shape[0], *task.window.sizes(codes.shape[2:]))}
        if len(task.strips(overlay, shapes)) > 1:
            return task, codes
    raise AssertionError(f"no {kind} in strips")


def widened(random: np.random.Generator, task: Conv, most: int) -> Conv:
    """The Task with wide sums, up to ``most`` for some codes; its codes spread as far as before."""
    sizes = np.abs(np.asarray(task.weights).astype(np.int64)).reshape(len(task.bias), -1).sum(1) * 128
    room = (most - sizes) >> int(random.integers(0, 8))
    bias = random.integers(-room, room + 1)
    bias[random.random(len(bias)) < 0.3] *= 0
    ends = random.random(len(bias)) < 0.3
    bias[ends] = (room * random.choice([-1, 1], len(bias)))[ends]
    r, spread = task.requantization, float(room.max())
    multiplier = random.uniform(0.3, 3, r.multiplier.shape) * 2.0**r.shift * 90 / spread
    factors = {"multiplier": np.clip(multiplier, 0, (1 << 17) - 1).astype(np.int64)}
    if r.negative is not None:
        slopes = random.uniform(*pick(random, (0, 1), (-1, 1)), multiplier.shape)
        factors["negative"] = (factors["multiplier"] * slopes).astype(np.int64)
    return replace(task, bias=bias, requantization=r._replace(**factors), wide=True)


def pooled(overlay: Overlay, random: np.random.Generator, task: Conv, codes: np.ndarray) -> Conv:
    """The Task with a random pooling after it, or as it is if the overlay has none for it."""
    one = replace(task, pooling=random_pooling(random, task.window.sizes(codes.shape[2:])))
    if one.pooling is None:
        return task
    shapes = {"x": codes.shape, "y": (codes.shape[0], task.weights.shape[0], *one.pooling.out)}
    return task if one.excluded(overlay, shapes) else one


def pick(random: np.random.Generator, *values: int) -> int:
    return values[int(random.integers(len(values)))]


Sizes = tuple[tuple[int, ...], tuple[int, ...], int, Window]  # of the input, of the weights, groups


def _sizes(overlay: Overlay, random: np.random.Generator, kind: str, shape: tuple[int, ...] | None) -> Sizes | None:
    def number(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    def pair(low: int, high: int) -> tuple[int, int]:
        return number(low, high), number(low, high)

    window = Window((1, 1), (1, 1), (0, 0))
    if kind != "affine":
        kernel, stride = pair(1, pick(random, 1, 3, 5)), pair(1, pick(random, 1, 2, 4))
        dilation = pair(1, pick(random, 1, 1, 3))
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
        pad = number(0, min(10, spans[0] - 1)), number(0, min(10, spans[1] - 1))
        window = Window(kernel, stride, pad, dilation)
    n, channels, *size = shape or (pick(random, 1, 1, 2, 3), number(1, 40), *pair(1, pick(random, 6, 14, 22)))
    if min(window.sizes(tuple(size))) < 1:
        return None
    group, each, outputs = 1, channels, number(1, 60)
    if kind in ("depthwise", "affine"):
        group, each, outputs = channels, 1, channels
    elif kind == "grouped":
        divisors = [g for g in range(2, channels + 1) if channels % g == 0]
        if shape is None:
            group, each = number(2, 4), pick(random, number(2, 12), 8, 24)
            channels = group * each
        elif divisors:
            group = pick(random, *divisors)
            each = channels // group
        outputs = group * pick(random, number(1, 12), 8 * number(1, 4))
    if outputs > 100:
        return None
    return (n, channels, *size), (outputs, each, *window.kernel), group, window


def _task(
    random: np.random.Generator, kind: str, shape: tuple[int, ...], weights: tuple[int, ...], group: int, window: Window
) -> tuple[Conv, np.ndarray]:
    """Codes and weights with extremes, and a requantisation whose codes spread."""
    zero, output_zero = (pick(random, 0, -128) for _ in range(2))
    codes = random.integers(-128, 128, shape).astype(np.int8)
    codes.reshape(-1)[random.random(codes.size) < 0.1] = pick(random, -128, 127)
    products = prod(weights[1:])
    most = min(127, (1 << 24) // (2 * 255 * products))
    factors = random.integers(-most, most + 1, weights).astype(np.int8)
    factors.reshape(-1)[random.random(factors.size) < 0.1] = pick(random, -most, most)
    spread = 128.0 * most * products**0.5
    bias = random.integers(-int(spread), int(spread) + 1, weights[0])
    bias -= zero * factors.reshape(weights[0], -1).sum(1, dtype=np.int64)
    bias[np.abs(factors.astype(np.int64)).reshape(weights[0], -1).sum(1) * 128 + np.abs(bias) >= 1 << 24] = 0
    shift = int(random.integers(0, 41))
    scale = 2.0**shift * 90 / spread
    multiplier = np.clip(scale * random.uniform(0.3, 3, (weights[0], 1, 1)), 0, (1 << 17) - 1).astype(np.int64)
    slopes = random.uniform(*pick(random, (0, 1), (-2, 2)), multiplier.shape) if random.random() < 0.4 else None
    most = (1 << 17) - 1
    negative = None if slopes is None else np.clip(multiplier * slopes, -most, most).astype(np.int64)
    low, high = pick(random, -128, -128, output_zero, -20), pick(random, 127, 127, 60)
    r = Requantization(multiplier, shift, low, high, negative, output_zero)
    cls = Affine if kind == "affine" else Conv
    return cls(("x",), "y", (kind,), factors, bias, window, group, r, zero), codes
