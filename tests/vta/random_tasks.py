"""Random Tasks within VTA's limits, and how to run one alone in the simulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chai import overlay as overlays
from chai.codegen.memory_map import FIXED
from chai.fixed import ACCUMULATOR, Requantization
from chai.tasks import Task
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.tasks.work import Work
from chai.vta.program import VtaSegment
from chai.vta.segment import segment
from chai.vta.simulator import Chip

VTA = overlays.load("vta-z7020")
MACHINE = VTA.machine.machine
Shapes = dict[str, tuple[int, ...]]
Codes = dict[str, np.ndarray]


def random_task(seed: int) -> tuple[Task, Shapes, Codes]:
    """Return a Task, the shapes of its blobs and the codes that it reads."""
    random = np.random.default_rng(seed)
    make = (_conv, _conv, _conv, _pool, _eltwise, _copy)[random.integers(6)]
    task, shapes = make(random)
    codes = {blob: random.integers(-128, 128, shapes[blob]).astype(np.int8) for blob in task.inputs}
    if random.integers(4) == 0:  # ends of the range
        codes = {blob: np.where(values < 0, -128, 127).astype(np.int8) for blob, values in codes.items()}
    return task, shapes, codes


def run(task: Task, shapes: Shapes, codes: Codes, chip: Chip) -> np.ndarray:
    """Return the Task's output, of a segment of its own whose memory holds garbage before it runs."""
    vta_segment = alone(task, shapes)
    base, memory = buffers(vta_segment)
    vta_segment.fix(base, memory[FIXED])
    for blob in vta_segment.regions.given:
        vta_segment.blob(blob, memory).store(codes[blob])
    chip.run(vta_segment.checked(base, memory))
    (blob, first, channels) = vta_segment.wanted[0]
    assert (first, channels) == task.channels(shapes)
    out = np.zeros((shapes[blob][0], channels, *shapes[blob][2:]), np.int8)
    vta_segment.blob(blob, memory, first, out.shape[1]).fetch(out)
    return out


def alone(task: Task, shapes: Shapes) -> VtaSegment:
    return segment(Work(VTA, [task], shapes, {}, task.inputs, [task.output]))


def buffers(vta_segment: VtaSegment, begin: int = 0x10000) -> tuple[dict[int, int], dict[int, np.ndarray]]:
    """Return addresses and bytes of a segment's regions."""
    base: dict[int, int] = {}
    for region, size in vta_segment.sizes.items():
        base[region] = begin
        begin += (size // 4096 + 2) * 4096
    return base, {region: np.full(size, 0xA5, np.uint8) for region, size in vta_segment.sizes.items()}


def _int(random: np.random.Generator, low: int, high: int) -> int:
    return int(random.integers(low, high + 1))


def _window(random: np.random.Generator) -> tuple[Window, tuple[int, int]]:
    """Return a window, and the size of an image with at least one of it."""
    most = (3, 5, 11)[_int(random, 0, 2)]
    kernel = _int(random, 1, most), _int(random, 1, most)
    stride = _int(random, 1, 4), _int(random, 1, 4)
    pad = _int(random, 0, min(10, kernel[0] - 1)), _int(random, 0, min(10, kernel[1] - 1))
    low = [max(1, kernel[i] - 2 * pad[i]) for i in range(2)]
    return Window(kernel, stride, pad), (_int(random, low[0], low[0] + 18), _int(random, low[1], low[1] + 23))


def _requantization(random: np.random.Generator, right: int, shape: tuple[int, ...] = ()) -> Requantization:
    """Return a shift of sums by ``right`` bits, as a multiplier and a shift."""
    power = _int(random, max(0, -right), 16)
    low, high = ((-128, 127), (0, 127), (-32, 31), (0, 31), (0, 100))[_int(random, 0, 4)]
    return Requantization(np.full(shape, 1 << power), right + power, low, high)


def _conv(random: np.random.Generator) -> tuple[Task, Shapes]:
    window, size = _window(random)
    group = (1, 1, 1, 2, 3)[_int(random, 0, 4)]
    inputs, outputs = group * _int(random, 1, 36), group * _int(random, 1, 41)
    if random.integers(6) == 0:
        group = outputs = inputs
    weights = random.integers(-127, 128, (outputs, inputs // group, *window.kernel)).astype(np.int8)
    while np.abs(weights.astype(np.int64)).reshape(outputs, -1).sum(1).max() * 128 >= ACCUMULATOR:
        weights //= 2
    room = ACCUMULATOR - 1 - np.abs(weights.astype(np.int64)).reshape(outputs, -1).sum(1) * 128
    bias = (random.uniform(-1, 1, outputs) * room * 2.0 ** -_int(random, 0, 16)).astype(np.int64)
    if random.integers(4) == 0:
        bias = np.where(bias < 0, -room, room)  # sums up to 2^24 - 1
    r = _requantization(random, _int(random, -16, 30) if random.integers(2) else _int(random, 4, 14), (outputs, 1, 1))
    if random.integers(4) == 0 and outputs > 1 and 1 < r.shift - int(np.log2(r.multiplier[0, 0, 0])) < 28:
        r.multiplier[::2] = np.maximum(r.multiplier[::2] >> 1, 1)  # coarser steps: another shift for some channels
    task = Conv(("x",), "y", ("conv",), weights, bias, window, group, r)
    n = _int(random, 1, 2)
    return task, {"x": (n, inputs, *size), "y": (n, outputs, *window.sizes(size))}


def _pool(random: np.random.Generator) -> tuple[Task, Shapes]:
    window, size = _window(random)
    n, c, out = _int(random, 1, 2), _int(random, 1, 40), []
    for i in range(2):  # Caffe's rule: rounded up, but no window begins beyond the image
        count = -(-(size[i] + 2 * window.pad[i] - window.kernel[i]) // window.stride[i]) + 1
        out.append(count - ((count - 1) * window.stride[i] >= size[i] + window.pad[i]))
    task = Pool(("x",), "y", ("pool",), window, (out[0], out[1]), None)
    return task, {"x": (n, c, *size), "y": (n, c, *out)}


def _copy(random: np.random.Generator) -> tuple[Task, Shapes]:
    n, c, h, w = (_int(random, 1, most) for most in (2, 40, 19, 23))
    first, r = 16 * _int(random, 0, 2), _requantization(random, _int(random, -16, 30))
    task = Copy(("x",), "y", ("copy",), first, r if random.integers(3) else None)
    return task, {"x": (n, c, h, w), "y": (n, first + c + _int(random, 0, 9), h, w)}


def _eltwise(random: np.random.Generator) -> tuple[Task, Shapes]:
    shape = tuple(_int(random, 1, most) for most in (2, 40, 19, 23))
    factors = tuple(_int(random, -(1 << bits), 1 << bits) for bits in random.integers(0, 16, 2))
    if random.integers(2):  # of two steps that are powers of two
        factors = tuple(int(np.sign(f) or 1) << f.bit_length() for f in factors)
    common = _int(random, 0, 16 - max(map(abs, factors)).bit_length() + 1)  # as planned: near the width of multipliers
    shift = _int(random, common, common + 22)
    r = _requantization(random, 0)
    r = Requantization(np.array(1), shift, r.low, r.high)
    factors = tuple(factor << common for factor in factors)
    return Eltwise(("x", "z"), "y", ("sum",), factors, None, r, (0, 0)), dict.fromkeys(("x", "z", "y"), shape)


def blobs_of(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{blob} {shape}" for blob, shape in shapes.items())
