"""Ground-truth files, and errors in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chai.errors import ParseError, UsageError
from chai.evaluate import Output
from chai.evaluate.truth import Classes, TrueBoxes, truth
from chai.images.files import read_classes

MAP, BOXES = Output("score", "map", None), Output("out", "boxes", None)
BOX = [1, 10, 20, 30.5, 40]


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "truth.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def test_boxes_by_file(tmp_path: Path) -> None:
    path = written(tmp_path, {"file": "a.jpg", "boxes": [BOX], "width": 99}, "", {"file": "b.jpg", "boxes": []})
    known = TrueBoxes(path)
    assert known(Path("/photos/a.jpg")) == [BOX] and known(Path("b.jpg")) == [] and known(Path("c.jpg")) is None


def test_a_name_with_folders_is_for_images_in_these_folders(tmp_path: Path) -> None:
    one, other, plain = [[1, 0, 0, 2, 2]], [[2, 0, 0, 2, 2]], [[3, 0, 0, 2, 2]]
    entries = [("one/a.jpg", one), ("set/other/a.jpg", other), ("a.jpg", plain)]
    known = TrueBoxes(written(tmp_path, *({"file": name, "boxes": boxes} for name, boxes in entries)))
    assert known(Path("/x/one/a.jpg")) == one and known(Path("/set/other/a.jpg")) == other
    assert known(Path("other/a.jpg")) == plain


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "truth.jsonl:2:2: this is no JSON"),
        ("[" * 100_000, "truth.jsonl:2:1: this is no JSON"),
        ("[1]", 'truth.jsonl:2:1: expected {"file": name, "boxes": [...]}'),
        ({"boxes": [BOX]}, 'truth.jsonl:2:1: expected {"file": name, "boxes": [...]}'),
        ({"file": "", "boxes": []}, 'truth.jsonl:2:1: expected {"file": name, "boxes": [...]}'),
        ({"file": "b.jpg"}, 'truth.jsonl:2:1: "boxes": expected a list of [class, x0, y0, x1, y1], found None'),
        ({"file": "b.jpg", "boxes": [BOX, [1, 2]]}, "box 1: expected [class, x0, y0, x1, y1], found [1, 2]"),
        ({"file": "b.jpg", "boxes": [[1, 2, 3, "4", 5]]}, "box 0: expected [class, x0, y0, x1, y1]"),
        ({"file": "b.jpg", "boxes": [[True, 2, 3, 4, 5]]}, "box 0: expected [class, x0, y0, x1, y1]"),
        ({"file": "b.jpg", "boxes": [[1, 2, 3, float("nan"), 5]]}, "box 0: expected [class, x0, y0, x1, y1]"),
        ({"file": "b.jpg", "boxes": [[1, 2, 3, 10**400, 5]]}, "box 0: expected [class, x0, y0, x1, y1]"),
        ('{"file": "b.jpg", "boxes": [[1, 2, 3, ' + "9" * 5000 + ", 5]]}", "truth.jsonl:2:1: this is no JSON"),
        ({"file": "b.jpg", "boxes": [[1.5, 2, 3, 4, 5]]}, "box 0: expected a class number from 0 on, found 1.5"),
        ({"file": "b.jpg", "boxes": [[-1, 2, 3, 4, 5]]}, "box 0: expected a class number from 0 on, found -1"),
        ({"file": "b.jpg", "boxes": [[1, 4, 3, 2, 5]]}, "box 0: expected x0 < x1 and y0 < y1, found [4, 3, 2, 5]"),
        ({"file": "a.jpg", "boxes": []}, "truth.jsonl:2:1: 'a.jpg' is on line 1 already"),
    ],
)
def test_bad_lines_are_refused_with_their_number(tmp_path: Path, line: Any, words: str) -> None:
    path = written(tmp_path, {"file": "a.jpg", "boxes": [BOX]}, line)
    with pytest.raises(ParseError) as raised:
        TrueBoxes(path)
    assert words in raised.value.headline and len(raised.value.headline) < 400


def test_the_background_is_no_true_class(tmp_path: Path) -> None:
    path = written(tmp_path, {"file": "a.jpg", "boxes": [BOX, [0, 1, 2, 30, 40]]})
    with pytest.raises(ParseError, match="box 1: expected a class number from 1 on, found 0"):
        TrueBoxes(path, first_class=1)
    assert TrueBoxes(path, first_class=0)(Path("a.jpg")) == [BOX, [0, 1, 2, 30, 40]]


def test_a_class_that_the_network_lacks_is_refused_with_its_line(tmp_path: Path) -> None:
    """The last class of each kind is taken. A folder with a larger number is the folder of a year, say."""
    boxes = Output("out", "boxes", None, classes=3, first_class=1)
    good = {"file": "a.jpg", "boxes": [[3, 1, 2, 30, 40]]}
    assert truth(None, written(tmp_path, good), boxes)(Path("a.jpg")) == [[2, 1, 2, 30, 40]]
    with pytest.raises(ParseError, match="expected a class number from 1 to 3, found 4") as raised:
        truth(None, written(tmp_path, good, {"file": "b.jpg", "boxes": [[4, 1, 2, 30, 40]]}), boxes)
    assert "truth.jsonl:2:1: box 0: " in raised.value.headline

    scores = Output("prob", "scores", None, classes=10)
    known = truth(None, written(tmp_path, "a.jpg 9"), scores)
    assert [known(Path(name)) for name in ("a.jpg", "9/b.jpg", "2023/b.jpg", "10/b.jpg")] == [9, 9, None, None]
    with pytest.raises(ParseError, match="expected a class number from 0 to 9, found 10") as raised:
        truth(None, written(tmp_path, "a.jpg 9", "b.jpg 10"), scores)
    assert "truth.jsonl:2:1: " in raised.value.headline


@pytest.mark.parametrize("right", [1, 1.25, 1.99])
def test_corners_that_are_fractions_are_refused(tmp_path: Path, right: float) -> None:
    """Detectors' boxes may end a little outside the image. The error names both units."""
    path = written(tmp_path, {"file": "a.jpg", "boxes": [[1, 0.1, 0.2, right, 0.5]]})
    with pytest.raises(ParseError, match=r"are fractions of an image's size \(0 to 1\), expected pixels") as caught:
        TrueBoxes(path)
    assert caught.value.hint is not None and "multiply" in caught.value.hint
    assert TrueBoxes(written(tmp_path, {"file": "a.jpg", "boxes": [[1, 0, 0, 2, 1]]}))(Path("a.jpg"))


def ran(*images: Any) -> str:
    """Return an object as ``chai run --json`` prints it."""
    return json.dumps({"schema": "chai.run/3", "images": images}, indent=1)


def listed_boxes(*boxes: tuple[int, list[float | None]]) -> dict[str, Any]:
    return {"boxes": [{"index": label, "label": "", "pixels": pixels} for label, pixels in boxes]}


def test_the_boxes_of_a_run(tmp_path: Path) -> None:
    some = {
        "summary": {"shape": [7], "min": 0, "max": 1, "mean": 1},
        "out": listed_boxes((2, [3.5, 4, 8, 9]), (1, [0, 0, 7, 2])),
    }
    known = TrueBoxes(
        written(tmp_path, ran({"file": "p/a.jpg", "outputs": some}, {"file": "b", "outputs": {"o": listed_boxes()}}))
    )
    assert known(Path("/x/p/a.jpg")) == [[2, 3.5, 4, 8, 9], [1, 0, 0, 7, 2]]
    counted = TrueBoxes(
        tmp_path / "truth.jsonl", 1
    )  # for a network whose label 0 is the background: its classes are from 0
    assert counted(Path("p/a.jpg")) == known(Path("p/a.jpg"))
    assert known(Path("b")) == [] and known(Path("c")) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ran({"file": "a.jpg", "outputs": {"prob": {"top": []}}}), "expected what chai run --json prints"),
        (
            ran({"file": "a.jpg", "outputs": {"o": listed_boxes(), "p": listed_boxes()}}),
            "a network with one output of boxes",
        ),
        (
            ran({"file": "a.jpg", "outputs": {"o": {"boxes": [{"label": 1, "pixels": [0, 0, 1, 1]}]}}}),
            "one output of boxes",
        ),
        (ran({"file": "a.jpg", "outputs": {"o": {"boxes": 1}}}), "one output of boxes"),
        (ran(1), "one output of boxes"),
        (ran({"file": "a.jpg", "outputs": {"o": listed_boxes((1, [1, 2, 3, None]))}}), "a.jpg: box 0: expected [class"),
        (ran({"file": "a.jpg", "outputs": {"o": listed_boxes((1, [5, 2, 3, 4]))}}), "a.jpg: box 0: expected x0 < x1"),
        (ran(*[{"file": "a.jpg", "outputs": {"o": listed_boxes()}}] * 2), "'a.jpg' is there already"),
        (ran()[:-1], "expected what chai run --json prints"),
    ],
)
def test_a_run_without_boxes_or_with_bad_ones(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ParseError) as raised:
        TrueBoxes(written(tmp_path, text))
    assert words in raised.value.headline and raised.value.headline.startswith(f"{tmp_path / 'truth.jsonl'}: ")


@pytest.mark.parametrize("data", [b"\xff\xd8\xff\xe0\x00\x10JFIF", "a.jpg 1\n".encode("utf-16")])
def test_bytes_that_are_no_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "truth").write_bytes(data)
    for read in (TrueBoxes, lambda path: Classes(path, None), lambda path: Classes(None, path)):
        with pytest.raises(ParseError, match="this is no text: byte"):
            read(tmp_path / "truth")


@pytest.mark.parametrize("line", ["a.jpg", "a.jpg cat", "a.jpg -1", "a.jpg " + "9" * 5000])
def test_bad_class_lines_are_refused_with_their_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "truth.txt"
    path.write_text(f"b.jpg 3\n{line}\n")
    with pytest.raises(ParseError) as raised:
        Classes(None, path)
    assert "truth.txt:2:1: expected a file name and a class number" in raised.value.headline


def test_labels_of_a_set_are_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of that name comes first."""
    monkeypatch.chdir(tmp_path)
    known = Classes(Path("coco"), None)
    assert [known(Path(name)) for name in ("person/a.png", "dog/a.png", "owl/a.png")] == [0, 16, None]
    Path("coco").write_text("owl\n")
    assert Classes(Path("coco"), None)(Path("owl/a.png")) == 0


def test_classes_of_files_with_the_same_name(tmp_path: Path) -> None:
    """Folders tell them apart, as far as the list and the image have them; a name of one class needs none."""
    path = tmp_path / "truth.txt"
    path.write_text("set/0/a.png 7\nset/1/a.png 5\nset/1/b.png 2\nset/2/b.png 2\nc d.png 3\n")
    known = Classes(None, path)
    assert [known(Path(name)) for name in ("set/0/a.png", "/x/set/1/a.png", "1/a.png")] == [7, 5, 5]
    assert [known(Path(name)) for name in ("b.png", "other/b.png", "0/c d.png")] == [2, 2, 3]
    assert [known(Path(name)) for name in ("a.png", "4/a.png")] == [None, 4]  # of several classes: the folder's number


def test_two_classes_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.txt"
    path.write_text("x/a.png 7\nx/a.png 7\n./x/a.png 5\n")
    with pytest.raises(ParseError, match="has class 7 already") as raised:
        Classes(None, path)
    assert "truth.txt:3:1: " in raised.value.headline


def test_a_blank_label_is_no_folder(tmp_path: Path) -> None:
    """It is a class of its own all the same: the lines after it have their numbers."""
    path = tmp_path / "labels.txt"
    path.write_text("cat\n\n  \n owl\nn01440764 fish\n")
    known = Classes(path, None)
    assert known(Path("pic.png")) is None
    assert (known(Path("cat/a.png")), known(Path("owl/a.png")), known(Path("n01440764_1.png"))) == (0, 3, 4)


def test_a_file_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    with open(path, "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ParseError, match="exceeds the limit text_bytes"):
        TrueBoxes(path)


def test_the_answers_are_those_of_the_outputs_kind(tmp_path: Path) -> None:
    path = written(tmp_path, {"file": "a.jpg", "boxes": []})
    with pytest.raises(UsageError, match="expected a folder, the output is a map"):
        truth(None, path, MAP)
    with pytest.raises(UsageError, match="expected a file, the output is boxes"):
        truth(None, tmp_path, BOXES)
    with pytest.raises(UsageError, match="--labels are for class scores and COCO's categories, and the output is map"):
        truth(path, None, MAP)


@pytest.mark.parametrize("mode", ["L", "P", "I;16"])
def test_class_indices_from_a_png(tmp_path: Path, mode: str) -> None:
    """Of a palette the indices count, not the colours."""
    classes = np.array([[0, 1, 255], [7, 20, 3]])
    image = Image.fromarray(classes.astype(np.uint16 if mode == "I;16" else np.uint8))
    if mode == "P":
        image.putpalette([9, 9, 9] * 256)
        assert image.mode == "P"
    image.save(tmp_path / "a.png")
    assert read_classes(tmp_path / "a.png").tolist() == classes.tolist()


def test_a_png_of_colours_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.png")
    with pytest.raises(ParseError, match="pixels of mode RGB, expected class indices"):
        read_classes(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes(b"\x89PNG torn")
    with pytest.raises(ParseError, match="this is no readable image"):
        read_classes(tmp_path / "a.png")
