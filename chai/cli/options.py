"""Define the options that several commands share, and turn them into arguments of Net."""

from __future__ import annotations

import argparse
import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .. import overlay as overlays
from ..detect.head import FAMILIES
from ..errors import UsageError
from ..graph import Graph
from ..images.preprocess import LETTERBOX, OPTIONS
from ..overlay import Overlay
from ..util.files import in_its_place
from ..zoo import is_compiled
from ..zoo.options import TABLE
from . import output
from .parsing import option, refuse, section

Shape = tuple[int, ...]
FORMATS = ("bits", "scheme")
PLANNING = ("overlay", "engine", "place", *FORMATS, "autotune")
OFFLOAD = (*PLANNING, "jit")  # as Net calls them
EXECUTION = (*PLANNING, "no_jit")  # as argparse does

# Options of Net on a command line: spelling, and keywords of argparse beside those that the table of options gives.
_REPEATABLE: dict[str, Any] = {"action": "append", "default": []}
_SWITCH = {"action": "store_true"}
_FLAGS: dict[str, tuple[str, dict[str, Any]]] = {
    "custom": ("--custom PATH", _REPEATABLE),
    "shapes": ("--shape BLOB=NxCxHxW", _REPEATABLE),
    "phase": ("--phase", {"choices": ("TEST", "TRAIN")}),
    "stages": ("--stage", _REPEATABLE),
    "strict": ("--strict", _SWITCH),
    "device": ("--device NAME", {}),
    "overlay": ("--overlay NAME", {}),
    "engine": ("--engine LAYER=host|fpga", _REPEATABLE),
    "place": ("--place {limits,cost,FILE}", {}),
    "bits": ("--bits", {"type": int}),
    "scheme": ("--scheme", {}),
    "autotune": ("--autotune", _SWITCH),
    "jit": ("--no-jit", _SWITCH),
    "detect": ("--detect HEAD", {}),
    "batch": ("--batch N", {"type": int}),
}
PREPROCESSING = (*OPTIONS, "mean_file", "fast_decode")


def network(
    parser: argparse.ArgumentParser,
    default: str | None = None,
    compiled: bool = True,
    **custom: str,
) -> None:
    """Add NET [WEIGHTS] and the options that say how to read them.

    ``default``   network to use if none is typed
    ``compiled``  True if NET may be a .chai file
    ``custom``    help and metavar of --custom
    """
    group = section(parser, "network")
    kinds = f"a .prototxt, an .onnx{', a compiled .chai file' if compiled else ''} or a shipped network"
    optional: dict[str, Any] = {"nargs": "?", "default": default} if default else {}
    text = f"{kinds} (default: {default})" if default else kinds
    group.add_argument("net", metavar="NET", help=text, **optional)
    stored = "its .caffemodel (default: the one shipped or fetched for NET), or the .formats.json of an .onnx"
    group.add_argument("weights", nargs="?", metavar="WEIGHTS", help=stored)
    flag(group, "custom", **custom)
    for name in ("shapes", "phase", "stages", "strict"):
        flag(group, name)


def detector(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the head of a detector."""
    group = section(parser, "network")
    flag(group, "detect", help="head of a detector, whose outputs become boxes: " + ", ".join(FAMILIES))
    option(
        group,
        "--anchors W,H,...",
        "anchors of the head: a list of widths and heights per map, the finest first",
        nargs="+",
        type=_numbers,
    )


def preprocessing(parser: argparse.ArgumentParser, fast_decode: bool = False) -> None:
    """Add the options for turning an image into an input; they override the network's own.

    ``fast_decode``  whether --fast-decode is one of them
    """
    group = section(parser, "preprocessing", "defaults are the network's .toml or transform_param")
    option(
        group,
        "--resize HxW",
        f"resize images to this size; {LETTERBOX} keeps their proportions and adds gray borders",
        type=lambda text: text if text == LETTERBOX else size(text),
    )
    option(group, "--crop HxW", "crop this size from the centre", type=size)
    option(group, "--channels", "channel order (default: BGR)", choices=("BGR", "RGB", "gray"))
    means = group.add_mutually_exclusive_group()
    option(means, "--mean M,M,M", "mean to subtract per channel, in channel order", type=_numbers)
    option(means, "--mean-file FILE", "mean image to subtract: .npy or .binaryproto", type=Path)
    option(group, "--raw-scale S", "range of pixels: 0 to S (default: 255)", type=float)
    scale = "factor after mean subtraction (default: 1); S,S,S is one per channel"
    option(group, "--scale S", scale, type=_scale)
    if fast_decode:
        option(
            group,
            "--fast-decode",
            "decode JPEGs of at least twice the size of --resize at a half, quarter or eighth of theirs: faster, but "
            "other pixels than Caffe's",
        )


def execution(parser: argparse.ArgumentParser, device: bool = True) -> None:
    """Add the options for engines and formats; ``device`` tells whether --device is one of them."""
    group = section(parser, "device")
    if device:
        help = TABLE["device"].metadata["help"]
        flag(group, "device", help=f"{help} (default: CHAI_DEVICE, else emulator)")
    for name in OFFLOAD:
        flag(group, name)


def flag(group: argparse._ActionsContainer, name: str, **changes: Any) -> None:
    """Add an option of Net, with ``changes`` to its keywords of argparse."""
    spelling, keywords = _FLAGS[name]
    field = TABLE[name]
    choices = {"choices": field.metadata["choices"]} if field.metadata["choices"] else {}
    if "action" not in keywords:
        changes = {"default": field.default, **changes}
    help = changes.pop("help", field.metadata["help"])
    if keywords is _REPEATABLE and "repeatable" not in help:
        help += "; repeatable"
    option(group, spelling, help, **{**choices, **keywords, **changes})


def overlay(parser: argparse.ArgumentParser) -> None:
    """Add --overlay."""
    flag(section(parser, "device"), "overlay")


def batch(parser: argparse.ArgumentParser, default: int) -> None:
    """Add --batch."""
    flag(section(parser, "input"), "batch", default=default, type=count)


def limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit."""
    option(section(parser, "input"), "--limit N", "use the first N images (default: all)", type=count)


def calibration(
    parser: argparse.ArgumentParser, text: str = "images for choosing fixed-point formats (default: the first 8)"
) -> None:
    """Add --calibration."""
    option(section(parser, "input"), "--calibration DIR", text, type=Path)


def as_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    option(section(parser, "output"), "--json", "print the result as JSON")


def journal(group: argparse._ActionsContainer) -> None:
    """Add the options that let a long command resume after an interruption."""
    option(group, "--journal FILE", "record progress in FILE; the same command resumes from it", type=output.file)
    option(group, "--restart", "empty the journal and start over")


def check_journal(args: argparse.Namespace) -> None:
    """Raise UsageError for --restart without --journal."""
    if args.journal is None:
        refuse(args, ("restart",), "without a journal, which it empties", hint="--journal FILE")


def of_net(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return these options, as far as the command has them, as arguments of Net. Raises UsageError for a malformed one."""
    values = {name: getattr(args, _dest(name)) for name in names if hasattr(args, _dest(name))}
    return {name: _VALUES[name](value) if name in _VALUES else value for name, value in values.items()}


def offload(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``execution`` as arguments of Net. Raises UsageError for a malformed --engine."""
    return of_net(args, *OFFLOAD)


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``network`` as arguments of Net, except custom layers. Raises UsageError for a malformed --shape."""
    return {**of_net(args, "shapes", "phase", "stages", "strict"), "detect": head(args)}


def head(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return what the options say of a detector's head; ``least_score`` is what a command needs of its scores."""
    values = {
        "head": getattr(args, "detect", None),
        "anchors": getattr(args, "anchors", None),
        "threshold": getattr(args, "least_score", None),
    }
    keys = {key: value for key, value in values.items() if value is not None}
    return keys if keys and not is_compiled(args.net) else None


def _dest(name: str) -> str:
    return _FLAGS[name][0].split()[0].lstrip("-").replace("-", "_")


def by_layer(option: str, choices: tuple[str, str], texts: list[str]) -> dict[str, str]:
    """Return what texts of an option, LAYER=CHOICE each, say of layers: {layer: choice}. Raises UsageError."""
    values = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name or value not in choices:
            expected = " or ".join(f"LAYER={choice}" for choice in choices)
            raise UsageError(f"{option} {text}: expected {expected}", hint="chai show lists the layers")
        values[name] = value
    return values


def scheme(args: argparse.Namespace) -> str:
    """Return the scheme of formats that chai chooses: --scheme, else the overlay's first. Raises UsageError."""
    return overlays.load(args.overlay or overlays.default).scheme(args.scheme)


def simulator(overlay: Overlay | None) -> str:
    """Return the option for a device that runs files compiled for an overlay, if the default one does not."""
    return "" if overlay is None or overlay.own is None else f" --device {overlay.simulator}"


def check_formats(args: argparse.Namespace, graph: Graph, *others: str) -> bool:
    """Return whether the network has formats of its own. If so, raise UsageError for --bits, --scheme and ``others``."""
    from ..offload.formats import given

    brought = given(graph)
    if brought:
        refuse(
            args,
            (*FORMATS, *others),
            f"for {args.net}, which brings its formats ({graph.formats_in})",
            hint="chai quantize makes others",
        )
    return brought


def check_custom(args: argparse.Namespace, graph: Graph) -> None:
    """Raise UsageError for an option about custom layers if the network has none."""
    if not any(layer.engine == "custom" for layer in graph.layers):
        refuse(args, ("autotune", "no_jit"), f"for {args.net}, which has no custom layers")


def _shapes(texts: list[str]) -> dict[str, Shape]:
    """Return ``["data=1x3x224x224"]`` as ``{blob: shape}``. Raises UsageError."""
    sizes_of = {}
    for text in texts:
        blob, _, sizes = text.rpartition("=")
        numbers = sizes.replace(",", "x").split("x")
        if not blob or not all(n.isdecimal() and len(n) <= 10 and 0 < int(n) < 2**31 for n in numbers):
            raise UsageError(f"--shape {text[:60]}: expected BLOB=NxCxHxW", hint="e.g. --shape data=1x3x224x224")
        sizes_of[blob] = tuple(map(int, numbers))
    return sizes_of


_VALUES: dict[str, Callable[[Any], Any]] = {
    "shapes": _shapes,
    "engine": partial(by_layer, "--engine", ("host", "fpga")),
    "jit": operator.not_,
}


def load_custom(args: argparse.Namespace) -> None:
    """Run the files of --custom. Raises UsageError for one that is not there."""
    from ..plugins import loading

    for place in map(Path, args.custom):
        if not place.exists():
            raise UsageError(f"--custom: there is no file or folder {str(place)!r}", hint=in_its_place(place))
        loading.load_custom(place)


def load_network(args: argparse.Namespace, **options: Any) -> Any:
    """Return the Net that the arguments describe."""
    from ..net import Net

    if is_compiled(args.net):
        settled = [_dest(name) for name in _FLAGS if TABLE[name].metadata["settled"]]
        fixed = ("shape", "engine", "calibration", "random_weights", "anchors", *settled)
        refuse(args, fixed, f"for {args.net}, which is compiled", hint="give it to chai compile")
    load_custom(args)
    return Net(args.net, args.weights, **{**reading(args), **options})


def size(text: str) -> tuple[int, int]:
    """Return the height and width that ``text`` spells, for argparse; one number is both."""
    parts = text.lower().replace(",", "x").split("x")
    if len(parts) not in (1, 2) or not all(p.isdecimal() and len(p) <= 5 and 0 < int(p) < 65_536 for p in parts):
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected HEIGHTxWIDTH, e.g. 256x256")
    return int(parts[0]), int(parts[-1])


def count(text: str, least: int = 1) -> int:
    """Return the number of at least ``least`` that ``text`` spells, for argparse."""
    if not text.isdecimal() or len(text) > 9 or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected a number of at least {least}")
    return int(text)


def fraction(text: str) -> float:
    """Return the number from 0 to 1 that ``text`` spells, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 1")
    return value


def _scale(text: str) -> float | tuple[float, ...]:
    numbers = _numbers(text)
    return numbers[0] if len(numbers) == 1 else numbers


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(p) for p in text.replace(" ", ",").split(",") if p)
    except ValueError:
        numbers = ()
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers, e.g. 104,117,123")
    return numbers
