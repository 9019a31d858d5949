"""chai demo: classify the shipped digit images with the shipped network."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..blob import Array
from ..images import files as images
from ..images.drawing import contact_sheet
from ..net import Net
from ..runtime.perf import Spread, getPerfInfo, spread
from ..util.lazy_numpy import np
from ..util.paths import resource
from ..zoo.card import read_card
from . import inputs, options, output
from .parsing import section

EPILOG = """examples:
  chai demo
  chai demo --device float -o digits.png

needs no internet, no board and no download"""
RUNS = 10
CALIBRATION = 36  # images to choose the formats on


class DemoImage(NamedTuple):
    """A digit, the network's answer, and its probability."""

    file: str
    truth: int
    says: int
    p: float


@dataclass(frozen=True)
class Demo(output.Schema):
    """Results of the embedded network on the held-back digits."""

    schema = "chai.demo/1"
    network: str
    device: str
    right: int
    right_in_float: int
    total: int
    ms: Spread
    picture: str
    images: list[DemoImage]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    section(parser, "device").add_argument(
        "--device", metavar="NAME", default="emulator", help="device to run on, see chai devices (default: emulator)"
    )
    section(parser, "output").add_argument(
        "-o",
        "--output",
        type=output.file,
        default="chai-demo.png",
        metavar="FILE.png",
        help="picture to write (default: chai-demo.png)",
    )
    options.as_json(parser)


@dataclass(frozen=True)
class Digits:
    """Hold the held-back digits: files, pictures, true classes, and the input blob (N, 1, 8, 8)."""

    files: list[Path]
    pictures: list[Any]
    truth: list[int]
    labels: tuple[str, ...]
    data: Array

    def right(self, answers: Array) -> int:
        """Return the number of right answers."""
        return int((answers == np.array(self.truth)).sum())


def execute(args: argparse.Namespace) -> int:
    """Classify the held-back digits, time a pass, draw the picture, print getPerfInfo.

    Return 1 if fewer than 98 % are right.
    """
    digits = _digits()
    net = Net("digits", device=args.device)
    net.calibrate(digits.data[:CALIBRATION])
    probabilities = net.forward(data=digits.data)["prob"]
    answers = probabilities.argmax(1)
    right = digits.right(answers)
    exact = digits.right(Net("digits", device="float").forward(data=digits.data)["prob"].argmax(1))
    shown = [digits.truth.index(digit) for digit in range(len(digits.labels))]
    times = _latency(net, digits)
    _draw(args.output, digits, shown, probabilities, f"chai demo: {right} of {len(answers)} held-back digits right")
    ms = spread(times)
    if args.json:
        output.as_json(
            Demo(
                network=net.name,
                device=net.device.name,
                right=right,
                right_in_float=exact,
                total=len(answers),
                ms=ms,
                picture=str(args.output),
                images=[
                    DemoImage(f.name, t, int(s), float(p[s]))
                    for f, t, s, p in zip(digits.files, digits.truth, answers, probabilities)
                ],
            )
        )
    else:
        formats = f"   overlay {net.overlay.name}   8 bit" if net.overlay else ""
        output.result(f"{net.name} (chai's own, trained on handwritten digits)   device {net.device.name}{formats}")
        output.table(["image", "truth", "says", "p", "2nd", "p"], _rows(digits, shown, probabilities), "lrrrrr")
        output.result(f"top-1     {right}/{len(answers)} of the held-back digits shipped with chai ({exact} in float)")
        best = f"min {ms.min:.2f}   p90 {ms.p90:.2f}"
        output.result(f"latency   median {ms.median:.2f} ms   {best}   ({RUNS} runs after a warm-up)")
        engines = Counter(s.engine for s in net.perf.steps)
        output.result(f"engines   {', '.join(f'{count} steps {name}' for name, count in engines.items())}")
        output.result(f"picture   {args.output}")
        getPerfInfo(net)
    if not args.quiet:
        inputs.tell_kernels()
        output.say("next: chai show digits --overlay pynq-z2      chai run googlenet WEIGHTS -i YOUR.jpg")
    return 0 if right >= 0.98 * len(answers) else 1


def _digits() -> Digits:
    files = images.find([resource("prototxt", "digits_images")])
    card = read_card(resource("prototxt", "digits.prototxt"))
    pictures = [images.read(f) for f in files]
    data = np.stack([card.preprocess(p, (1, 1, 8, 8)) for p in pictures])
    return Digits(
        files, pictures, [int(f.stem.rpartition("_")[2]) for f in files], card.labels, data
    )  # ..._3.png is a 3


def _latency(net: Net, digits: Digits) -> list[float]:
    """Return the milliseconds of RUNS passes of one image, after a warm-up pass."""
    times = []
    for i in range(RUNS + 1):
        net.forward(data=digits.data[i : i + 1])
        times.append(net.perf.ms_per_image)
    return times[1:]


def _rows(digits: Digits, shown: list[int], probabilities: Array) -> list[list[str]]:
    rows = []
    for i in shown:
        first, second = np.argsort(-probabilities[i])[:2]
        row = [digits.files[i].name, str(digits.truth[i])]
        for answer in (first, second):
            row += [digits.labels[answer], f"{probabilities[i, answer]:.3f}"]
        rows.append(row)
    return rows


def _draw(path: Path, digits: Digits, shown: list[int], probabilities: Array, title: str) -> None:
    items = []
    for i in shown:
        said = int(probabilities[i].argmax())
        caption = f"says {digits.labels[said]}  {probabilities[i, said]:.3f}\nis   {digits.truth[i]}"
        items.append((digits.pictures[i], caption, said == digits.truth[i]))
    contact_sheet(path, items, 5, title)
