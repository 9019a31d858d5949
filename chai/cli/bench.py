"""chai bench: time a network side by side with other engines."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..blob import show
from ..errors import UsageError
from ..runtime.perf import spread
from ..util.lazy_numpy import np
from ..zoo.locate import is_compiled
from . import options, output, schemas
from .parsing import refuse, section

if TYPE_CHECKING:
    from ..net import Net

EPILOG = """examples:
  chai bench
  chai bench resnet50 --threads 2 --rounds 50
  chai bench googlenet --device emulator --against opencv,openvino --int8
  chai bench net.chai --device pynq

Rounds are interleaved, one pass of chai and one of each peer, so that all see
the same machine. Without WEIGHTS all run the same random ones; they take the
same time. Peers are installed by: pip install "chai-fpga[bench]" for OpenCV,
which reads Caffe's files, and "chai-fpga[peers]" for onnxruntime and OpenVINO,
for which the network is converted to ONNX. """
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "CHAI_THREADS")
PEERS = ("opencv", "onnxruntime", "openvino", "ncnn")
NOISE = 0.1  # difference of the two halves of a run, and slow-down since the last one, that is worth a remark


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    options.network(parser, default="googlenet")
    group = section(parser, "device")
    group.add_argument(
        "--device",
        metavar="NAME",
        help="device to run on, see chai devices (default: float, like the peers; emulator for a compiled network)",
    )
    options.overlay(parser)
    group.add_argument("--threads", type=int, default=1, metavar="N", help="threads of each (default: 1)")
    group.add_argument(
        "--against",
        type=_peers,
        default=("opencv",),
        metavar="NAME,...",
        help=f"peers: {', '.join(PEERS)}, or all or none (default: opencv)",
    )
    group.add_argument("--int8", action="store_true", help="time onnxruntime and OpenVINO with 8-bit codes, too")
    group = section(parser, "passes")
    group.add_argument(
        "--batch", type=int, metavar="N", help="images per pass (default: 1, or the batch it was compiled for)"
    )
    group.add_argument("--rounds", type=int, default=20, metavar="N", help="passes of each (default: 20)")
    group.add_argument(
        "--history",
        type=output.file,
        metavar="FILE",
        help="append the figures to FILE, a JSON object per line, and warn of a slow-down since its last like this",
    )
    options.as_json(parser)


def _peers(text: str) -> tuple[str, ...]:
    names = {"all": PEERS, "none": ()}.get(text, tuple(text.split(",")))
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PEERS)}, all, none")
    return names


def execute(args: argparse.Namespace) -> int:
    """Time interleaved passes and print medians and their ratios."""
    if min(1 if args.batch is None else args.batch, args.rounds, args.threads) < 1:
        raise UsageError("--batch, --rounds and --threads must be at least 1")
    if "numpy" in sys.modules:
        raise UsageError(
            "threads cannot be set any more: numpy is loaded already", hint="run it as a command: chai bench"
        )
    os.environ.update(dict.fromkeys(_THREADS, str(args.threads)))  # BLAS reads it when numpy is imported
    load = os.getloadavg()[0]
    if is_compiled(args.net):
        net = options.load_network(args, device=args.device, batch=args.batch, overlay=args.overlay)
        args.batch = args.batch or net.batch
    else:
        args.batch = args.batch or 1
        net = options.load_network(args, device=args.device or "float", batch=args.batch, overlay=args.overlay)
    if net.overlay is None:
        refuse(args, ("overlay",), f"on device {net.device.name}, which has no overlay", hint="--device emulator")
    else:
        from ..kernels.codes import warm_up

        warm_up()  # else numba might be loaded during the measurement
    feeds = {b: _random(net.shapes[b]) for b in net.inputs}
    contenders, differences = _contenders(args, net, feeds)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()  # warm-up
    for _ in output.progress(range(args.rounds), args.rounds, "rounds", args.quiet):
        for name, run in contenders.items():
            begin = perf_counter()
            run()
            times[name].append((perf_counter() - begin) * 1000 / args.batch)
    figures = {
        "network": net.name,
        "device": net.device.name,
        "overlay": None if net.overlay is None else net.overlay.name,
        "batch": args.batch,
        "threads": args.threads,
        "rounds": args.rounds,
        "load": load,
        "noise": max(map(_noise, times.values())),
        "ms_per_image": {name: spread(t)._asdict() for name, t in times.items()},
        "ratio": {name: median(times["chai"]) / median(t) for name, t in times.items() if name != "chai"},
        "difference": differences,
    }
    if args.json:
        output.as_json(schemas.Bench(**figures))
    else:
        _report(net, figures)
    if args.history:
        _remember(args.history, figures)
    return 0


def _random(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _contenders(
    args: argparse.Namespace, net: Net, feeds: dict[str, Any]
) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """Return what is timed, and the largest difference of each peer's outputs from chai's."""
    from ..evaluate.peers.engines import Subject, opened

    contenders: dict[str, Callable[[], Any]] = {"chai": lambda: net.forward(**feeds)}
    differences: dict[str, float] = {}
    if args.against and is_compiled(args.net):
        output.say("note: no peer: they need a prototxt and a caffemodel")
        return contenders, differences
    outputs = [*net.forward(**feeds).values()] if args.against else []
    for name, peer in opened(iter(args.against), Subject(net.graph, feeds, args.threads), args.int8):
        if isinstance(peer, str):
            output.say(f"note: no {name}: {peer}")
            continue
        contenders[name] = peer
        differences[name] = max(float(np.abs(a - b).max()) for a, b in zip(outputs, peer()))
    return contenders, differences


def _noise(times: Sequence[float]) -> float:
    """Return the relative difference of the medians of the two halves of a run; 0 for one round."""
    half = len(times) // 2
    if not half:
        return 0.0
    first, second = median(times[:half]), median(times[half:])
    return abs(first - second) / min(first, second)


def _report(net: Net, figures: Mapping[str, Any]) -> None:
    size = ", ".join(f"{b} {show(net.shapes[b])}" for b in net.inputs)
    threads = f"{figures['threads']} thread{'s' * (figures['threads'] > 1)}"
    output.result(f"{net.name}   {size}   device {net.device.name}   {threads}   load {figures['load']:.1f}")
    output.result(f"ms per image, {figures['rounds']} interleaved rounds")
    rows = [
        [
            name,
            *(f"{row[key]:.2f}" for key in ("median", "min", "p90")),
            f"{figures['ratio'][name]:.2f} x" if name in figures["ratio"] else "",
            f"{figures['difference'][name]:.1e}" if name in figures["difference"] else "",
        ]
        for name, row in figures["ms_per_image"].items()
    ]
    output.table(["", "median", "min", "p90", "chai / peer", "largest difference"], rows, "lrrrrr")
    if figures["noise"] > NOISE:
        output.say(f"warning: the two halves of the run differ by {figures['noise']:.0%}: the machine was not quiet")


def _remember(path: Path, figures: dict[str, Any]) -> None:
    """Append figures to a history, and warn of a slow-down since the last ones of the same circumstances."""
    lines = path.read_text().splitlines() if path.exists() else []
    same = ("network", "device", "overlay", "batch", "threads")
    for line in reversed(lines):
        try:
            last = json.loads(line)
            before = float(last["ms_per_image"]["chai"]["min"]) if all(last[k] == figures[k] for k in same) else None
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"--history {path}: a line is none of chai bench", hint="name another file") from error
        if before is not None:
            now = figures["ms_per_image"]["chai"]["min"]
            if now > before * (1 + NOISE):
                output.say(
                    f"warning: {now:.2f} ms at least, {before:.2f} ms at {last['time']}: {now / before - 1:.0%} slower"
                )
            break
    with open(path, "a") as file:
        file.write(json.dumps({"time": datetime.now(timezone.utc).isoformat(timespec="seconds"), **figures}) + "\n")
