"""Turn the outputs of a network into answers for an image: best classes, boxes, classes of pixels, or a summary."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ..blob import Array, Shape, show as shape_text
from ..evaluate.maps import class_map
from ..evaluate.outputs import box_classes, kind_of, source
from ..evaluate.score import best
from ..images.boxes import class_names, detections
from ..images.preprocess import PictureWindow
from ..net import Net
from ..util.lazy_numpy import np
from . import options, output
from .inputs import LoadedNetwork
from .parsing import refuse

THRESHOLD = 0.3  # minimum score of boxes to print and draw
HEAD = "     score class  " + " ".join(f"{side:>7}" for side in ("left", "top", "right", "bottom"))
TOP = 5  # classes to print for an image
Map = tuple["Array", bool]  # (H, W) of an output; True: classes, False: values
_CONTENTS = {  # of each form of output
    "boxes": {"boxes"}, "scores": {"classes"}, "classes": {"classes", "map"}, "values": {"map"}, "": set[str](),
}  # fmt: skip


class Best(TypedDict):
    """One of the top classes of an image."""

    index: int
    label: str
    score: float


class FoundBox(Best):
    """Detected box: its class from 0, and left, top, right and bottom in pixels of the image, of a .npy of the input."""

    pixels: list[float]


class ClassShare(TypedDict):
    """Class in a map, and the fraction of pixels that have it."""

    index: int
    label: str
    share: float


class ScoresAnswer(TypedDict):
    """Class scores of an image in one output."""

    top: list[Best]
    probabilities: bool


class BoxesAnswer(TypedDict):
    """Detected boxes of an image in one output, and the number of boxes that are not listed."""

    boxes: list[FoundBox]
    more: int
    below_threshold: int


class BlobAnswer(TypedDict):
    """Summary of any other output."""

    shape: list[int]
    min: float
    max: float
    mean: float


class MapAnswer(BlobAnswer):
    """Summary of a map with a class per pixel."""

    classes: list[ClassShare]


class ImageAnswer(TypedDict):
    """Results of all outputs for an image."""

    file: str
    outputs: dict[str, ScoresAnswer | BoxesAnswer | MapAnswer | BlobAnswer]


@dataclass(frozen=True)
class Answers:
    """Turns the outputs of a network into answers.

    ``top``        number of classes (None: TOP) or boxes (None: all) to list
    ``threshold``  minimum score of a box; ``below_threshold`` counts the others
    """

    net: Net
    labels: Sequence[str]
    top: int | None = None
    threshold: float = THRESHOLD

    def of_image(self, outputs: Mapping[str, Array], index: int, count: int, window: PictureWindow) -> dict[str, Any]:
        """Return the answer of each output for image ``index`` of a batch of ``count``: best classes, boxes, or a summary.

        ``window`` is the part of the picture that the network's input shows, in pixels.
        """
        summaries: dict[str, Any] = {}
        for name, value in outputs.items():
            item = _item(value, index, count)
            form = self._form(name, item.shape)
            if form == "boxes":
                summaries[name] = self._boxes(name, value, index, window)
            elif form == "scores":
                top = _best(item.reshape(-1), self.labels, self.top or TOP)
                summaries[name] = {"top": top, "probabilities": self._decision(name) == "softmax"}
            else:
                some = item if item.size else np.zeros(1, np.float32)
                summaries[name] = {"shape": list(item.shape)}
                summaries[name] |= {"min": float(some.min()), "max": float(some.max()), "mean": float(some.mean())}
            if form == "classes":
                summaries[name]["classes"] = _shares(self._classes(name, item), self.top or TOP, self.labels)
        return summaries

    def maps(self, outputs: Mapping[str, Array], index: int, count: int) -> dict[str, Map]:
        """Return the maps among the output blobs of image ``index``: a class per pixel, or the values of one channel."""
        maps_of: dict[str, Map] = {}
        for name, value in outputs.items():
            item = _item(value, index, count)
            form = self._form(name, item.shape)
            if form == "classes":
                maps_of[name] = self._classes(name, item), True
            elif form == "values":
                maps_of[name] = item[0], False
        return maps_of

    def contents(self) -> set[str]:
        """Return what the outputs show at the current input sizes: "classes", "boxes", and a "map" to draw."""
        shapes = self.net.shapes
        forms = (self._form(name, shapes.get(name, (1,))[1:]) for name in self.net.outputs)
        return set[str]().union(*(_CONTENTS[form] for form in forms))

    def _form(self, name: str, shape: Shape) -> str:
        """Return what an output shows, which has this shape for each image: a key of ``_CONTENTS``.

        A map (C, H, W) has "classes" if it has ArgMax indices or scores per class for each pixel: a channel per label or,
        without labels, the height and width of the network's input; three channels of that size are taken for a picture.
        """
        net, kind, argmax = self.net, kind_of(self.net, name), self._decision(name) == "argmax"
        if kind == "boxes" or (kind == "scores" and not argmax):
            return kind
        if kind != "map" or len(shape) != 3:
            return ""
        size = net.shapes[net.inputs[0]][2:] if net.inputs else None
        scores = shape[0] == len(self.labels) if self.labels else shape[1:] == size and shape[0] != 3
        if argmax or (shape[0] != 1 and scores):
            return "classes"
        return "values" if shape[0] == 1 else ""

    def _classes(self, name: str, item: Array) -> Array:
        """Return the class of each pixel of an output of the form "classes"."""
        classes = class_map(item, self._decision(name))
        assert classes is not None
        return classes

    def _decision(self, name: str) -> str | None:
        return source(self.net.graph, name).decision

    def _boxes(self, name: str, value: Array, index: int, window: PictureWindow) -> dict[str, Any]:
        """Return the boxes of an image, best first, and the number of others above and below the threshold."""
        layer = source(self.net.graph, name)
        names = class_names(self.labels, layer.first_class, box_classes(self.net, layer))
        rows = detections(value, {index: window}, layer.first_class)
        sure = rows[rows[:, 2] >= self.threshold]
        listed = sure[: self.top]
        return {
            "boxes": [_box(row, names) for row in listed.tolist()],
            "more": len(sure) - len(listed),
            "below_threshold": len(rows) - len(sure),
        }


def answers_of(args: argparse.Namespace, job: LoadedNetwork) -> Answers:
    """Return what --labels, --top and --threshold ask for; --json has all boxes unless --threshold is typed.

    Raises UsageError for an option of formats, answers or drawing that does nothing.
    """
    threshold = 0.0 if args.json and "threshold" not in args.typed else args.threshold
    answers = Answers(job.net, job.labels, args.top, threshold)
    _check_formats(args, job)
    _check_answers(args, answers)
    return answers


def _check_formats(args: argparse.Namespace, job: LoadedNetwork) -> None:
    """Raise UsageError for an overlay or formats if nothing runs in fixed point or the prototxt has formats."""
    if job.net.overlay is None:
        planning = ("overlay", "engine", "place", *options.FORMATS, "calibration")
        refuse(args, planning, f"on device {job.net.device.name}, which has no overlay", hint="--device emulator")
    options.check_formats(args, job.net.graph, "calibration")


def _check_answers(args: argparse.Namespace, answers: Answers) -> None:
    """Raise UsageError for an option about classes, boxes or pictures if no output has any."""
    contents = answers.contents()
    for name in answers.net.outputs:
        least = getattr(source(answers.net.graph, name).params, "confidence_threshold", None)
        if least is not None and "threshold" in args.typed and args.threshold < least:
            output.say(f"note: {answers.net.name} has boxes whose scores exceed {least:g} alone")
    for names, kinds in (
        (("threshold",), {"boxes": "boxes"}),
        (("top", "labels"), {"boxes": "boxes", "classes": "scores of classes"}),
        (("draw",), {"boxes": "boxes", "classes": "scores of classes", "map": "a map"}),
    ):
        if contents.isdisjoint(kinds):
            refuse(args, names, f"for {args.net}: none of its outputs has {' or '.join(kinds.values())}")


def _best(scores: Array, labels: Sequence[str], top: int) -> list[dict[str, Any]]:
    return [{"index": i, "label": _label(labels, i), "score": float(scores[i])} for i in best(scores, top)]


def _shares(classes: Array, top: int, labels: Sequence[str]) -> list[dict[str, Any]]:
    indices, counts = np.unique(classes, return_counts=True)
    shares = {int(i): float(count / classes.size) for i, count in zip(indices, counts)}
    order = sorted(shares, key=lambda i: -shares[i])[:top]
    return [{"index": i, "label": _label(labels, i), "share": shares[i]} for i in order]


def _item(value: Array, index: int, count: int) -> Array:
    item: Array = value[index] if value.ndim and len(value) == count else value
    return item


def _box(row: Sequence[float], names: Sequence[str]) -> dict[str, Any]:
    _, index, score, *corners = row
    return {"index": int(index), "label": _label(names, int(index)), "score": score, "pixels": corners}


def _label(labels: Sequence[str], index: int) -> str:
    return labels[index] if 0 <= index < len(labels) else ""


def _left_out(summary: dict[str, Any], threshold: float) -> str:
    """Return the number of listed boxes, and the reasons for leaving out the others."""
    listed = len(summary["boxes"])
    parts = [f"{listed} box{'es' * (listed != 1)} of {threshold:g} or more"]
    parts += [f"{summary['more']} more left out by --top"] * bool(summary["more"])
    parts += [f"{summary['below_threshold']} below left out (--threshold)"] * bool(summary["below_threshold"])
    return ", ".join(parts)


def show(answer: dict[str, Any], threshold: float = THRESHOLD) -> None:
    """Print the answers of one image."""
    output.result(answer["file"])
    several = len(answer["outputs"]) > 1
    for name, summary in answer["outputs"].items():
        if several:
            output.result(f"  {name}")
        if "top" in summary:
            for line in summary["top"]:
                output.result(f"  {line['score']:8.4f}  {line['index']:4d}  {line['label']}".rstrip())
        elif "boxes" in summary:
            if summary["boxes"]:
                output.result(f"{HEAD}  (pixels)")
            for line in summary["boxes"]:
                corners = " ".join(f"{v:7.1f}" for v in line["pixels"])
                output.result(f"  {line['score']:8.4f}  {line['index']:4d}  {corners}  {line['label']}".rstrip())
            if not (summary["boxes"] or summary["more"] or summary["below_threshold"]):
                output.result("  no boxes")
            elif summary["more"] or summary["below_threshold"]:
                output.result(f"  {_left_out(summary, threshold)}")
        else:
            statistics = "  ".join(f"{name} {summary[name]:g}" for name in ("min", "max", "mean"))
            output.result(f"  {shape_text(tuple(summary['shape']))}  {statistics}")
            for line in summary.get("classes", ()):
                output.result(f"  {line['share']:8.2%}  {line['index']:4d}  {line['label']}".rstrip())
