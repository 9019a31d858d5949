"""chai demo: classify the shipped digit images with the shipped network, or find digits in pictures with the detector."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..blob import Array
from ..evaluate.boxes import MEANS, pairs
from ..evaluate.coco import CocoBox, CocoPrecision
from ..evaluate.truth import CocoTruth
from ..images import files as images
from ..images.boxes import detections
from ..images.drawing import contact_sheet, with_boxes
from ..images.preprocess import whole
from ..net import Net
from ..runtime.perf import Spread, getPerfInfo
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.paths import resource
from . import inputs, options, output
from .drawing import labelled_box
from .parsing import option, section

if TYPE_CHECKING:
    from PIL.Image import Image

EPILOG = """examples:
  chai demo
  chai demo --device float -o digits.png
  chai demo --detect

needs no internet, no board and no download"""
CALIBRATION = BATCH = 36  # images to choose the formats on, and of a pass: an accelerator takes 256 at most

DETECTOR = "digits_detector"
PICTURES = 12  # to choose the detector's formats on
SHOWN = 9  # pictures that are drawn
ENLARGED = 4  # in the drawing
LEAST = 0.9  # mAP@0.5, for exit code 0
LOW = 0.001  # scores of boxes that count for mAP exceed it
JUDGED = "coco_map50", "coco_map"


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


class DetectedPicture(NamedTuple):
    """A picture: its digits, the boxes that were found, and whether they are the digits (class, and IoU of at least 0.5)."""

    file: str
    digits: int
    boxes: int
    right: bool


@dataclass(frozen=True)
class DetectionDemo(output.Schema):
    """Results of the embedded detector on pictures of held-back digits; ``layers`` are those of each engine."""

    schema = "chai.demo.detect/1"
    network: str
    device: str
    right: int
    right_in_float: int
    total: int
    coco_map50: float
    coco_map50_in_float: float
    coco_map: float
    coco_map_in_float: float
    ms: Spread
    layers: dict[str, list[str]]
    picture: str
    pictures: list[DetectedPicture]


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
    """Classify or find the digits, time a pass, draw the picture; return 1 if too few are right."""
    good, following = (_detect if args.detect else _classify)(args)
    if not args.quiet:
        inputs.tell_kernels()
        output.say(f"next: {following}")
    return 0 if good else 1


def _head(net: Net) -> str:
    formats = f"   overlay {net.overlay.name}   8 bit" if net.overlay else ""
    return f"{net.name} (chai's own, trained on handwritten digits)   device {net.device.name}{formats}"


def _latency(ms: Spread) -> str:
    return f"latency   median {ms.median:.2f} ms   min {ms.min:.2f}   p90 {ms.p90:.2f}"


# -- classes of the held-back digits


def _classify(args: argparse.Namespace) -> tuple[bool, str]:
    """Return whether 98 % of the digits are right, and what to do next."""
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
        _print_classes(answer, net, [_row(answers[i], probabilities[i], labels) for i in shown])
    following = "chai show digits --overlay pynq-z2      chai run googlenet WEIGHTS -i YOUR.jpg"
    return right >= 0.98 * len(answers), following


def _probabilities(net: Net, data: Array) -> Array:
    batches = (data[first : first + BATCH] for first in range(0, len(data), BATCH))
    return np.concatenate([net.forward(data=batch)["prob"] for batch in batches])


def _print_classes(answer: Demo, net: Net, rows: Sequence[Sequence[str]]) -> None:
    output.result(_head(net))
    output.table(["image", "truth", "says", "p", "2nd", "p"], rows, "lrrrrr")
    total, in_float = answer.total, answer.right_in_float
    output.result(f"top-1     {answer.right}/{total} of the held-back digits shipped with chai ({in_float} in float)")
    output.result(f"{_latency(answer.ms)}   ({inputs.RUNS} runs after a warm-up)")
    engines = Counter(s.engine for s in net.perf.steps)
    steps = (f"{number_of(count, 'step')} {name}" for name, count in engines.items())
    output.result(f"engines   {', '.join(steps)}")
    output.result(f"picture   {answer.picture}")
    getPerfInfo(net)


def _row(image: DemoImage, probabilities: Array, labels: Sequence[str]) -> list[str]:
    best = np.argsort(-probabilities)[:2]
    answers = (cell for answer in best for cell in (labels[answer], f"{probabilities[answer]:.3f}"))
    return [image.file, str(image.truth), *answers]


# -- boxes around digits in pictures

# boxes of low scores count for mean precisions
_detector = partial(Net, DETECTOR, detect={"threshold": LOW})


def _detect(args: argparse.Namespace) -> tuple[bool, str]:
    """Return whether mAP@0.5 is at least LEAST, and what to do next."""
    folder = resource("prototxt", "digits_scenes")
    files = images.find([folder])
    net = _detector(device=args.device)
    labels = net.card.labels
    truths = CocoTruth(folder / "instances.json", labels)
    truth = [truths(file) or [] for file in files]
    net.calibrate(net.pictures(files[:PICTURES]))
    boxes, right, means = _judged(net, files, truth, truths.names)
    _, right_in_float, exact = _judged(_detector(device="float"), files, truth, truths.names)
    ms = inputs.latency(net, net.pictures(files[:1]))
    layers: dict[str, list[str]] = {}
    for step in net.perf.steps:
        layers.setdefault(step.engine, []).extend(step.layers)
    rows = [*zip(files, truth, boxes, right)]
    drawn = [
        (_drawn(images.read(file), own, labels), f"{file.name}  {len(own)} of {len(true)}", fits)
        for file, true, own, fits in rows[:SHOWN]
    ]
    title = f"chai demo --detect: mAP@0.5 {means['coco_map50']:.3f} on pictures of held-back digits"
    contact_sheet(args.output, drawn, 3, title, drawn[0][0].size)
    answer = DetectionDemo(
        network=net.name,
        device=net.device.name,
        right=sum(right),
        right_in_float=sum(right_in_float),
        total=len(files),
        **means,
        **{f"{name}_in_float": mean for name, mean in exact.items()},
        ms=ms,
        layers={engine: [*dict.fromkeys(names)] for engine, names in layers.items() if names},
        picture=str(args.output),
        pictures=[DetectedPicture(file.name, len(true), len(own), fits) for file, true, own, fits in rows],
    )
    if args.json:
        output.as_json(answer)
    else:
        _print_boxes(answer, net)
    following = f"chai run {DETECTOR} -i clip.mp4 -o boxes.mp4      docs/detect.md says how to run your own detector"
    return answer.coco_map50 >= LEAST, following


def _judged(
    net: Net, files: Sequence[Path], truth: Sequence[list[CocoBox]], names: dict[int, str]
) -> tuple[list[list[list[float]]], list[bool], dict[str, float]]:
    """Run all pictures, one by one, and compare the boxes with the true ones; those above the card's threshold are kept.

    Return the boxes [class, score, corners] of each in its pixels, which pictures are right, and mean precisions.
    """
    (blob,), head = net.outputs, net.card.detect
    assert head is not None
    precision = CocoPrecision(names)
    boxes: list[list[list[float]]] = []
    for file, true in zip(files, truth):
        rows = net.forward(net.pictures([file]))[blob]
        listed = detections(rows, {0: whole(*images.read(file).size)})[:, 1:].tolist()
        precision.add(listed, true)
        boxes.append([row for row in listed if row[1] > head.threshold])
    right = [
        len(pairs(rows, [[box.label, 1, *box[1:5]] for box in true])) == len(rows) == len(true)
        for rows, true in zip(boxes, truth)
    ]
    figures = precision.figures()
    return boxes, right, {name: float(str(figures[name])) for name in JUDGED}


def _drawn(picture: Image, boxes: Sequence[Sequence[float]], labels: Sequence[str]) -> Image:
    large = picture.convert("RGB").resize((picture.width * ENLARGED, picture.height * ENLARGED), 0)
    shown = [
        {"index": int(i), "label": labels[int(i)], "score": score, "pixels": [side * ENLARGED for side in corners]}
        for i, score, *corners in boxes
    ]
    return with_boxes(large, [labelled_box(box) for box in shown])


def _print_boxes(answer: DetectionDemo, net: Net) -> None:
    output.result(_head(net))
    rows = [[p.file, str(p.digits), str(p.boxes), "yes" if p.right else "no"] for p in answer.pictures[:SHOWN]]
    output.table(["picture", "digits", "boxes", "right"], rows, "lrrr")
    output.result(
        f"right     {answer.right}/{answer.total} of the pictures of held-back digits shipped with chai "
        f"({answer.right_in_float} in float)"
    )
    for name in JUDGED:
        value, exact = getattr(answer, name), getattr(answer, f"{name}_in_float")
        output.result(f"{MEANS[name]}   {value:.4f}   ({exact:.4f} in float)")
    output.result(_latency(answer.ms))
    for engine, names in answer.layers.items():
        output.listed(engine, "", names)
    output.result(f"picture   {answer.picture}")
