"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..zoo.locate import is_compiled
from . import output
from .parsing import refuse

if TYPE_CHECKING:
    from ..graph import Graph

Shape = tuple[int, ...]
FORMATS = ("bits", "scheme")
EXECUTION = ("overlay", "engine", *FORMATS, "autotune", "no_jit")
PREPROCESSING = ("resize", "crop", "channels", "mean", "mean_file", "raw_scale", "scale")


def network(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """NET [WEIGHTS] and how to read them."""
    if default:
        parser.add_argument(
            "net",
            nargs="?",
            default=default,
            metavar="NET",
            help=f"a .prototxt, or the name of a shipped network (default: {default})",
        )
    else:
        parser.add_argument("net", metavar="NET", help="a .prototxt, or the name of a shipped network")
    parser.add_argument("weights", nargs="?", metavar="WEIGHTS", help="its .caffemodel")
    parser.add_argument(
        "--custom",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="a file or folder of custom layers (its code is run); may be repeated",
    )
    parser.add_argument(
        "--shape", action="append", default=[], metavar="BLOB=NxCxHxW", help="size of an input; may be repeated"
    )
    parser.add_argument(
        "--phase", choices=("TEST", "TRAIN"), default="TEST", help="which phase's layers (default: TEST)"
    )
    parser.add_argument("--strict", action="store_true", help="refuse fields that Caffe's schema does not have")
    parser.add_argument(
        "--stage", action="append", default=[], help="a stage for include and exclude rules; may be repeated"
    )


def named(args: argparse.Namespace, weights: bool) -> str:
    """NET [WEIGHTS] to be typed again; ``weights``: whether some are known without being named."""
    return f"{args.net} {args.weights}" if args.weights else f"{args.net}{'' if weights else ' WEIGHTS'}"


def preprocessing(parser: argparse.ArgumentParser) -> None:
    """Options of an image's way into the network; they override the network's own."""
    group = parser.add_argument_group("preprocessing, instead of the network's .toml or transform_param")
    group.add_argument("--resize", type=_size, metavar="HxW", help="size that images are resized to")
    group.add_argument("--crop", type=_size, metavar="HxW", help="part cut from the centre")
    group.add_argument("--channels", choices=("BGR", "RGB", "gray"), help="channel order (default: BGR)")
    means = group.add_mutually_exclusive_group()
    means.add_argument("--mean", type=_numbers, metavar="M,M,M", help="mean to subtract per channel, in channel order")
    means.add_argument("--mean-file", type=Path, metavar="FILE", help="mean image, .npy or .binaryproto")
    group.add_argument("--raw-scale", type=float, metavar="S", help="pixels run from 0 to S (default: 255)")
    group.add_argument("--scale", type=float, metavar="S", help="factor after the mean is taken away (default: 1)")


def execution(parser: argparse.ArgumentParser, device: bool = True) -> None:
    """Where a network runs, and in which formats."""
    group = parser.add_argument_group("device and overlay")
    if device:
        group.add_argument("--device", help="what to run on (chai devices lists them)")
    group.add_argument("--overlay", metavar="NAME", help="an overlay or its overlay.json (default: pynq-z2)")
    group.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="LAYER=host|fpga",
        help="where a layer shall run; may be repeated",
    )
    group.add_argument(
        "--autotune", action="store_true", help="of a custom layer's implementations take the fastest (measured once)"
    )
    group.add_argument("--no-jit", action="store_true", help="custom layers run as plain Python")
    group.add_argument("--bits", type=int, choices=(8, 6), default=8, help="of formats the network does not bring")
    group.add_argument("--scheme", choices=("Xilinx", "DynamicFixed"), default="Xilinx", help="of such formats")


def journal(parser: argparse._ActionsContainer) -> None:
    """What lets a long command go on after it was interrupted."""
    parser.add_argument(
        "--journal",
        type=output.file,
        metavar="FILE",
        help="keep what is done in FILE; the same command goes on from there",
    )
    parser.add_argument("--restart", action="store_true", help="begin the journal anew")


def check_journal(args: argparse.Namespace) -> None:
    """Raise UsageError for one of the two that says nothing without the other."""
    if args.restart and args.journal is None:
        raise UsageError("--restart begins a journal anew, and there is none", hint="--journal FILE")


def offload(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``execution`` as arguments of Net. Raises UsageError."""
    engine = {}
    for text in args.engine:
        name, _, where = text.rpartition("=")
        if not name or where not in ("host", "fpga"):
            raise UsageError(f"--engine {text}: expected LAYER=host or LAYER=fpga")
        engine[name] = where
    return {
        "overlay": args.overlay,
        "engine": engine,
        "bits": args.bits,
        "scheme": args.scheme,
        "autotune": args.autotune,
        "jit": not args.no_jit,
    }


def check_formats(args: argparse.Namespace, graph: Graph, *others: str) -> None:
    """Raise UsageError for --bits, --scheme and ``others`` where the network brings formats of its own."""
    from ..offload.formats import given

    if given(graph):
        refuse(
            args,
            (*FORMATS, *others),
            f"for {args.net}, which brings its formats (precision_param)",
            hint="chai quantize makes others",
        )


def shapes(texts: list[str]) -> dict[str, Shape]:
    """--shape data=1x3x224x224 as {blob: shape}. Raises UsageError."""
    found = {}
    for text in texts:
        blob, _, sizes = text.rpartition("=")
        numbers = sizes.replace(",", "x").split("x")
        if not blob or not all(n.isdecimal() and 0 < int(n) < 2**31 for n in numbers):
            raise UsageError(f"--shape {text}: expected BLOB=NxCxHxW, e.g. data=1x3x224x224")
        found[blob] = tuple(map(int, numbers))
    return found


def load_custom(args: argparse.Namespace) -> None:
    """Run the files named with --custom."""
    from .. import plugins

    for place in args.custom:
        plugins.load_custom(place)


def load_network(args: argparse.Namespace, **options: Any) -> Any:
    """Return the Net that the arguments describe."""
    from ..net import Net

    if is_compiled(args.net):
        fixed = ("shape", "phase", "stage", "engine", *FORMATS, "calibration", "random_weights")
        refuse(args, fixed, f"for {args.net}, which is compiled", hint="give it to chai compile")
    load_custom(args)
    options = {"phase": args.phase, "stages": args.stage, "strict": args.strict, **options}
    return Net(args.net, args.weights, shapes=shapes(args.shape), **options)


def _size(text: str) -> tuple[int, int]:
    parts = text.lower().replace(",", "x").split("x")
    if len(parts) not in (1, 2) or not all(p.isdecimal() and 0 < int(p) < 65_536 for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected HEIGHTxWIDTH, e.g. 256x256")
    return int(parts[0]), int(parts[-1])


def fraction(text: str) -> float:
    """Return a number of 0 to 1, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 1")
    return value


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(p) for p in text.replace(" ", ",").split(",") if p)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers, e.g. 104,117,123") from None
