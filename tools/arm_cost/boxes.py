"""Measure the heads of detectors: decoding, and all of a head with its suppression in C and in numpy.

    python -m tools.arm_cost.boxes                                # milliseconds of this processor
    python -m tools.arm_cost.boxes --machine armv7l               # millions of instructions, under qemu (as tools/arm_cost)

Maps are random, of inputs of 320 x 320; a bias of the classes decides how many boxes exceed the threshold. Rows of both ways are
compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from chai.graph import Layer
from chai.kernels.native import library
from chai.layers import find
from chai.layers.detection_output import NonMaximumSuppression

from .debian import FOLDER, MACHINES, Guest
from .guest import counter

Case = tuple[str, Layer, list[Any]]
REPEATS = 5


def yolov8(rng: np.random.Generator, bias: float, classes: int) -> tuple[Layer, list[Any]]:
    """Return YOLOv8's head for maps of strides 8, 16 and 32."""
    cls = find("AnchorFreeDetectionOutput")
    assert cls is not None
    maps = []
    for side in (40, 20, 10):
        maps.append(rng.normal(0, 2, (1, 64, side, side)).astype(np.float32))
        maps.append(rng.normal(bias, 2, (1, classes, side, side)).astype(np.float32))
    params = cls.Params(confidence_threshold=0.25, nms_threshold=0.7, reg_max=16)
    return cls("head", tuple("abcdef"), ("boxes",), params), maps


def ssd(rng: np.random.Generator) -> tuple[Layer, list[Any]]:
    """Return MobileNet-SSD's DetectionOutput: 1917 priors, 21 classes, scores above 0.01, 100 boxes of a class."""
    cls = find("DetectionOutput")
    assert cls is not None
    count, classes = 1917, 21
    scores = rng.dirichlet(np.full(classes, 0.1), count).astype(np.float32)
    centre, size = rng.uniform(0, 1, (count, 2)), rng.uniform(0.05, 0.5, (count, 2))
    priors = np.concatenate([centre - size / 2, centre + size / 2], 1).reshape(-1)
    prior = np.stack([priors, np.tile([0.1, 0.1, 0.2, 0.2], count)])[None].astype(np.float32)
    location = rng.normal(0, 1, (1, count * 4)).astype(np.float32)
    nms = NonMaximumSuppression(nms_threshold=0.45, top_k=100)
    params = cls.Params(
        num_classes=classes, confidence_threshold=0.01, code_type="CENTER_SIZE", keep_top_k=100, nms_param=nms
    )
    return cls("head", tuple("abc"), ("boxes",), params), [location, scores.reshape(1, -1), prior]


def cases() -> Iterator[Case]:
    """Yield a name, a head and its bottoms."""
    rng = np.random.default_rng(0)
    yield "YOLOv8, 80 classes, few boxes", *yolov8(rng, -8.7, 80)
    yield "YOLOv8, 80 classes, a box in each cell", *yolov8(rng, -4, 80)
    yield "YOLOv8, 1 class, most cells", *yolov8(rng, 0, 1)
    yield "MobileNet-SSD", *ssd(rng)


def least(run: Callable[[], Any], count: Callable[[], float]) -> float:
    """Return the least cost of several runs."""
    costs = []
    for _ in range(REPEATS):
        begin = count()
        run()
        costs.append(count() - begin)
    return min(costs)


def measure(count: Callable[[], float]) -> None:
    """Print the costs of each case."""
    print(f"{'':40} {'candidates':>10} {'decode':>8} {'in C':>8} {'in numpy':>8}")
    for name, head, maps in cases():
        run = partial(head.forward, *maps)
        rows, in_c = run()[0], least(run, count)
        with patch.object(library, "library", lambda: None):
            others, in_numpy = run()[0], least(run, count)
        if not np.array_equal(rows, others):
            raise SystemExit(f"{name}: C and numpy have other boxes")
        candidates = decode = "-"
        if hasattr(head, "candidates"):
            decoding = partial(head.candidates, *[one[0] for one in maps])
            candidates, decode = str(len(decoding()[1])), f"{least(decoding, count):.1f}"
        print(f"{name:40} {candidates:>10} {decode:>8} {in_c:8.1f} {in_numpy:8.1f}", flush=True)


def main() -> None:
    """Measure here, or start the measurement under qemu."""
    parser = argparse.ArgumentParser(description="Measure the heads of detectors.")
    parser.add_argument("--machine", choices=MACHINES, help="count instructions of this one (default: time here)")
    parser.add_argument("--root", type=Path, default=FOLDER, help="folder of Debians")
    parser.add_argument("--counter", type=Path, help=argparse.SUPPRESS)  # of the run under qemu
    args = parser.parse_args()
    if args.counter:
        instructions = counter(args.counter)
        measure(lambda: instructions() / 1e6)
    elif args.machine:
        from .measure import counted  # with more than the run under qemu needs

        guest = Guest(MACHINES[args.machine], args.root)
        with TemporaryDirectory(prefix="chai-arm-") as name:
            done = counted(guest, ["-m", "tools.arm_cost.boxes", "--counter"], Path(name))
        print(done.stdout, end="")
        sys.exit(done.returncode)
    else:
        measure(lambda: time.process_time() * 1000)


if __name__ == "__main__":
    main()
