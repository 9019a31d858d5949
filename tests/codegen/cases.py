"""Tasks with their codes' places, their descriptors, and what decodes these again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st

from chai import overlay as overlays
from chai.blob import Shape
from chai.codegen.encoding import decode, encode
from chai.fixed import Requantization
from chai.overlay import Overlay
from chai.overlay.layout import Placed
from chai.overlay.records import unpack
from chai.tasks import Task
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.depthwise import NARROW, Depthwise
from chai.tasks.eltwise import OPERATIONS, Eltwise
from chai.tasks.fields import Operands, TaskConstants
from chai.tasks.filter import FilterTask
from chai.tasks.interleave import Interleave
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from tests.codegen.equality import plain
from tests.conftest import examples
from tests.tasks.common import covering, joined, random_pooling
from tests.tasks.lrns import random_table

Z2 = overlays.load("pynq-z2")


OVERLAYS = [Z2, overlays.load("ultra96")]


WHERE = 0x1_2345_6780 & ~63


RANDOM = settings(max_examples=examples(40))


def decoded(
    descriptor: bytes,
    constants: bytes,
    overlay: Overlay,
    address: Mapping[str, Placed],
    shapes: Mapping[str, Shape],
    where: int,
    of: Task,
) -> Task:
    """The Task of a descriptor, of which a file tells the blobs, images and rows ``of`` it."""
    memory = Operands(overlay, address, shapes, TaskConstants(constants, where), of.images)
    values = unpack(overlay.descriptor, descriptor)
    common = {"inputs": of.inputs, "output": of.output, "origin": (), "images": of.images, "rows": of.rows}
    common |= {"shared": of.shared, "shares": of.shares}
    return decode([(values, common)], memory)[0]


def encoded(*arguments: Any, **chain: Any) -> tuple[bytes, bytes]:
    """Descriptor, and constants in one piece."""
    descriptor, pieces = encode(*arguments, **chain)
    return descriptor, joined(pieces)


@dataclass
class Case:
    """A Task, where its blobs lie, and codes for its inputs."""

    task: Task
    address: dict[str, Placed]
    shapes: dict[str, Shape]
    codes: list[np.ndarray]

    def encode(self, overlay: Overlay = Z2, where: int = WHERE, **chain: Any) -> tuple[bytes, bytes]:
        return encoded(self.task, Operands(overlay, self.address, self.shapes), where, **chain)

    def decode(self, descriptor: bytes, constants: bytes, overlay: Overlay = Z2, where: int = WHERE) -> Task:
        return decoded(descriptor, constants, overlay, self.address, self.shapes, where, self.task)

    def values(self, **chain: Any) -> dict[str, int]:
        return unpack(Z2.descriptor, self.encode(**chain)[0])


# -- random Tasks

SHIFTS = st.integers(0, 40) | st.sampled_from([0, 40])


ZEROS = st.sampled_from([0, -128])


FACTORS = st.integers(-(1 << 17) + 1, (1 << 17) - 1) | st.sampled_from([0, 1, -(1 << 17) + 1, (1 << 17) - 1])


COUNTS = st.integers(0, 65535)


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def requantizations(draw: st.DrawFn, shape: Shape) -> Requantization:
    """8 or 6 bits, plain, with a ReLU, leaky, or unsigned; the largest multipliers among the rest."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    above = random.integers(0, 1 << 17, shape, endpoint=False)
    above.flat[:1] = (1 << 17) - 1
    largest = draw(st.sampled_from([127, 31]))
    low = draw(st.sampled_from([0, -largest - 1]))
    below = random.integers(0, 1 << 17, shape) if low and draw(st.booleans()) else None
    return Requantization(above, draw(SHIFTS), low, largest, below, draw(ZEROS))


@st.composite
def cases(draw: st.DrawFn, kind: str | None = None) -> Case:
    kind = kind or draw(
        st.sampled_from(
            [
                *(
                    "conv",
                    "pooled",
                    "depthwise",
                    "filters",
                    "affine",
                    "max",
                    "average",
                    "eltwise",
                    "pair",
                    "upsample",
                    "interleave",
                    "copy",
                    "lrn",
                )
            ]
        )
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, (h, w) = draw(st.integers(1, 3)), draw(pairs(1, 9))
    address: dict[str, Placed] = {}
    shapes: dict[str, Shape] = {}

    def place(blob: str, *shape: int) -> None:
        """A blob of its own, or a part of a larger one."""
        shapes[blob] = shape
        offset = 64 * (8 * draw(st.integers(0, (1 << 54) - 1)) + len(shapes))  # no two at one place
        if draw(st.booleans()):
            first = 8 * draw(st.integers(0, 5))
            whole = f"around {blob}"
            address[whole] = Placed(offset, 64)
            shapes[whole] = (shape[0], first + shape[1] + draw(st.integers(1, 40)), *shape[2:])
            address[blob] = Placed(offset, 64, whole, first)
        else:
            address[blob] = Placed(offset, 64)

    task: Task
    if kind in ("conv", "pooled", "depthwise", "filters", "affine"):
        window = Window(draw(pairs(1, 4)), draw(pairs(1, 3)), draw(pairs(0, 3)), draw(pairs(1, 3)))
        group, per_in, per_out = draw(st.integers(1, 4)), draw(st.integers(1, 40)), draw(st.integers(1, 60))
        if group > 1:  # whole words
            per_in, per_out = (-(-channels // 8) * 8 for channels in (per_in, per_out))
        if kind == "filters":
            window = Window((3, 3), draw(pairs(1, 4)), draw(pairs(0, 2)))
        if kind in ("depthwise", "filters", "affine"):
            group, per_in, per_out = draw(st.integers(1, 70)), 1, 1
        if kind == "affine":
            window = Window((1, 1), (1, 1), (0, 0))
        c, m = group * per_in, group * per_out
        h, w = covering(window, (h, max(w, NARROW) if kind == "filters" else w))
        weights = random.integers(-127, 128, (m, per_in, *window.kernel)).astype(np.int8)
        weights.flat[:2] = -127, 127
        bias = random.integers(-(1 << 24), 1 << 24, m)
        bias[:1] = draw(st.sampled_from([-(1 << 24), (1 << 24) - 1, 0]))
        out = window.sizes((h, w))
        maximum = random_pooling(random, out) if kind == "pooled" else None
        place("in", n, c, h, w)
        place("out", n, m, *(out if maximum is None else maximum.out))
        r = draw(requantizations((m, 1, 1)))
        kinds: dict[str, type[FilterTask]] = {"affine": Affine, "filters": Depthwise}
        wide = kind != "filters" and draw(st.booleans())
        if wide:
            bias[1:] *= 127
            bias[:1] = draw(st.sampled_from([-(1 << 31), (1 << 31) - 1, 0]))
        extra = {} if kind == "filters" else {"wide": wide, "pooling": maximum}
        task = kinds.get(kind, Conv)(("in",), "out", ("o",), weights, bias, window, group, r, draw(ZEROS), **extra)
    elif kind in ("max", "average"):
        window = Window(draw(pairs(1, 5)), draw(pairs(1, 4)), (0, 0))
        window = window._replace(pad=tuple(draw(st.integers(0, k - 1)) for k in window.kernel))
        h, w = (max(size, window.kernel[i] - window.pad[i]) for i, size in enumerate((h, w)))
        out = window.sizes((h, w))
        c = draw(st.integers(1, 40))
        place("in", n, c, h, w)
        place("out", n, c, *out)
        task = Pool(("in",), "out", ("o",), window, out, None)
        if kind == "average":
            task = replace(task, requantization=draw(requantizations(out)), zero=draw(ZEROS))
    elif kind == "eltwise":
        c = draw(st.integers(1, 40))
        inputs = draw(st.sampled_from([("in", "other"), ("other", "in"), ("in", "in")]))
        for blob in {*inputs, "out"}:
            place(blob, n, c, h, w)
        two = st.tuples(FACTORS, FACTORS)
        r = draw(requantizations(()))._replace(multiplier=np.array(1), negative=None)
        zeros = draw(st.tuples(ZEROS, ZEROS))
        task = Eltwise(inputs, "out", ("o",), draw(two), draw(st.none() | two), r, zeros)
    elif kind == "pair":
        c, vector, operation = draw(st.integers(1, 40)), draw(st.booleans()), draw(st.sampled_from(OPERATIONS))
        for blob in ("in", "out"):
            place(blob, n, c, h, w)
        place("other", n, c, *((1, 1) if vector else (h, w)))
        r = draw(requantizations(()))._replace(multiplier=np.array(1), negative=None)
        multipliers = draw(st.tuples(FACTORS, FACTORS))[: 1 if operation == "PROD" else 2]
        zeros = draw(ZEROS), draw(ZEROS)
        task = Eltwise(("in", "other"), "out", ("o",), multipliers, None, r, zeros, operation, vector)
    elif kind == "upsample":
        c, (rows, columns) = draw(st.integers(1, 40)), draw(pairs(1, 8))
        place("in", n, c, h, w)
        place("out", n, c, h * rows, w * columns)
        r = draw(st.none() | requantizations(()))
        r = r and r._replace(multiplier=np.array(draw(FACTORS)), negative=None)
        task = plain(UpsampleTask(("in",), "out", ("o",), (rows, columns), draw(st.booleans()), r, draw(ZEROS)))
    elif kind == "interleave":
        c, rows, apart = draw(st.integers(1, 8)), draw(st.integers(1, 8)), 8 * draw(st.integers(1, 3))
        place("in", n, (2 * rows - 1) * apart + c, h, w)
        place("out", n, c, h * rows, w * 2)
        task = Interleave(("in",), "out", ("o",), rows, apart)
    elif kind == "lrn":
        task = random_table(random, 9)
        shape = n, draw(st.integers(1, 40)), h, w
        place("in", *shape)
        place("out", *shape)
        task = replace(task, inputs=("in",), output="out")
    else:
        c, first = draw(st.integers(1, 40)), 8 * draw(st.integers(0, 3))
        place("in", n, c, h, w)
        place("out", n, first + c + draw(st.sampled_from([0, 0, 1, 40])), h, w)
        r = draw(st.none() | requantizations(()))
        task = Copy(("in",), "out", ("o",), first, r, draw(ZEROS) if r is not None else 0)
    codes = [random.integers(-128, 128, shapes[b]).astype(np.int8) for b in task.inputs]
    return Case(task, address, shapes, codes)


# -- by hand


def conv(**changes: Any) -> Case:
    weights = np.arange(-6, 6, dtype=np.int8).reshape(2, 3, 2, 1)
    r = Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31)
    bias, window = np.array([100, -100]), Window((2, 1), (1, 2), (1, 0), (3, 1))
    task = replace(Conv(("in",), "out", ("conv1", "relu1"), weights, bias, window, 1, r), **changes)
    address = {"in": Placed(0x1000, 64), "out": Placed(0x2000, 64, "concat", 32), "concat": Placed(0x2000, 64)}
    shapes = {"in": (2, 3, 5, 7), "out": (2, 2, 4, 4), "concat": (2, 40, 4, 4)}
    return Case(task, address, shapes, [])


def filters(**changes: Any) -> Case:
    weights = np.arange(-81, 81, dtype=np.int8).reshape(18, 1, 3, 3)
    r, window = Requantization(np.full((18, 1, 1), 5), 7, -32, 31), Window((3, 3), (2, 1), (1, 1))
    task = replace(Depthwise(("in",), "out", ("conv1",), weights, np.arange(18), window, 18, r), **changes)
    address = {"in": Placed(0x1000, 64), "out": Placed(0x8000, 64)}
    return Case(task, address, {"in": (2, 18, 5, 17), "out": (2, 18, 3, 17)}, [])


def eltwise(**changes: Any) -> Case:
    r = Requantization(np.array(1), 16, 0, 127)
    task = replace(Eltwise(("a", "b"), "c", ("sum",), (1 << 16, -3), None, r, (0, 0)), **changes)
    address = {"a": Placed(0x1000, 64), "b": Placed(0x2000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, dict.fromkeys("abc", (1, 20, 2, 3)), [])


def copy(**changes: Any) -> Case:
    task = replace(Copy(("a",), "c", ("concat",), 16, None), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 20, 2, 3), "c": (1, 40, 2, 3)}, [])


def upsample(**changes: Any) -> Case:
    task = replace(UpsampleTask(("a",), "c", ("up",), (2, 3), True, None, -128), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 20, 2, 3), "c": (1, 20, 4, 9)}, [])


def interleave(**changes: Any) -> Case:
    task = replace(Interleave(("a",), "c", ("squares",), 3, 16), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 92, 2, 3), "c": (1, 12, 6, 6)}, [])


def lrn(**changes: Any) -> Case:
    task = replace(random_table(np.random.default_rng(1), 9), inputs=("a",), output="c", local_size=5)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(replace(task, **changes), address, {"a": (1, 20, 4, 6), "c": (1, 20, 4, 6)}, [])


def average(**changes: Any) -> Case:
    r = Requantization(np.arange(6).reshape(2, 3), 9, -128, 127)
    task = replace(Pool(("a",), "c", ("pool",), Window((2, 2), (2, 2), (0, 0)), (2, 3), r), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 20, 4, 6), "c": (1, 20, 2, 3)}, [])
