"""chai estimate: estimate the time of CHaiDNN's layer list by the cycle model of an overlay."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..blob import show
from ..chaidnn import estimate as chaidnn
from ..overlay import Overlay, load
from ..util.table import quantity
from . import options, output
from .parsing import option, section

EPILOG = """each line of LAYERS.csv has a type and its numbers, sizes in pixels:
  CONV, CONV3D      inH,inW,inC,kernelH,kernelW,strideH,strideW,padH,padW,outH,outW,outC,group,dilation
  MAXPOOL, AVEPOOL  the same up to outC
  BN, ELTWISE       inH,inW,inC
any other type counts as 0 ms, as in CHaiDNN

examples:
  chai estimate layers.csv
  chai estimate layers.csv --overlay zcu102 -o times.csv"""


@dataclass(frozen=True)
class Estimate(output.Schema):
    """Time estimates for a CHaiDNN layer list, from the cycle model of an overlay."""

    schema = "chai.estimate/1"
    file: str
    overlay: str
    clock_mhz: float
    assumed: list[str]
    layers: list[chaidnn.LineEstimate]
    cycles: int
    ms: float


def arguments(parser: argparse.ArgumentParser) -> None:
    section(parser, "input").add_argument(
        "layers", type=Path, metavar="LAYERS.csv", help="layer list in the format of CHaiDNN's xiEval"
    )
    options.flag(section(parser, "device"), "overlay")
    option(
        section(parser, "output"),
        "-o --output FILE.csv",
        "file for type and milliseconds of every layer",
        type=output.file,
        default="neteval.csv",
    )
    options.as_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the time of each layer, and write CHaiDNN's result file."""
    overlay = load(args.overlay) if args.overlay else load()
    estimates = chaidnn.estimate(args.layers, overlay)
    chaidnn.write(estimates, args.output)
    output.say(f"wrote {args.output}")
    for e in estimates:
        if e.engine == "unknown":
            output.say(f"warning: {args.layers}:{e.line}: {e.reason}: counted as 0 ms")
    if args.json:
        cycles, ms = sum(e.cycles for e in estimates), sum(e.ms for e in estimates)
        assumed = list(overlay.assumed)
        output.as_json(Estimate(str(args.layers), overlay.name, overlay.clock_mhz, assumed, estimates, cycles, ms))
    else:
        _print(estimates, overlay)
    return 0


def _print(estimates: list[chaidnn.LineEstimate], overlay: Overlay) -> None:
    rows = [
        [
            str(e.line),
            e.type,
            *(show(shape[1:]) if shape else "-" for shape in (e.input, e.output)),
            *(quantity(amount) if amount else "-" for amount in (e.macs, e.cycles)),
            f"{e.ms:.3f}" if e.cycles else "-",
            e.engine,
        ]
        for e in estimates
    ]
    output.table(["line", "type", "input", "output", "MACs", "cycles", "ms", "engine"], rows, "rlllrrrl")
    for reason, times in Counter(e.reason for e in estimates if e.engine == "host").items():
        output.result(f"host     {reason}" + (f" ({times} times)" if times > 1 else ""))
    total = sum(e.ms for e in estimates)
    speed = f"{1000 / total:.1f} images/second" if total else "nothing"
    clock = f"{'an assumed ' if 'clock_mhz' in overlay.assumed else ''}{overlay.clock_mhz:g} MHz"
    output.result(
        f"total    {total:.3f} ms an image, {speed} on the overlay alone, modelled at {clock} ({overlay.name}); "
        "the host is not counted"
    )
