"""chai demo --detect: find the digits of the shipped pictures with the shipped detector."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..evaluate.boxes import MEANS, pairs
from ..evaluate.coco import CocoBox, CocoPrecision
from ..evaluate.truth import CocoTruth
from ..images import files as images
from ..images.boxes import detections
from ..images.drawing import contact_sheet, with_boxes
from ..images.preprocess import whole
from ..net import Net
from ..runtime.perf import Spread
from ..util.paths import resource
from . import inputs, output
from .drawing import labelled_box

if TYPE_CHECKING:
    from PIL.Image import Image

NETWORK = "digits_detector"
CALIBRATION = 12  # pictures to choose the formats on
SHOWN = 9  # pictures that are drawn
ENLARGED = 4  # in the drawing
LEAST = 0.9  # mAP@0.5, for exit code 0
LOW = 0.001  # scores of boxes that count for mAP exceed it
JUDGED = "coco_map50", "coco_map"


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


# boxes of low scores count for mean precisions
_detector = partial(Net, NETWORK, detect={"threshold": LOW})


def execute(args: argparse.Namespace) -> int:
    """Find the digits, time a pass, draw some pictures with their boxes; return 1 if mAP@0.5 is less than LEAST."""
    folder = resource("prototxt", "digits_scenes")
    files = images.find([folder])
    net = _detector(device=args.device)
    labels = net.card.labels
    truths = CocoTruth(folder / "instances.json", labels)
    truth = [truths(file) or [] for file in files]
    net.calibrate(net.pictures(files[:CALIBRATION]))
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
        coco_map50=means["coco_map50"],
        coco_map50_in_float=exact["coco_map50"],
        coco_map=means["coco_map"],
        coco_map_in_float=exact["coco_map"],
        ms=ms,
        layers={engine: [*dict.fromkeys(names)] for engine, names in layers.items() if names},
        picture=str(args.output),
        pictures=[DetectedPicture(file.name, len(true), len(own), fits) for file, true, own, fits in rows],
    )
    if args.json:
        output.as_json(answer)
    else:
        _print(answer, f"   overlay {net.overlay.name}   8 bit" if net.overlay else "")
    if not args.quiet:
        inputs.tell_kernels()
        output.say(
            f"next: chai run {NETWORK} -i clip.mp4 -o boxes.mp4      docs/detect.md says how to run your own detector"
        )
    return 0 if answer.coco_map50 >= LEAST else 1


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


def _print(answer: DetectionDemo, formats: str) -> None:
    output.result(f"{answer.network} (chai's own, trained on handwritten digits)   device {answer.device}{formats}")
    rows = [[p.file, str(p.digits), str(p.boxes), "yes" if p.right else "no"] for p in answer.pictures[:SHOWN]]
    output.table(["picture", "digits", "boxes", "right"], rows, "lrrr")
    output.result(
        f"right     {answer.right}/{answer.total} of the pictures of held-back digits shipped with chai "
        f"({answer.right_in_float} in float)"
    )
    for name in JUDGED:
        value, exact = getattr(answer, name), getattr(answer, f"{name}_in_float")
        output.result(f"{MEANS[name]}   {value:.4f}   ({exact:.4f} in float)")
    output.result(f"latency   median {answer.ms.median:.2f} ms   min {answer.ms.min:.2f}   p90 {answer.ms.p90:.2f}")
    for engine, names in answer.layers.items():
        output.listed(engine, "", names)
    output.result(f"picture   {answer.picture}")
