"""python -m tools.bench: chai bench, with engines that read other files than Caffe's, and the processor's peak."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chai import cli
from chai.cli import bench, options, output
from chai.cli.bench import described, report
from chai.cli.parsing import section
from chai.errors import UsageError
from chai.util.files import complete
from chai.zoo import is_compiled

from .engines import ENGINES
from .figures import HERE, OPEN, Figures, of_the_peak
from .history import check, remember
from .peak import Roof
from .roofline import Operation, picture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chai.cli.bench_measure import After
    from chai.net import Net

PROG = "python -m tools.bench"
EPILOG = """examples:
  python -m tools.bench resnet50 --threads 1,2 --batch 1,8 --rounds 50
  python -m tools.bench googlenet --device emulator --against "opencv,openvino int8"
  python -m tools.bench googlenet --device emulator --all --roofline googlenet.svg

The options are those of chai bench, and more. The engines beside OpenCV are
installed by: pip install -e ".[bench,peers]". For onnxruntime and OpenVINO the
network is written as ONNX, for ncnn as its own files."""
PEERS = tuple(ENGINES)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    bench.common(parser, PEERS)
    group = section(parser, "more figures")
    group.add_argument(
        "--peak", action="store_true", help="measure the processor's peak, and chai's share of it; needs a C compiler"
    )
    group.add_argument(
        "--roofline", type=output.file, metavar="FILE.svg", help="draw operations against the processor's roof"
    )
    group.add_argument(
        "--all", action="store_true", help="everything: --against all --start --peak --threads 1,2 --batch 1,8"
    )
    group = section(parser, "output")
    group.add_argument(
        "--history",
        type=output.file,
        metavar="FILE",
        help="append the figures to FILE, a JSON object per line, and warn of a slow-down since its last like this",
    )
    options.as_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Time a network, print the figures, draw and keep them."""
    if args.all:
        args.against, args.threads = args.against or PEERS, args.threads or (1, 2)
        args.batch = args.batch or (None if is_compiled(args.net) else (1, 8))
        args.start = True
    if args.roofline is not None and args.roofline.suffix.lower() != ".svg":
        raise UsageError(f"--roofline {args.roofline}: expected a file of .svg")
    if args.history is not None:
        check(args.history)
    code, figures = bench.measured(args, ENGINES, partial(_further, args))
    if figures is None:
        return code
    if args.json:
        output.as_json(Figures(**figures))
    else:
        report(figures)
        output.result(*map(_share, figures["runs"]))
    if args.roofline:
        _draw(args.roofline, figures)
    if args.history:
        remember(args.history, figures)
    return code


def _further(args: argparse.Namespace, net: Net, threads: int) -> After:
    """Return what compares the passes with the peak, or leaves its figures open where none is asked for."""
    if args.peak or args.roofline or (args.all and net.device.name in HERE):
        return of_the_peak(net, threads, needed=args.roofline is not None)
    return lambda *_: (OPEN, [])


def _share(run: Mapping[str, Any]) -> str:
    if not run["share"]:
        return f"{described(run)}: the peak was not measured"
    peak = run["peak"]
    shares = ", ".join(f"{what} {share:.0%}" for what, share in run["share"].items())
    bytes = ", ".join(f"{place} {speed:.0f} GB/s" for place, speed in peak["bytes"].items())
    return f"{described(run)}, of the peak: {shares}   ({peak['instructions']} {peak['products']:.0f} GMAC/s; {bytes})"


def _draw(path: Path, figures: Mapping[str, Any]) -> None:
    """Draw the operations of the first run."""
    run = figures["runs"][0]
    operations = [Operation(**each) for each in run["operations"]]
    title = f"{figures['network']}, {figures['device']}, {described(run)}, {figures['processor']}"
    with complete(path) as part:
        part.write_text(picture(operations, Roof(**run["peak"]), title), encoding="utf-8")
    output.say(f"wrote {path}")


if __name__ == "__main__":
    summary = "time a network beside other engines"
    sys.exit(cli.guarded(lambda: cli.run_command(sys.modules[__name__], PROG, summary, sys.argv[1:])))
