"""video: frames of a source through a network, with the boxes of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import UsageError
from ..evaluate.outputs import kind_of, source as writer
from ..images.boxes import detections
from ..images.pictures import Pictures
from ..net import Net
from .source import frames

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..blob import Array
    from ..images.window import PictureWindow


def video(net: Net, source: str | Path | BinaryIO | Iterable[Any]) -> Iterator[tuple[Image, Array]]:
    """Yield each frame of a source with its boxes, in order: a picture, and rows as of ``images.boxes.detections``.

    ``source`` is as for ``frames``. Frames go through ``net.stream``: on an overlay the next ones are read and prepared while the
    device works, and are taken only when there is room for them. Preprocessing is that of the network's card. Raises
    UsageError for a network without one input for pictures and one output of boxes.
    """
    shapes = net.shapes
    boxes = [name for name in net.outputs if kind_of(net, name) == "boxes"]
    if len(net.inputs) != 1 or not shapes or len(boxes) != 1:
        raise UsageError(
            f"video: {net.name} has inputs {', '.join(net.inputs)} and outputs of boxes {', '.join(boxes) or '(none)'}; "
            "expected one of each, of known size",
            hint='Net(..., detect="yolov8") reads the head of a detector',
        )
    (blob,), (answer,) = net.inputs, boxes
    shape, first = (1, *shapes[blob][1:]), writer(net.graph, answer).first_class
    how = net.card.preprocess_after(net.graph.transforms.get(blob))
    waiting: deque[tuple[Image, PictureWindow]] = deque()

    def prepared() -> Iterator[dict[str, Pictures]]:
        for frame in frames(source):
            waiting.append((frame, how.window(frame.size, shape)))
            yield {blob: Pictures(how.resized(frame, shape)[None], how)}

    for outputs in net.stream(prepared()):
        frame, window = waiting.popleft()
        yield frame, detections(outputs[answer], {0: window}, first)
