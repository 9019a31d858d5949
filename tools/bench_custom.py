"""Measure the cost of custom layers: a call, gemm against numpy, bounds checks, the first image, process start.

    python tools/bench_custom.py [--only gemm]

Each figure is a median, printed with its goal. Compared runs are interleaved; fresh processes, where named, start with
numba's cache filled by an earlier one. One thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(THREADS, "1"))  # before numpy is imported

import numpy as np  # noqa: E402

import chai  # noqa: E402
from chai.blob import Shape  # noqa: E402
from chai.env import env  # noqa: E402
from chai.errors import PluginError  # noqa: E402
from chai.plugins.definition import CustomType  # noqa: E402
from chai.plugins.fields import CustomParams  # noqa: E402
from chai.plugins.frame import Frame  # noqa: E402
from chai.plugins.layer import CustomLayer  # noqa: E402
from chai.plugins.loading import load_shipped  # noqa: E402
from chai.plugins.registry import REGISTRY  # noqa: E402
from chai.util.paths import resource  # noqa: E402

PROCESSES = 10
SHIPPED: dict[str, tuple[Shape, tuple[float, ...]]] = {  # type: shape of its bottom, float_args
    "LRN": ((1, 64, 56, 56), (5, 0.0001, 0.75)),
    "identity": ((1, 64, 56, 56), ()),
    "Python_passthrough": ((1, 64, 26, 26), ()),
    "Python": ((1, 64, 26, 26), (2,)),
    "LeakyReLU": ((1, 64, 56, 56), (0.1,)),
    "Region": ((1, 125, 13, 13), (20, 4, 5, 1)),
    "RegionOutput": ((1, 125, 13, 13), (0.24, 0.45, 100, 1.3, 1.7, 3.2, 4.0, 5.1, 8.1, 9.5, 4.8, 11.2, 10.0)),
    "gemm": ((1, 1024, 1, 1), (1000,)),
}


def say(what: str, figure: float, unit: str, goal: float) -> None:
    """Print a figure and its goal."""
    print(f"{what:62s} {figure:8.2f} {unit:5s} goal {goal:g}   {'met' if figure <= goal else 'NOT MET'}", flush=True)


def turns(rounds: int, *runs: Callable[[], Any]) -> list[float]:
    """Return the median microseconds of each run; runs are interleaved."""
    return [median(times) for times in measured(rounds, *runs)]


def measured(rounds: int, *runs: Callable[[], Any]) -> list[list[float]]:
    """Return the microseconds of each round of each run; runs are interleaved."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for kept, run in zip(times, runs):
            begin = perf_counter()
            run()
            kept.append((perf_counter() - begin) * 1e6)
    return times


def layer_of(type: str, floats: Sequence[float] = (), blobs: Sequence[Any] = (), top_dim: Shape = ()) -> CustomLayer:
    """Return a layer of a registered type, outside any network."""
    custom = REGISTRY.find(type)
    assert isinstance(custom, CustomType)
    params = CustomParams(top_dim, tuple(floats))
    return CustomLayer(custom, name=type, type=type, bottoms=("x",), tops=("y",), params=params, blobs=list(blobs))


def overhead() -> None:
    """Measure the call of a compiled layer that reads its arguments and does nothing."""

    @chai.custom("nothing", args={"stride": 2, "scale": 0.5})
    def nothing(x: Any, stride: int, scale: float) -> None:
        if x.input_dims[0][0] < stride - 2:
            x.out_ptrs[0][0] = x.in_ptrs[0][0] * scale

    x = np.zeros((1, 8, 4, 4), np.float32)
    layer = layer_of("nothing", top_dim=x.shape)
    frame = layer.frame((x.shape,))
    assert frame.compiled is not None
    compiled, top = frame.compiled, x.copy()
    empty, alone, forward = turns(5000, lambda: None, lambda: compiled([x], [top]), lambda: layer.forward(x))
    say("call of a compiled layer that does nothing", alone - empty, "us", 3)
    say("the same with buffers, guard words and checks (forward)", forward - empty, "us", 3)


def step() -> None:
    """Measure a step of a pass whose layer's function does nothing: networks of 1 and 101 such layers."""

    @chai.custom("idle")
    def idle(x: Any) -> None:
        pass

    nets = []
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 101):
            text, blob = 'input: "x" input_shape { dim: 1 dim: 8 dim: 4 dim: 4 }\n', "x"
            for i in range(count):
                ports = f'name: "y{i}" type: "idle" bottom: "{blob}" top: "y{i}"'
                text += f"layer {{ {ports} xcustom_param {{ top_dim: 1 top_dim: 8 top_dim: 4 top_dim: 4 }} }}\n"
                blob = f"y{i}"
            path = Path(folder, f"{count}.prototxt")
            path.write_text(text)
            nets.append(chai.Net(path, device="float"))
    x = np.zeros((1, 8, 4, 4), np.float32)
    one, many = (min(times) for times in measured(300, *(partial(net.forward, x) for net in nets)))
    say("step of a custom layer beyond its function, least of 300", (many - one) / 100, "us", 10)


def gemm() -> None:
    """Measure GoogLeNet's classifier, 1024 to 1000, against the matmul alone."""
    load_shipped()
    random = np.random.default_rng(0)
    weights, bias = (random.standard_normal(s).astype(np.float32) for s in ((1000, 1024), (1000,)))
    layer = layer_of("gemm", (1000,), (weights, bias))
    for batch in (1, 8):
        x = random.standard_normal((batch, 1024, 1, 1)).astype(np.float32)
        multiply = partial(np.matmul, x.reshape(batch, 1024), weights.T, out=np.empty((batch, 1000), np.float32))
        for way in layer.custom.implementations:
            frame = Frame(layer, (x.shape,), layer.shapes(x.shape), None, way)
            ours, peer = turns(300, partial(frame.run, (x,)), multiply)
            taken = " (taken)" if frame.implementation is layer.frame((x.shape,)).implementation else ""
            say(f"gemm, batch {batch}, {way.name}{taken}: {ours:.0f} us, matmul {peer:.0f} us", ours / peer, "x", 1.5)


def bounds() -> None:
    """Measure compiled shipped layers with bounds checks (the default) against without."""
    load_shipped()
    random = np.random.default_rng(0)
    for type in ("gemm", "Region", "LRN", "RegionOutput", "Python", "LeakyReLU"):
        shape, floats = SHIPPED[type]
        blobs = (
            [random.standard_normal(s).astype(np.float32) for s in ((1000, 1024), (1000,))] if type == "gemm" else []
        )
        frames = []
        for checked in (False, True):
            layer = layer_of(type, floats, blobs)
            layer.custom = copy(layer.custom)
            layer.custom.options = replace(layer.custom.options, boundscheck=checked)
            frames.append(Frame(layer, (shape,), layer.shapes(shape), None, layer.custom.implementations[0]))
        x = random.random(shape, np.float32)
        free, checked_us = turns(100, *(partial(frame.run, (x,)) for frame in frames))
        say(f"bounds checks, {type}: {checked_us:.0f} us, without {free:.0f} us", checked_us / free, "x", 1.5)


def first() -> None:
    """Run GoogLeNet with the custom LRN twice in each of ten processes, to see whether the first image compiles."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.prototxt")
        text = resource("prototxt", "googlenet.prototxt").read_text()
        path.write_text(text.replace('type: "LRN"', 'type: "LRN" user_defined_layer: true'))
        times = [tuple(map(float, fresh("once", path))) for _ in range(PROCESSES + 1)][1:]
    one, two, ratio = (median(v) for v in zip(*((a, b, a / b) for a, b in times)))
    what = f"first image {one:.1f} ms, second {two:.1f} ms, median ratio of {PROCESSES} processes"
    say(what, ratio, "x", 1.1)


def once(path: str) -> None:
    """Print the milliseconds of the first two images."""
    net = chai.Net(path, device="float")
    data = np.zeros(net.shapes["data"], np.float32)
    for _ in range(2):
        begin = perf_counter()
        net.forward(data)
        print((perf_counter() - begin) * 1000)


def start() -> None:
    """Measure loading all shipped layers and their compiled code, in processes that have imported numba."""
    times = [tuple(map(float, fresh("prepare"))) for _ in range(PROCESSES + 1)][1:]
    preferred, numba, compiled = (median(v) for v in zip(*times))
    say(f"start of all {len(SHIPPED)} shipped layers beyond import numba", preferred, "ms", 50)
    say(f"the same compiled, behind numba's own first function ({numba:.0f} ms)", compiled, "ms", 50)


def prepare() -> None:
    """Print the milliseconds until all shipped layers are ready, of numba's first function, and of compiling the layers."""
    import numba

    begin = perf_counter()
    load_shipped()
    layers = {}
    for type, (shape, floats) in SHIPPED.items():
        blobs = [np.zeros((1000, 1024), np.float32), np.zeros(1000, np.float32)] if type == "gemm" else []
        layers[type] = layer_of(type, floats, blobs, shape if type == "Python_passthrough" else ())
        layers[type].prepare((shape,), ())
    preferred = perf_counter()
    numba.njit("void(int64)")(do_nothing)
    first = perf_counter()
    for type, (shape, _) in SHIPPED.items():
        layer = layers[type]
        Frame(layer, (shape,), layer.shapes(shape), None, layer.custom.implementations[0])
    last = perf_counter()
    print(*(1000 * ms for ms in (preferred - begin, first - preferred, last - first)))


def do_nothing(_: int) -> None:
    """Do nothing: the function that numba compiles fastest."""


def fresh(*arguments: Any) -> list[str]:
    """Return the lines that a separate process prints."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def opencl() -> None:
    """Compare a kernel in a process of its own, in this process, and numpy."""
    kernel = """
__kernel void relu(__global const float* x, __global float* y) { size_t i = get_global_id(0); y[i] = fmax(x[i], 0.0f); }
"""
    opencl = chai.custom.opencl("relu_opencl", kernel)

    def relu(x: Any) -> None:
        np.maximum(x.in_ptrs[0], 0, out=x.out_ptrs[0])

    plain = CustomType("relu_numpy", relu, False, replace(opencl.options))
    for shape in ((1, 96, 55, 55), (1, 16, 7, 7), (8, 96, 55, 55)):
        blob = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        frames = {}
        ways = {"own process": (opencl, "0"), "this process": (opencl, "1"), "numpy": (plain, "0")}
        for name, (custom, inside) in ways.items():
            os.environ["CHAI_OPENCL_INPROCESS"] = inside
            env.cache_clear()
            layer = CustomLayer(custom, name="relu", type="ReLU", bottoms=("x",), tops=("y",))
            try:
                layer.forward(blob)  # chooses the process, compiles
            except PluginError as error:  # PoCL does not know the processor; only a process of its own may correct that
                print(f"{name}: {error.message.splitlines()[0]}", flush=True)
                continue
            frames[name] = layer, layer.frame((shape,))
        times = measured(300, *(partial(frame.run, [blob]) for _, frame in frames.values()))
        words = ", ".join(f"{name} {median(us) / 1000:.3f} ({min(us) / 1000:.3f})" for name, us in zip(frames, times))
        print(f"ReLU {'x'.join(map(str, shape)):14s} ms, median (least): {words}", flush=True)
        for layer, _ in frames.values():
            layer.close()


def main() -> None:
    """Print one line per figure."""
    if sys.argv[1:2] == ["once"]:
        once(sys.argv[2])
    elif sys.argv[1:2] == ["prepare"]:
        prepare()
    else:
        parts = {"overhead": overhead, "step": step, "gemm": gemm, "bounds": bounds, "first": first, "start": start}
        parts |= {"opencl": opencl} if find_spec("pyopencl") else {}
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--only", choices=parts, help="one of these (opencl if it is installed)")
        only = parser.parse_args().only
        for name, part in parts.items():
            if only in (None, name):
                part()


if __name__ == "__main__":
    main()
