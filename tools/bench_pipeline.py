"""Measure throughput of net.stream against the ideal, with stages of known length, and conversions against memcpy.

    python tools/bench_pipeline.py [--batches 40]

A device that sleeps for each segment simulates the FPGA, and a custom layer that sleeps simulates a host layer: as on a
board, neither competes with the other for the processor. The ideal is the longest lane.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

import chai
from chai.devices.base import Ran
from chai.devices.null import NullDevice, NullProgram
from chai.fixed import Format
from chai.kernels.codes import pack, unpack
from chai.tasks.work import Work

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 16 kernel_size: 3 } }
layer { name: "wait" type: "wait" bottom: "c1" top: "w" user_defined_layer: true xcustom_param { top_dim: [1,16,6,6] } }
"""


class SlowProgram(NullProgram):
    """A program that takes ``seconds`` and returns zeros."""

    seconds = 0.02

    def run(self, blobs: dict[str, Any]) -> Ran:
        sleep(self.seconds)
        return super().run(blobs)


class SlowDevice(NullDevice):
    """A null device with a fixed time per segment."""

    def compile(self, work: Work) -> SlowProgram:
        return SlowProgram(work)


def throughput(device: float, host: float, batches: int) -> float:
    """Return a stream's share of the ideal throughput, for seconds per batch on device and host."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.prototxt")
        path.write_text(NET)
        net = chai.Net(path, device=SlowDevice("slow", ""), custom={"wait": lambda _: sleep(host)})
    SlowProgram.seconds = device
    data = [np.zeros((1, 3, 8, 8), np.float32)] * batches
    net.plan()
    list(net.stream(data[:2]))  # loads the compiled kernels
    begin = perf_counter()
    assert len(list(net.stream(data))) == batches
    ideal = batches * max(device, host) + min(device, host)  # the first batch has nothing to overlap with
    return ideal / (perf_counter() - begin)


def interleaved(runs: dict[str, Callable[[], Any]], repeats: int, rounds: int = 31) -> dict[str, float]:
    """Return the median microseconds of each run, interleaved so that all see the same load."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = perf_counter()
            for _ in range(repeats):
                run()
            times[name].append((perf_counter() - begin) * 1e6 / repeats)
    return {name: median(t) for name, t in times.items()}


def conversions(bytes: int) -> dict[str, float]:
    """Return the microseconds of memcpy, Pack and Unpack of this many bytes of float32."""
    x = np.random.default_rng(0).standard_normal(bytes // 4).astype(np.float32)
    format, copy = Format("Xilinx", 8, 3.7), np.empty_like(x)
    codes = pack(x, format)
    runs = {
        "memcpy": lambda: np.copyto(copy, x),
        "pack": lambda: pack(x, format),
        "unpack": lambda: unpack(codes, format),
    }
    return interleaved(runs, max(1, (1 << 22) // bytes))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    batches = parser.parse_args().batches
    for device, host in ((0.020, 0.015), (0.015, 0.020), (0.020, 0.020), (0.020, 0.002)):
        share = throughput(device, host, batches)
        print(
            f"device {1000 * device:3.0f} ms, host {1000 * host:3.0f} ms: {share:.3f} of the ideal throughput   goal 0.95"
        )
    for bytes in (1 << 16, 1 << 20, 1 << 26):
        took = conversions(bytes)
        pack_ratio, unpack_ratio = took["pack"] / took["memcpy"], took["unpack"] / took["memcpy"]
        print(
            f"{bytes >> 10:6,d} KiB of float32: memcpy {took['memcpy']:8.1f} us, pack {pack_ratio:.2f} x, "
            f"unpack {unpack_ratio:.2f} x   goal 2"
        )


if __name__ == "__main__":
    main()
