"""chai check: compare fixed point with float, layer by layer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import TypedDict

from .. import __version__
from ..errors import UsageError
from ..evaluate.check_custom import CustomReport, Row, check_layer
from ..evaluate.compare import BOUND_DB, FULL_DB, LayerCheck, Report, compare
from ..images import files as images
from ..overlay import default, load as load_overlay
from ..plugins.layer import CustomLayer
from ..plugins.loading import KINDS, load_custom, load_named, lookup
from ..plugins.registry import REGISTRY
from ..report import page as reports
from ..tasks.coarser import SENTENCE, listed
from ..text import number_of, visible
from ..util.files import digest
from ..util.lazy_numpy import np
from ..util.table import Table, tail
from ..zoo.locate import files_of, locate
from . import inputs, options, output, worst
from .parsing import option, refuse, section

EPILOG = """examples:
  chai check digits -i photos/
  chai check googlenet bvlc_googlenet.caffemodel -i cal/ --limit 32 --html check.html
  chai check net.prototxt net.caffemodel -i cal/ --bits 6 --bound 15 --json
  chai check digits --custom gemm        compare plain Python, compiled code and each implementation
  chai check net.prototxt --custom layers.xml     compare those of each layer that a file defines

exit code 1: a layer is below --bound, or fewer images than --agreement keep their class"""
AGREEMENT, ENOUGH = 0.97, 10  # default goal, and the images it needs to be significant
_DECIBELS = partial(options.number, f"decibels, e.g. {BOUND_DB:g}", -inf, inf)
CUT_OFF = 0.1  # percent of saturated values worth reporting


@dataclass(frozen=True)
class Check(worst.Compared):
    """Comparison of float and fixed point, with a verdict."""

    schema = "chai.check/1"
    agreement_goal: float
    ok: bool


class CheckedWay(TypedDict):
    """Comparison of one way to run a custom layer with plain Python."""

    layer: str
    inputs: str
    way: str
    difference: float | None
    ms: float
    ok: bool
    note: str


@dataclass(frozen=True)
class CheckCustom(output.Schema):
    """Comparison of custom layers, in every way they can run, with plain Python."""

    schema = "chai.check.custom/1"
    network: str
    type: str
    ok: bool
    rows: list[CheckedWay]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s NET [WEIGHTS] -i IMG... [options]\n       %(prog)s NET [WEIGHTS] --custom TYPE|PATH"
    options.network(
        parser,
        compiled=False,
        help="load custom layers from a file (.py, .xml) or folder and run its code, and without images check its layers; or "
        "name a TYPE to check; repeatable",
        metavar="PATH|TYPE",
    )
    help = "images, .npy inputs or folders of them"
    option(section(parser, "input"), "-i --image IMG", help, nargs="+", default=[])
    options.limit(parser)
    options.batch(parser, 8)
    options.calibration(parser)
    options.preprocessing(parser)
    options.execution(parser, device=False)
    group = section(parser, "goals")
    option(group, "--bound DB", f"minimum SQNR of a layer (default: {BOUND_DB:g} dB)", type=_DECIBELS, default=BOUND_DB)
    option(
        group,
        "--agreement SHARE",
        f"minimum top-1 agreement with float, 0 to 1 (default: {AGREEMENT} if there are {ENOUGH} images or more)",
        type=options.fraction,
    )
    group = section(parser, "output")
    options.as_json(parser)
    option(group, "--html FILE", "write a report as a page", type=output.file)
    option(group, "--png FILE", "draw the SQNR of each layer", type=partial(output.file, suffix=".png"))
    parser.set_defaults(device="emulator")


def execute(args: argparse.Namespace) -> int:
    """Run every image in float and on the emulator, print the comparison. Return 1 if a goal is missed.

    Report and skip an image that cannot be read; the exit code is then 65 unless a goal is missed.
    """
    types = _types(args)
    if types or (args.custom and not args.image):
        unused = ("image", "limit", "calibration", "bound", "agreement", "html", "png")
        why = f"with --custom {types[0]}, a layer type" if types else f"without images: {args.custom[0]} is checked"
        refuse(args, (*unused, *options.EXECUTION, *options.PREPROCESSING), why)
        return _check_custom(args, types)
    if not args.image:
        raise UsageError(
            "no images: chai check NET WEIGHTS -i IMAGES...",
            hint="or custom layers: chai check NET WEIGHTS --custom TYPE, or a file of them",
        )
    _, weights = locate(args.net, args.weights, adjacent=True)
    files = images.find(args.image)[: args.limit]
    inputs.check_preprocessing(args, files)
    job = inputs.prepare(args, files)
    options.check_formats(args, job.net.graph, "calibration")
    failed: list[inputs.Failure] = []
    report = _compared(args, job, files, failed)
    goal = args.agreement if args.agreement is not None else AGREEMENT if report.images >= ENOUGH else 0.0
    missed = worst.below(report)
    if report.agreement is not None and report.agreement < goal:
        missed.append(f"top-1 agreement below {100 * goal:g} %")
    content = Check(
        **report.to_json(), agreement_goal=goal, preprocess=inputs.describe(job), failed=failed, ok=not missed
    )
    if args.json:
        output.as_json(content)
    else:
        output.result(inputs.header(args, job))
        _print(args, report, missed)
    if args.html:
        _save_page(args, report, weights, missed, content)
    if args.png:
        reports.save_png(args.png, worst.chart(report))
        output.say(f"wrote {args.png}")
    if not args.quiet and not args.json:
        more = "--json has every number" if args.html else "--html check.html   shows it as a page"
        output.say(f"next: chai check {args.net} ... {more}")
    return 1 if missed else 65 if failed else 0


def _compared(
    args: argparse.Namespace, job: inputs.LoadedNetwork, files: list[Path], failed: list[inputs.Failure]
) -> Report:
    reference = options.load_network(args, device="float", keep="all", batch=min(args.batch, len(files)))
    if args.calibration:
        inputs.calibrate(args, job)
    with reference, job.net:
        shown = output.progress(files, len(files), "images", args.quiet)
        items = islice(inputs.items(shown, job, failed), args.limit)
        report = compare(reference, job.net, inputs.feeds(args, items, job, files), args.bound)
    if report.agreement is None:
        refuse(args, ("agreement",), f"for {args.net}: none of its outputs are scores of classes")
    return report


def _formats(args: argparse.Namespace, report: Report) -> str:
    if report.brought:
        return f"formats of its {report.formats}"
    if not report.formats:
        return "no formats: nothing runs on the overlay"
    first = "the first image" if report.calibrated == 1 else f"the first {report.calibrated} images"
    times = f", largest values times {report.margin:g}" if report.margin > 1 else ""
    return f"{report.formats} formats from {first if report.calibrated else args.calibration}{times}"


# -- custom layers


def _types(args: argparse.Namespace) -> list[str]:
    """Move the values of --custom that name a type, not a file, out of the arguments and return them.

    A name that is here, too, is a type if there is one of that name: a path like ./gemm is the folder.
    """
    bare = [p for p in args.custom if os.path.basename(p) == p and Path(p).suffix not in KINDS]
    here = [p for p in bare if os.path.exists(p)]
    if here:
        load_named()
        for place in (p for p in args.custom if p not in bare):
            load_custom(place)
    named = [p for p in bare if p not in here or lookup(REGISTRY, p) is not None]
    args.custom = [p for p in args.custom if p not in named]
    return named


def _check_custom(args: argparse.Namespace, names: list[str]) -> int:
    """Check every layer of these types on random inputs of its own sizes. Return 1 if one disagrees.

    Without names, check those that the files of --custom define.
    """
    locate(args.net, args.weights)  # refuses a compiled network: it has no float layers
    net = options.load_network(args, device="float", batch=args.batch)
    layers = [layer for layer in net.graph.layers if isinstance(layer, CustomLayer)]
    wanted = names or _defined(args.custom, layers)
    chosen = [layer for layer in layers if layer.type in wanted or layer.key in wanted]
    missing = sorted(set(wanted) - {name for layer in chosen for name in (layer.type, layer.key)}) if names else []
    if missing or not chosen:
        named = (missing or args.custom)[0]
        what = f"{net.name} has no layer that it defines"
        if missing:
            path = f"the path is ./{named}" if os.path.exists(named) else "there is no such file"
            what = f"no custom layer of that type in {net.name}, and {path}"
        raise UsageError(
            f"--custom {named}: {what}",
            hint="custom types here: " + (", ".join(sorted({layer.key for layer in layers})) or "none"),
        )
    rows: list[Row] = []
    for layer in output.progress(chosen, len(chosen), "layers", args.quiet):
        rows += check_layer(layer, [net.shapes_of(b) for b in layer.bottoms])
    report = CustomReport(", ".join(names or sorted({layer.key for layer in chosen})), tuple(rows))
    if args.json:
        output.as_json(CheckCustom(network=net.name, **report.to_json()))
    else:
        output.result(*str(report).split("\n"))
        output.result("every way agrees" if report.ok else "some ways disagree")
    return 0 if report.ok else 1


def _defined(places: Sequence[str], layers: Sequence[CustomLayer]) -> set[str]:
    """Return the types of files and folders; of a folder, its classes of Python layers that the network has, too."""
    folders = [Path(place).resolve() for place in places if os.path.isdir(place)]
    inside = (layer.key for layer in layers if any(f in Path(layer.defined).parents for f in folders))
    return {*inside, *(type for place in places for type in load_custom(place).types)}


# -- as text


def _print(args: argparse.Namespace, report: Report, missed: list[str]) -> None:
    output.sentences(
        f"{number_of(report.images, 'image')} on the emulator of {report.overlay}, {_formats(args, report)}"
    )
    names = min(36, max(len(visible(layer.name)) for layer in report.layers))
    room = output.WIDTH - names - 24  # without the other columns
    full = min(20, room - 3)
    rows = [_row(layer, layer is report.first_bad, names, full, room) for layer in report.layers]
    axis = f"{'0 dB':<{full // 2}}{FULL_DB / 2:<{full - full // 2}g}{FULL_DB:g}"
    output.table(["layer", "SQNR", "sat %", "engine", axis], rows, "lrrll")
    coarser = [f"{SENTENCE}: {', '.join(listed(report.coarser))}"] if report.coarser else []
    output.sentences(*_agreements(report), *(f"missed: {m}" for m in missed), *coarser, _last(args, report))


def _row(layer: LayerCheck, first_bad: bool, names: int, full: int, room: int) -> list[str]:
    name = tail(visible(layer.name), names)
    if layer.inside is not None:
        return [name, "", "", layer.engine, tail(visible(f"in {layer.inside}"), room)]
    bar = _glyph() * round(full * min(1.0, max(0.0, (layer.sqnr_db or 0) / FULL_DB)))
    if first_bad:
        words = " <- first bad"
        bar += words if len(bar + words) <= room else " <-"
    saturated = "-" if layer.saturated is None else f"{layer.saturated:.2f}"[:5].rstrip(".")
    return [name, layer.decibels, saturated, layer.engine, bar.lstrip()]


def _glyph() -> str:
    both = (sys.stdout.encoding or "", sys.stderr.encoding or "")
    return "\u2588" if sys.stdout.isatty() and all(e.lower().startswith("utf") for e in both) else "#"


def _words(layer: LayerCheck) -> str:
    return "no error at all" if layer.sqnr_db == inf else f"{layer.decibels} dB"


def _agreements(report: Report) -> list[str]:
    several = len(report.agreements) > 1
    return [f"{a.blob}: " * several + a.sentence("   ") for a in report.agreements]


def _last(args: argparse.Namespace, report: Report) -> str:
    bad = report.first_bad
    if bad is None:
        least = min(report.measured, key=lambda layer: layer.sqnr_db or 0.0)
        return f"every layer has {report.bound_db:g} dB or more; the least: {least.name}, {_words(least)}"
    return f"first layer that goes wrong: {bad.name}: {_numbers(bad)}. try: {_remedy(args, report, bad)}"


def _numbers(layer: LayerCheck) -> str:
    words = [_words(layer)]
    if layer.not_finite:
        words.append(f"{number_of(layer.not_finite, 'value')} not finite")
    if layer.saturated is not None and layer.saturated >= CUT_OFF:
        words.append(f"{layer.saturated:.2g} % of values saturate at {layer.range_max:.5g}")
    if layer.seen is not None:
        words.append(f"max seen {layer.seen:.5g}" + ("" if layer.channel is None else f" (channel {layer.channel})"))
    return ", ".join(words)


def _remedy(args: argparse.Namespace, report: Report, layer: LayerCheck) -> str:
    if layer.not_finite:
        return "chai run ... --device float, with CHAI_DUMP=folder to see the blob"
    if (layer.saturated or 0) >= CUT_OFF:
        wider = f"a wider format in its {report.formats}"
        return wider if report.brought else "formats from more images, --calibration DIR"
    if not report.brought and args.bits < 8:
        return "--bits 8"
    if (
        not report.brought
        and args.scheme == "DynamicFixed"
        and "Xilinx" in load_overlay(args.overlay or default).schemes
    ):
        return "--scheme Xilinx, whose steps fit closer"
    if layer.engine == "fpga":
        return f"--engine {layer.name}=host"
    return "the layers before it, with a higher --bound"


# -- as a page


def _save_page(
    args: argparse.Namespace, report: Report, weights: Path | None, missed: list[str], content: Check
) -> None:
    facts = {
        "network": f"{report.network} ({args.net})",
        "weights": f"{weights.name}, SHA-256 {digest(*files_of(weights))[:12]}" if weights is not None else "none",
        "overlay": f"{report.overlay}, emulated",
        "formats": _formats(args, report),
        "images": f"{report.images}, {content.preprocess}",
        "bound": f"{report.bound_db:g} dB",
        "made by": f"chai {__version__}, numpy {np.__version__}",
    }
    verdict = [*_agreements(report), _last(args, report)]
    rows = [_cells(layer, report.bound_db) for layer in report.layers]
    head = ["layer", "type", "engine", "format", "SQNR dB", "largest error", "saturated %", "largest", "channel", ""]
    table = Table(head, rows, "llllrrrrrl")
    body = reports.body(verdict, missed, worst.chart(report), table)
    worst.save_page(args.html, f"chai check: {report.network}", facts, body, content)


def _cells(layer: LayerCheck, bound_db: float) -> list[str]:
    if layer.inside is not None:
        return [layer.name, layer.type, layer.engine, "", "", "", "", "", "", f"in {layer.inside}"]
    format = "float32" if layer.format is None else str(layer.format)
    numbers = (layer.max_error, ".4g"), (layer.saturated, ".3f"), (layer.seen, ".5g"), (layer.channel, "d")
    texts = ["-" if number is None else f"{number:{form}}" for number, form in numbers]
    verdict = "below the bound" if layer.below(bound_db) else ""
    return [layer.name, layer.type, layer.engine, format, layer.decibels, *texts, verdict]
