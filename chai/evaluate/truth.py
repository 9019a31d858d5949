"""Read the ground truth of images from files: a class, boxes, or the class of each pixel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ParseError, UsageError
from ..images.files import label_lines
from ..util.files import text
from .coco.truth import CocoTruth, is_coco, of_image, parts_of
from .outputs import Output

Truth = Callable[[Path], Any]  # ground truth of an image file; None if it is unknown
_RUN = '"schema": "chai.run/'  # near the start of what chai run --json prints
_LEAST = 2  # fractions may lie a little outside the image; no picture is that small
MOST = 10**9  # larger class numbers are refused as mistakes


def truth(labels: Path | None, answers: Path | None, output: Output, names: Sequence[str] = ()) -> Truth:
    """Return the ground truth for an output; that of maps is in the Records. Raises UsageError, ParseError.

    ``names`` are those of the classes of boxes, which COCO's categories are matched with.
    """
    kind = output.kind
    coco = kind == "boxes" and answers is not None and is_coco(answers)
    if labels is not None and kind != "scores" and not coco:
        raise UsageError(
            f"--labels are for class scores and COCO's categories, and the output is {kind}", hint="leave --labels out"
        )
    if answers is not None and kind == "map" and not answers.is_dir():
        raise UsageError(
            f"--truth {answers}: expected a folder, the output is a map",
            hint="it has a PNG of class indices for each image: NAME.png for NAME.jpg",
        )
    if answers is not None and kind != "map" and answers.is_dir():
        files = {"scores": "lines of: file name, class number", "boxes": 'lines of {"file": ..., "boxes": [...]}'}
        raise UsageError(f"--truth {answers}: expected a file, the output is {kind}", hint=f"it has {files[kind]}")
    if kind == "scores":
        return Classes(labels, answers, output.classes)
    if kind != "boxes" or answers is None:
        return lambda _: None
    return CocoTruth(answers, names) if coco else TrueBoxes(answers, output.first_class, output.classes)


def map_file(folder: str, file: str, item: int | None) -> Path:
    """Return the PNG with the classes of an image's pixels: NAME.png, NAME-3.png for item 3 of a .npy."""
    stem = Path(file).stem
    return Path(folder) / (f"{stem}.png" if item is None else f"{stem}-{item}.png")


class Classes:
    """The true class of an image file: its line in a file, else its synset id, else its folder.

    A name in the file may lack folders, or have more than an image's path, where it says one class all the same.
    ``count`` is the number of the network's classes; a folder with a larger number, as that of a year, is no class.
    Raises ParseError for a line with one.
    """

    def __init__(self, labels: Path | None, answers: Path | None, count: int | None = None) -> None:
        self.classes: dict[str, int] = {}
        self.end = MOST if count is None else count
        for i, line in enumerate(() if labels is None else label_lines(labels)):
            for name in filter(None, (line.strip(), line.split(" ")[0])):  # "" is the folder of a plain file name
                self.classes.setdefault(name, i)
        listed: dict[tuple[str, ...], int] = {}
        ends: dict[tuple[str, ...], int | None] = {}  # of names with fewer folders; None if they say several classes
        wrong = partial(ParseError, path=str(answers), column=1)
        for number, line in _lines(answers):
            name, _, index = line.strip().rpartition(" ")
            if line.strip() and not (name and index.isdecimal() and len(index) < 10):
                raise wrong(f"expected a file name and a class number, found {line[:80]!r}", line=number)
            if line.strip():
                parts, label = parts_of(name.strip()), int(index)
                if label >= self.end:
                    message = f"expected a class number {_range(0, self.end)}, found {label}"
                    raise wrong(message, line=number, hint="the network's first class is 0")
                if listed.setdefault(parts, label) != label:
                    message = f"{'/'.join(parts)!r} has class {listed[parts]} already"
                    raise wrong(message, line=number, hint="files of the same name are told apart by their folders")
                for end in (parts[first:] for first in range(1, len(parts))):
                    ends[end] = label if ends.get(end, label) == label else None
        self.listed = {**ends, **listed}

    def __call__(self, file: Path) -> int | None:
        if (listed := of_image(self.listed, file)) is not None:
            return listed
        folder = file.parent.name
        if folder.isdecimal() and len(folder) < 10 and int(folder) < self.end:
            return int(folder)
        return self.classes.get(file.name[:9], self.classes.get(folder))


class TrueBoxes:
    """The true boxes [class, x0, y0, x1, y1] of an image file, in its pixels.

    They come from JSON lines {"file": name, "boxes": [...]}, or from what ``chai run --json`` prints. Classes are numbered as
    ``detections`` has them; JSON lines have the network's labels, of which ``first_class`` is class 0 of
    ``classes`` (None: unknown). A name with folders matches only images in these folders. Raises ParseError, with the line of a
    JSON line.
    """

    def __init__(self, answers: Path, first_class: int = 0, classes: int | None = None) -> None:
        self.path, self._first = answers, first_class
        self._end = MOST if classes is None else first_class + classes
        self.listed: dict[tuple[str, ...], list[list[float]]] = {}
        lines: dict[tuple[str, ...], int | None] = {}
        whole = text(answers, "text_bytes")
        for number, entry in self._of_run(whole) if _RUN in whole[:200] else self._of_lines(whole):
            parts, boxes = self._entry(entry, number)
            if parts in lines:
                where = "there" if number is None else f"on line {lines[parts]}"
                raise self._error(f"{'/'.join(parts)!r} is {where} already", number)
            lines[parts], self.listed[parts] = number, boxes
        corners = [x for boxes in self.listed.values() for box in boxes for x in box[1:]]
        if corners and max(corners) < _LEAST:
            raise ParseError(
                f"no corner of any box is {_LEAST} or more: these are fractions of an image's size (0 to 1), expected pixels",
                path=str(answers),
                hint="multiply left and right by the image's width, top and bottom by its height",
            )

    def __call__(self, file: Path) -> list[list[float]] | None:
        return of_image(self.listed, file)

    def _of_lines(self, whole: str) -> Iterator[tuple[int, Any]]:
        """Yield number and content of each line that has any."""
        number = 0
        try:
            for number, line in enumerate(whole.splitlines(), 1):
                if line.strip():
                    yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._error(f"this is no JSON ({error})", number, getattr(error, "colno", None)) from None

    def _of_run(self, whole: str) -> Iterator[tuple[None, Any]]:
        """Yield each image of what ``chai run --json`` printed, as a line would have it."""
        try:
            images = json.loads(whole)["images"]
            for image in images:
                (boxes,) = [answer["boxes"] for answer in image["outputs"].values() if "boxes" in answer]
                yield (
                    None,
                    {"file": image["file"], "boxes": [[box["index"] + self._first, *box["pixels"]] for box in boxes]},
                )
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise ParseError(
                "expected what chai run --json prints for a network with one output of boxes",
                path=str(self.path),
                hint="run this version of chai again, with --threshold for boxes that are sure",
            ) from error

    def _entry(self, content: Any, number: int | None) -> tuple[tuple[str, ...], list[list[float]]]:
        if not isinstance(content, dict) or not isinstance(content.get("file"), str) or not Path(content["file"]).name:
            raise self._error('expected {"file": name, "boxes": [...]}', number)
        boxes = content.get("boxes")
        if not isinstance(boxes, list):
            raise self._error(f'"boxes": expected a list of [class, x0, y0, x1, y1], found {_short(boxes)}', number)
        for i, box in enumerate(boxes):
            if wrong := _mistake(box, self._first, self._end):
                image = "" if number else f"{content['file']}: "
                raise self._error(f"{image}box {i}: expected {wrong}", number)
        return parts_of(content["file"]), of_classes(boxes, self._first) or []

    def _error(self, message: str, line: int | None, column: int | None = None) -> ParseError:
        return ParseError(message, path=str(self.path), line=line, column=column or 1)


def of_classes(boxes: list[list[float]] | None, first_class: int) -> list[list[float]] | None:
    """Return boxes [label, x0, y0, x1, y1] with classes from 0 in place of a network's labels."""
    return None if boxes is None else [[label - first_class, *corners] for label, *corners in boxes]


def _mistake(box: Any, first: int, end: int) -> str:
    """Return what a box should be and what it is, "" if it is right; objects have labels from ``first`` to before ``end``."""
    if not isinstance(box, list) or len(box) != 5 or not all(map(_is_number, box)):
        return f"[class, x0, y0, x1, y1], found {_short(box)}"
    label, x0, y0, x1, y1 = box
    if not isinstance(label, int) or not first <= label < end:
        return f"a class number {_range(first, end)}, found {_short(label)}"
    return "" if x0 < x1 and y0 < y1 else f"x0 < x1 and y0 < y1, found {_short(box[1:])}"


def _range(first: int, end: int) -> str:
    """Return the class numbers that there are as text; ``end`` is MOST if their number is unknown."""
    return f"from {first} on" if end == MOST else f"from {first} to {end - 1}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _lines(path: Path | None) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file of bounded size; none without a file."""
    if path is not None:
        yield from enumerate(text(path, "text_bytes").splitlines(), 1)
