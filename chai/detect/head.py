"""Head: how the outputs of a detector are to be read, from the table [detect] of a .toml or from options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ..errors import UsageError
from ..graph.params import SIZE, within
from ..util.data.dataclass_io import restore
from ..util.suggest import did_you_mean

MOST = 100  # members of a list


class HeadFamily(NamedTuple):
    """Traits of all heads of one name.

    ``anchored``  whether its boxes have anchors;  ``cells``  whether these are in cells, as YOLOv2's, instead of pixels
    ``square``, ``softmax``  of sizes and of the scores of classes, see AnchoredDetectionOutput
    ``scale``     scale_x_y of each map;  ``iou``  overlap at which its own program drops boxes
    """

    anchored: bool = True
    cells: bool = False
    square: bool = False
    softmax: bool = False
    scale: float = 1.0
    iou: float = 0.45


FAMILIES = {
    "yolov2": HeadFamily(cells=True, softmax=True),
    "yolov3": HeadFamily(),
    "yolov4-tiny": HeadFamily(scale=1.05),
    "yolov5": HeadFamily(square=True, scale=2.0),
    "yolov8": HeadFamily(anchored=False, iou=0.7),
}
SUCCESSORS = {"yolov9": "yolov8", "yolo11": "yolov8", "yolov5u": "yolov8"}  # with its head


@dataclass(frozen=True)
class Head:
    """Description of how the outputs of a detector are read.

    ``head``       name of the family: yolov2, yolov3, yolov4-tiny, yolov5 (with anchors) or yolov8 (without)
    ``anchors``    widths and heights, a list per map from the finest to the coarsest: in pixels, of yolov2 in cells
    ``strides``    pixels of the input in a cell of each map, in that order (default: from the sizes of the maps; of blobs that
                   have all maps 8, 16 and 32)
    ``scale_xy``   of centres in each map (default: the family's)
    ``classes``    number of classes (default: from the outputs)
    ``reg_max``    bins of a distance, of yolov8 before it is decoded
    ``outputs``    the blobs that are read (default: those that fit)
    ``threshold``  scores must exceed it;  ``iou``  overlap beyond which the weaker box of a class is dropped
    ``multi_label``  whether a box counts for each class above the threshold, instead of its best
    """

    head: str
    anchors: tuple[tuple[float, ...], ...] = ()
    strides: tuple[int, ...] = within(1, SIZE, ())
    scale_xy: tuple[float, ...] = within(0, 100, ())
    classes: int | None = within(1, SIZE)
    reg_max: int = within(1, 256, 16)
    outputs: tuple[str, ...] = ()
    threshold: float = within(0, 1, 0.25)
    iou: float | None = within(0, 1)
    multi_label: bool = False

    @property
    def family(self) -> HeadFamily:
        """Return what it has in common with others of its name."""
        return FAMILIES[SUCCESSORS.get(self.head, self.head)]


def head_of(value: Any, basis: Head | None = None) -> Head:
    """Return the Head that a name or a mapping describes; it changes ``basis``, unless it names a head itself.

    Raises UsageError for what is no head.
    """
    table: Mapping[str, Any] = {"head": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        message = f"detect: expected the name of a head or a table, found {str(value)[:60]}"
        raise UsageError(message, hint='e.g. "yolov8"')
    known = {**{name: name for name in FAMILIES}, **SUCCESSORS}
    keys = [field.name for field in fields(Head)]
    for key in table:
        if key not in keys:
            raise UsageError(f"detect has no key {str(key)[:60]!r}", hint=did_you_mean(str(key), keys))
    name = table.get("head", basis.head if basis else None)
    if not isinstance(name, str) or name not in known:
        hint = "expected one of " + ", ".join(known)
        raise UsageError(
            "detect: head is missing" if name is None else f"detect: unknown head {str(name)[:60]!r}", hint=hint
        )
    values = {key: value for key, value in table.items() if value is not None}
    anchors = values.get("anchors")
    if isinstance(anchors, (list, tuple)) and anchors and not isinstance(anchors[0], (list, tuple)):  # of one map
        values["anchors"] = [anchors]
    head = restore(Head, {**(vars(basis) if basis and "head" not in table else {}), **values}, _wrong)
    for key, value in values.items():
        if isinstance(value, (list, tuple)) and not 0 < len(value) <= MOST:
            raise _wrong(key, f"expected a list of 1 to {MOST} values, found {len(value)}")
    for row in head.anchors:
        if not 0 < len(row) <= MOST or len(row) % 2 or not all(0 <= x <= SIZE for x in row):
            expected = f"a width and a height of each anchor, from 0 to {SIZE} and {MOST // 2} at most, a list per map"
            raise _wrong("anchors", f"expected {expected}, found {str(row)[:80]}")
    if head.anchors and not head.family.anchored:
        raise UsageError(f"detect: {head.head} has no anchors", hint="leave anchors out")
    return head


def _wrong(place: str, problem: str) -> UsageError:
    return UsageError(f"detect: {place.removeprefix('.')}: {problem}", hint="docs/detect.md has examples")
