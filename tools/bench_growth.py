"""Measure how the time per layer grows from a network of 330 layers to one of 2,580: it should not.

    OPENBLAS_NUM_THREADS=1 python tools/bench_growth.py [--blocks 36 286] [--rounds 5]

The networks have residual blocks of small layers, so that Python takes most of the time. Figures are the least of all rounds.
"""

from __future__ import annotations

import argparse
import io
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from networks import Writer

import chai
from chai.artifact.save import save
from chai.cli import main as command

GOAL = 1.5  # times as much per layer


def residual(blocks: int) -> str:
    """Return the prototxt of a network with 9 layers in each block, and 6 around them."""
    w = Writer("Residual blocks of small layers.", "deep", 3, 8, 8)

    def conv(name: str, source: str) -> str:
        w.conv(name, 8, 3, pad=1, bottoms=(source,))
        w.normalised(f"bn_{name}", f"scale_{name}")
        return w.blob

    blob = conv("first", "data")
    for i in range(blocks):
        conv(f"a{i}", blob)
        one = w.inplace(f"relu_a{i}", "ReLU")
        blob = w.add(f"sum{i}", "Eltwise", bottoms=(blob, conv(f"b{i}", one)))
        w.inplace(f"relu_sum{i}", "ReLU")
    w.dense("fc", 10)
    w.add("prob", "Softmax")
    return w.text()


def first(path: Path, device: str, x: np.ndarray) -> None:
    """Load a network and run it once."""
    chai.Net(path, device=device).forward(x)


def actions(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what is done with a network: names, and functions that may be called repeatedly."""
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    compiled = path.with_suffix(".chai")
    for device in ("float", "emulator"):
        yield f"load, {device}", partial(chai.Net, path, device=device)
        net = chai.Net(path, device=device)
        yield f"first pass, {device}", partial(first, path, device, x)
        net.forward(x)
        yield f"forward, {device}", partial(net.forward, x)
        every = chai.Net(path, device=device, keep="all")
        every.forward(x)
        yield f'forward, {device}, keep="all"', partial(every.forward, x)
    yield "compile", partial(save, net, compiled)
    yield "load, .chai", partial(chai.Net, compiled)
    yield "show", partial(command, ["show", str(path)])
    yield "show, .chai", partial(command, ["show", str(compiled)])


def main() -> None:
    """Print milliseconds of both networks, and the ratio per layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs=2, default=(36, 286), metavar="N")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    logging.getLogger("chai").setLevel(logging.ERROR)
    times: list[dict[str, float]] = []
    layers = []
    with tempfile.TemporaryDirectory() as folder:
        for blocks in args.blocks:
            path = Path(folder, f"{blocks}.prototxt")
            path.write_text(residual(blocks))
            layers.append(len(chai.Net(path, device="float").graph.layers))
            least: dict[str, float] = {}
            for name, action in actions(path):
                for _ in range(args.rounds):
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                        begin = perf_counter()
                        action()
                        ms = (perf_counter() - begin) * 1000
                    least[name] = min(ms, least.get(name, ms))
            times.append(least)
    print(f"{'milliseconds, least of ' + str(args.rounds):32s} {layers[0]:>10d} {layers[1]:>10d} layers   per layer")
    for name, small in times[0].items():
        ratio = times[1][name] / layers[1] / (small / layers[0])
        print(
            f"{name:32s} {small:10.2f} {times[1][name]:10.2f} {ratio:10.2f} x  {'met' if ratio <= GOAL else 'NOT MET'}"
        )


if __name__ == "__main__":
    main()
