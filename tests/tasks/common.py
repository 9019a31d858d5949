"""What these tests share: codes, kernels in numpy and in C, and Tasks by the reference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings, strategies as st

from chai import devices, overlay, tasks
from chai.blob import View
from chai.devices.emulator import EmulatedProgram
from chai.fixed import Requantization
from chai.kernels import forms
from chai.kernels.native import library
from chai.kernels.native.program import NativeProgram
from chai.overlay import Overlay
from chai.overlay.sections import TaskSection
from chai.overlay.weights import Piece
from chai.tasks import Task
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.filter import FilterTask
from chai.tasks.interleave import Interleave
from chai.tasks.pool import Pool
from chai.tasks.pooling import PooledCodes
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from chai.tasks.work import Work
from chai.util import paths
from tests.conftest import examples
from tests.reference import fixed as reference

Array = np.ndarray
EXAMPLES = settings(max_examples=examples(40))
VARIANTS = [variant.name for variant in library.state().variants]  # compiled for this machine; none without a compiler
FORMS = ["numpy", *VARIANTS]

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
seeds = st.integers(0, 2**32 - 1)
shifts = st.integers(0, 40)
zeros = st.sampled_from([0, 0, -128])  # zero points


def kinds() -> dict[str, type[Task]]:
    """All kinds of Task by name."""
    stems = sorted(paths.modules(tasks.__path__) - {"__init__"})
    classes = (cls for stem in stems for cls in paths.defined("chai.tasks", stem, Task).values())
    return {cls.kind: cls for cls in classes if hasattr(cls, "kind")}


def limited(base: Overlay, kind: str, **limits: Any) -> Overlay:
    """An overlay with other limits of a kind of Task."""
    sections = ((s.kind, dict(s.limits) | (limits if s.kind == kind else {})) for s in base.tasks)
    return replace(base, tasks=tuple(TaskSection(name, tuple(values.items())) for name, values in sections))


def narrow(folder: Path) -> Path:
    """The manifest of kv260 without wide sums, in a file of its own."""
    manifest = json.loads(overlay.load("kv260").path.read_text())
    del manifest["wide_bits"]
    path = folder / "narrow.json"
    path.write_text(json.dumps(manifest))
    return path


@contextmanager
def kernel_form(form: str) -> Iterator[None]:
    """Kernels in numpy, or in C, of this variant."""
    with pytest.MonkeyPatch.context() as patch:
        chosen = library.variant(form)
        patch.setattr(library, "state", lambda: library.LibraryState((), "", chosen))
        yield


def codes(rng: np.random.Generator, *shape: int, low: int = -128, high: int = 127) -> Array:
    """Any codes; now and then extreme ones only."""
    if rng.random() < 0.2:
        return rng.choice([low, high], shape).astype(np.int8)
    return rng.integers(low, high + 1, shape).astype(np.int8)


def factors(rng: np.random.Generator, shape: tuple[int, ...], shift: int, least: int = 0) -> Array:
    """Multipliers that bring sums into the range of codes: below 2^17, and mostly far below 2^shift."""
    most = min((1 << 17) - 1, 1 + (1 << shift) // int(rng.choice([1, 16, 1024])))
    return rng.integers(-most if least else 0, most + 1, shape)


def clamps(rng: np.random.Generator, zero: int = 0) -> tuple[int, int]:
    """The ends of signed codes, of those behind a ReLU, and of unsigned codes."""
    if zero:
        return zero, int(rng.choice([127, 31]))
    return tuple(map(int, rng.choice([(0, 127), (-128, 127), (0, 31), (-32, 31), (0, 63)])))


def requantized(sums: Array, r: Requantization) -> Array:
    """By the reference, element by element."""
    m = np.broadcast_to(r.multiplier, sums.shape)
    negative = m if r.negative is None else np.broadcast_to(r.negative, sums.shape)
    flat = zip(sums.ravel().tolist(), m.ravel().tolist(), negative.ravel().tolist())
    flat_codes = [reference.requantize(a, p, r.shift, r.low, r.high, 0, n, r.zero) for a, p, n in flat]
    return np.array(flat_codes, np.int64).reshape(sums.shape)


def random_pooling(random: np.random.Generator, size: Sequence[int]) -> PooledCodes | None:
    """A pooling after a convolution of this size, with kernels, strides and pads that the unit has; None if none is found."""
    sides = []
    for length in size:
        kernel = int(random.choice([1, 2, 2, 3, 3, 3, random.integers(1, 8)]))
        stride, pad = kernel - int(random.integers(0, 2 if kernel > 1 else 1)), int(random.integers(0, kernel))
        ends = {(out - 1) * stride - pad + kernel - length: out for out in range(1, length + pad + 2)}
        outs = [out for more, out in ends.items() if 0 <= more < kernel and (out - 1) * stride - pad < length]
        if not outs:
            return None
        sides.append((kernel, stride, pad, int(random.choice(outs))))
    kernel, stride, pad, out = zip(*sides)
    return PooledCodes(Window(kernel, stride, pad), out)


def defined(task: Task, *inputs: Array) -> Array:
    """What a Task writes, by the reference."""
    if isinstance(task, FilterTask):
        w, weights = task.window, np.asarray(task.weights).astype(np.int64)
        bias = task.bias + task.zero * weights.sum((1, 2, 3))  # of the true sum
        values = inputs[0].astype(np.int64) - task.zero
        codes = requantized(
            reference.convolution(values, weights, bias.tolist(), w.stride, w.pad, w.dilation, task.group),
            task.requantization,
        )
        if (pooled := getattr(task, "pooling", None)) is None:
            return codes
        table = range(-128, 128) if task.lookup is None else task.lookup.tolist()
        codes = np.array([table[code + 128] for code in codes.ravel().tolist()]).reshape(codes.shape)
        return reference.pooled(codes, *pooled.window[:3], pooled.out, True)
    if isinstance(task, Pool):
        w, maximum = task.window, task.requantization is None
        values = inputs[0].astype(np.int64) - (0 if maximum else task.zero)
        sums = reference.pooled(values, w.kernel, w.stride, w.pad, task.out, maximum)
        return sums if task.requantization is None else requantized(sums, task.requantization)
    if isinstance(task, Eltwise):
        r = task.requantization
        zeros = task.zeros or (0,) * len(inputs)
        inputs = tuple(np.broadcast_to(x, inputs[0].shape) for x in inputs)
        outputs = []
        for values in zip(*((x.astype(np.int64) - zero).ravel().tolist() for x, zero in zip(inputs, zeros))):
            total = sum(v * m for v, m in zip(values, task.factors))
            if task.operation == "PROD":
                total = values[0] * values[1] * task.factors[0]
            elif task.operation == "MAX":
                total = max(v * m for v, m in zip(values, task.factors))
            elif task.negative is not None and total < 0:
                total = sum(v * m for v, m in zip(values, task.negative))
            outputs.append(reference.requantize(total, 1, r.shift, r.low, r.high, zero=r.zero))
        return np.array(outputs, np.int64).reshape(inputs[0].shape)
    if isinstance(task, UpsampleTask):
        return _upsampled(task, inputs[0])
    if isinstance(task, Interleave):
        return _interleaved(task, inputs[0])
    assert isinstance(task, Copy)
    whole = inputs[0].astype(np.int64) - (0 if task.requantization is None else task.zero)
    return whole if task.requantization is None else requantized(whole, task.requantization)


def _interleaved(task: Interleave, x: Array) -> Array:
    """Code by code."""
    n, c, h, w = x.shape
    values = np.zeros((n, c - (2 * task.factor - 1) * task.apart, h * task.factor, w * 2), np.int64)
    for at in np.ndindex(values.shape):
        part = at[2] % task.factor * 2 + at[3] % 2
        values[at] = x[at[0], part * task.apart + at[1], at[2] // task.factor, at[3] // 2]
    return values


def _upsampled(task: UpsampleTask, x: Array) -> Array:
    """Pixel by pixel."""
    n, c, h, w = x.shape
    rows, columns = task.factors
    values = np.full((n, c, h * rows, w * columns), 0 if task.requantization else task.zero, np.int64)
    for i in range(h * rows):
        for j in range(w * columns):
            if not task.spread or (i % rows == 0 and j % columns == 0):
                values[:, :, i, j] = x[:, :, i // rows, j // columns].astype(np.int64) - (
                    task.zero if task.requantization else 0
                )
    return values if task.requantization is None else requantized(values, task.requantization)


def emulated(
    tasks: Sequence[Task],
    blobs: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    views: Mapping[str, View] | None = None,
) -> dict[str, Array]:
    """All blobs after the emulator has run Tasks; its inputs stay as they are."""
    memory = {name: values.copy() for name, values in blobs.items()}
    every = {**shapes, **{name: values.shape for name, values in blobs.items()}}
    times = devices.open("emulator").compile(Work(overlay.load(), tasks, every, views or {})).run(memory).tasks
    assert times is not None and len(times) == len(tasks)
    assert all(np.array_equal(memory[name], values) for name, values in blobs.items()), "an input was overwritten"
    return memory


def check(task: Task, *inputs: Array) -> None:
    """Definition and the emulator's kernel of a Task against the reference."""
    check_kernel(task, inputs, check_definition(task, inputs))


def check_forms(task: Task, *inputs: Array, wanted: Array | None = None) -> None:
    """Definition of a Task, and its kernels in every form, against the reference, or what that gave before."""
    wanted = check_definition(task, inputs, wanted)
    for form in FORMS:
        with kernel_form(form):
            try:
                check_kernel(task, inputs, wanted)
            except AssertionError as error:
                raise AssertionError(f"kernels in {form}: {error}") from error


def check_definition(task: Task, inputs: Sequence[Array], wanted: Array | None = None) -> Array:
    """Definition of a Task against the reference, or what that gave before; return that."""
    wanted = defined(task, *inputs) if wanted is None else wanted
    output = task.define(*inputs)
    assert output.dtype == np.int8
    assert np.array_equal(output, wanted)
    return wanted


def check_kernel(task: Task, inputs: Sequence[Array], wanted: Array) -> None:
    """The emulator's kernel of a Task against what its definition gives."""
    work = Work(
        overlay.load(), [task], {task.output: wanted.shape, **dict(zip(task.inputs, (x.shape for x in inputs)))}
    )
    native = library.library() is not None and forms.form(task) is not None
    assert [type(part) is NativeProgram for part in EmulatedProgram(work).parts] == [native]
    kernel = emulated([task], dict(zip(task.inputs, inputs)), {task.output: wanted.shape})[task.output]
    assert kernel.dtype == np.int8
    assert np.array_equal(kernel, wanted)


def covering(window: Window, size: tuple[int, int]) -> tuple[int, int]:
    """The size of an image, or what a window with its padding needs at least."""
    height, width = (max(size[i], window.extent(i) - 2 * window.pad[i]) for i in range(2))
    return height, width


def joined(pieces: Iterable[Piece]) -> bytes:
    """Return pieces of constants joined into one bytes object."""
    listed = list(pieces)
    out = np.empty(sum(piece.bytes for piece in listed), np.uint8)
    end = 0
    for piece in listed:
        piece.read(out[end : end + piece.bytes])
        end += piece.bytes
    return out.tobytes()
