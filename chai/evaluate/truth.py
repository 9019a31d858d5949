"""Read the ground truth of images from files: a class, boxes, or the class of each pixel."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import ParseError, UsageError
from ..graph import OutputKind
from ..util.files import content

Truth = Callable[[Path], Any]  # ground truth of an image file; None if it is unknown
MOST = 10**9  # larger class numbers are refused as mistakes


def truth(kind: OutputKind, labels: Path | None, answers: Path | None) -> Truth:
    """Return the ground truth for a kind of output; that of maps is in the Records. Raises UsageError, ParseError."""
    if labels is not None and kind != "scores":
        raise UsageError(f"--labels are for class scores, and the output is {kind}", hint="leave --labels out")
    if answers is not None and kind == "map" and not answers.is_dir():
        raise UsageError(
            f"--truth {answers}: expected a folder, the output is a map",
            hint="it has a PNG of class indices for each image: NAME.png for NAME.jpg",
        )
    if answers is not None and kind != "map" and answers.is_dir():
        files = {"scores": "lines of: file name, class number", "boxes": 'lines of {"file": ..., "boxes": [...]}'}
        raise UsageError(f"--truth {answers}: expected a file, the output is {kind}", hint=f"it has {files[kind]}")
    if kind == "scores":
        return Classes(labels, answers)
    return TrueBoxes(answers) if kind == "boxes" and answers is not None else _unknown


def _unknown(_: Path) -> None:
    return None


def map_file(folder: str, file: str, item: int | None) -> Path:
    """Return the PNG with the classes of an image's pixels: NAME.png, NAME-3.png for item 3 of a .npy."""
    stem = Path(file).stem
    return Path(folder) / (f"{stem}.png" if item is None else f"{stem}-{item}.png")


class Classes:
    """The true class of an image file: its line in a file, else its synset id, else its folder."""

    def __init__(self, labels: Path | None, answers: Path | None) -> None:
        self.classes: dict[str, int] = {}
        for i, (_, line) in enumerate(_lines(labels)):
            self.classes.setdefault(line.strip(), i)
            self.classes.setdefault(line.split(" ")[0], i)
        self.listed: dict[str, int] = {}
        for number, line in _lines(answers):
            name, _, index = line.strip().rpartition(" ")
            if line.strip() and not (name and index.isdecimal() and len(index) < 10):
                raise ParseError(
                    f"expected a file name and a class number, found {line[:80]!r}",
                    path=str(answers),
                    line=number,
                    column=1,
                )
            if line.strip():
                self.listed[Path(name.strip()).name] = int(index)

    def __call__(self, file: Path) -> int | None:
        if file.name in self.listed:
            return self.listed[file.name]
        folder = file.parent.name
        if folder.isdecimal() and len(folder) < 10:
            return int(folder)
        return self.classes.get(file.name[:9], self.classes.get(folder))


class TrueBoxes:
    """The true boxes [class, x0, y0, x1, y1] of an image file, from JSON lines {"file": name, "boxes": [...]}.

    A name with folders matches only images in these folders. Raises ParseError with the line.
    """

    def __init__(self, answers: Path) -> None:
        self.path = answers
        self.listed: dict[str, dict[tuple[str, ...], list[list[float]]]] = defaultdict(dict)
        lines: dict[tuple[str, ...], int] = {}
        for number, line in _lines(answers):
            if not line.strip():
                continue
            parts, boxes = self._entry(line, number)
            if parts in lines:
                raise self._error(f"{'/'.join(parts)!r} is on line {lines[parts]} already", number)
            lines[parts] = number
            self.listed[parts[-1]][parts] = boxes
        corners = [x for each in self.listed.values() for boxes in each.values() for box in boxes for x in box[1:]]
        if corners and max(corners) <= 1:
            raise ParseError(
                "no corner of any box is above 1; expected pixels of the image, not shares of its size",
                path=str(answers),
            )

    def __call__(self, file: Path) -> list[list[float]] | None:
        fitting = [(p, boxes) for p, boxes in self.listed.get(file.name, {}).items() if file.parts[-len(p) :] == p]
        return max(fitting, key=lambda entry: len(entry[0]))[1] if fitting else None

    def _entry(self, line: str, number: int) -> tuple[tuple[str, ...], list[list[float]]]:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._error(f"this is no JSON ({error})", number, getattr(error, "colno", None)) from None
        if not isinstance(content, dict) or not isinstance(content.get("file"), str) or not Path(content["file"]).name:
            raise self._error('expected {"file": name, "boxes": [...]}', number)
        boxes = content.get("boxes")
        if not isinstance(boxes, list):
            raise self._error(f'"boxes": expected a list of [class, x0, y0, x1, y1], found {_short(boxes)}', number)
        parts = tuple(part for part in Path(content["file"]).parts if part != "/")
        return parts, [self._box(box, i, number) for i, box in enumerate(boxes)]

    def _box(self, box: Any, index: int, number: int) -> list[float]:
        if not isinstance(box, list) or len(box) != 5 or not all(map(_is_number, box)):
            raise self._error(f"box {index}: expected [class, x0, y0, x1, y1], found {_short(box)}", number)
        label, x0, y0, x1, y1 = box
        if not isinstance(label, int) or not 0 <= label < MOST:
            raise self._error(f"box {index}: expected a class number from 0 on, found {_short(label)}", number)
        if not (x0 < x1 and y0 < y1):
            raise self._error(f"box {index}: expected x0 < x1 and y0 < y1, found {_short(box[1:])}", number)
        return box

    def _error(self, message: str, line: int, column: int | None = None) -> ParseError:
        return ParseError(message, path=str(self.path), line=line, column=column or 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12 and isfinite(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _lines(path: Path | None) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file of bounded size; none without a file."""
    if path is None:
        return
    yield from enumerate(content(path, "text_bytes").decode("utf-8", "replace").splitlines(), 1)
