"""Convolutions by AMX's tiles: by the processor's where it has them, and everywhere by the same source with tiles in plain C."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import devices
from chai.blob import View
from chai.kernels.native import build, library, program as programs
from chai.kernels.native.program import NativeProgram
from chai.kernels.native.table import Kind
from chai.tasks.conv import Conv
from chai.tasks.window import Window
from tests.conftest import MODELS, examples
from tests.tasks.common import codes, covering

from .common import AMX, LIBRARY, Calls, in_child, program, used, with_calls
from .test_native import POINT, requantization, same
from .test_running import CHANGES, changed

pytestmark = pytest.mark.skipif("amx_plain" not in AMX, reason=LIBRARY.reason or "no AMX on this kind of machine")
REAL = pytest.param("amx", marks=pytest.mark.skipif("amx" not in AMX, reason="this processor has no AMX"))
VARIANTS = [REAL, *(name for name in AMX if name != "amx")]
OTHERS = {"amx": "avx512vnni", "amx_vnni": "avx512vnni", "amx_plain": "plain"}  # what computes all else
TILE = 16


def convolution(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    group: int = 1,
    window: Window = POINT,
    zeros: tuple[int, int] = (0, 0),
    leaky: bool = False,
) -> Conv:
    """A Conv of random weights (M, C / group, kh, kw)."""
    m, r = shape[0], requantization(rng, (shape[0], 1, 1), 24, zeros[1], leaky)
    weights = codes(rng, *shape, low=-127)
    return Conv(("x",), "y", ("c",), weights, rng.integers(-(1 << 16), 1 << 16, m), window, group, r, zeros[0])


def packed(variant: str, task: Conv, x: tuple[int, ...]) -> int:
    """The bytes of a convolution's packed weights."""
    with used(variant):
        (native,) = program([task], {"x": np.zeros(x, np.int8)}, {"y": task.define(np.zeros(x, np.int8)).shape}).parts
    assert isinstance(native, NativeProgram)
    (operation,) = (o for o in native.table if o.kind == Kind.CONVOLUTION)
    chosen = native._library
    return int(chosen.calls.chai_packed(chosen.number, ctypes.byref(operation)))


def in_tiles(task: Conv) -> int:
    """The bytes of its weights in tiles: the dwords of a run in equal steps of 16 at most, outputs in sixteens."""
    (m, c, kh, kw), row = task.weights.shape, task.group == 1 and task.window.dilation[1] == 1
    runs, dwords = (kh, -(-c * kw // 4)) if row else (kh * kw, -(-c // 4))
    steps = -(-dwords // TILE)
    outputs = -(-(m // task.group) // TILE) * TILE
    return task.group * outputs * runs * steps * -(-dwords // steps) * 4


# -- convolutions


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=examples(25))
@given(
    group=st.sampled_from([1, 1, 1, 2]),
    inputs=st.sampled_from([60, 64, 65, 67, 68, 97, 130]),  # 17 dwords are two steps of 9
    outputs=st.sampled_from([14, 16, 17, 30, 32, 33, 48, 65]),
    kernel=st.sampled_from([(1, 1), (1, 1), (3, 3), (2, 3)]),
    stride=st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1)]),
    pad=st.sampled_from([(0, 0), (1, 1), (0, 2)]),
    dilation=st.sampled_from([(1, 1), (1, 1), (2, 2)]),
    size=st.tuples(st.integers(1, 9), st.sampled_from([1, 7, 8, 13, 14, 16, 17, 33])),
    batch=st.sampled_from([1, 2, 9]),
    zeros=st.tuples(st.sampled_from([0, -128]), st.sampled_from([0, -128])),
    leaky=st.sampled_from([False, False, True]),
    seed=st.integers(0, 2**32 - 1),
)
def test_convolutions_of_sizes_around_tiles(
    variant: str,
    group: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    batch: int,
    zeros: tuple[int, int],
    leaky: bool,
    seed: int,
) -> None:
    """Rows, whole maps and single pixels of all images as lines; a part of the last tiles, steps and blocks."""
    rng, window = np.random.default_rng(seed), Window(kernel, stride, pad, dilation)
    h, w = covering(window, size)
    task = convolution(rng, (group * outputs, inputs, *kernel), group, window, zeros, leaky)
    same(variant, task, codes(rng, batch, group * inputs, h, w))


THREE = Window((3, 3), (1, 1), (1, 1))
SHAPES = [  # weights, group, window, input; whether tiles compute it
    ((48, 68, 1, 1), 1, POINT, (1, 68, 14, 14), True),
    ((96, 64, 3, 3), 1, THREE, (1, 64, 28, 28), True),
    ((64, 192, 3, 3), 1, THREE, (1, 192, 7, 7), True),  # 61 positions of the map and its border: four tiles
    ((128, 100, 3, 3), 2, THREE, (1, 200, 13, 13), True),
    ((256, 128, 1, 1), 1, Window((1, 1), (2, 2), (0, 0)), (1, 128, 28, 28), True),
    ((100, 400, 1, 1), 1, POINT, (16, 400, 1, 1), True),  # an inner product
    ((100, 400, 1, 1), 1, POINT, (1, 400, 1, 1), False),
    ((64, 3, 7, 7), 1, Window((7, 7), (2, 2), (3, 3)), (1, 3, 64, 64), False),  # 6 of 16 dwords
    ((10, 68, 1, 1), 1, POINT, (1, 68, 3, 2), False),
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("weights", "group", "window", "x", "tiled"), SHAPES)
def test_tiles_compute_what_fills_them(
    variant: str,
    weights: tuple[int, int, int, int],
    group: int,
    window: Window,
    x: tuple[int, ...],
    tiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    task = convolution(rng, weights, group, window)
    other = packed(OTHERS[variant], task, x)
    assert packed(variant, task, x) == (in_tiles(task) if tiled else other)
    monkeypatch.setattr(programs, "LARGE", 1 << 30)
    same(variant, task, codes(rng, *x))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_have_32_bits(variant: str, sign: int) -> None:
    """Two products of 255 * 127 leave 16 bits; nothing saturates."""
    rng = np.random.default_rng(0)
    task = convolution(rng, (33, 4096, 1, 1))
    task = replace(task, weights=np.full_like(task.weights, 127 * sign))
    for code in (-128, 127):
        same(variant, task, np.full((1, 4096, 4, 5), code, np.int8))


@pytest.mark.parametrize("variant", VARIANTS)
def test_channels_of_a_wider_blob(variant: str) -> None:
    """Bytes behind a run are other channels: they do not count, and those beside the output stay as they are."""
    rng = np.random.default_rng(0)
    x, channels = codes(rng, 2, 141, 6, 17), 67
    tasks, wanted = [], np.empty((2, 74, 6, 17), np.int8)
    for source, target, first in (("right", "b", 37), ("left", "a", 0)):
        task = convolution(rng, (37, channels, 3, 3), 1, THREE)
        at = 3 + (channels if source == "right" else 0)
        wanted[:, first : first + 37] = task.define(x[:, at : at + channels])
        tasks.append(replace(task, inputs=(source,), output=target))
    shapes = {"left": (2, channels, 6, 17), "right": (2, channels, 6, 17), "a": (2, 37, 6, 17), "b": (2, 37, 6, 17)}
    views = {"left": View("x", 3), "right": View("x", 3 + channels), "a": View("both", 0), "b": View("both", 37)}
    with used(variant):
        blobs = {"x": x}
        program(tasks, blobs, shapes | {"both": wanted.shape}, views, ("both",)).run(blobs)
    assert np.array_equal(blobs["both"], wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=examples(30))
@given(changes=CHANGES)
def test_a_table_that_passes_the_check_writes_inside_its_buffers_only(
    variant: str, changes: list[tuple[str, int]]
) -> None:
    chosen = library.variant(variant)
    with used(variant):
        task = convolution(np.random.default_rng(0), (33, 68, 3, 3), 1, THREE)
        (native,) = program([task], {"x": np.zeros((2, 68, 7, 14), np.int8)}, {"y": (2, 33, 7, 14)}, None, ("y",)).parts
    assert isinstance(native, NativeProgram)
    kinds = [operation.kind for operation in native.table]
    contents = {programs.CONSTANTS: native._packed()}
    changed(native.table, native._extents(), contents, changes, kinds.index(Kind.CONVOLUTION), chosen)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["googlenet", "squeezenet_v1.1", "cifar_resnet20", "mobilenet_v1", "resnet50"])
def test_networks_have_the_codes_of_other_kernels(variant: str, name: str) -> None:
    """Every blob, with one image and with several; of the published weights, or random ones."""
    files = MODELS / name
    arguments = [files / "deploy.prototxt", files / "weights.caffemodel"] if files.is_dir() else [name]
    for batch in (1, 3):
        blobs: dict[str, dict[str, np.ndarray]] = {}
        others = OTHERS[variant]
        for kernels in (variant, others):
            with used(others):
                net = chai.Net(*map(str, arguments), device="emulator", keep="all")
                shape = batch, *net.graph.inputs[net.inputs[0]][1:]
                x = np.random.default_rng(batch).normal(0, 40, shape).astype(np.float32)
                net.calibrate(x)
            with used(kernels):
                net.forward(x)
                blobs[kernels] = {blob: net.blobs[blob] for blob in net.blobs.readable}
        assert len(blobs[variant]) > 5
        assert all(np.array_equal(blob, blobs[others][name]) for name, blob in blobs[variant].items())


# -- the instructions

NEEDS_COMPILER = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler (cc)")
INSTRUCTIONS = """
#include <stdint.h>
#include <string.h>
#ifdef REAL
#include "chai.h"
#include "finish.h"
#include "amx.h"
#else
#include "amx_in_c.h"
#endif
/* Each may be NULL: the instruction is left out then. */
void product(const uint8_t *tiles, const uint8_t *a, const int8_t *b, int32_t *c, int64_t stride) {
    __asm__ volatile("" ::: "memory");
    if (tiles) TILE_CONFIGURE(tiles);
    if (c) TILE_LOAD(0, c, stride);
    if (a) TILE_LOAD(4, a, stride);
    if (b) TILE_LOAD(6, b, stride);
    if (a || b) TILE_DOT(0, 4, 6);
    if (c) TILE_STORE(0, c, stride);
    TILE_RELEASE();
}
"""


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> list[ctypes.CDLL]:
    """The instructions in plain C, and the processor's if it has them."""
    folder = tmp_path_factory.mktemp("amx")
    (folder / "product.c").write_text(INSTRUCTIONS)
    kinds = {"c": []} | ({"real": ["-DREAL", *build.VARIANTS["x86_64"]["amx"]]} if "amx" in AMX else {})
    calls = []
    for name, flags in kinds.items():
        path = folder / f"{name}.so"
        command = ["cc", "-O1", "-shared", "-fPIC", f"-I{build.FOLDER}", *flags, f"{folder}/product.c", "-o", str(path)]
        subprocess.run(command, check=True)
        calls.append(ctypes.CDLL(str(path)))
        calls[-1].product.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int64]
    return calls


def configuration(rows: int, depth: int, columns: int) -> np.ndarray:
    """The 64 bytes that tell of tiles of sums (0), codes (4) and weights (6)."""
    tiles = np.zeros(64, np.uint8)
    tiles[0] = 1
    sizes = tiles[16:48].view(np.uint16)
    sizes[[0, 4, 6]], tiles[[48, 52, 54]] = (4 * columns, 4 * depth, 4 * columns), (rows, rows, depth)
    return tiles


@NEEDS_COMPILER
@settings(max_examples=examples(30))
@given(
    rows=st.integers(1, 16),
    depth=st.integers(1, 16),
    columns=st.integers(1, 16),
    stride=st.sampled_from([64, 67, 200]),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_those_of_whole_numbers(
    instructions: list[ctypes.CDLL], rows: int, depth: int, columns: int, stride: int, seed: int
) -> None:
    """Modulo 2^32, and bytes beyond rows and columns stay as they are."""
    rng = np.random.default_rng(seed)
    memory = [rng.integers(0, 256, 16 * stride + 64).astype(np.uint8) for _ in range(3)]

    def part(array: np.ndarray, height: int, width: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(array, (height, width), (stride, 1))

    a, b = part(memory[0], rows, 4 * depth), part(memory[1], depth, 4 * columns).view(np.int8)
    c = np.ascontiguousarray(part(memory[2], rows, 4 * columns)).view(np.uint32).astype(np.int64)
    wanted = memory[2].copy()
    fours = b.reshape(depth, columns, 4).transpose(0, 2, 1).reshape(4 * depth, columns).astype(np.int64)
    sums = (c + a.astype(np.int64) @ fours).astype(np.uint32)
    part(wanted, rows, 4 * columns)[...] = sums.view(np.uint8).reshape(rows, 4 * columns)
    for calls in instructions:
        result = memory[2].copy()
        tiles = configuration(rows, depth, columns)
        calls.product(*(array.ctypes.data for array in (tiles, memory[0], memory[1], result)), stride)
        assert np.array_equal(result, wanted)


def broken(**changes: tuple[int, int]) -> np.ndarray:
    """A configuration with some bytes (place, value) changed."""
    tiles = configuration(16, 16, 16)
    for place, value in changes.values():
        tiles[place] = value
    return tiles


FAULTS = {
    "no configuration": None,
    "palette 0": broken(palette=(0, 0)),
    "palette 2": broken(palette=(0, 2)),
    "reserved byte": broken(reserved=(7, 1)),
    "65 bytes of a row": broken(bytes=(16, 65)),
    "17 rows": broken(rows=(48, 17)),
    "a ninth tile": broken(bytes=(32, 64), rows=(56, 16)),
    "rows of codes and sums": broken(rows=(52, 15)),
    "bytes of weights and sums": broken(bytes=(28, 60)),
    "bytes of codes and rows of weights": broken(bytes=(24, 60)),
    "three bytes of codes": broken(bytes=(24, 3), rows=(54, 1)),
}


@NEEDS_COMPILER
@pytest.mark.parametrize("tiles", FAULTS.values(), ids=FAULTS)
def test_instructions_end_the_process_where_the_processor_does(
    instructions: list[ctypes.CDLL], tiles: np.ndarray | None
) -> None:
    memory = np.zeros((3, 1024), np.uint8)
    for calls in instructions:

        def work(calls: ctypes.CDLL = calls) -> bool:
            faulthandler.disable()
            calls.product(None if tiles is None else tiles.ctypes.data, *(m.ctypes.data for m in memory), 64)
            return True

        assert in_child(work) in (-signal.SIGILL, -signal.SIGSEGV)


# -- the process


def large() -> tuple[Conv, np.ndarray]:
    """A convolution of several pieces of work, and its input."""
    rng = np.random.default_rng(0)
    return convolution(rng, (64, 68, 3, 3), 1, THREE), codes(rng, 3, 68, 20, 21)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiles_in_threads_begun_before_and_in_a_forked_process(variant: str) -> None:
    """Each computes the same, one after the other and at the same time, with Python's handler of faults and without."""
    task, x = large()
    wanted, begin, results = task.define(x), threading.Event(), list[bool]()

    def right() -> bool:
        blobs = {"x": x}
        program([task], blobs, {"y": wanted.shape}, None, ("y",)).run(blobs)
        return np.array_equal(blobs["y"], wanted)

    def wait() -> None:
        begin.wait(60)
        results.append(right())

    with used(variant):
        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert right()  # asks the system, if the real ones are meant
        begin.set()
        for thread in threads:
            thread.join()
        assert results == [True, True]
        assert in_child(right) == 0
        before = faulthandler.is_enabled()
        faulthandler.enable(sys.__stderr__)
        try:
            assert right()
        finally:
            if not before:
                faulthandler.disable()


@pytest.mark.parametrize("variant", VARIANTS)
def test_control_c_between_pieces(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that returns after each piece has the same codes; one that a signal breaks off leaves the next one right."""
    task, x = large()
    wanted, returned = task.define(x), list[int]()
    chosen = library.variant(variant)
    assert chosen is not None
    monkeypatch.setattr(library, "PAUSE", 0.0)

    def after(done: int) -> None:
        returned.append(done)
        if len(returned) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with used(variant):
        compiled = program([task], {"x": x}, {"y": wanted.shape}, None, ("y",))
        (native,) = compiled.parts
        assert isinstance(native, NativeProgram)
        native._library = with_calls(chosen, Calls(chosen.calls, after))
        with pytest.raises(KeyboardInterrupt):
            compiled.run({"x": x})
        assert returned == [0, 0]
        blobs = {"x": x}
        compiled.run(blobs)
    assert np.array_equal(blobs["y"], wanted)
    assert returned.count(0) > 3


REFUSED = """
import ctypes, sys
import numpy as np
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(2048)  # too small for tiles: Linux refuses them to the whole process
assert not ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 2048)), None)
from chai import devices
from chai.kernels.native import library
from tests.kernels.common import program
from tests.kernels.test_amx import large
known, calls, number = library.state(), library.library().calls, 0
while calls.chai_variant(number) != b"amx":
    number += 1
chosen = library.Library("amx", number, calls)  # also where the processor has none
library.state = lambda: library.LibraryState((chosen,), "", chosen)
task, x = large()
blobs = {"x": x}
program([task], blobs, {"y": (3, 64, 20, 21)}, None, ("y",)).run(blobs)
assert np.array_equal(blobs["y"], task.define(x))
print(devices.open("emulator").status()[1])
"""


@pytest.mark.skipif("amx_vnni" not in AMX, reason="this processor has no AVX512-VNNI")
def test_vectors_compute_what_the_system_refuses_to_tiles() -> None:
    """The real variant: without a processor that has tiles, or with a stack for signals that is too small for them."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("this host, kernels in C (avx512vnni: the system refuses AMX, ")


def test_the_kernels_in_plain_c_are_taken_by_name_only() -> None:
    assert not {"amx_plain", "amx_vnni"} & {library.state().used.name if library.state().used else ""}
    assert devices.open("emulator").status()[0]
