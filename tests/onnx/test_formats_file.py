"""chai quantize of an ONNX file writes its formats, which belong to that file alone; every command takes both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.cli import main
from chai.errors import ParseError, UsageError
from chai.fixed import SINGLE
from chai.graph.formats_file import apply, write
from chai.quantizer import Recipe, quantize
from chai.tasks.precision import Precision

from .common import blob, model, node, number, numbers, outside
from .networks import mobilenet_v2, resnet18

X = np.random.default_rng(0).normal(0, 1, (12, 3, 32, 32)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.onnx").write_bytes(resnet18())
    (tmp_path / "other.onnx").write_bytes(mobilenet_v2())
    (tmp_path / "images").mkdir()
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    (tmp_path / "truth.txt").write_text("".join(f"{i}.png {i}\n" for i in range(5)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def precisions(net: chai.Net) -> dict[str, Precision]:
    return {layer.name: layer.precision for layer in net.graph.layers if layer.precision is not None}


def stored(precision: Precision) -> tuple[Any, ...]:
    """All fields, thresholds as float32."""
    values = (getattr(precision, field.name) for field in fields(precision))
    return tuple(np.float32(v).tolist() if isinstance(v, float | tuple) else v for v in values)


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "quantize net.onnx --calibration images -o net.formats.json --json"
    assert main(line.split()) == 0
    shown = capsys.readouterr()
    content = json.loads(shown.out)
    assert (content["prototxt"], content["caffemodel"]) == ("net.onnx", "net.formats.json")
    assert "next: chai check net.onnx net.formats.json -i IMAGES" in shown.err
    assert content["recipe"]["rounding"] == "nearest" and content["recipe"]["bias"] == "kept"
    both = ["net.onnx", "net.formats.json"]
    for line in (
        "show {} --overlay pynq-z2",
        "run {} -i images/0.png",
        "evaluate {} --images images --truth truth.txt --jobs 1",
        "compile {} -o net.chai",
        "quantize {} --calibration images -o again.formats.json --effort fast",
    ):
        command, _, rest = line.partition(" {}")
        assert main([command, *both, *rest.split()]) == 0, capsys.readouterr().err
        if command == "show":
            assert "formats  of its .formats.json" in capsys.readouterr().out
    assert "brings no" not in capsys.readouterr().err
    assert main(["check", *both, "-i", "images", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["formats"] == ".formats.json"
    assert main(["check", *both, "-i", "images"]) == 0
    assert "formats of its .formats.json" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "net.chai", "-i", "images/1.png"]) == 0
    assert not list(folder.glob("*.caffemodel")) and not list(folder.glob("*.toml"))


@pytest.mark.parametrize(
    "options",
    [
        {"effort": "fast"},
        {"effort": "best", "bits": 6},
        {"scheme": "DynamicFixed"},
        {"recipe": Recipe("kl", "mse")},
        {"bits": "mixed", "budget": 0.3},
    ],
)
def test_what_is_written_is_what_was_judged(folder: Path, options: dict[str, Any]) -> None:
    """The same formats, and the same numbers in the emulator as the quantiser judged; weights are the file's."""
    result = quantize("net.onnx", None, [X[:6], X[6:]], "q.formats.json", **options)
    assert (result.prototxt, result.caffemodel) == (Path("net.onnx"), Path("q.formats.json"))
    assert not result.built.recipe.fits and not result.built.recipe.equalise
    built = {layer.origin[0]: layer.precision for layer in result.built.graph.layers if layer.precision is not None}
    with chai.Net("net.onnx", "q.formats.json", keep="all") as net, chai.Net("net.onnx", device="float") as plain:
        assert {name: stored(p) for name, p in precisions(net).items()} == {n: stored(p) for n, p in built.items()}
        (y,), (expected,) = net.forward(input=X).values(), plain.forward(input=X).values()
        assert net.calibrated and net.basis is None
        for name, arrays in plain.params.items():
            assert all(np.array_equal(a, b) for a, b in zip(arrays, net.params[name], strict=True))
    error = float(((y - expected) ** 2).sum() / (expected**2).sum())
    # the cost of outputs that are no probabilities is their error energy by image; by all together it is near
    assert 0.3 < error / result.built.cost < 3


def test_every_field_survives(folder: Path) -> None:
    """Whatever a Precision may say; thresholds are float32."""
    odd = np.float32(0.1)
    full = Precision(
        "Xilinx",
        8,
        6,
        8,
        -3,
        7,
        0,
        float(odd),
        1e-20,
        (float(odd), 123456792.0, 3.0),
        5,
        -4,
        True,
        True,
        "DynamicFixed",
    )
    assert all(getattr(full, field.name) != field.default for field in fields(Precision) if field.name != "quant_type")
    with chai.Net("net.onnx", device="float") as net:
        names = [layer.name for layer in net.graph.layers if layer.blobs][:2]
        formats = {names[0]: full, names[1]: Precision(SINGLE)}
        write(Path("all.formats.json"), ["net.onnx"], formats, 'a "note"', "0")
        apply(Path("all.formats.json"), ["net.onnx"], net.graph)
        back = precisions(net)
    assert {name: stored(precision) for name, precision in back.items()} == {n: stored(p) for n, p in formats.items()}


def test_formats_of_another_model_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quantize("net.onnx", None, [X[:4]], "q.formats.json", effort="fast")
    for command in (["show"], ["run", "-i", "images/0.png"], ["compile", "-o", "x.chai"]):
        assert main([command[0], "other.onnx", "q.formats.json", *command[1:]]) == 65
        error = capsys.readouterr().err
        assert "q.formats.json:4:" in error and "these are the formats of another model" in error
    assert not Path("x.chai").exists()
    with open("net.onnx", "ab") as file:
        file.write(b"\x12\x01a")  # the name of a producer changes no layer, but the file
    with pytest.raises(ParseError, match="the formats of another model"):
        chai.Net("net.onnx", "q.formats.json")


@pytest.mark.parametrize("place", ["initializer", "attribute"])
def test_external_data_belongs_to_the_model(folder: Path, place: str) -> None:
    """A change of it is one of the model; the digest is that of its files, one after the other."""
    first, second = numbers(4, 3, 3, 3), numbers(5, 4, 1, 1)
    Path("b.bin").write_bytes(first.tobytes())
    Path("a.bin").write_bytes(second.tobytes())
    of_first, of_second = outside("w", "b.bin", first.shape), outside("v", "a.bin", second.shape)
    nodes = [node("Conv", ["x", "w"], ["h"]), node("Conv", ["h", "v"], ["y"])]
    more = blob(5, of_first)
    if place == "attribute":
        value = blob(5, blob(1, "value") + blob(5, of_second) + number(20, 4))
        nodes.insert(0, blob(2, "v") + blob(4, "Constant") + value)
    else:
        more += blob(5, of_second)
    Path("split.onnx").write_bytes(model(nodes, {"x": (1, 3, 6, 7)}, ["y"], more=more))
    images = [numbers(3, 3, 6, 7)]
    quantize("split.onnx", None, images, "q.formats.json", effort="fast")
    parts = [Path(name).read_bytes() for name in ("split.onnx", "a.bin", "b.bin")]
    digest = json.loads(Path("q.formats.json").read_text())["model"]["sha256"]
    assert digest == hashlib.sha256(b"".join(parts)).hexdigest()
    with chai.Net("split.onnx", "q.formats.json") as net:
        assert len(precisions(net)) == 2
    for name, data in (("a.bin", parts[1]), ("b.bin", parts[2])):
        Path(name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(ParseError, match=r"q.formats.json:4:.*split.onnx with its external data has SHA-256"):
            chai.Net("split.onnx", "q.formats.json")
        chai.Net("split.onnx", device="float").close()  # the model itself is in order
        Path(name).write_bytes(data)
    chai.Net("split.onnx", "q.formats.json").close()


def test_progress_of_another_model_is_refused(folder: Path) -> None:
    """A journal belongs to the external data, too."""
    weights = numbers(4, 3, 3, 3)
    Path("w.bin").write_bytes(weights.tobytes())
    more = blob(5, outside("w", "w.bin", weights.shape))
    Path("split.onnx").write_bytes(model([node("Conv", ["x", "w"], ["y"])], {"x": (1, 3, 6, 7)}, ["y"], more=more))
    images = [numbers(3, 3, 6, 7)]
    quantize("split.onnx", None, images, "q.formats.json", effort="fast", journal="j")
    Path("w.bin").write_bytes((weights * 0.999).tobytes())
    with pytest.raises(UsageError, match="network prototxt"):
        quantize("split.onnx", None, images, "q.formats.json", effort="fast", journal="j")


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    document = json.loads(Path("q.formats.json").read_text())
    change(document)
    return json.dumps(document, indent=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema="chai.formats/2"), r"3:\d+|2:\d+: schema: expected \"chai.formats/1\""),
        (lambda d: d.pop("model"), 'the key "model" is missing'),
        (lambda d: d["model"].update(sha256="12"), "model.sha256: expected 64 hexadecimal digits"),
        (lambda d: d.update(layer=[]), 'unknown key "layer"'),
        (lambda d: d["layers"][0].update(bw_layer_in=7), r"layers\[0\].bw_layer_in: expected one of 8, 6, found 7"),
        (lambda d: d["layers"][0].update(bw_layer_in=True), r"layers\[0\].bw_layer_in: expected one of 8, 6"),
        (lambda d: d["layers"][1].update(quant_type="xilinx"), r"layers\[1\].quant_type: expected one of"),
        (lambda d: d["layers"][1].update(th_layer_out=-1), r"layers\[1\].th_layer_out: expected 0 to 1e\+30"),
        (lambda d: d["layers"][1].update(th_params=[1, "2"]), r"layers\[1\].th_params\[1\]: expected a number"),
        (lambda d: d["layers"][1].update(fl_layer_in=0.5), r"layers\[1\].fl_layer_in: expected a whole number"),
        (lambda d: d["layers"][0].update(th_layer=1), r'layers\[0\]: unknown key "th_layer"'),
        (lambda d: d["layers"][0].update(name="/conv_99"), "there is no layer '/conv_99' in net.onnx"),
        (lambda d: d["layers"].append(d["layers"][0]), "layer '/conv_1' is here twice"),
    ],
)
def test_damaged_files_are_refused_with_their_place(folder: Path, change: Any, message: str) -> None:
    quantize("net.onnx", None, [X[:4]], "q.formats.json", recipe=Recipe("max", "max"))
    Path("bad.formats.json").write_text(changed(change))
    with pytest.raises(ParseError, match=message) as caught:
        chai.Net("net.onnx", "bad.formats.json")
    assert caught.value.line and caught.value.column and str(caught.value).startswith("bad.formats.json:")


def test_what_is_no_formats_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.caffemodel").write_bytes(b"\x0a\x03net")
    Path("cut.formats.json").write_text('{"schema": "chai.formats/1",')
    Path("large.formats.json").write_text('{"schema": "' + "x" * (5 << 20) + '"}')
    for formats, message in (
        ("net.caffemodel", "which has its weights"),
        ("none.formats.json", "there is no file 'none.formats.json'"),
        ("images", "is a folder, expected a .formats.json"),
        ("cut.formats.json", "cut.formats.json:1:"),
        ("large.formats.json", "larger than 4,194,304 bytes"),
    ):
        assert main(["show", "net.onnx", formats]) != 0
        assert message in capsys.readouterr().err
    with pytest.raises(UsageError, match="have its weights"):
        chai.Net(resnet18(), "q.formats.json")  # bytes have no formats


def test_what_quantize_refuses(folder: Path) -> None:
    for output, options, message in (
        ("q.prototxt", {}, "the output for an ONNX file is a .formats.json"),
        ("q.json", {}, "the output for an ONNX file is a .formats.json"),
        ("q.formats.json", {"recipe": Recipe(bias="tuned")}, "the weights of an ONNX file are kept"),
        ("q.formats.json", {"recipe": Recipe(equalise=0.5)}, "the weights of an ONNX file are kept"),
        ("q.formats.json", {"chaidnn": True}, "CHaiDNN reads no ONNX files"),
    ):
        with pytest.raises(UsageError, match=message):
            quantize("net.onnx", None, [X[:4]], output, **options)
    assert not list(folder.glob("q*"))
