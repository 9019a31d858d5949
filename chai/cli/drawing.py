"""chai run --draw: draw the answers of a network into its images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..blob import Array
from ..errors import UsageError
from ..images import drawing, files as images
from ..images.preprocess import PictureWindow
from . import output

if TYPE_CHECKING:
    from PIL.Image import Image

NAMED = 4  # of the files that were written, by name


class Drawing:
    """Draw pictures into one file, numbered files, or files of a folder under their images' names.

    Boxes with a score of ``threshold`` or more and classes are drawn into the image at its own size, text below it. An image
    is opened again for it, so that one is in memory at a time.
    Raises UsageError for a target that cannot be intended, e.g. one that would overwrite an image.
    """

    def __init__(self, out: Path, files: Sequence[Path], threshold: float = 0.0) -> None:
        folder = out.is_dir() or not out.suffix
        if not folder and out.suffix.lower() not in drawing.FORMATS:
            raise UsageError(
                f"--draw {out}: expected a folder or a file of {', '.join(drawing.FORMATS)}",
                hint=f"--draw {out.with_suffix('.png')}",
            )
        self.threshold = threshold
        self.written: list[Path] = []
        self.silent: list[str] = []  # images without anything to draw
        self.folder = out if folder else out.parent
        self._targets = _targets(out, files, folder)
        inputs = {*map(os.path.realpath, files)}
        for target in self._targets.values():
            if os.path.realpath(target) in inputs:  # of links in a circle, too
                raise UsageError(f"--draw would overwrite the image {str(target)!r}", hint="name another folder")

    def add(self, answer: Mapping[str, Any], maps: Mapping[str, Array], window: PictureWindow) -> None:
        """Draw one image, of which the network's input shows a ``window``, if its ``answer`` has anything to draw."""
        target = self._targets.get(answer["file"])
        if target is None or not any({"top", "boxes"} & set(f) or n in maps for n, f in answer["outputs"].items()):
            self.silent.append(answer["file"])
            return
        self.folder.mkdir(exist_ok=True)
        picture = drawn(images.read(answer["file"]), answer["outputs"], maps, window, self.threshold)
        drawing.save(picture, target, drawing.FORMATS[target.suffix.lower()])
        self.written.append(target)

    def report(self) -> None:
        """Report the written files on stderr."""
        if self.written:
            names = [*dict.fromkeys(map(str, self.written))]  # an image may be named twice
            pictures = f"{len(names)} pictures: " if len(names) > 1 else ""
            if len(names) > NAMED:
                names[NAMED - 1 : -1] = ["..."]
            output.say(f"wrote {pictures}{', '.join(names)}")
        if self.silent:
            first = self.silent[0]
            more = f" and {len(self.silent) - 1} more" if len(self.silent) > 1 else ""
            output.say(f"--draw: nothing to draw for {first}{more}: no image, or no classes, boxes or map")


def _targets(out: Path, files: Sequence[Path], folder: bool) -> dict[str, Path]:
    """Return the picture file of each image file; arrays (.npy) have none."""
    named = [*dict.fromkeys(file for file in files if file.suffix.lower() != ".npy")]
    if not folder and len(named) == 1:
        return {str(named[0]): out}
    targets: dict[str, Path] = {}
    taken: set[Path] = set()
    for i, file in enumerate(named, 1):
        target = out / f"{file.stem}.png" if folder else out.with_name(f"{out.stem}-{i}{out.suffix}")
        numbers = count(i)
        while target in taken:  # two images of one name, from different folders
            target = out / f"{file.stem}-{next(numbers)}.png"
        taken.add(target)
        targets[str(file)] = target
    return targets


def drawn(
    image: Image, outputs: Mapping[str, Any], maps: Mapping[str, Array], window: PictureWindow, threshold: float = 0.0
) -> Image:
    """Return a copy of an image with its answer: boxes of ``threshold`` or more and maps in it, text below it."""
    boxes: list[drawing.LabelledBox] = []
    lines: list[tuple[str, drawing.Colour | None]] = []
    for name, summary in outputs.items():
        if "classes" in summary:
            image = drawing.with_classes(image, maps[name], window)
            for line in summary["classes"]:
                text = f"{line['label'] or line['index']}  {line['share']:.1%}"
                lines.append((text, drawing.class_colour(line["index"])))
        elif name in maps:
            image = drawing.with_values(image, maps[name], window)
            lines += [(f"{summary['min']:.4g}  {name}", drawing.LOW), (f"{summary['max']:.4g}", drawing.HIGH)]
        elif "boxes" in summary:
            boxes += [labelled_box(line) for line in summary["boxes"] if line["score"] >= threshold]
        elif "top" in summary:
            lines += [(f"{line['score']:.4f}  {line['label'] or line['index']}", None) for line in summary["top"]]
    if boxes:
        image = drawing.with_boxes(image, boxes)
    return drawing.with_lines(image, lines)


def labelled_box(box: Mapping[str, Any]) -> drawing.LabelledBox:
    """Return a box of an answer, to be drawn."""
    text = f"{box['label'] or box['index']} {box['score']:.2f}"
    return drawing.LabelledBox(
        (*box["pixels"],), text, drawing.class_colour(box["index"] + 1)
    )  # 0 is black, of a background
