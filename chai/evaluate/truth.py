"""Read the ground truth of images from files: a class, boxes, or the class of each pixel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ParseError, UsageError
from ..images.files import label_lines
from ..limits import limits
from ..util.files import text
from .coco import CocoBox
from .outputs import Output

Listed = TypeVar("Listed")
Truth = Callable[[Path], Any]  # ground truth of an image file; None if it is unknown
_RUN = '"schema": "chai.run/'  # near the start of what chai run --json prints
_LEAST = 2  # fractions may lie a little outside the image; no picture is that small
_LISTS = ("images", "annotations", "categories")  # of a file of COCO's
_KEPT = {*_LISTS, "id", "file_name", "image_id", "category_id", "bbox", "area", "iscrowd", "name"}
_FORM = 'expected {"images": [...], "annotations": [...], "categories": [...]}'
MOST = 10**9  # larger class numbers are refused as mistakes


def truth(labels: Path | None, answers: Path | None, output: Output, names: Sequence[str] = ()) -> Truth:
    """Return the ground truth for an output; that of maps is in the Records. Raises UsageError, ParseError.

    ``names`` are those of the classes of boxes, which COCO's categories are matched with.
    """
    kind = output.kind
    coco = kind == "boxes" and answers is not None and is_coco(answers)
    if labels is not None and kind != "scores" and not coco:
        message = f"--labels are for class scores and COCO's categories, and the output is {kind}"
        raise UsageError(message, hint="leave --labels out")
    if answers is not None and kind == "map" and not answers.is_dir():
        message = f"--truth {answers}: expected a folder, the output is a map"
        raise UsageError(message, hint="it has a PNG of class indices for each image: NAME.png for NAME.jpg")
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


def is_coco(path: Path) -> bool:
    """Return whether a file is as COCO's instances_val2017.json: its name ends in .json, and it has annotations."""
    return path.suffix.lower() == ".json" and path.is_file() and '"annotations"' in text(path, "coco_bytes")


def _parts_of(name: str) -> tuple[str, ...]:
    """Return the folders and the name of an image, as a file of answers names it."""
    return tuple(part for part in Path(name).parts if part != "/")


def _of_image(listed: Mapping[tuple[str, ...], Listed], file: Path) -> Listed | None:
    """Return the answer for an image file: of the longest ``_parts_of`` that its path ends in; None without any."""
    ends = (file.parts[first:] for first in range(len(file.parts)))
    return next((listed[end] for end in ends if end in listed), None)


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
        lines = [] if answers is None else text(answers, "text_bytes").splitlines()
        for number, line in enumerate(lines, 1):
            name, _, index = line.strip().rpartition(" ")
            if line.strip() and not (name and index.isdecimal() and len(index) < 10):
                raise wrong(f"expected a file name and a class number, found {line[:80]!r}", line=number)
            if line.strip():
                parts, label = _parts_of(name.strip()), int(index)
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
        if (listed := _of_image(self.listed, file)) is not None:
            return listed
        folder = file.parent.name
        if folder.isdecimal() and len(folder) < 10 and int(folder) < self.end:
            return int(folder)
        return self.classes.get(file.name[:9], self.classes.get(folder))


class _ListedBoxes:
    """The true boxes of an image file, by the ``listed`` parts of its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listed: dict[tuple[str, ...], list[Any]] = {}

    def __call__(self, file: Path) -> list[Any] | None:
        """Return the true boxes of an image; None if the file does not name it."""
        return _of_image(self.listed, file)

    def _error(self, message: str, line: int | None = None, column: int = 1, hint: str | None = None) -> ParseError:
        return ParseError(message, path=str(self.path), line=line, column=None if line is None else column, hint=hint)


class TrueBoxes(_ListedBoxes):
    """The true boxes [class, x0, y0, x1, y1] of an image file, in its pixels.

    They come from JSON lines {"file": name, "boxes": [...]}, or from what ``chai run --json`` prints. Classes are numbered as
    ``detections`` has them; JSON lines have the network's labels, of which ``first_class`` is class 0 of
    ``classes`` (None: unknown). A name with folders matches only images in these folders. Raises ParseError, with the line of a
    JSON line.
    """

    def __init__(self, answers: Path, first_class: int = 0, classes: int | None = None) -> None:
        super().__init__(answers)
        self._first = first_class
        self._end = MOST if classes is None else first_class + classes
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
            raise self._error(
                f"no corner of any box is {_LEAST} or more: these are fractions of an image's size (0 to 1), expected pixels",
                hint="multiply left and right by the image's width, top and bottom by its height",
            )

    def _of_lines(self, whole: str) -> Iterator[tuple[int, Any]]:
        """Yield number and content of each line that has any."""
        number = 0
        try:
            for number, line in enumerate(whole.splitlines(), 1):
                if line.strip():
                    yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._error(f"this is no JSON ({error})", number, getattr(error, "colno", 1)) from None

    def _of_run(self, whole: str) -> Iterator[tuple[None, Any]]:
        """Yield each image of what ``chai run --json`` printed, as a line would have it."""
        try:
            images = json.loads(whole)["images"]
            for image in images:
                (boxes,) = [answer["boxes"] for answer in image["outputs"].values() if "boxes" in answer]
                labelled = [[box["index"] + self._first, *box["pixels"]] for box in boxes]
                yield None, {"file": image["file"], "boxes": labelled}
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            message = "expected what chai run --json prints for a network with one output of boxes"
            hint = "run this version of chai again, with --threshold for boxes that are sure"
            raise self._error(message, hint=hint) from error

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
        return _parts_of(content["file"]), of_classes(boxes, self._first) or []


class CocoTruth(_ListedBoxes):
    """The true boxes of an image file, each a CocoBox, from a file of COCO's annotations.

    ``names`` are those of the classes that the file has, by class, and ``labels`` those of the network's classes, with which its
    categories are matched. Raises ParseError, and UsageError for a category that is no class of the network.
    """

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        super().__init__(path)
        content = self._content(text(path, "coco_bytes"))
        classes = self._classes(content["categories"], labels)
        self.names = {index: labels[index] for index in classes.values()}
        files: dict[int, tuple[str, ...]] = {}
        for image in content["images"]:
            key, parts = self._key(image, "id"), self._name(image)
            if key in files:
                raise self._error(f"two images have id {str(key)[:40]}")
            if parts in self.listed:
                raise self._error(f"two images are {'/'.join(parts)[:80]!r}")
            files[key], self.listed[parts] = parts, []
        for i, entry in enumerate(content["annotations"]):
            parts = files.get(self._key(entry, "image_id"), ())
            if not parts:
                raise self._error(f"annotation {i}: there is no image of its image_id")
            self.listed[parts].append(self._box(entry, i, classes))

    def _content(self, whole: str) -> dict[str, list[dict[str, Any]]]:
        """Return the lists of images, annotations and categories, without outlines and other values that are not needed."""
        values = whole.count(",") + whole.count("[") + whole.count("{") + 1
        if values > limits().coco_values:
            raise self._error("too many values: " + limits().exceeded("coco_values", values))
        try:
            content = json.loads(whole, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if k in _KEPT})
        except (ValueError, RecursionError) as error:
            raise self._error(f"this is no JSON ({error})"[:200], getattr(error, "lineno", None)) from None
        if not isinstance(content, dict):
            raise self._error(_FORM)
        for key in _LISTS:
            entries = content.get(key)
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise self._error(f"{key}: {_FORM}")
        return content

    def _classes(self, categories: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[Any, int]:
        """Return the class of each category id, by its name."""
        if not labels:
            message = f"--truth {self.path}: its categories have names, the network's classes have none"
            raise UsageError(message, hint='--labels coco, voc or a FILE; or labels = "coco" in the .toml')
        known = {name: index for index, name in enumerate(labels)}
        names = {self._key(entry, "id"): entry.get("name") for entry in categories}
        other = [str(name)[:40] for name in names.values() if not isinstance(name, str) or name not in known]
        if other:
            more = f" and {len(other) - 3} more" if len(other) > 3 else ""
            raise UsageError(
                f"--truth {self.path}: the network has no class {', '.join(map(repr, other[:3]))}{more}",
                hint=f"its classes are {', '.join(labels[:4])}, ...: --labels FILE names them as the categories",
            )
        return {key: known[str(name)] for key, name in names.items()}

    def _key(self, entry: Mapping[str, Any], name: str) -> int:
        value = entry.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(f"{name}: expected a whole number, found {str(value)[:40]!r}")
        return value

    def _name(self, image: Mapping[str, Any]) -> tuple[str, ...]:
        name = image.get("file_name")
        if not isinstance(name, str) or not Path(name).name:
            raise self._error(f"file_name: expected the name of an image, found {str(name)[:40]!r}")
        return _parts_of(name)

    def _box(self, entry: Mapping[str, Any], i: int, classes: Mapping[Any, int]) -> CocoBox:
        box, area = entry.get("bbox"), entry.get("area")
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_size, box)) or min(box[2:]) < 0:
            raise self._error(f"annotation {i}: bbox: expected [x, y, width, height] in pixels, found {str(box)[:60]}")
        x, y, width, height = map(float, box)
        if area is None:
            area = width * height
        crowd, label = entry.get("iscrowd", 0), classes.get(self._key(entry, "category_id"))
        if not _is_size(area) or crowd not in (0, 1) or label is None:
            raise self._error(f"annotation {i}: area, iscrowd or category_id is no such value")
        return CocoBox(label, x, y, x + width, y + height, bool(crowd), float(area))


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


def _is_number(value: Any, most: float = 1e12) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= most


_is_size = partial(_is_number, most=1e14)  # in pixels; the squares of sides fit, too


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
