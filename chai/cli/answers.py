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
from ..text import number_of
from ..util.lazy_numpy import np
from . import options, output
from .inputs import LoadedNetwork
from .parsing import refuse

THRESHOLD = 0.3  # minimum score of boxes to print and draw
HEAD = "     score class  " + " ".join(f"{side:>7}" for side in ("left", "top", "right", "bottom"))
TOP = 5  # classes to print for an image


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

    def of_image(
        self, outputs: Mapping[str, Array], index: int, count: int, window: PictureWindow
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the answer of each output for image ``index`` of a batch of ``count``, and the maps among the outputs.

        An answer is best classes, boxes, or a summary; a map (H, W) has classes if its answer has, else values. ``window`` is
        the part of the picture that the network's input shows, in pixels.
        """
        answers: dict[str, Any] = {}
        maps: dict[str, Array] = {}
        for name, value in outputs.items():
            item = value[index] if value.ndim and len(value) == count else value
            form, decision = self.form(name, item.shape), source(self.net.graph, name).decision
            if form == "boxes":
                answers[name] = self._boxes(name, value, index, window)
            elif form == "scores":
                scores = item.reshape(-1)
                top = [_class(self.labels, i, score=float(scores[i])) for i in best(scores, self.top or TOP)]
                answers[name] = {"top": top, "probabilities": decision == "softmax"}
            else:
                some = item if item.size else np.zeros(1, np.float32)
                answers[name] = {"shape": list(item.shape)}
                answers[name] |= {"min": float(some.min()), "max": float(some.max()), "mean": float(some.mean())}
            if form == "values":
                maps[name] = item[0]
            elif form == "classes":
                classes = class_map(item, decision)
                assert classes is not None
                maps[name] = classes
                answers[name]["classes"] = self._shares(classes)
        return answers, maps

    def form(self, name: str, shape: Shape) -> str:
        """Return what an output shows, which has this shape for each image: boxes, scores, classes, values, or "".

        A map (C, H, W) has "classes" if it has ArgMax indices or scores per class for each pixel: a channel per label or,
        without labels, the height and width of the network's input; three channels of that size are taken for a picture.
        """
        net, kind, argmax = self.net, kind_of(self.net, name), source(self.net.graph, name).decision == "argmax"
        if kind == "boxes" or (kind == "scores" and not argmax):
            return kind
        if kind != "map" or len(shape) != 3:
            return ""
        size = net.shapes[net.inputs[0]][2:] if net.inputs else None
        scores = shape[0] == len(self.labels) if self.labels else shape[1:] == size and shape[0] != 3
        if argmax or (shape[0] != 1 and scores):
            return "classes"
        return "values" if shape[0] == 1 else ""

    def _shares(self, classes: Array) -> list[dict[str, Any]]:
        indices, counts = np.unique(classes, return_counts=True)
        shares = [_class(self.labels, i, share=n / classes.size) for i, n in zip(indices.tolist(), counts.tolist())]
        return sorted(shares, key=lambda one: -one["share"])[: self.top or TOP]

    def _boxes(self, name: str, value: Array, index: int, window: PictureWindow) -> dict[str, Any]:
        """Return the boxes of an image, best first, and the number of others above and below the threshold."""
        layer = source(self.net.graph, name)
        names = class_names(self.labels, layer.first_class, box_classes(self.net, layer))
        rows = detections(value, {index: window}, layer.first_class)
        sure = rows[rows[:, 2] >= self.threshold]
        listed = sure[: self.top].tolist()
        return {
            "boxes": [_class(names, int(i), score=score, pixels=pixels) for _, i, score, *pixels in listed],
            "more": len(sure) - len(listed),
            "below_threshold": len(rows) - len(sure),
        }


def answers_of(args: argparse.Namespace, job: LoadedNetwork) -> Answers:
    """Return what --labels, --top and --threshold ask for; --json has all boxes unless --threshold is typed.

    Raises UsageError for an option of formats, answers or drawing that does nothing.
    """
    net, graph = job.net, job.net.graph
    answers = Answers(net, job.labels, args.top, 0.0 if args.json and "threshold" not in args.typed else args.threshold)
    if net.overlay is None:
        planning = ("overlay", "engine", "place", *options.FORMATS, "calibration")
        refuse(args, planning, f"on device {net.device.name}, which has no overlay", hint="--device emulator")
    options.check_formats(args, graph, "calibration")
    for name in net.outputs:
        least = getattr(source(graph, name).params, "confidence_threshold", None)
        if least is not None and "threshold" in args.typed and args.threshold < least:
            output.say(f"note: {net.name} has boxes whose scores exceed {least:g} alone")
    shown = {answers.form(name, net.shapes.get(name, (1,))[1:]) for name in net.outputs}
    for names, forms, words in (
        (("threshold",), {"boxes"}, "boxes"),
        (("top", "labels"), {"boxes", "scores", "classes"}, "boxes or scores of classes"),
        (("draw",), {"boxes", "scores", "classes", "values"}, "boxes or scores of classes or a map"),
    ):
        if forms.isdisjoint(shown):
            refuse(args, names, f"for {args.net}: none of its outputs has {words}")
    return answers


def _class(labels: Sequence[str], index: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "label": labels[index] if 0 <= index < len(labels) else "", **more}


def show(answer: dict[str, Any], threshold: float = THRESHOLD) -> None:
    """Print the answers of one image."""
    lines = [answer["file"]]
    for name, summary in answer["outputs"].items():
        if len(answer["outputs"]) > 1:
            lines.append(f"  {name}")
        if "top" in summary:
            lines += [f"  {b['score']:8.4f}  {b['index']:4d}  {b['label']}".rstrip() for b in summary["top"]]
        elif "boxes" in summary:
            boxes, more, below = (summary[key] for key in ("boxes", "more", "below_threshold"))
            if boxes:
                lines.append(f"{HEAD}  (pixels)")
            for box in boxes:
                corners = " ".join(f"{v:7.1f}" for v in box["pixels"])
                lines.append(f"  {box['score']:8.4f}  {box['index']:4d}  {corners}  {box['label']}".rstrip())
            if more or below:
                parts = [f"  {number_of(len(boxes), 'box')} of {threshold:g} or more"]
                parts += [f"{more} more left out by --top"] * bool(more)
                lines.append(", ".join(parts + [f"{below} below left out (--threshold)"] * bool(below)))
            elif not boxes:
                lines.append("  no boxes")
        else:
            statistics = "  ".join(f"{name} {summary[name]:g}" for name in ("min", "max", "mean"))
            lines.append(f"  {shape_text(tuple(summary['shape']))}  {statistics}")
            lines += [
                f"  {c['share']:8.2%}  {c['index']:4d}  {c['label']}".rstrip() for c in summary.get("classes", ())
            ]
    output.result(*lines)
