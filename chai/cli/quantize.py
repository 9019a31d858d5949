"""chai quantize: choose formats and weights for an overlay from sample images."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any, TypedDict

from .. import __version__
from ..errors import UsageError
from ..images import files as images
from ..images.pictures import Feed
from ..images.resized import resized, views
from ..overlay import default, load
from ..quantizer.boxes import BoxCounts
from ..quantizer.groups import Widths, spelled
from ..quantizer.registers import BOARD, ends
from ..quantizer.report import Verdict, verdict
from ..quantizer.search import BUDGET, JUDGES, OUTPUTS, Result, quantize
from ..report import page as reports
from ..tasks.arithmetic import arithmetic
from ..text import number_of, visible
from ..util.data.malloc import return_large_arrays
from ..util.files import complete
from ..zoo import card_file as cards, is_onnx
from ..zoo.locate import locate
from . import inputs, options, output, worst
from .parsing import option, refuse, section

EPILOG = """examples:
  chai quantize digits --calibration photos/ -o digits_int8.prototxt
  chai quantize net.prototxt net.caffemodel --calibration cal/ --bits 6 --effort best -o net_int6.prototxt
  chai quantize net.prototxt net.caffemodel --calibration cal/ --scheme DynamicFixed -o net_df.prototxt --html q.html
  chai quantize model.onnx --calibration cal/ -o model.formats.json
  chai quantize digits_detector --calibration photos/ --judge boxes -o digits_detector_int8.prototxt

The weights are written to OUT.caffemodel. Use both files together. Of an ONNX file only formats are chosen: they are
given with it, as in chai check model.onnx model.formats.json."""
NARROW = "note: on the overlays, 6-bit codes take as many cycles and bytes as 8-bit ones, which lose less accuracy"


class QuantizeRecipe(TypedDict):
    """Choices for formats and weights; see ``quantizer.recipe.Recipe``."""

    ranges: str
    weights: str
    rounding: str
    bias: str
    equalise: float | None


class Tried(TypedDict):
    """A recipe and its cost."""

    recipe: QuantizeRecipe
    cost: float | None


@dataclass(frozen=True)
class Quantize(worst.Compared):
    """A quantised network: its recipe, and its error against float."""

    schema = "chai.quantize/2"
    bits: int | list[int] | str
    budget: float | None
    scheme: str
    effort: str
    seed: int
    judge: str
    judged: int
    boxes: BoxCounts | None
    recipe: QuantizeRecipe
    cost: float | None
    cost_of_plain_maxima: float | None
    tried: list[Tried]
    methods: dict[str, str]
    cost_alone: dict[str, float | None]
    widened: dict[str, float]
    on_host_because: dict[str, str]
    seconds: float
    seconds_float: float
    prototxt: str
    caffemodel: str
    below_bound: list[str]


def arguments(parser: argparse.ArgumentParser) -> None:
    options.network(parser, compiled=False)
    help = "sample images, .npy inputs or folders of them; no labels needed"
    option(section(parser, "input"), "--calibration DIR", help, nargs="+", required=True)
    options.limit(parser)
    options.batch(parser, 8)
    options.preprocessing(parser)
    options.flag(section(parser, "device"), "overlay")
    _formats(parser)
    _search(parser)
    group = section(parser, "output")
    option(
        group,
        "-o --output OUT",
        "file to write: OUT.prototxt, with OUT.caffemodel; for an ONNX file OUT.formats.json",
        type=output.file,
        required=True,
    )
    option(group, "--html FILE", "write a report as a page", type=output.file)
    options.as_json(parser)
    parser.set_defaults(device="float")


def _formats(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "formats")
    option(
        group,
        "--bits 8|6|mixed|IN,WEIGHTS,OUT",
        "width of codes (default: 8): one, 6 with 8 in the layers that need it most (mixed), or three, of inputs, "
        "weights and other blobs",
        dest="widths",
        type=_bits,
        default=8,
    )
    option(
        group,
        "--budget PERCENT",
        "share of the multiply-accumulates that mixed may give 8 bits, 0 to 100 (default: 10)",
        type=lambda text: options.number("a percentage, 0 to 100", 0, 100, text.removesuffix("%")) / 100,
    )
    options.flag(group, "scheme")
    option(
        group,
        "--layer-bits LAYER=8|6",
        "width of the weights and the input of one convolution or InnerProduct; repeatable",
        action=options.Pairs,
        type=partial(options.by_layer, "--layer-bits", ("8", "6")),
        default={},
    )
    option(
        group,
        "--chaidnn",
        "write only fields that CHaiDNN reads: signed codes, and 8 bits for averaged scores; its registers hold all sums "
        "and results of the calibration images",
    )


def _search(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "search")
    option(
        group,
        "--effort",
        "search formats only (fast), weights too (normal, default), or try more combinations (best); of an ONNX file "
        "the weights are kept",
        choices=("fast", "normal", "best"),
        default="normal",
    )
    option(
        group,
        "--judge",
        "what formats are judged by: the errors of the outputs (default), of a detector those of what its boxes are made "
        "from; or the boxes themselves, compared with float's",
        choices=JUDGES,
        default=OUTPUTS,
    )
    option(group, "--seed N", "random seed for sampled positions", type=int, default=0)
    options.journal(group)


def execute(args: argparse.Namespace) -> int:
    """Calibrate, search and write; then compare the written network with float and print its errors."""
    settings = _settings(args)
    path, weights = locate(args.net, args.weights, adjacent=True)
    files = images.find(args.calibration)[: args.limit]
    job = inputs.prepare(args, files)
    inputs.warn_of_defaults(job, files)
    if args.widths not in (8, (8, 8, 8)) and not args.quiet:
        output.say(NARROW)
    card = None if is_onnx(path) else _Card(args, path, job)  # an ONNX file keeps its own
    copies = resized(files, job.preprocess)
    if copies:
        size = "x".join(map(str, job.preprocess.resize or ()))
        output.say(
            f"warning: {len(copies)} of {len(files)} images are {size}, the size they would be resized to: if they are "
            "copies, originals serve better"
        )
    if not args.json:
        output.result(inputs.header(args, job))
    failed: list[inputs.Failure] = []
    feeds = inputs.feeds(args, inputs.items(files, job, failed), job, files)
    others = inputs.feeds(args, _views(files, job, failed, set(copies)), job, files) if copies else None
    shared = {**options.of_net(args, "overlay", "phase", "stages", "shapes"), "batch": min(args.batch, len(files))}
    return_large_arrays()
    result = quantize(path, weights, feeds, args.output, views=others, watch=_Watch(args.quiet), **settings, **shared)
    if card is not None:
        card.write()
    outcome = verdict(result, path, weights, **shared)
    below = worst.names(outcome.check)
    content = Quantize(**outcome.to_json(), below_bound=below, preprocess=inputs.describe(job), failed=failed)
    if args.json:
        output.as_json(content)
    else:
        _print(outcome)
    if args.html:
        _save_page(args, outcome, content)
    worst.warn(outcome.check)
    if card is not None and card.news:
        output.say(card.news)
    output.say(f"wrote {result.caffemodel if card is None else f'{result.prototxt} and {result.caffemodel.name}'}")
    if not args.quiet:
        if card is not None:
            output.say(_on_board(args, result))
        mean = card.mean_option if card is not None else ""
        judge = f"chai check {result.prototxt} {result.caffemodel} -i IMAGES{mean}"
        output.say(f"next: {judge}   on images not used here")
    return 65 if failed else 0


def _on_board(args: argparse.Namespace, result: Result) -> str:
    """Return whether the file means on a board with CHaiDNN what was judged."""
    unsigned = sum(format.unsigned for format in result.built.formats.values())
    if unsigned:
        blobs = number_of(unsigned, "blob")
        return f"a CHaiDNN board cannot read it: unsigned codes of {blobs}; --chaidnn writes none"
    far = "; ".join(f"{name}: {text}" for name, text in result.beyond.items())
    if ends(arithmetic(load(args.overlay or default))):
        held = f", where its registers do not hold {far}" if far else ""
        return f"a CHaiDNN board gives the codes that were judged here{held}"
    if far:
        cure = "" if args.chaidnn else "; --chaidnn keeps within them"
        return f"a CHaiDNN board can read it, but its registers do not hold {far}{cure}"
    return (
        f"a CHaiDNN board can read it and holds its numbers, which it rounds otherwise: --overlay {BOARD} judges that"
    )


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the search as arguments of ``quantize``. Raises UsageError."""
    options.check_journal(args)
    if args.widths != "mixed":
        refuse(args, ("budget",), "without --bits mixed")
    return {
        "bits": args.widths,
        "budget": BUDGET if args.budget is None else args.budget,
        "wider": _wider(args.layer_bits, args.widths),
        "scheme": options.scheme(args),
        **{name: getattr(args, name) for name in ("effort", "judge", "limit", "seed", "journal", "restart", "chaidnn")},
    }


class _Card:
    """The .toml of the quantised network: a copy of the user's, with the preprocessing of this run.

    ``news`` describes the file if it is more than a copy. ``mean_option`` is the option for later commands if the mean is an
    image, which a .toml cannot hold.
    """

    def __init__(self, args: argparse.Namespace, prototxt: Path, job: inputs.LoadedNetwork) -> None:
        own, self.path = prototxt.with_suffix(".toml"), args.output.with_suffix(".toml")
        self.present = cards.card_text(self.path)
        base = self.path if self.path.is_file() else own
        self.text, how, comment = cards.card_text(base), job.preprocess, ""
        self.news = self.mean_option = ""
        if args.mean_file:
            self.mean_option = f" --mean-file {quote(str(args.mean_file))}"
            how, comment = replace(how, mean=()), f"mean: an image, to be named each time:{self.mean_option}"
        transform = job.net.graph.transforms.get(job.blob)
        if how != cards.parse_card(self.text, base).preprocess_after(transform):
            self.text = cards.with_preprocess(self.text, how, base, visible(comment))
            self.news = f"wrote {self.path}: its [preprocess] is what was used here"

    def write(self) -> None:
        """Write the file, unless it has this text already."""
        if self.text != self.present:
            with complete(self.path) as part:
                part.write_bytes(self.text.encode())


def _print(outcome: Verdict) -> None:
    table = outcome.table()
    output.table(table.head, table.rows, table.align)
    output.sentences(*outcome.sentences(), worst.sentence(outcome.check))
    seconds = f"{outcome.result.seconds:.0f} s, of which {outcome.result.observing:.0f} s the float pass"
    output.result(
        f"{number_of(outcome.result.images, 'image')}, {number_of(len(outcome.result.tried), 'recipe')}, {seconds}"
    )


def _save_page(args: argparse.Namespace, outcome: Verdict, content: Quantize) -> None:
    result, how = outcome.result, outcome.result.how
    facts = {
        "network": f"{outcome.check.network} ({args.net})",
        "written": f"{result.prototxt}, {result.caffemodel.name}",
        "formats": f"{spelled(how['bits'])}-bit {how['scheme']}",
        "overlay": f"{outcome.check.overlay}, emulated",
        "calibration": f"{number_of(result.images, 'image')}, {content.preprocess}",
        "judged by": how["judge"],
        "made by": f"chai {__version__}, effort {how['effort']}, seed {how['seed']}, {result.seconds:.0f} s",
    }
    verdict = [*outcome.sentences(), worst.sentence(outcome.check)]
    body = reports.body(verdict, worst.below(outcome.check), worst.chart(outcome.check), outcome.table())
    worst.save_page(args.html, f"chai quantize: {outcome.check.network}", facts, body, content)


def _bits(text: str) -> Widths:
    if text == "mixed":
        return "mixed"
    widths = text.split(",")
    if len(widths) not in (1, 3) or not set(widths) <= {"8", "6"}:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 8, 6, mixed, or three widths, e.g. 8,6,6")
    return (int(widths[0]), int(widths[1]), int(widths[2])) if len(widths) == 3 else int(text)


def _wider(widths: Mapping[str, str], others: Widths) -> dict[str, int]:
    for name, bits in widths.items():
        if bits == str(others):
            raise UsageError(f"--layer-bits {name}={bits} does nothing with --bits {others}", hint="leave it out")
    return {name: int(bits) for name, bits in widths.items()}


def _views(
    files: list[Path], job: inputs.LoadedNetwork, failed: list[inputs.Failure], copies: Collection[Path]
) -> Iterator[tuple[images.ImagePart, Feed]]:
    """Yield inputs for choosing ranges: two views of each of ``copies``, every other file as it is.

    To be read after the files themselves, when ``failed`` has those that cannot be.
    """
    unread = {failure["file"] for failure in failed}
    for file in files:
        if file in copies:
            part = images.ImagePart(str(file))
            yield from ((part, view) for view in views(images.read(file), job.preprocess, job.shape))
        elif str(file) not in unread:
            yield from inputs.items([file], job, [])


class _Watch:
    """Print progress and the remaining time to stderr every ten seconds."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.started = self.told = monotonic()

    def __call__(self, what: str, share: float) -> None:
        now = monotonic()
        if self.quiet or now - self.told < 10:
            return
        self.told = now
        left = (now - self.started) * (1 - share) / share if share > 0.02 else 0
        output.say(f"{100 * share:3.0f} %  {what}" + (f", about {left:.0f} s left" if left else ""))
