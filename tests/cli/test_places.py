"""Output paths of a command are checked before it computes anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from chai.cli import inputs
from chai.util.files import obstacle
from chai.util.paths import resource
from tests.cli.conftest import InProcess
from tests.onnx.common import blob, model, node, outside

IMAGE = str(sorted(resource("prototxt", "digits_images").glob("*_7.png"))[0])
OPTIONS = {
    "run": (["digits", "-i", IMAGE], ["-o", "--draw", "--perf-csv", "--trace"]),
    "check": (["digits", "-i", IMAGE], ["--html", "--png"]),
    "quantize": (["digits", "--calibration", IMAGE, "-o", "q.prototxt"], ["-o", "--html", "--journal"]),
    "evaluate": (["digits", "-i", IMAGE], ["--journal"]),
    "compile": (["digits"], ["-o"]),
    "demo": ([], ["-o"]),
    "estimate": (["layers.csv"], ["-o"]),
}
CASES = [(command, option) for command, (_, options) in OPTIONS.items() for option in options]


@pytest.fixture(autouse=True)
def _nothing_is_computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("a network was loaded")

    monkeypatch.setattr("chai.net.Net.__init__", load)
    monkeypatch.setattr(inputs, "prepare", load)
    monkeypatch.chdir(tmp_path)
    yield
    assert [p.name for p in tmp_path.iterdir()] in ([], ["here"]), "something was written"


@pytest.mark.parametrize(("command", "option"), CASES)
def test_a_folder_that_is_not_there(
    command: str, option: str, in_process: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(command, *OPTIONS[command][0], option, "no/such/x.chai") == 2
    wrong = "error: cannot write no/such/x.chai: there is no folder 'no/such'\nhint: mkdir -p no/such\n"
    assert capsys.readouterr() == ("", wrong)


@pytest.mark.parametrize(("command", "option"), [case for case in CASES if case[1] != "--draw"])
def test_a_folder_is_no_file(
    command: str, option: str, in_process: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("here").mkdir()
    assert in_process(command, *OPTIONS[command][0], option, "here") == 2
    assert capsys.readouterr() == (
        "",
        "error: cannot write here: is a folder\nhint: name a file in a folder of yours\n",
    )


@pytest.mark.parametrize("line", ["demo -o", "demo --detect -o", f"check digits -i {IMAGE} --png"])
def test_a_png_has_the_name_of_one(line: str, in_process: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process(*line.split(), "x.jpg") == 2
    wrong = "error: cannot write x.jpg: expected a name that ends in .png\nhint: name it x.png\n"
    assert capsys.readouterr() == ("", wrong)


@pytest.mark.parametrize("line", ["overlay build pynq-z2 -o", "fetch googlenet --dir", "fetch --list --dir"])
def test_a_file_is_no_folder(line: str, in_process: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process(*line.split(), IMAGE) == 2
    assert capsys.readouterr() == ("", f"error: {IMAGE} is a file, expected a folder\nhint: name another\n")


def test_a_device_or_pipe_is_not_replaced_by_a_file(in_process: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("here")
    assert in_process("run", "digits", "-i", IMAGE, "--trace", "here") == 2
    assert capsys.readouterr() == (
        "",
        "error: cannot write here: is no regular file\nhint: name a file in a folder of yours\n",
    )
    assert obstacle(Path(os.devnull)) == "is no regular file"


def test_a_folder_that_nothing_can_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("here").mkdir()
    assert obstacle(Path("here/x")) == obstacle(Path("here"), folder=True) == ""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path("here"))
    assert obstacle(Path("here/x")) == obstacle(Path("here"), folder=True) == "folder 'here' cannot be written to"
    assert obstacle(Path("x")) == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run digits -i here/a.png -o here/a.png", "--output would overwrite 'here/a.png', which --image names"),
        ("run digits -i here/b.png here/a.png --trace here/link/a.png", "'here/link/a.png', which --image names"),
        ("run here/a.png -i here/b.png --perf-csv here/a.png", "which NET names"),
        ("run digits -i here/b.mjpeg -o here/b.mjpeg", "which --image names"),
        ("run digits -i here/b.png -o x.npz --trace ./x.npz", "'x.npz', which --trace names"),
        ("check digits -i here/b.png --custom here/a.png --html here/a.png", "which --custom names"),
        ("show here/a.png --html here/a.png", "which NET names"),
        (
            "evaluate digits --images here/b.png --reference here/a.png x --journal here/a.png",
            "which --reference names",
        ),
        (
            "quantize digits --calibration here/b.png -o q.prototxt --html q.prototxt",
            "--output would overwrite 'q.prototxt'",
        ),
        (
            "quantize digits --calibration here/b.png -o q.prototxt --html q.caffemodel",
            "'q.caffemodel', which --",
        ),
        ("estimate here/a.png -o here/a.png", "which LAYERS.csv names"),
        ("run here/n.prototxt -i here/b.png --trace here/n.caffemodel", "'here/n.caffemodel', which is read for NET"),
        ("show here/n.prototxt --html here/link/n.toml", "'here/link/n.toml', which is read for NET"),
        ("check here/n.onnx -i here/b.png --html here/n.onnx.data", "'here/n.onnx.data', which is read for NET"),
        ("run digits -i here/ --trace here/a.png", "'here/a.png', which is read for --image"),
        ("evaluate digits --images . --journal here/link/a.png", "'here/link/a.png', which is read for --images"),
        ("compile digits --calibration here -o here/a.png", "'here/a.png', which is read for --calibration"),
        ("check digits -i here/b.png --custom here --html here/layer.py", "which is read for --custom"),
    ],
)
def test_no_file_is_written_over_what_is_read(
    line: str, words: str, in_process: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("here").mkdir()
    for name in ("a.png", "b.png", "b.mjpeg"):
        (Path("here") / name).write_bytes(Path(IMAGE).read_bytes())
    Path("here/link").symlink_to(".")
    for name in ("n.prototxt", "n.caffemodel", "n.toml", "n.onnx.data", "layer.py"):
        (Path("here") / name).write_text("####")
    weights = blob(5, outside("w", "n.onnx.data", (1,)))
    Path("here/n.onnx").write_bytes(model([node("Mul", ["x", "w"], ["y"])], {"x": (1, 1, 2, 2)}, ["y"], more=weights))
    assert in_process(*line.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert told.err.endswith("\nhint: name another file\n")
    assert Path("here/a.png").read_bytes() == Path(IMAGE).read_bytes()
