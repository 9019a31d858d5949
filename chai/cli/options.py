"""Define the options that several commands share, and turn them into arguments of Net."""

from __future__ import annotations

import argparse
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ..net import Net

Shape = tuple[int, ...]
FORMATS = ("bits", "scheme")
EXECUTION = ("overlay", "engine", "place", *FORMATS, "autotune", "jit")
PREPROCESSING = (*OPTIONS, "mean_file", "fast_decode")


class Pairs(argparse.Action):
    """Collects the pairs that the ``type`` of a repeatable option makes in a dictionary."""

    def __call__(self, parser: argparse.ArgumentParser, args: Any, values: Any, option: str | None = None) -> None:
        name, value = values
        setattr(args, self.dest, {**getattr(args, self.dest, {}), name: value})


def by_layer(option: str, choices: tuple[str, str], text: str) -> tuple[str, str]:
    """Return what LAYER=CHOICE, the text of an option, says of a layer. Raises UsageError."""
    name, _, value = text.rpartition("=")
    if not name or value not in choices:
        expected = " or ".join(f"LAYER={choice}" for choice in choices)
        raise UsageError(f"{option} {text}: expected {expected}", hint="chai show lists the layers")
    return name, value


def _shape(text: str) -> tuple[str, Shape]:
    """Return the blob and the shape of "data=1x3x224x224". Raises UsageError."""
    blob, _, sizes = text.rpartition("=")
    numbers = sizes.replace(",", "x").split("x")
    if not blob or not all(n.isdecimal() and len(n) <= 10 and 0 < int(n) < 2**31 for n in numbers):
        raise UsageError(f"--shape {text[:60]}: expected BLOB=NxCxHxW", hint="e.g. --shape data=1x3x224x224")
    return blob, tuple(map(int, numbers))


# Options of Net on a command line: spelling, and keywords of argparse beside those that the table of options gives.
_REPEATABLE: dict[str, Any] = {"action": "append", "default": []}
_SWITCH = {"action": "store_true"}
_FLAGS: dict[str, tuple[str, dict[str, Any]]] = {
    "custom": ("--custom PATH", _REPEATABLE),
    "shapes": ("--shape BLOB=NxCxHxW", {"action": Pairs, "default": {}, "type": _shape}),
    "phase": ("--phase", {"choices": ("TEST", "TRAIN")}),
    "stages": ("--stage STAGE", _REPEATABLE),
    "strict": ("--strict", _SWITCH),
    "device": ("--device NAME", {}),
    "overlay": ("--overlay NAME", {}),
    "engine": (
        "--engine LAYER=host|fpga",
        {"action": Pairs, "default": {}, "type": partial(by_layer, "--engine", ("host", "fpga"))},
    ),
    "place": ("--place {limits,cost,FILE}", {}),
    "bits": ("--bits", {"type": int}),
    "scheme": ("--scheme", {}),
    "autotune": ("--autotune", _SWITCH),
    "jit": ("--no-jit", {"action": "store_false"}),
    "detect": ("--detect HEAD", {}),
    "batch": ("--batch N", {"type": int}),
}


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
    option(group, "--scale S", scale, type=lambda text: numbers if len(numbers := _numbers(text)) > 1 else numbers[0])
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
    for name in EXECUTION:
        flag(group, name)


def flag(group: argparse._ActionsContainer, name: str, **changes: Any) -> None:
    """Add an option of Net, with ``changes`` to its keywords of argparse."""
    spelling, keywords = _FLAGS[name]
    field = TABLE[name]
    choices = {"choices": field.metadata["choices"]} if field.metadata["choices"] else {}
    if "action" not in keywords:
        changes = {"default": field.default, **changes}
    help = changes.pop("help", field.metadata["help"])
    if keywords.get("action") in ("append", Pairs) and "repeatable" not in help:
        help += "; repeatable"
    option(group, spelling, help, dest=name, **{**choices, **keywords, **changes})


def batch(parser: argparse.ArgumentParser, default: int) -> None:
    flag(section(parser, "input"), "batch", default=default, type=count)


def limit(parser: argparse.ArgumentParser) -> None:
    option(section(parser, "input"), "--limit N", "use the first N images (default: all)", type=count)


def calibration(
    parser: argparse.ArgumentParser, text: str = "images for choosing fixed-point formats (default: the first 8)"
) -> None:
    option(section(parser, "input"), "--calibration DIR", text, type=Path)


def as_json(parser: argparse.ArgumentParser) -> None:
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
    """Return these options, as far as the command has them, as arguments of Net."""
    return {name: getattr(args, name) for name in names if name in args}


def offload(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``execution`` as arguments of Net."""
    return of_net(args, *EXECUTION)


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of ``network`` as arguments of Net, except custom layers."""
    return {**of_net(args, "shapes", "phase", "stages", "strict"), "detect": head(args)}


def head(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return what the options say of a detector's head; ``least_score`` is what a command needs of its scores."""
    names = {"head": "detect", "anchors": "anchors", "threshold": "least_score"}
    keys = {key: value for key, name in names.items() if (value := getattr(args, name, None)) is not None}
    return keys if keys and not is_compiled(args.net) else None


def scheme(args: argparse.Namespace) -> str:
    """Return the scheme of formats that chai chooses: --scheme, else the overlay's first. Raises UsageError."""
    return overlays.load(args.overlay or overlays.default).scheme(args.scheme)


def simulator(overlay: Overlay | None) -> str:
    """Return the option for a device that runs files compiled for an overlay, if the default one does not."""
    return "" if overlay is None or overlay.own is None else f" --device {overlay.simulator}"


def check_formats(args: argparse.Namespace, graph: Graph, *others: str) -> bool:
    """Return whether the network has formats of its own. If so, raise UsageError for --bits, --scheme and ``others``."""
    from ..offload.formats import has_formats

    brought = has_formats(graph)
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
        refuse(args, ("autotune", "jit"), f"for {args.net}, which has no custom layers")


def load_custom(args: argparse.Namespace) -> None:
    """Run the files of --custom. Raises UsageError for one that is not there."""
    from ..plugins import loading

    for place in map(Path, args.custom):
        if not place.exists():
            raise UsageError(f"--custom: there is no file or folder {str(place)!r}", hint=in_its_place(place))
        loading.load_custom(place)


def load_network(args: argparse.Namespace, kind: type[Net] | None = None, **options: Any) -> Any:
    """Return the Net that the arguments describe, of a ``kind`` of its own."""
    from ..net import Net

    if is_compiled(args.net):
        settled = [name for name in _FLAGS if TABLE[name].metadata["settled"]]
        fixed = ("shapes", "engine", "calibration", "random_weights", "anchors", *settled)
        refuse(args, fixed, f"for {args.net}, which is compiled", hint="give it to chai compile")
    load_custom(args)
    return (kind or Net)(args.net, args.weights, **{**reading(args), **options})


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


def number(expected: str, least: float, most: float, text: str) -> float:
    """Return the number from ``least`` to ``most`` that ``text`` spells, for argparse; ``expected`` says so in words."""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}")
    return value


fraction = partial(number, "a number from 0 to 1", 0, 1)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(p) for p in text.replace(" ", ",").split(",") if p)
    except ValueError:
        numbers = ()
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers, e.g. 104,117,123")
    return numbers
