"""Read true boxes from COCO's files of annotations (instances_val2017.json and others of this form)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...errors import ParseError, UsageError
from ...limits import limits
from ...util.files import text
from .precision import CocoBox

_LISTS = ("images", "annotations", "categories")
_KEPT = {*_LISTS, "id", "file_name", "image_id", "category_id", "bbox", "area", "iscrowd", "name"}
_LARGEST = 1e7  # pixels; the squares of sides fit, too
_Boxes = TypeVar("_Boxes")
_FORM = 'expected {"images": [...], "annotations": [...], "categories": [...]}'


def is_coco(path: Path) -> bool:
    """Return whether a file is of this form: its name ends in .json, and it has annotations."""
    return path.suffix.lower() == ".json" and path.is_file() and '"annotations"' in text(path, "coco_bytes")


def parts_of(name: str) -> tuple[str, ...]:
    """Return the folders and the name of an image, as a file of true boxes names it."""
    return tuple(part for part in Path(name).parts if part != "/")


def of_image(listed: Mapping[tuple[str, ...], _Boxes], file: Path) -> _Boxes | None:
    """Return the boxes of an image file: of the longest ``parts_of`` that its path ends in; None without any."""
    ends = (file.parts[first:] for first in range(len(file.parts)))
    return next((listed[end] for end in ends if end in listed), None)


class CocoTruth:
    """The true boxes of an image file, by its name. ``names`` are those of the classes that the file has, by class.

    ``labels`` are the names of the network's classes; the file's categories are matched with them by name. Raises ParseError,
    and UsageError for a category that is no class of the network.
    """

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        self.path = path
        content = self._content(text(path, "coco_bytes"))
        classes = self._classes(content["categories"], labels)
        self.names = {index: labels[index] for index in classes.values()}
        files: dict[int, tuple[str, ...]] = {}
        self.listed: dict[tuple[str, ...], list[CocoBox]] = {}
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

    def __call__(self, file: Path) -> list[CocoBox] | None:
        """Return the true boxes of an image; None if the file does not name it."""
        return of_image(self.listed, file)

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
            raise UsageError(
                f"--truth {self.path}: its categories have names, the network's classes have none",
                hint='--labels coco, voc or a FILE; or labels = "coco" in the .toml',
            )
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
        return parts_of(name)

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

    def _error(self, message: str, line: int | None = None) -> ParseError:
        return ParseError(message, path=str(self.path), line=line, column=None if line is None else 1)


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST**2
