"""Define the options that several commands share, and turn them into arguments of Net."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import overlay as overlays, plugins
from ..errors import UsageError
from ..zoo import is_compiled
from . import output
from .parsing import refuse, section

if TYPE_CHECKING:
    from ..graph import Graph
    from ..overlay import Overlay

Shape = tuple[int, ...]
FORMATS = ("bits", "scheme")
EXECUTION = ("overlay", "engine", *FORMATS, "autotune", "no_jit")
SCHEME = "thresholds (Xilinx) or powers of two (DynamicFixed) (default: the overlay's first: Xilinx if it has both)"
PREPROCESSING = ("resize", "crop", "channels", "mean", "mean_file", "raw_scale", "scale")


def network(
    parser: argparse.ArgumentParser,
    default: str | None = None,
    compiled: bool = True,
    custom: str = "load custom layers from a file (.py, .xml) or folder and run its code; repeatable",
    custom_metavar: str = "PATH",
) -> None:
    """Add NET [WEIGHTS] and the options that say how to read them.

    ``default``   network to use if none is typed
    ``compiled``  True if NET may be a .chai file
    ``custom``    help of --custom
    """
    group = section(parser, "network")
    kinds = (
        "a .prototxt, a compiled .chai file or a shipped network" if compiled else "a .prototxt or a shipped network"
    )
    if default:
        group.add_argument("net", nargs="?", default=default, metavar="NET", help=f"{kinds} (default: {default})")
    else:
        group.add_argument("net", metavar="NET", help=kinds)
    group.add_argument(
        "weights", nargs="?", metavar="WEIGHTS", help="its .caffemodel (default: the one shipped or fetched for NET)"
    )
    group.add_argument("--custom", action="append", default=[], type=Path, metavar=custom_metavar, help=custom)
    group.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="BLOB=NxCxHxW",
        help="set the size of an input, e.g. data=1x3x224x224; repeatable",
    )
    group.add_argument(
        "--phase", choices=("TEST", "TRAIN"), default="TEST", help="phase of include and exclude rules (default: TEST)"
    )
    group.add_argument(
        "--stage", action="append", default=[], help="add a stage of include and exclude rules; repeatable"
    )
    group.add_argument("--strict", action="store_true", help="refuse fields outside Caffe's schema (default: warn)")


def named(args: argparse.Namespace, weights: bool) -> str:
    """Return NET [WEIGHTS] for the next command. ``weights`` tells whether they are known without being typed."""
    return f"{args.net} {args.weights}" if args.weights else f"{args.net}{'' if weights else ' WEIGHTS'}"


def preprocessing(parser: argparse.ArgumentParser) -> None:
    """Add the options for turning an image into an input; they override the network's own."""
    group = section(parser, "preprocessing", "defaults are the network's .toml or transform_param")
    group.add_argument("--resize", type=_size, metavar="HxW", help="resize images to this size")
    group.add_argument("--crop", type=_size, metavar="HxW", help="crop this size from the centre")
    group.add_argument("--channels", choices=("BGR", "RGB", "gray"), help="channel order (default: BGR)")
    means = group.add_mutually_exclusive_group()
    means.add_argument("--mean", type=_numbers, metavar="M,M,M", help="mean to subtract per channel, in channel order")
    means.add_argument("--mean-file", type=Path, metavar="FILE", help="mean image to subtract: .npy or .binaryproto")
    group.add_argument("--raw-scale", type=float, metavar="S", help="range of pixels: 0 to S (default: 255)")
    group.add_argument("--scale", type=float, metavar="S", help="factor after mean subtraction (default: 1)")


def execution(parser: argparse.ArgumentParser, device: bool = True) -> None:
    """Add the options for engines and formats; ``device`` tells whether --device is one of them."""
    group = section(parser, "device")
    if device:
        group.add_argument(
            "--device", metavar="NAME", help="device to run on, see chai devices (default: CHAI_DEVICE, else emulator)"
        )
    overlay(parser)
    group.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="LAYER=host|fpga",
        help="choose the engine of a layer; repeatable",
    )
    group.add_argument(
        "--bits",
        type=int,
        choices=(8, 6),
        default=8,
        help="width of the formats that chai chooses if the prototxt has no precision_param (default: 8)",
    )
    group.add_argument("--scheme", choices=("Xilinx", "DynamicFixed"), help=SCHEME)
    group.add_argument(
        "--autotune", action="store_true", help="time the implementations of custom layers once and use the fastest"
    )
    group.add_argument("--no-jit", action="store_true", help="run custom layers as plain Python")


def overlay(parser: argparse.ArgumentParser, default: str = "pynq-z2") -> None:
    """Add --overlay."""
    section(parser, "device").add_argument(
        "--overlay", metavar="NAME", help=f"overlay, see chai devices, or path of an overlay.json (default: {default})"
    )


def images(
    parser: argparse.ArgumentParser, option: str, metavar: str = "IMG", **keywords: Any
) -> argparse._ArgumentGroup:
    """Add the option that names the images, -i or a longer one, and return its group."""
    group = section(parser, "input")
    names = ["-i", "--image"] if option == "-i" else [option]
    words = {"help": "images, .npy inputs or folders of them", **keywords}
    group.add_argument(*names, nargs="+", metavar=metavar, **words)
    return group


def batch(parser: argparse.ArgumentParser, default: int) -> None:
    """Add --batch."""
    section(parser, "input").add_argument(
        "--batch", type=int, default=default, metavar="N", help=f"images per pass (default: {default})"
    )


def limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit."""
    section(parser, "input").add_argument(
        "--limit", type=int, metavar="N", help="use the first N images (default: all)"
    )


def calibration(
    parser: argparse.ArgumentParser, text: str = "images for choosing fixed-point formats (default: the first 8)"
) -> None:
    """Add --calibration."""
    section(parser, "input").add_argument("--calibration", type=Path, metavar="DIR", help=text)


def as_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    section(parser, "output").add_argument("--json", action="store_true", help="print the result as JSON")


def journal(group: argparse._ActionsContainer) -> None:
    """Add the options that let a long command resume after an interruption."""
    group.add_argument(
        "--journal", type=output.file, metavar="FILE", help="record progress in FILE; the same command resumes from it"
    )
    group.add_argument("--restart", action="store_true", help="empty the journal and start over")


def check_journal(args: argparse.Namespace) -> None:
    """Raise UsageError for --restart without --journal."""
    if args.restart and args.journal is None:
        raise UsageError("--restart empties a journal, and there is none", hint="--journal FILE")


def offload(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``execution`` as arguments of Net. Raises UsageError for a malformed --engine."""
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


def scheme(args: argparse.Namespace) -> str:
    """Return the scheme of formats that chai chooses: --scheme, else the overlay's first. Raises UsageError."""
    return overlays.load(args.overlay or overlays.default).scheme(args.scheme)


def simulator(overlay: Overlay | None) -> str:
    """Return the option for a device that runs files compiled for an overlay, if the default one does not."""
    return "" if overlay is None or overlay.own is None else f" --device {overlay.simulator}"


def check_formats(args: argparse.Namespace, graph: Graph, *others: str) -> bool:
    """Return whether the prototxt has formats (precision_param). If so, raise UsageError for --bits, --scheme and ``others``."""
    from ..offload.formats import given

    brought = given(graph)
    if brought:
        refuse(
            args,
            (*FORMATS, *others),
            f"for {args.net}, which brings its formats (precision_param)",
            hint="chai quantize makes others",
        )
    return brought


def shapes(texts: list[str]) -> dict[str, Shape]:
    """Return ``["data=1x3x224x224"]`` as ``{blob: shape}``. Raises UsageError."""
    sizes_of = {}
    for text in texts:
        blob, _, sizes = text.rpartition("=")
        numbers = sizes.replace(",", "x").split("x")
        if not blob or not all(n.isdecimal() and len(n) <= 10 and 0 < int(n) < 2**31 for n in numbers):
            raise UsageError(f"--shape {text[:60]}: expected BLOB=NxCxHxW, e.g. data=1x3x224x224")
        sizes_of[blob] = tuple(map(int, numbers))
    return sizes_of


def load_custom(args: argparse.Namespace) -> None:
    """Run the files of --custom."""
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
    if len(parts) not in (1, 2) or not all(p.isdecimal() and len(p) <= 5 and 0 < int(p) < 65_536 for p in parts):
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected HEIGHTxWIDTH, e.g. 256x256")
    return int(parts[0]), int(parts[-1])


def fraction(text: str) -> float:
    """Return the number from 0 to 1 that ``text`` spells, for argparse."""
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
