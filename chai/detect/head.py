"""Head: how the outputs of a detector are to be read, from the table [detect] of a .toml or from options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from ..errors import UsageError
from ..util.suggest import did_you_mean

LARGEST = 65_535  # pixels of an input


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
    strides: tuple[int, ...] = ()
    scale_xy: tuple[float, ...] = ()
    classes: int | None = None
    reg_max: int = 16
    outputs: tuple[str, ...] = ()
    threshold: float = 0.25
    iou: float | None = None
    multi_label: bool = False

    @property
    def family(self) -> HeadFamily:
        """Return what it has in common with others of its name."""
        return FAMILIES[SUCCESSORS.get(self.head, self.head)]

    def plain(self) -> dict[str, Any]:
        """Return what differs from the defaults, for JSON and ``head_of``."""
        return {name: value for name, value in vars(self).items() if value != getattr(Head, name, None)}


def head_of(value: Any, basis: Head | None = None) -> Head:
    """Return the Head that a name or a mapping describes; it changes ``basis``, unless it names a head itself.

    Raises UsageError for what is no head.
    """
    table: Mapping[str, Any] = {"head": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        message = f"detect: expected the name of a head or a table, found {str(value)[:60]}"
        raise UsageError(message, hint='e.g. "yolov8"')
    known = {**{name: name for name in FAMILIES}, **SUCCESSORS}
    for key in table:
        if key not in _CHECKS:
            raise UsageError(f"detect has no key {str(key)[:60]!r}", hint=did_you_mean(str(key), _CHECKS))
    name = table.get("head", basis.head if basis else None)
    if not isinstance(name, str) or name not in known:
        hint = "expected one of " + ", ".join(known)
        raise UsageError(
            "detect: head is missing" if name is None else f"detect: unknown head {str(name)[:60]!r}", hint=hint
        )
    values = {key: _CHECKS[key](key, item) for key, item in table.items() if item is not None}
    basis = basis if basis is not None and "head" not in table else Head(name)
    head = replace(basis, **values)
    if head.anchors and not head.family.anchored:
        raise UsageError(f"detect: {head.head} has no anchors", hint="leave anchors out")
    return head


def _wrong(key: str, expected: str, value: Any) -> UsageError:
    message = f"detect: {key}: expected {expected}, found {str(value)[:80]}"
    return UsageError(message, hint="docs/detect.md has examples")


def _number(key: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise _wrong(key, f"a number from {low:g} to {high:g}", value)
    return value


def _whole(key: str, value: Any, high: int = LARGEST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise _wrong(key, f"a whole number from 1 to {high}", value)
    return value


def _list(key: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= 100:
        raise _wrong(key, "a list", value)
    return list(value)


def _anchors(key: str, value: Any) -> tuple[tuple[float, ...], ...]:
    rows = _list(key, value)
    rows = [_list(key, row) for row in (rows if isinstance(rows[0], (list, tuple)) else [rows])]
    if any(len(row) % 2 for row in rows):
        raise _wrong(key, "a width and a height of each anchor, a list per map", value)
    return tuple([tuple([float(_number(key, x, 0, LARGEST)) for x in row]) for row in rows])


def _of_type(type: type, expected: str, key: str, value: Any) -> Any:
    if not isinstance(value, type):
        raise _wrong(key, expected, value)
    return value


_text = partial(_of_type, str, "a name")
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "head": _text,
    "anchors": _anchors,
    "strides": lambda key, value: tuple([_whole(key, x) for x in _list(key, value)]),
    "scale_xy": lambda key, value: tuple([float(_number(key, x, 0, 100)) for x in _list(key, value)]),
    "classes": _whole,
    "reg_max": lambda key, value: _whole(key, value, 256),
    "outputs": lambda key, value: tuple([_text(key, x) for x in _list(key, value)]),
    "threshold": lambda key, value: float(_number(key, value, 0, 1)),
    "iou": lambda key, value: float(_number(key, value, 0, 1)),
    "multi_label": partial(_of_type, bool, "true or false"),
}
