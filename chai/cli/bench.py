"""chai bench: time a network side by side with OpenCV."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..blob import show
from ..errors import UsageError
from ..runtime.perf import spread
from ..util.lazy_numpy import np
from ..zoo.locate import is_compiled
from . import options, output, schemas
from .parsing import section

if TYPE_CHECKING:
    from ..net import Net

EPILOG = """examples:
  chai bench
  chai bench resnet50 --threads 2 --rounds 50
  chai bench net.chai --device pynq

Rounds are interleaved, one pass of chai and one of the peer, so that both see
the same machine. Without WEIGHTS both run the same random ones; they take the
same time. The peer is installed by: pip install "chai-fpga[bench]" """
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    options.network(parser, default="googlenet")
    group = section(parser, "device")
    group.add_argument(
        "--device",
        metavar="NAME",
        help="device to run on, see chai devices (default: float, like the peer; emulator for a compiled network)",
    )
    group.add_argument("--threads", type=int, default=1, metavar="N", help="threads of each (default: 1)")
    group.add_argument("--against", choices=("opencv", "none"), default="opencv", help="peer (default: opencv)")
    group = section(parser, "passes")
    group.add_argument(
        "--batch", type=int, metavar="N", help="images per pass (default: 1, or the batch it was compiled for)"
    )
    group.add_argument("--rounds", type=int, default=20, metavar="N", help="passes of each (default: 20)")
    options.as_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Time interleaved passes and print medians and their ratio."""
    if min(1 if args.batch is None else args.batch, args.rounds, args.threads) < 1:
        raise UsageError("--batch, --rounds and --threads must be at least 1")
    if "numpy" in sys.modules:
        raise UsageError(
            "threads cannot be set any more: numpy is loaded already", hint="run it as a command: chai bench"
        )
    os.environ.update(dict.fromkeys(_THREADS, str(args.threads)))  # BLAS reads it when numpy is imported
    if is_compiled(args.net):
        net = options.load_network(args, device=args.device, batch=args.batch)
        args.batch = args.batch or net.batch
    else:
        args.batch = args.batch or 1
        net = options.load_network(args, device=args.device or "float", batch=args.batch)
    if net.overlay is not None:
        from ..kernels.codes import warm_up

        warm_up()  # else numba might be loaded during the measurement
    feeds = {b: _random(net.shapes[b]) for b in net.inputs}
    contenders: dict[str, Callable[[], Any]] = {"chai": lambda: net.forward(**feeds)}
    difference = None
    if args.against == "opencv":
        peer = _opencv(net, feeds, args)
        if isinstance(peer, str):
            output.say(f"note: {peer}")
        else:
            contenders["opencv"] = peer
            difference = max(float(np.abs(a - b).max()) for a, b in zip(net.forward(**feeds).values(), peer()))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()  # warm-up
    for _ in output.progress(range(args.rounds), args.rounds, "rounds", args.quiet):
        for name, run in contenders.items():
            begin = perf_counter()
            run()
            times[name].append((perf_counter() - begin) * 1000 / args.batch)
    _report(args, net, times, difference)
    return 0


def _random(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _opencv(net: Net, feeds: dict[str, Any], args: argparse.Namespace) -> Callable[[], Any] | str:
    """Return a function that runs the network in OpenCV, or the reason why there is none."""
    from ..parser.caffemodel import write_caffemodel

    if is_compiled(args.net):
        return "no peer: OpenCV reads a prototxt and a caffemodel"
    try:
        import cv2
    except ImportError:
        return 'no peer: OpenCV is not installed (pip install "chai-fpga[bench]")'
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        return f'no peer: OpenCV {cv2.__version__} no longer reads Caffe files (pip install "opencv-python-headless<5")'
    cv2.setNumThreads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "net.caffemodel")
        write_caffemodel(
            weights, net.name, [(layer.name, layer.type, layer.blobs) for layer in net.graph.layers if layer.blobs]
        )
        try:
            peer = cv2.dnn.readNetFromCaffe(net.graph.path, str(weights))
        except cv2.error as error:
            return f"no peer: OpenCV cannot read this network ({str(error).strip().splitlines()[-1]})"

    def run() -> Any:
        for name, value in feeds.items():
            peer.setInput(value, name)
        return peer.forward(net.outputs)

    try:
        run()
    except cv2.error as error:
        return f"no peer: OpenCV cannot run this network ({str(error).strip().splitlines()[-1]})"
    return run


def _report(args: argparse.Namespace, net: Net, times: dict[str, list[float]], difference: float | None) -> None:
    rows: dict[str, Any] = {name: spread(t)._asdict() for name, t in times.items()}
    ratio = rows["chai"]["median"] / rows["opencv"]["median"] if "opencv" in rows else None
    if args.json:
        output.as_json(
            schemas.Bench(
                network=net.name,
                device=net.device.name,
                batch=args.batch,
                threads=args.threads,
                rounds=args.rounds,
                ms_per_image=rows,
                ratio=ratio,
                difference=difference,
            )
        )
        return
    size = ", ".join(f"{b} {show(net.shapes[b])}" for b in net.inputs)
    threads = f"{args.threads} thread{'s' * (args.threads > 1)}"
    output.result(f"{net.name}   {size}   device {net.device.name}   {threads}")
    output.result(f"ms per image, {args.rounds} interleaved rounds")
    output.table(
        ["", "median", "min", "p90"],
        [[name, *(f"{row[k]:.2f}" for k in ("median", "min", "p90"))] for name, row in rows.items()],
        "lrrr",
    )
    if ratio is not None:
        output.result(f"ratio     chai / opencv = {ratio:.2f} x   (largest difference of the outputs {difference:.1e})")
