"""chai demo --detect: find the digits of the shipped pictures with the shipped detector."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
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


class _JudgedPictures(NamedTuple):
    """Results of a network for all pictures: boxes [class, score, corners] of each, which are right, and mean precisions."""

    boxes: list[list[list[float]]]
    right: list[bool]
    means: dict[str, float]


def execute(args: argparse.Namespace) -> int:
    """Find the digits, time a pass, draw some pictures with their boxes; return 1 if mAP@0.5 is less than LEAST."""
    folder = resource("prototxt", "digits_scenes")
    files = images.find([folder])
    net = _net(args.device)
    truths = CocoTruth(folder / "instances.json", net.card.labels)
    truth = [truths(file) or [] for file in files]
    net.calibrate(net.pictures(files[:CALIBRATION]))
    judged = _judged(net, files, truth, truths.names)
    exact = _judged(_net("float"), files, truth, truths.names)
    ms = inputs.latency(net, net.pictures(files[:1]))
    layers = _layers(net)
    labels = net.card.labels
    drawn = [
        (_drawn(images.read(file), boxes, labels), f"{file.name}  {len(boxes)} of {len(true)}", right)
        for file, boxes, true, right in list(zip(files, judged.boxes, truth, judged.right))[:SHOWN]
    ]
    title = f"chai demo --detect: mAP@0.5 {judged.means['coco_map50']:.3f} on pictures of held-back digits"
    contact_sheet(args.output, drawn, 3, title, drawn[0][0].size)
    pictures = [
        DetectedPicture(file.name, len(true), len(boxes), right)
        for file, true, boxes, right in zip(files, truth, judged.boxes, judged.right)
    ]
    answer = DetectionDemo(
        network=net.name,
        device=net.device.name,
        right=sum(judged.right),
        right_in_float=sum(exact.right),
        total=len(files),
        coco_map50=judged.means["coco_map50"],
        coco_map50_in_float=exact.means["coco_map50"],
        coco_map=judged.means["coco_map"],
        coco_map_in_float=exact.means["coco_map"],
        ms=ms,
        layers=layers,
        picture=str(args.output),
        pictures=pictures,
    )
    if args.json:
        output.as_json(answer)
    else:
        _print(answer, f"   overlay {net.overlay.name}   8 bit" if net.overlay else "", judged, exact)
    if not args.quiet:
        inputs.tell_kernels()
        output.say(
            f"next: chai run {NETWORK} -i clip.mp4 -o boxes.mp4      docs/detect.md says how to run your own detector"
        )
    return 0 if answer.coco_map50 >= LEAST else 1


def _net(device: str) -> Net:
    """Return the detector with all of its boxes: those of low scores count for mean precisions."""
    return Net(NETWORK, device=device, detect={"threshold": LOW})


def _judged(net: Net, files: Sequence[Path], truth: Sequence[list[CocoBox]], names: dict[int, str]) -> _JudgedPictures:
    """Run all pictures, one by one, and compare the boxes with the true ones; those above the card's threshold are kept."""
    (blob,), head = net.outputs, net.card.detect
    assert head is not None
    precision = CocoPrecision(names)
    boxes: list[list[list[float]]] = []
    for file, true in zip(files, truth):
        rows = _rows(net.forward(net.pictures([file]))[blob], images.read(file))
        precision.add(rows, true)
        boxes.append([row for row in rows if row[1] > head.threshold])
    right = [
        len(pairs(rows, [[box.label, 1, *box[1:5]] for box in true])) == len(rows) == len(true)
        for rows, true in zip(boxes, truth)
    ]
    figures = precision.figures()
    return _JudgedPictures(boxes, right, {name: float(str(figures[name])) for name in JUDGED})


def _rows(rows: Array, picture: Image) -> list[list[float]]:
    """Return the boxes of a picture: class, score and corners in its pixels."""
    boxes: list[list[float]] = detections(rows, {0: whole(*picture.size)})[:, 1:].tolist()
    return boxes


def _layers(net: Net) -> dict[str, list[str]]:
    """Return the layers that each engine runs, in order."""
    layers: dict[str, list[str]] = {}
    for step in net.perf.steps:
        own = layers.setdefault(step.engine, [])
        own += [layer for layer in step.layers if layer not in own]
    return {engine: names for engine, names in layers.items() if names}


def _drawn(picture: Image, boxes: Sequence[Sequence[float]], labels: Sequence[str]) -> Image:
    """Return a picture, enlarged, with its boxes."""
    large = picture.convert("RGB").resize((picture.width * ENLARGED, picture.height * ENLARGED), 0)
    shown = [
        {"index": int(i), "label": labels[int(i)], "score": score, "pixels": [side * ENLARGED for side in corners]}
        for i, score, *corners in boxes
    ]
    return with_boxes(large, [labelled_box(box) for box in shown])


def _print(answer: DetectionDemo, formats: str, judged: _JudgedPictures, exact: _JudgedPictures) -> None:
    about = f"{answer.network} (chai's own, trained on handwritten digits)   device {answer.device}{formats}"
    output.result(about)
    rows = [[p.file, str(p.digits), str(p.boxes), "yes" if p.right else "no"] for p in answer.pictures[:SHOWN]]
    output.table(["picture", "digits", "boxes", "right"], rows, "lrrr")
    output.result(
        f"right     {answer.right}/{answer.total} of the pictures of held-back digits shipped with chai "
        f"({answer.right_in_float} in float)"
    )
    for name in JUDGED:
        output.result(f"{MEANS[name]}   {judged.means[name]:.4f}   ({exact.means[name]:.4f} in float)")
    output.result(f"latency   median {answer.ms.median:.2f} ms   min {answer.ms.min:.2f}   p90 {answer.ms.p90:.2f}")
    for engine, names in answer.layers.items():
        output.listed(engine, "", names)
    output.result(f"picture   {answer.picture}")
