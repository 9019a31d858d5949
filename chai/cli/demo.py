"""chai demo: classify the shipped digit images with the shipped network, or find digits in pictures with the detector."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..blob import Array
from ..images import files as images
from ..images.drawing import contact_sheet
from ..net import Net
from ..runtime.perf import Spread, getPerfInfo
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.paths import resource
from . import inputs, options, output
from .parsing import option, section

EPILOG = """examples:
  chai demo
  chai demo --device float -o digits.png
  chai demo --detect

needs no internet, no board and no download"""
CALIBRATION = BATCH = 36  # images to choose the formats on, and of a pass: an accelerator takes 256 at most


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
    option(
        section(parser, "input"),
        "--detect",
        "find digits in pictures with the shipped detector, instead of classifying them",
    )
    option(section(parser, "device"), "--device NAME", "device to run on, see chai devices", default="emulator")
    option(
        section(parser, "output"),
        "-o --output FILE.png",
        "picture to write",
        type=partial(output.file, suffix=".png"),
        default="chai-demo.png",
    )
    options.as_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Classify the held-back digits, time a pass, draw the picture, print getPerfInfo.

    Return 1 if fewer than 98 % are right. With --detect: see demo_detect.
    """
    if args.detect:
        from . import demo_detect  # which the other demo does without

        return demo_detect.execute(args)
    files = images.find([resource("prototxt", "digits_images")])
    truth = [int(file.stem.rpartition("_")[2]) for file in files]  # ..._3.png is a 3
    net = Net("digits", device=args.device)
    data = net.preprocess(files)
    net.calibrate(data[:CALIBRATION])
    probabilities, exact = (_probabilities(each, data) for each in (net, Net("digits", device="float")))
    right, right_in_float = (int((each.argmax(1) == np.array(truth)).sum()) for each in (probabilities, exact))
    answers = [
        DemoImage(file.name, digit, int(p.argmax()), float(p.max()))
        for file, digit, p in zip(files, truth, probabilities)
    ]
    ms = inputs.latency(net, data[:1])
    labels = net.card.labels
    shown = [truth.index(digit) for digit in range(len(labels))]
    captions = [f"says {labels[one.says]}  {one.p:.3f}\nis   {one.truth}" for one in answers]
    drawn = [(images.read(files[i]), captions[i], answers[i].says == answers[i].truth) for i in shown]
    contact_sheet(args.output, drawn, 5, f"chai demo: {right} of {len(answers)} held-back digits right")
    answer = Demo(net.name, net.device.name, right, right_in_float, len(answers), ms, str(args.output), answers)
    if args.json:
        output.as_json(answer)
    else:
        _print(answer, net, [_row(answers[i], probabilities[i], labels) for i in shown])
    if not args.quiet:
        inputs.tell_kernels()
        output.say("next: chai show digits --overlay pynq-z2      chai run googlenet WEIGHTS -i YOUR.jpg")
    return 0 if right >= 0.98 * len(answers) else 1


def _probabilities(net: Net, data: Array) -> Array:
    batches = (data[first : first + BATCH] for first in range(0, len(data), BATCH))
    return np.concatenate([net.forward(data=batch)["prob"] for batch in batches])


def _print(answer: Demo, net: Net, rows: Sequence[Sequence[str]]) -> None:
    formats = f"   overlay {net.overlay.name}   8 bit" if net.overlay else ""
    output.result(f"{net.name} (chai's own, trained on handwritten digits)   device {net.device.name}{formats}")
    output.table(["image", "truth", "says", "p", "2nd", "p"], rows, "lrrrrr")
    total, in_float, ms = answer.total, answer.right_in_float, answer.ms
    output.result(f"top-1     {answer.right}/{total} of the held-back digits shipped with chai ({in_float} in float)")
    best = f"min {ms.min:.2f}   p90 {ms.p90:.2f}"
    output.result(f"latency   median {ms.median:.2f} ms   {best}   ({inputs.RUNS} runs after a warm-up)")
    engines = Counter(s.engine for s in net.perf.steps)
    steps = (f"{number_of(count, 'step')} {name}" for name, count in engines.items())
    output.result(f"engines   {', '.join(steps)}")
    output.result(f"picture   {answer.picture}")
    getPerfInfo(net)


def _row(image: DemoImage, probabilities: Array, labels: Sequence[str]) -> list[str]:
    best = np.argsort(-probabilities)[:2]
    answers = (cell for answer in best for cell in (labels[answer], f"{probabilities[answer]:.3f}"))
    return [image.file, str(image.truth), *answers]
