"""chai bench: time a network side by side with other engines."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..env import THREADS
from ..errors import UsageError
from ..evaluate.bench.peak import Roof
from ..util.files import complete
from ..zoo import is_compiled
from . import options, output, schemas
from .bench_history import check, remember
from .bench_report import described, report
from .parsing import refuse, section

EPILOG = """examples:
  chai bench
  chai bench resnet50 --threads 1,2 --batch 1,8 --rounds 50
  chai bench googlenet --device emulator --against opencv,openvino --int8
  chai bench googlenet --device emulator --all --roofline googlenet.svg
  chai bench net.chai --device pynq

Rounds are interleaved, one pass of chai and one of each peer, so that all see
the same machine; in their orders each follows each other one equally often.
Each number of threads and batch is measured in a process of its own. Without
WEIGHTS all run the same random ones. Peers are installed by: pip install
"chai-fpga[bench]" for OpenCV, which reads Caffe's files, and
"chai-fpga[peers]" for onnxruntime and OpenVINO, for which the network is
converted to ONNX, and for ncnn. """
PEERS = ("opencv", "onnxruntime", "openvino", "ncnn")
STARTS = 20  # rounds of processes, at most


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
    group.add_argument(
        "--threads", type=_counts, metavar="N,...", help="threads of each; several are timed in turn (default: 1)"
    )
    group.add_argument(
        "--against",
        type=_peers,
        metavar="NAME,...",
        help=f"peers: {', '.join(PEERS)}, or all or none (default: opencv)",
    )
    group.add_argument(
        "--int8", action="store_true", help="time the 8-bit forms of onnxruntime, OpenVINO and ncnn, too"
    )
    group = section(parser, "passes")
    group.add_argument(
        "--batch", type=_counts, metavar="N,...", help="images per pass (default: 1, or the batch it was compiled for)"
    )
    group.add_argument("--rounds", type=options.count, default=20, metavar="N", help="passes of each (default: 20)")
    group = section(parser, "more figures")
    group.add_argument(
        "--start",
        action="store_true",
        help="time processes from their start to the first result, and measure the peak memory of 100 passes; batch 1",
    )
    group.add_argument(
        "--peak", action="store_true", help="measure the processor's peak, and chai's share of it; needs a C compiler"
    )
    group.add_argument(
        "--roofline", type=output.file, metavar="FILE.svg", help="draw operations against the processor's roof"
    )
    group.add_argument(
        "--all",
        action="store_true",
        help="everything: --against all --int8 --start --peak --threads 1,2 --batch 1,8",
    )
    group = section(parser, "output")
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


def _counts(text: str) -> tuple[int, ...]:
    counts = text.split(",")
    if not all(count.isdecimal() and len(count) <= 5 and int(count) for count in counts):
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected numbers of at least 1, e.g. 1,2")
    return tuple(dict.fromkeys(map(int, counts)))


def execute(args: argparse.Namespace) -> int:
    """Time interleaved passes, each combination of threads and batch in a process of its own, and print the figures."""
    _complete(args)
    if "numpy" in sys.modules:
        raise UsageError(
            "threads cannot be set any more: numpy is loaded already", hint="run it as a command: chai bench"
        )
    from . import bench_measure as measure

    code = 0
    figures: dict[str, Any] = {"rounds": args.rounds, "load": os.getloadavg()[0], "runs": [], "start": None}
    noted: set[str] = set()
    with TemporaryDirectory(prefix="chai-bench-") as name:
        for batch, threads in product(args.batch, args.threads):
            folder = Path(name, f"{batch}-{threads}")
            folder.mkdir()
            work = partial(measure.run, args, threads, batch, folder)
            code, answer = measure.apart(work, threads, quiet=bool(figures["runs"]))
            if code:
                return code
            figures |= answer["network"]
            figures["runs"].append(answer["run"])
            new = [note for note in answer["notes"] if note not in noted]
            output.say(*(f"note: {note}" for note in new))
            noted |= {*new}
        if args.start:
            threads = args.threads[0]
            code, programs = measure.apart(partial(measure.programs, args, threads, Path(name)), threads, quiet=True)
            if not code:
                times = min(args.rounds, STARTS)
                figures["start"] = measure.started(programs, threads, times, Path(name, "byte code"), args.quiet)
    if args.json:
        output.as_json(schemas.Bench(**figures))
    else:
        report(figures)
    if args.roofline:
        _draw(args.roofline, figures)
    if args.history:
        remember(args.history, figures)
    return code


def _complete(args: argparse.Namespace) -> None:
    """Check the options and fill in those that were not typed."""
    if args.threads and max(args.threads) > THREADS:
        raise UsageError(f"--threads {max(args.threads)}: expected at most {THREADS}", hint="--threads 1,2")
    if is_compiled(args.net):
        refuse(args, ("against", "int8"), f"for {args.net}, which is compiled: peers need a prototxt and a caffemodel")
    if args.history is not None:
        check(args.history)
    if args.against is None:
        args.against = PEERS if args.all else PEERS[:1]
    if not {*args.against} - {"opencv"}:
        refuse(args, ("int8",), "without a peer that has 8 bits", hint="--against onnxruntime,openvino,ncnn")
    args.threads = args.threads or ((1, 2) if args.all else (1,))
    args.batch = args.batch or ((1, 8) if args.all and not is_compiled(args.net) else (None,))
    args.int8, args.start = args.int8 or args.all, args.start or args.all
    args.peak = args.peak or args.all or args.roofline is not None
    if args.roofline is not None and args.roofline.suffix.lower() != ".svg":
        raise UsageError(
            f"--roofline {args.roofline}: expected a name that ends in .svg",
            hint=f"--roofline {args.roofline.with_suffix('.svg')}",
        )


def _draw(path: Path, figures: dict[str, Any]) -> None:
    """Draw the operations of the first run."""
    from ..evaluate.bench.roofline import Operation, picture

    run = figures["runs"][0]
    operations = [Operation(**each) for each in run["operations"]]
    title = f"{figures['network']}, {figures['device']}, {described(run)}, {figures['processor']}"
    with complete(path) as part:
        part.write_text(picture(operations, Roof(**run["peak"]), title), encoding="utf-8")
    output.say(f"wrote {path}")
