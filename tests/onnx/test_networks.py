"""Whole networks as exporters write them: onnxruntime's numbers, any batch, few segments, and every command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chai
from chai.cli import main
from chai.errors import ChaiError

from .networks import NETWORKS, Writer, mobilenet_v2, resnet18

X = np.random.default_rng(0).normal(0, 1, (3, 3, 32, 32)).astype(np.float32)


@pytest.mark.extras
@pytest.mark.parametrize("name", NETWORKS)
def test_numbers_of_onnxruntime(name: str) -> None:
    """For one image as the file has it, and for three, which onnxruntime computes one by one."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    file = NETWORKS[name]()
    session = onnxruntime.InferenceSession(file)
    expected = np.concatenate([session.run(None, {"input": x[None]})[0] for x in X])
    with chai.Net(file, device="float") as net:
        for y in (net.forward(input=X), net.forward(input=X[:1])):
            (value,) = y.values()
            np.testing.assert_allclose(value, expected[: len(value)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_float_and_fixed_point_agree(name: str) -> None:
    file = NETWORKS[name]()
    with chai.Net(file, device="float") as net, chai.Net(file, device="emulator", calibrate=X) as fixed:
        (expected,), (y,) = net.forward(input=X).values(), fixed.forward(input=X).values()
    assert np.abs(y - expected).mean() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_one_segment(name: str) -> None:
    """All of the convolutions, sums and pools run on the overlay without a way back to the host."""
    with chai.Net(NETWORKS[name](), device="emulator", overlay="pynq-z2", calibrate=X) as net:
        net.forward(input=X)
        assert len(net.schedule.segments) == 1
        origins = {name for segment in net.schedule.segments for task in segment.tasks for name in task.origin}
        assert origins >= {
            layer.name for layer in net.graph.layers if layer.type in ("Convolution", "Pooling", "Eltwise")
        }


def test_a_swish_is_one_layer() -> None:
    with chai.Net(NETWORKS["yolo_like"](), device="float") as net:
        types = [layer.type for layer in net.graph.layers]
    assert types.count("Swish") == 4 and types.count("Sigmoid") == 1


# -- commands


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.onnx").write_bytes(resnet18())
    (tmp_path / "images").mkdir()
    for i in range(4):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "show net.onnx",
        "show net.onnx --overlay pynq-z2",
        "show net.onnx --html net.html",
        "run net.onnx -i images/0.png",
        "run net.onnx -i images --device float --batch 2",
        "check net.onnx -i images --calibration images --agreement 0",
        "compile net.onnx -o net.chai --calibration images",
        "run net.chai -i images/1.png",
    ):
        assert main(line.split()) == 0, capsys.readouterr().err
    assert "resnet" not in capsys.readouterr().err


def test_bench(folder: Path) -> None:
    """In a process of its own, as it sets the number of threads before numpy is loaded."""
    command = [sys.executable, "-m", "chai", "bench", "net.onnx", "--rounds", "1", "--device", "float", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["random_weights"] is False
    assert "no peer" in done.stderr


def test_a_compiled_network_has_the_same_numbers(folder: Path) -> None:
    assert main(["compile", "net.onnx", "-o", "net.chai", "--calibration", "images", "-q"]) == 0
    x = np.load(folder / "x.npy") if (folder / "x.npy").exists() else X[:1]
    with chai.Net("net.chai") as compiled:
        (y,) = compiled.forward(input=x).values()
    assert y.shape == (1, 10)


def test_evaluate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "truth.txt").write_text("".join(f"{i}.png {i}\n" for i in range(4)))
    options = ["--images", "images", "--truth", "truth.txt", "--calibration", "images", "--jobs", "1", "--json"]
    assert main(["evaluate", "net.onnx", *options]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 4


def test_evaluate_a_compiled_one_beside_its_own_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which is named twice, as docs/evaluate.md says: as network and as weights."""
    assert main(["compile", "net.onnx", "-o", "net.chai", "--calibration", "images", "-q"]) == 0
    # as the .chai was compiled for: numpy's products, without kernels, round otherwise in another batch
    options = ["--images", "images", "--batch", "1", "--jobs", "1", "--json", "-q"]
    devices = []
    for files in (["net.chai", "--reference", "net.onnx", "net.onnx"], ["net.onnx", "--calibration", "images"]):
        capsys.readouterr()
        assert main(["evaluate", *files, *options]) == 0
        devices.append(json.loads(capsys.readouterr().out)["devices"])
    assert devices[0] == devices[1]
    assert main(["evaluate", "--help"]) == 0
    assert "an ONNX file twice" in " ".join(capsys.readouterr().out.split())


def test_photos_get_a_hint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its numbers are not applied; with a card next to the file nothing is said."""
    assert main(["run", "net.onnx", "-i", "images/0.png"]) == 0
    assert "torchvision" in capsys.readouterr().err
    (folder / "net.toml").write_text(
        '[preprocess]\nchannels = "RGB"\nmean = [123.675, 116.28, 103.53]\nscale = 0.0171\n'
    )
    assert main(["run", "net.onnx", "-i", "images/0.png"]) == 0
    assert "torchvision" not in capsys.readouterr().err


def test_sizes_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from .common import model

    w = Writer()
    y = w.add("GlobalAveragePool", w.conv("input", 3, 4, 3))
    (folder / "open.onnx").write_bytes(model(w.nodes, {"input": ("n", 3, "h", "w")}, [y], w.tensors))
    assert main(["show", "open.onnx"]) == 65
    assert "--shape input=1x3x640x640" in capsys.readouterr().err
    assert main(["show", "open.onnx", "--shape", "input=1x3x20x24"]) == 0
    assert "1x4x20x24" in capsys.readouterr().out
    assert main(["run", "open.onnx", "-i", "images/0.png", "--shape", "input=1x3x20x24"]) == 0


def test_what_commands_refuse(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "net.onnx", "net.caffemodel", "-i", "images/0.png"]) != 0
    (folder / "torch.pt").write_bytes(b"PK\x03\x04" + bytes(30) + b"archive/data.pkl" + bytes(600))
    assert main(["run", "torch.pt", "-i", "images/0.png", "--random-weights"]) != 0
    assert "export it as ONNX" in capsys.readouterr().err


def test_the_reader_is_not_loaded_for_a_network_of_caffe(folder: Path) -> None:
    code = (
        "import sys, chai; net = chai.Net('lenet', device='float')\n"
        "print([name for name in sys.modules if name.startswith('chai.onnx')])\n"
        "chai.Net('net.onnx', device='float').forward\n"
        "print('chai.onnx.convert' in sys.modules, 'google' in sys.modules, 'onnx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True False False"]


def test_showing_takes_no_numpy(folder: Path) -> None:
    """Nor has the file's text: both doors open equally fast."""
    code = "import sys; from chai.cli import main; main(['show', 'net.onnx', '-q']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_part_of_a_network() -> None:
    with chai.Net(mobilenet_v2(), device="float") as net:
        name = next(layer.name for layer in net.graph.layers if layer.type == "Eltwise")
    with chai.Net(mobilenet_v2(), device="float", end_layer=name) as net:
        assert net.graph.layers[-1].name == name
    with pytest.raises(ChaiError, match="there is no layer 'none'"):
        chai.Net(mobilenet_v2(), device="float", end_layer="none")
