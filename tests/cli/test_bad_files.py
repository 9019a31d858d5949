"""Each file that a command takes, in each state that a file can be in: an error with its own exit code, never a fault."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chai.cli import main
from chai.plugins.registry import REGISTRY
from chai.util.paths import resource

NET, WEIGHTS = resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")
IMAGE = sorted(resource("prototxt", "digits_images").glob("*.png"))[0]
FLOAT = ["-q", "--device", "float"]
ARGUMENTS: dict[str, tuple[str, list[str]]] = {  # the file's own ending, and the command line with it as FILE
    "show": (".prototxt", ["show", "FILE"]),
    "show, weights": (".caffemodel", ["show", str(NET), "FILE"]),
    "show, compiled": (".chai", ["show", "FILE"]),
    "show --overlay": (".json", ["show", str(NET), "--overlay", "FILE"]),
    "show --custom": (".py", ["show", str(NET), "--custom", "FILE"]),
    "show --custom, kernels": (".xml", ["show", str(NET), "--custom", "FILE"]),
    "run, image": (".png", ["run", "digits", *FLOAT, "-i", "FILE"]),
    "run, array": (".npy", ["run", "digits", *FLOAT, "-i", "FILE"]),
    "run --labels": (".txt", ["run", "digits", *FLOAT, "-i", str(IMAGE), "--labels", "FILE"]),
    "run --mean-file, array": (".npy", ["run", "digits", *FLOAT, "-i", str(IMAGE), "--mean-file", "FILE"]),
    "run --mean-file": (".binaryproto", ["run", "digits", *FLOAT, "-i", str(IMAGE), "--mean-file", "FILE"]),
    "run, compiled": (".chai", ["run", "FILE", "-i", str(IMAGE)]),
    "run --calibration": (".png", ["run", "digits", "-q", "-i", str(IMAGE), "--calibration", "FILE"]),
    "check": (".png", ["check", "digits", "-q", "-i", "FILE"]),
    "quantize": (".png", ["quantize", "digits", "-q", "--calibration", "FILE", "-o", "out.prototxt"]),
    "quantize --journal": (
        ".jsonl",
        ["quantize", "digits", "-q", "--calibration", str(IMAGE), "-o", "o.prototxt", "--journal", "FILE"],
    ),
    "compile, weights": (".caffemodel", ["compile", str(NET), "FILE", "-q", "-o", "out.chai"]),
    "evaluate": (".png", ["evaluate", "digits", "-q", "--jobs", "1", "--images", "FILE"]),
    "evaluate --truth": (
        ".txt",
        ["evaluate", "digits", "-q", "--jobs", "1", "--images", str(IMAGE), "--device", "emulator", "--truth", "FILE"],
    ),
    "evaluate --labels": (
        ".txt",
        ["evaluate", "digits", "-q", "--jobs", "1", "--images", str(IMAGE), "--device", "emulator", "--labels", "FILE"],
    ),
    "compile --labels": (".txt", ["compile", "digits", "-q", "-o", "out.chai", "--labels", "FILE"]),
    "estimate": (".csv", ["estimate", "FILE"]),
    "devices --test": (".json", ["devices", "-q", "--test", "--overlay", "FILE"]),
}
FINE = {  # what is no error: a file of nothing says nothing
    ("run --labels", "empty"), ("run --labels", "pipe"), ("run --labels", "torn"),
    ("evaluate --truth", "empty"), ("evaluate --truth", "pipe"), ("quantize --journal", "empty"),
    ("show --custom", "empty"), ("show --custom", "folder"), ("show --custom", "pipe"), ("quantize --journal", "torn"),
    ("show --custom, kernels", "folder"),
}  # fmt: skip


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    """One without an end."""
    path.symlink_to("/dev/zero")


def system(path: Path) -> None:
    """A regular file of 0 bytes that has some: the kernel's messages, which have no end, where they may be read."""
    path.symlink_to("/proc/kmsg" if os.access("/proc/kmsg", os.R_OK) else "/proc/self/status")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 9)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)  # a hole


def torn(path: Path) -> None:
    """What the file should be, cut short."""
    starts = {
        ".prototxt": b'name: "x"\nlayer { name: "c" type: "Conv',
        ".caffemodel": WEIGHTS.read_bytes()[:-5],
        ".chai": b"\x89chai\r\n\x1a\n",
        ".json": b'{"name": "x',
        ".py": b"def f(:",
        ".png": b"\x89PNG\r\n\x1a\n",
        ".npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1",
        ".txt": b"a",
        ".binaryproto": b"\x08\x01\x10\x01\x18",
        ".jsonl": b'{"schema": "chai.journal/1", "',
        ".csv": b"CONV,8,8,1,3",
        ".xml": b'<CustomLayer name="A" type="SimpleGPU"',
    }
    path.write_bytes(starts[path.suffix])


@pytest.mark.parametrize("damage", [empty, folder, pipe, device, system, torn, binary, huge])
def test_every_file_argument_in_every_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(REGISTRY, "files", dict(REGISTRY.files))
    for i, (name, (suffix, args)) in enumerate(ARGUMENTS.items()):
        path = tmp_path / f"case{i}{suffix}"
        damage(path)
        code = main([str(path) if a == "FILE" else a for a in args])
        told = capsys.readouterr().err
        case = f"{name}, {damage.__name__}: {code}\n{told}"
        assert "a fault in chai" not in told, case
        assert "Traceback" not in told, case
        assert "Warning" not in told, case
        if (name, damage.__name__) not in FINE:
            assert code in (2, 65, 69, 74), case
            assert path.name in told or "/dev/zero" in told or "/proc/" in told, case
        if damage in (device, system):  # not a limit, which is only reached by reading
            assert re.search("a device|is no regular file|this is no file|is not a Python file", told), case


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("m.onnx", b"\x08\x07\x12\x07pytorch\x1a\x052.1.0:" + b"\0" * 99, "an ONNX model"),
        ("renamed.prototxt", b"\x08\x07\x12\x07pytorch\x1a\x052.1.0:" + b"\0" * 99, "an ONNX model"),
        ("m.pb", b"\x0a\x20\x0a\x04data\x12\x0bPlaceholder", "a TensorFlow graph"),
        ("m.tflite", b"\x1c\0\0\0TFL3" + b"\0" * 40, "a TensorFlow Lite model"),
        ("m.safetensors", struct.pack("<Q", 40) + b'{"a":{"dtype":"F32"', "a safetensors file"),
        ("m.h5", b"\x89HDF\r\n\x1a\n" + b"\0" * 99, "an HDF5 file"),
        ("m.gz", b"\x1f\x8b\x08\0" + b"x" * 99, "a gzip file"),
        ("m.pkl", b"\x80\x04\x95" + b"x" * 99, "a pickle"),
        ("cat.jpg", b"\xff\xd8\xff\xe0" + b"\0" * 99, "a picture"),
        ("net.bin", b"\x89chai\r\n\x1a" + b"\0" * 99, "a compiled network"),
        ("m.pth", b"", "a PyTorch file"),
    ],
)
def test_files_of_other_frameworks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, what: str
) -> None:
    """As the network and as its weights; their size is not what is wrong with them."""
    path = tmp_path / name
    if name.endswith(".pth"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"x")
    else:
        path.write_bytes(data)
    os.truncate(path, 20 << 20)  # beyond the limit of a prototxt
    as_network = (
        [] if what == "an ONNX model" else [["show", str(path)]]
    )  # which is read as one: tests/onnx/test_read.py
    for args in (*as_network, ["show", str(NET), str(path)]):
        assert main(args) == 65
        told = capsys.readouterr().err
        assert f"{name}: this is {what}" in told
        assert "text_bytes" not in told
        assert "hint: " in told


@pytest.mark.parametrize(
    "command", ["run digits -i", "evaluate digits --jobs 1 --images", "compile digits --calibration"]
)
def test_a_picture_is_no_list_of_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ["-o", "x.chai"] if command.startswith("compile") else []
    assert main([*command.split(), str(IMAGE), "--labels", str(IMAGE), *place]) == 65
    out, err = capsys.readouterr()
    assert f"error: {IMAGE}: this is no text: byte 8 is 0\nhint: expected lines of text in UTF-8\n" in err
    assert len(out.splitlines()) <= 1


def test_labels_in_another_encoding_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "labels.txt").write_bytes(b"a\tb\r\ncaf\xe9\n")
    assert main(["run", "digits", *FLOAT, "-i", str(IMAGE), "--labels", str(tmp_path / "labels.txt")]) == 0
    assert "caf\ufffd" in capsys.readouterr().out


@pytest.mark.parametrize("data", [b"\x08", b"\x08\x07", b"\x80", b"\x0a", b"P", b"\x1f"])
def test_a_file_of_a_byte_or_two(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    for name in ("m.binaryproto", "m.caffemodel", "m.prototxt"):
        (tmp_path / name).write_bytes(data)
    assert main(["show", str(tmp_path / "m.prototxt")]) == 65
    assert main(["show", str(NET), str(tmp_path / "m.caffemodel")]) == 65
    assert main(["run", "digits", *FLOAT, "-i", str(IMAGE), "--mean-file", str(tmp_path / "m.binaryproto")]) == 65
    assert "a fault" not in capsys.readouterr().err


def test_network_and_weights_the_wrong_way_round(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["show", str(WEIGHTS), str(NET)], ["show", str(NET), str(NET)], ["show", str(WEIGHTS)]):
        assert main(args) == 65
        assert "the first file is the .prototxt, the second the .caffemodel" in capsys.readouterr().err


def test_an_image_comes_through_a_pipe(tmp_path: Path) -> None:
    """Once: --draw, quantize and evaluate read images more than once, and say so."""
    with open(IMAGE, "rb") as image:
        command = [sys.executable, "-m", "chai", "run", "digits", *FLOAT, "-i"]
        piped = f"cat {IMAGE} | {' '.join(command)} /dev/stdin"
        done = subprocess.run(piped, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path)
        plain = subprocess.run([*command, str(IMAGE)], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[2:-1] == plain.stdout.splitlines()[2:-1]
        assert image.read(1)
    for args in ("run digits --draw x.png -i", "evaluate digits --images", "show", f"show {NET}"):
        line = f"cat {IMAGE} | {sys.executable} -m chai {args} /dev/stdin"
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 2
        assert "'/dev/stdin' is a pipe or a device" in done.stderr
        assert "hint: save it to a file first" in done.stderr


def test_a_file_name_that_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = os.fsencode(tmp_path) + b"/im\xff\xfe.png"
    with open(path, "wb") as file:
        file.write(IMAGE.read_bytes())
    for args in (
        ["evaluate", "digits", "--jobs", "1", "--images", os.fsdecode(path), "--journal", "j.jsonl"],
        ["run", "digits", "-i", os.fsdecode(path), "--draw", "x.png"],
        ["run", "digits", "-i", os.fsdecode(path), "--json"],
        ["quantize", "digits", "--calibration", os.fsdecode(path), "-o", "q.prototxt", "--effort", "fast"],
    ):
        assert main(args) == 0, args


@pytest.mark.parametrize(
    "text",
    [
        "[preprocess]\nscale = " + "9" * 5000,
        "[preprocess]\nscale = " + "9" * 400,
        "[preprocess]\nscale = inf",
        "[preprocess]\nmean = [1.0, nan, 2.0]",
        "[preprocess]\nmean = 1e300",
        "a = " + "[" * 5000,
        "a." * 5000 + "a = 1",
        '"a".' * 5000 + "a = 1",
        "a = 1979-13-99",
        "\xff",
        "labels = 1",
        "x" * (2 << 20),
    ],
)
def test_a_bad_card(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "net.prototxt").write_bytes(NET.read_bytes())
    (tmp_path / "net.toml").write_text(text, "latin-1")
    args = ["run", str(tmp_path / "net.prototxt"), str(WEIGHTS), *FLOAT, "-i", str(IMAGE)]
    assert main(args) == 65
    assert "net.toml:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [["--scale", "inf"], ["--scale", "1e30"], ["--raw-scale", "nan"], ["--mean", "1,inf"]]
)
def test_preprocessing_that_leaves_no_number(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert main(["run", "digits", *FLOAT, "-i", str(IMAGE), *option]) == 2
    told = capsys.readouterr().err
    assert "expected finite numbers" in told
    assert "Warning" not in told


def npy(descr: str = "'<f4'", shape: str = "(1, 1, 8, 8)", order: str = "False", data: bytes = b"\0" * 256) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "data",
    [
        npy(shape="(" * 50 + ")" * 50),
        npy(shape="(1, 1, 8, 8"),
        npy(shape="(9999999999999999999, 8)"),
        npy(shape="(4294967296, 4294967296, 4294967296)"),
        npy(shape="(0, 8)"),
        npy(shape="(1,) * 9"),
        npy(shape="(" + "1, " * 33 + ")"),
        npy(descr="'<f4', 'descr': "),
        npy(descr="[('a', '<f4')]"),
        npy(descr="'<f9'"),
        npy(descr="'|O'"),
        npy(descr="'<c8'"),
        npy(order="1"),
        npy(data=b"\0" * 255),
        npy()[:60],
        npy().replace(b"\x01\x00v", b"\x09\x00v"),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        npy(descr="'<f8'", shape="(1, 1, 2, 2)", data=np.full(4, 1e300).tobytes()),
    ],
)
def test_a_damaged_npy_header(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    assert main(["run", "digits", *FLOAT, "-i", str(path)]) == 65
    assert "x.npy: " in capsys.readouterr().err
    assert main(["run", "digits", *FLOAT, "-i", str(IMAGE), "--mean-file", str(path)]) == 65


def test_an_unreadable_npy_has_the_shape_of_an_open_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other files are run all the same, as where the prototxt says the size."""
    net = tmp_path / "net.prototxt"
    net.write_text('input: "data" layer { name: "r" type: "ReLU" bottom: "data" top: "r" }')
    for name, number in (("huge", 1e300), ("fine", 3.0)):
        np.save(tmp_path / f"{name}.npy", np.full((1, 2, 3), number))
    files = [str(tmp_path / f"{name}.npy") for name in ("huge", "fine")]
    assert main(["run", str(net), "--random-weights", *FLOAT, "-i", *files]) == 65
    out, err = capsys.readouterr()
    assert "huge.npy: its numbers are too large for float32" in err
    assert "fine.npy" in out and "huge.npy" not in out


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "|u1", "|i1", "<i8", "|b1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4, 5)])
def test_what_numpy_writes_is_read(tmp_path: Path, dtype: str, order: str, shape: tuple[int, ...]) -> None:
    from chai.images.files import read_array

    values = np.asarray(np.random.default_rng(1).integers(0, 2, shape), dtype, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "x.npy", values)
    assert np.array_equal(read_array(tmp_path / "x.npy"), values.astype(np.float32))
    stream = io.BytesIO()
    np.lib.format.write_array(stream, values, version=(2, 0))
    (tmp_path / "y.npy").write_bytes(stream.getvalue())
    assert np.array_equal(read_array(tmp_path / "y.npy"), values.astype(np.float32))
