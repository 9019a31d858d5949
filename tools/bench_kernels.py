"""Measure the kernels in C: each operation of a network against the processor's peak, in passes of the whole table.

    python tools/bench_kernels.py prototxt/googlenet.prototxt [googlenet.caffemodel] [--rounds 200] [--variant avx2]
    python tools/bench_kernels.py NET WEIGHTS --busy 2      # whole passes of one thread and of two, beside two processes
    python tools/bench_kernels.py

Without a network: Pack and Unpack against memcpy, in bytes read and written per second of the process's time.

Figures are the least of all rounds, one thread. The peak is measured by ``tools/bench/peak.c``: products of 8 bits in
registers, no memory.
Products are the layer's own: neither padding of channels nor taps of zeros count.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time
from typing import NamedTuple
from unittest import mock

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(THREADS, "1"))  # before numpy is imported

import numpy as np  # noqa: E402
from bench.peak import peaks  # noqa: E402

import chai  # noqa: E402
from chai.devices.emulator import EmulatedProgram  # noqa: E402
from chai.fixed import Format, Requantization  # noqa: E402
from chai.kernels.native import library, program, single  # noqa: E402
from chai.kernels.native.library import RunArguments  # noqa: E402
from chai.kernels.native.program import NativeProgram  # noqa: E402
from chai.kernels.native.single import Single  # noqa: E402
from chai.kernels.native.table import Form, Kind, Operation  # noqa: E402
from chai.util.table import plain  # noqa: E402

PRODUCTS = (Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.IN_PLACE)


class Row(NamedTuple):
    """An operation: the layers it belongs to, its kind and sizes, its products, and microseconds."""

    name: str
    kind: int
    sizes: str
    products: int
    us: float


def programs(net: chai.Net, x: np.ndarray) -> list[NativeProgram]:
    """Return the tables of Tasks that a pass of the network runs."""
    net.forward(x)
    compiled = (program for programs in net.offload._programs.values() for program in programs)
    parts = (part for program in compiled if isinstance(program, EmulatedProgram) for part in program.parts)
    return [part for part in parts if isinstance(part, NativeProgram)]


def measured(native: NativeProgram, rounds: int) -> Iterator[Row]:
    """Yield the operations of a table, run in order in each round."""
    extents = native._extents()
    rng = np.random.default_rng(0)
    buffers = [rng.integers(0, 256, extent.size, np.uint8) for extent in extents]
    buffers[1], buffers[len(buffers) - len(native._files) :] = native._memory, native.files
    tables = [(Operation * 1).from_buffer_copy(operation) for operation in native.table]
    for (operation,) in tables:
        operation.after = 0  # alone it waits for no other
    assert all(native._library.check(table, extents) < 0 for table in tables)
    frames = [RunArguments(table, len(native.tasks), buffers) for table in tables]
    best = [float("inf")] * len(tables)
    for _ in range(rounds):
        for i, (table, frame) in enumerate(zip(tables, frames)):
            best[i] = min(best[i], sum(native._library.run(table, frame)))
    for operation, ms in zip(native.table, best):
        kind, task = operation.kind, native.tasks[operation.task]
        o = operation
        taps = int(task.weights.shape[2] * task.weights.shape[3]) if kind in PRODUCTS else 0
        products = o.images * o.out_height * o.out_width * o.outputs * o.channels // o.group * taps
        sizes = (
            f"{o.channels}x{o.height}x{o.width} -> {o.outputs}x{o.out_height}x{o.out_width}, {o.kernel_h}x{o.kernel_w}"
        )
        yield Row(" & ".join(task.origin), kind, sizes, products, ms * 1000)


def beside(net: chai.Net, x: np.ndarray, busy: int, rounds: int) -> None:
    """Print the time of passes with one thread and with two, in turn, while ``busy`` processes compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    ms: dict[int, list[float]] = {1: [], 2: []}
    try:
        for _ in range(rounds):
            for count, times in ms.items():
                with (
                    mock.patch.object(program, "threads", return_value=count),
                    mock.patch.object(single, "threads", return_value=count),
                ):
                    begin = perf_counter()
                    net.forward(x)
                    times.append(1000 * (perf_counter() - begin))
    finally:
        for other in others:
            other.kill()
            other.wait()
    for what, of in (("least", min), ("median", np.median), ("mean", np.mean)):
        one, two = (float(of(times)) for times in ms.values())
        print(f"{busy} busy processes, {what}: 1 thread {one:.2f} ms, 2 threads {two:.2f} ms, {two / one:.2f} times")
    print(f"load {os.getloadavg()[0]:.1f}")


def conversions() -> None:
    """Print the speed of Pack and Unpack as a share of memcpy's, with as many bytes; rounds are interleaved."""
    format = Format("Xilinx", 8, 47.0)
    low, high = format.packed
    r = Requantization(np.ones(1, np.int64), 0, low, high)
    for count, rounds in ((200_000, 800), (33_000_000, 10)):  # multiples of 64
        x = np.random.default_rng(0).normal(0, 50, count).astype(np.float32)
        codes, back = np.zeros(count, np.int8), np.zeros(count, np.float32)
        source, target = (
            np.ones(x.nbytes + codes.nbytes >> 1, np.uint8),
            np.zeros(x.nbytes + codes.nbytes >> 1, np.uint8),
        )
        shape = 1, count >> 6, 8, 8
        for variant in library.state().variants:
            packing = Single(variant, Form(Kind.PACK, r, numbers=(format.step,)), shape, shape, (1,))
            unpacking = Single(variant, Form(Kind.UNPACK, numbers=(format.step,)), shape, shape)
            nan = np.zeros(1, np.uint8)
            runs: tuple[Callable[[], object], ...] = (
                partial(ctypes.memmove, library.pointer(target), library.pointer(source), source.size),
                partial(variant.run_one, packing._table[0], 0, x, codes, nan),
                partial(variant.run_one, unpacking._table[0], 0, codes, back),
            )
            best = [float("inf")] * len(runs)
            for _ in range(rounds):
                for i, run in enumerate(runs):
                    begin = process_time()
                    run()
                    best[i] = min(best[i], process_time() - begin)
            speed = 2 * source.size / best[0] / 1e9
            shares = f"pack {best[0] / best[1]:.2f}, unpack {best[0] / best[2]:.2f}"
            print(
                f"{count:8} numbers, {variant.name}: memcpy {speed:.0f} GB/s; {shares} of it, load {os.getloadavg()[0]:.1f}"
            )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("network", nargs="?")
    parser.add_argument("weights", nargs="?")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--busy", type=int, metavar="N", help="compare one thread with two, beside N busy processes")
    parser.add_argument("--variant", help="sets CHAI_KERNELS")
    args = parser.parse_args()
    if args.variant:
        os.environ["CHAI_KERNELS"] = args.variant
    if args.network is None:
        conversions()
        return
    net = chai.Net(args.network, args.weights, batch=1)
    (name,) = net.graph.inputs
    x = np.random.default_rng(1).normal(0, 50, net.shapes[name]).astype(np.float32)
    net.forward(x)
    if args.busy is not None:
        beside(net, x, args.busy, args.rounds)
        return
    natives = programs(net, x)
    peak = peaks().get(natives[0]._library.name, float("nan"))
    rows = [row for native in natives for row in measured(native, args.rounds)]
    shown = [
        (
            r.name,
            Kind.name(r.kind),
            r.sizes,
            f"{r.us:.1f}",
            *(share(r.products, r.us, peak) if r.products else ("", "")),
        )
        for r in rows
    ]
    print(plain(["layer", "operation", "sizes", "us", "GMAC/s", "% of peak"], shown, "lllrrr"))
    total = sum(r.us for r in rows)
    print(f"{natives[0]._library.name}: peak {peak:.0f} GMAC/s, load {os.getloadavg()[0]:.1f}")
    for kind in sorted({r.kind for r in rows}):
        of = [r for r in rows if r.kind == kind]
        if of:
            us, products = sum(r.us for r in of), sum(r.products for r in of)
            print(f"{Kind.name(kind):12} {us:9.1f} us", *(share(products, us, peak) if products else ()))
    print(f"{'all':12} {total:9.1f} us", *share(sum(r.products for r in rows), total, peak))


def share(products: int, us: float, peak: float) -> tuple[str, str]:
    """Return GMAC/s, and percent of the peak."""
    rate = products / us / 1000
    return f"{rate:.0f}", f"{100 * rate / peak:.1f}"


if __name__ == "__main__":
    main()
