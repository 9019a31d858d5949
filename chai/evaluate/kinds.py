"""Select the Measure for a kind of output; apply it to the Records of workers, or to two Nets of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..blob import Array, show
from ..errors import UsageError
from ..images.pictures import Feed
from ..images.preprocess import UNIT, PictureWindow, whole
from ..net import Net
from ..passes.infer_shapes import unlike_caffe
from .boxes import THRESHOLD, Boxes
from .maps import Maps
from .measure import Measure, Record, Side
from .outputs import Output, output
from .score import Scores
from .truth import of_classes


def measure(output: Output, threshold: float = THRESHOLD, names: Mapping[int, str] | None = None) -> Measure:
    """Return the Measure of an output's kind.

    ``threshold`` is the smallest score of a box in comparisons; ``names`` are those of the classes of a truth of COCO's.
    """
    if output.kind == "boxes":
        return Boxes(output, threshold, names)
    return Scores(output) if output.kind == "scores" else Maps(output)


def reduce(
    records: Iterable[Record], sides: Sequence[str], measure: Measure, truth: Callable[[int], Any]
) -> dict[str, Side]:
    """Sum the Records of all images, in the order of the images; ``truth`` returns the ground truth, or None."""
    sums = {side: measure.side() for side in sides}
    for record in sorted(records, key=lambda r: int(r["image"])):
        _add(sums, record, truth(record["image"]))
    return sums


def evaluate(
    reference: Net, fixed: Net, inputs: Iterable[tuple[Mapping[str, Array], Sequence[Any]]]
) -> tuple[Any, Any]:
    """Run two Nets of one prototxt over batches and return a Side of each: ``reference`` in float, ``fixed`` on an overlay.

    A batch has the ground truth of each image, None if it is unknown: a class, boxes [[label, x0, y0, x1, y1]] as
    fractions of the input, or classes (H, W) of its pixels. Both Nets must keep their logits:
    ``Net(..., keep=[output(net).logits])``. Raises UsageError without any input.
    """
    sums: dict[str, Side] = {}
    for batch, truth in inputs:
        if not sums:
            reference.reshape(**{blob: array.shape for blob, array in batch.items()})
            chosen = measure(output(reference))
            sums = {"reference": chosen.side(), "fixed": chosen.side()}
        maps = chosen.output.kind == "map"
        windows = [whole(*target.shape[::-1]) if maps and target is not None else UNIT for target in truth]
        answers = answers_of(chosen, dict(zip(sums, (reference, fixed))), batch, windows)
        if chosen.output.kind == "boxes":
            truth = [of_classes(boxes, chosen.output.first_class) for boxes in truth]
        for each, window, target in zip(answers, windows, truth):
            _add(sums, chosen.record(each, window, target if maps else None), target)
    if not sums:
        raise UsageError("evaluate: there is no input")
    return sums["reference"], sums["fixed"]


def answers_of(
    measure: Measure, nets: Mapping[str, Net], feed: Mapping[str, Feed], windows: Sequence[PictureWindow]
) -> list[dict[str, Any]]:
    """Run a batch on the Net of each side and return the answers for each image, by side.

    Raises UsageError for Nets whose output has not the size of the first one's.
    """
    answers = [measure.answers(net, feed, windows) for net in nets.values()]
    blob = measure.output.blob
    (first, expected), *others = ((side, net.shapes_of(net.graph.latest[blob])) for side, net in nets.items())
    for side, shape in others:
        if shape != expected:
            net = nets[side]
            why = "; ".join(unlike_caffe(net.graph, net.shapes))
            message = f"evaluate: output {blob!r} is {show(shape)} on {side} and {show(expected)} on {first}: {why}"
            raise UsageError(message, hint="chai run shows what it gives; only outputs of one size can be compared")
    return [dict(zip(nets, each)) for each in zip(*answers)]


def _add(sums: Mapping[str, Side], record: Record, truth: Any) -> None:
    first, *others = sums
    sums[first].add(record[first], None, truth)
    for side in others:
        sums[side].add(record[side], record[first], truth)
