"""Run and open networks many times and measure leaks of memory, threads and file descriptors.

    python tools/leaks.py [--forwards 10000] [--networks 100]

Runs the shipped network on the emulator, in float and as a compiled file, one by one and as a stream, with a custom layer;
then opens networks, runs each once and closes it. Each part is warmed up first. Exit code 1 if there are more threads or
descriptors than before, or memory has grown by more than GROWTH.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

import chai
from chai.artifact.save import save
from chai.zoo.card import Card

GROWTH = 16 << 20  # bytes; freed memory that the allocator retains varies by a few MB between runs
WARM = 20  # one in WARM of the passes is run before measuring


class Usage(NamedTuple):
    """Resources that this process holds."""

    memory: int
    threads: int
    descriptors: int


def usage() -> Usage:
    """Return the current usage, from /proc."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir())) - 1  # minus the descriptor of the listing itself
    return Usage(pages * 4096, threading.active_count(), descriptors)


def measured(name: str, work: Callable[[int], None], count: int) -> bool:
    """Do ``work`` ``count`` times and print what it leaked; return whether that is nothing."""
    work(max(count // WARM, 2))
    before, begin = usage(), perf_counter()
    work(count)
    seconds, after = perf_counter() - begin, usage()
    ok = after.threads <= before.threads and after.descriptors <= before.descriptors
    ok = ok and after.memory - before.memory <= GROWTH
    grown = (after.memory - before.memory) / 1e6
    print(
        f"{name:<36} {count:6} in {seconds:6.1f} s   RSS {before.memory / 1e6:6.1f} -> {after.memory / 1e6:6.1f} MB "
        f"({grown:+.1f})   threads {before.threads} -> {after.threads}   descriptors {before.descriptors} -> "
        f"{after.descriptors}   {'ok' if ok else 'LEAK'}",
        flush=True,
    )
    return ok


def main() -> int:
    """Measure every part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forwards", type=int, default=10_000, metavar="N")
    parser.add_argument("--networks", type=int, default=100, metavar="N")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # hide the warning about formats from the first batch, once per network
    data = np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.chai"
        with chai.Net("digits", device="null") as net:
            net.calibrate(data=data)
            save(net, path, Card())
        sources: dict[str, Callable[[], chai.Net]] = {
            "emulator": lambda: chai.Net("digits"),
            "float": lambda: chai.Net("digits", device="float"),
            "compiled": lambda: chai.Net(path),
        }
        results = []
        for name, source in sources.items():
            with source() as net:
                results.append(measured(f"{name}: forward", forwards(net, data), args.forwards))
                results.append(measured(f"{name}: stream", streamed(net, data), args.forwards // 10))
        for name, source in sources.items():
            results.append(measured(f"{name}: open, forward, stream, close", opened(source, data), args.networks))
    return int(not all(results))


def forwards(net: chai.Net, data: np.ndarray) -> Callable[[int], None]:
    """Return work that runs single passes."""

    def work(count: int) -> None:
        for _ in range(count):
            net.forward(data=data)

    return work


def streamed(net: chai.Net, data: np.ndarray) -> Callable[[int], None]:
    """Return work that runs passes of a stream, which uses its own threads."""

    def work(count: int) -> None:
        for _ in net.stream({"data": data} for _ in range(count)):
            pass

    return work


def opened(source: Callable[[], chai.Net], data: np.ndarray) -> Callable[[int], None]:
    """Return work that opens networks, uses each once, and closes it."""

    def work(count: int) -> None:
        for _ in range(count):
            with source() as net:
                net.forward(data=data)
                for _ in net.stream([{"data": data}] * 2):
                    pass

    return work


if __name__ == "__main__":
    sys.exit(main())
