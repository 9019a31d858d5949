"""What each command prints for real work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from PIL import Image

import chai
from chai import overlay
from chai.cli import main
from chai.util.paths import resource
from tests.cli.conforms import checked
from tests.conftest import need_models

DIGITS = resource("prototxt", "digits_images")
NUMBER = {"type": "number"}
TOP = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["index", "label", "score"],
        "properties": {"index": {"type": "integer"}, "score": NUMBER},
    },
}
SCHEMAS = {
    "run": {"required": ["schema", "network", "device", "preprocess", "ms_per_image", "images", "perf"]},
    "show": {"required": ["schema", "network", "file", "inputs", "outputs", "layers"]},
    "layers": {"required": ["schema", "layers"]},
    "devices": {"required": ["schema", "devices", "custom_layers"]},
    "demo": {"required": ["schema", "right", "total", "ms", "images", "picture"]},
}


def as_json(done, command: str) -> dict:  # type: ignore[no-untyped-def, type-arg]
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    jsonschema.validate(content, {"type": "object", **SCHEMAS[command]})
    assert content["schema"].startswith(f"chai.{command}/")
    checked(content, content["schema"])
    return content


def test_demo(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("demo")
    assert done.returncode == 0, done.stderr
    assert "Custom Layer - 1 : classifier" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: ")
    with Image.open(tmp_path / "chai-demo.png") as picture:
        assert picture.size[0] > 500
    content = as_json(chai_command("demo", "--json", "-o", "p.png"), "demo")
    assert content["total"] == 360
    assert content["right"] >= 0.98 * 360
    assert (tmp_path / "p.png").exists()


def test_the_demo_feeds_no_more_images_at_once_than_an_accelerator_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The emulator takes any number: it is rtlsim and boards that refuse more."""
    batches: list[int] = []
    forward = chai.Net.forward

    def counted(net: chai.Net, *data: Any, **inputs: Any) -> Any:
        batches.append(len(*data, *inputs.values()))
        return forward(net, *data, **inputs)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chai.Net, "forward", counted)
    assert main(["demo", "-q"]) == 0
    assert 0 < max(batches) <= overlay.load("pynq-z2").batch_max
    assert "360/360" in capsys.readouterr().out


def test_run_on_one_image(chai_command) -> None:  # type: ignore[no-untyped-def]
    file = sorted(DIGITS.glob("*_7.png"))[0]
    done = chai_command("run", "digits", "-i", file, "--top", "2", "--perf")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "digits   input data 1x8x8   8x8 gray, scale 0.00392157"
    assert lines[1] == str(file)
    assert lines[2].split()[1:] == ["7", "7"]
    assert "classifier" in done.stdout
    assert "images/second" in done.stdout
    assert "[INFOx] Total Number of Custom layers : 1" in done.stderr


def test_run_a_folder_in_batches_gives_what_single_images_give(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    batches = as_json(chai_command("run", "digits", "-i", DIGITS, "--batch", "7", "--json", "-o", "out.npz"), "run")
    single = as_json(chai_command("run", "digits", "-i", DIGITS, "--json"), "run")
    assert [r["file"] for r in batches["images"]] == [r["file"] for r in single["images"]]
    assert len(batches["images"]) == 360
    for a, b in zip(batches["images"], single["images"]):
        jsonschema.validate(a["outputs"]["prob"]["top"], TOP)
        assert a["outputs"]["prob"]["top"][0]["index"] == b["outputs"]["prob"]["top"][0]["index"]
    kept = np.load(tmp_path / "out.npz")["prob"]
    assert kept.shape == (360, 10)
    assert kept[4].max() == pytest.approx(batches["images"][4]["outputs"]["prob"]["top"][0]["score"])


def test_flags_override_the_networks_own_preprocessing(chai_command) -> None:  # type: ignore[no-untyped-def]
    file = sorted(DIGITS.glob("*.png"))[0]
    plain = as_json(chai_command("run", "digits", "-i", file, "--json"), "run")
    other = as_json(
        chai_command("run", "digits", "-i", file, "--json", "--scale", "1", "--raw-scale", "1", "--mean", "0.5"), "run"
    )
    assert other["preprocess"] == "8x8 gray, mean 0.5, raw_scale 1"
    assert plain["images"] != other["images"]
    below = as_json(chai_command("run", "digits", "-i", file, "--json", "--scale", "-1e-3", "--mean", "-1,"), "run")
    assert below["preprocess"] == "8x8 gray, mean -1, scale -0.001"


def test_run_says_when_no_preprocessing_was_given(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "own.prototxt").write_text(resource("prototxt", "digits.prototxt").read_text())
    weights = resource("prototxt", "digits.caffemodel")
    noise = np.random.default_rng(0).integers(0, 255, (20, 30), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    done = chai_command("run", "own.prototxt", weights, "-i", "noise.png", "--scale", "0.00392156862745098")
    assert "hint" not in done.stderr
    done = chai_command("run", "own.prototxt", weights, "-i", "noise.png")
    assert "no preprocessing was given" in done.stdout
    done = chai_command("run", "lenet", "--random-weights", "-i", "noise.png")
    assert done.returncode == 0
    assert "random weights" in done.stderr


def test_run_takes_npy(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8), np.float32))
    assert as_json(chai_command("run", "digits", "-i", "x.npy", "--json"), "run")["images"][0]["file"] == "x.npy"
    np.save(tmp_path / "x.npy", np.zeros((1, 9, 8), np.float32))
    done = chai_command("run", "digits", "-i", "x.npy")
    assert done.returncode == 65
    assert "layer 'classifier' (custom type 'gemm') failed" in done.stderr


def test_an_image_that_cannot_be_read_is_left_out(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    good = sorted(DIGITS.glob("*.png"))[:2]
    (tmp_path / "bad.png").write_bytes(good[0].read_bytes()[:40])
    done = chai_command("run", "digits", "-i", good[0], "bad.png", good[1], "--batch", "2", "--json")
    assert done.returncode == 65
    content = json.loads(done.stdout)
    assert [r["file"] for r in content["images"]] == [str(g) for g in good]
    assert [f["file"] for f in content["failed"]] == ["bad.png"]
    assert "bad.png: this is no readable image" in done.stderr


def test_show(chai_command) -> None:  # type: ignore[no-untyped-def]
    content = as_json(chai_command("show", "googlenet_gemm", "--json"), "show")
    layers = {layer["name"]: layer for layer in content["layers"]}
    assert layers["loss3/classifier"]["engine"] == "custom"
    assert layers["conv1/7x7_s2"]["shapes"] == [[1, 64, 112, 112]]
    assert layers["conv1/relu_7x7"]["bottoms"] == layers["conv1/relu_7x7"]["tops"] == ["conv1/7x7_s2"]
    dot = chai_command("show", "lenet", "--dot").stdout
    assert dot.startswith("digraph {")
    assert dot.count("->") == 8
    done = chai_command("show", "lenet", resource("prototxt", "digits.caffemodel"))
    assert done.returncode == 65
    assert "layer 'conv1' (Convolution) has no weights" in done.stderr
    assert "conv1/3x3" in done.stderr


# reference/overlay.md's anchors, conv + FC
@pytest.mark.parametrize(
    ("name", "macs"),
    [("googlenet", 1_582_671_872), ("alexnet", 724_406_816), ("squeezenet_v1.1", 387_747_520), ("lenet", 2_293_000)],
)
def test_macs_of_the_shipped_networks(chai_command, name: str, macs: int) -> None:  # type: ignore[no-untyped-def]
    content = as_json(chai_command("show", name, "--json"), "show")
    assert sum(layer["macs"] for layer in content["layers"]) == macs


def test_layers_and_devices(chai_command) -> None:  # type: ignore[no-untyped-def]
    kinds = {layer["type"]: layer["kind"] for layer in as_json(chai_command("layers", "--json"), "layers")["layers"]}
    assert kinds["Convolution"] == "caffe"
    assert kinds["DepthwiseConvolution"].startswith("fork: ")
    assert kinds["gemm"] == "custom"
    assert (kinds["SoftmaxWithLoss"], kinds["HDF5Output"]) == ("loss or measure", "training only")
    devices = as_json(chai_command("devices", "--json"), "devices")["devices"]
    usable = [d["device"] for d in devices if d["usable"]]
    assert [name for name in usable if name != "rtlsim"] == ["emulator", "float", "null", "vtasim"]  # it needs an extra


def test_devices_say_which_clocks_are_assumed_and_which_overlays_have_none(chai_command) -> None:  # type: ignore[no-untyped-def]
    rows = {" ".join(line.split()) for line in chai_command("devices").stdout.splitlines()}
    assert "overlay part per cycle clock boards" in rows
    assert "kv260 XCK26 2048 MAC 250 MHz, assumed KV260" in rows
    assert "vta-z7020 XC7Z020 256 MAC 100 MHz PYNQ-Z1, PYNQ-Z2, ZedBoard" in rows  # VTA's authors built it for that
    assert "chaidnn-zcu102 - - - none: it exists on the emulator alone" in rows


@pytest.mark.parametrize(
    "command",
    [
        ["check", "net.chai", "-i", "."],
        ["quantize", "net.chai", "--calibration", ".", "-o", "x.prototxt"],
        ["compile", "net.chai", "-o", "x.chai"],
        ["check", "net.chai", "--custom", "gemm"],
    ],
)
def test_a_compiled_network_is_no_prototxt(chai_command, command: list[str]) -> None:  # type: ignore[no-untyped-def]
    done = chai_command(*command)
    assert done.returncode == 2 and "net.chai is compiled, expected a prototxt" in done.stderr, done.stderr
    assert "hint: name what it was compiled from; run, show, bench and evaluate take it" in done.stderr


@pytest.mark.parametrize("net", ["googlenet", "googlenet_gemm"])
def test_googlenet_names_the_camel_and_the_goldfish(chai_command, net: str) -> None:  # type: ignore[no-untyped-def]
    folder = need_models() / "googlenet"
    files = [folder / "images" / "camel.jpg", folder / "images" / "goldfish.JPEG"]
    labels = need_models() / "synset_words.txt"
    done = chai_command("run", net, folder / "weights.caffemodel", "-i", *files, "--labels", labels, "--json", "--perf")
    content = as_json(done, "run")
    best = [r["outputs"]["prob"]["top"][0] for r in content["images"]]
    assert [b["index"] for b in best] == [354, 1]
    assert best[0]["label"].startswith("Arabian camel")
    assert best[1]["label"].startswith("goldfish")
    assert all(b["score"] > 0.99 for b in best)
    custom = [s["name"] for s in content["perf"]["steps"] if s["engine"] == "custom"]
    assert custom == (["loss3/classifier"] if net == "googlenet_gemm" else [])


def test_run_prints_boxes(chai_command) -> None:  # type: ignore[no-untyped-def]
    folder = need_models() / "yuface_v1_ssd"
    args = ["run", folder / "deploy.prototxt", folder / "weights.caffemodel", "-i", folder / "images" / "ulf_1.jpg"]
    content = as_json(chai_command(*args, "--mean", "103.94,116.78,123.68", "--json"), "run")
    boxes = content["images"][0]["outputs"]["detection_out"]["boxes"]
    known = json.loads((folder / "meta.json").read_text())["cases"]["ulf_1"]["detections_conf>0.5"]
    assert sum(box["score"] > 0.5 for box in boxes) == len(known)  # all of them: --top was not typed
    assert boxes[0]["index"] == 0
    with Image.open(folder / "images" / "ulf_1.jpg") as image:
        assert np.allclose(np.array(boxes[0]["pixels"]) / np.tile(image.size, 2), known[0][3:], atol=0.01)


def test_preprocessing_from_a_training_nets_transform_param(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "train.prototxt").write_text(
        'layer { name: "data" type: "ImageData" top: "data" top: "label"\n'
        "  image_data_param { new_height: 9 new_width: 9 is_color: true }\n"
        "  transform_param { mean_value: 10 mean_value: 20 mean_value: 30\n"
        '    scale: 0.5 crop_size: 7 mean_file: "m.binaryproto" } }\n'
        'layer { name: "relu" type: "ReLU" bottom: "data" top: "out" }\n'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "out" bottom: "label" top: "loss" }\n'
    )
    Image.fromarray(np.full((7, 7, 3), [200, 100, 50], np.uint8)).save(tmp_path / "x.png")
    done = chai_command("run", "train.prototxt", "--random-weights", "-i", "x.png", "--json", "-o", "out.npz")
    content = as_json(done, "run")
    assert content["preprocess"] == "7x7 BGR, mean 10 20 30, scale 0.5"
    assert "m.binaryproto" in done.stderr  # named in the file, so not opened, but said
    out = np.load(tmp_path / "out.npz")["out"]
    assert np.allclose(out[0, :, 3, 3], [(50 - 10) / 2, (100 - 20) / 2, (200 - 30) / 2])


def test_show_for_an_overlay(chai_command) -> None:  # type: ignore[no-untyped-def]
    content = as_json(chai_command("show", "googlenet_gemm", "--overlay", "ultra96", "--json"), "show")
    layers = {layer["name"]: layer for layer in content["layers"]}
    assert layers["conv1/7x7_s2"]["engine"] == layers["conv1/relu_7x7"]["engine"] == "fpga"
    assert layers["conv1/7x7_s2"]["cycles"] > 0
    assert layers["pool1/norm1"]["engine"] == "fpga"
    assert layers["prob"]["reason"] == "no Softmax unit"
    assert (layers["loss3/classifier"]["engine"], layers["loss3/classifier"]["reason"]) == ("custom", "a custom layer")
    assert layers["pool5/drop_7x7_s1"]["engine"] == "-"
    assert content["conversions"][0] == "Pack data"
    assert content["modelled_fps"] > 50
    convolutions = [v for v in layers.values() if v["type"] == "Convolution" and v["engine"] == "fpga"]
    weights = sum(v["macs"] // (v["shapes"][0][2] * v["shapes"][0][3]) for v in convolutions)
    assert weights < content["constant_bytes"] < 1.2 * weights  # a byte each, and tables and descriptors
    assert 0 < content["activation_bytes"]["peak"] < content["activation_bytes"]["total"]
    assert layers["conv1/7x7_s2"]["format"] == layers["conv1/relu_7x7"]["format"] == "at first batch"
    assert layers["data"]["format"] == "at first batch"
    assert layers["prob"]["format"] == layers["loss3/classifier"]["format"] == "float32"
    assert layers["pool5/drop_7x7_s1"]["format"] == "-"
    assert all(layers[second]["cycles"] == 0 < layers[first]["cycles"] for first, second in content["merged"])
    assert content["merged"]
    text = chai_command("show", "digits", "--overlay", "pynq-z2", "--engine", "conv1/3x3=host").stdout
    table = [line.split() for line in text.splitlines()]
    assert table[0][-4:] == ["cycles", "engine", "format", "reason"]
    assert next(row for row in table if row[0] == "conv1/3x3")[-6:] == [
        "host",
        "float32",
        "chosen",
        "by",
        "the",
        "user",
    ]
    assert next(row for row in table if row[0] == "inception_b/3x3")[-4:] == ["fpga", "at", "first", "batch"]
    assert "formats  8-bit Xilinx, at first batch" in text
    assert "merge    1: inception_a/3x3_reduce + inception_a/5x5_reduce\n" in text
    assert "why host chosen by the user: conv1/3x3" in text
    assert "assumed 100 MHz" in text
    done = chai_command("show", "digits", "--overlay", "pynq-z3")
    assert done.returncode == 69
    assert "pynq-z2" in done.stderr


def test_show_lists_the_formats_a_network_brings(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    common = "convolution_param { num_output: 4 kernel_size: 1 } precision_param { bw_layer_in: 8 bw_layer_out: 8 bw_params: 8"
    path = tmp_path / "net.prototxt"
    path.write_text(f"""
        layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 3 dim: 5 dim: 7 }} }} }}
        layer {{ name: "a" type: "Convolution" bottom: "data" top: "a"
                 {common} quant_type: "Xilinx" th_layer_in: 2 th_layer_out: 3.5 }} }}
        layer {{ name: "r" type: "ReLU" bottom: "a" top: "a" }}
        layer {{ name: "b" type: "Convolution" bottom: "a" top: "b" {common} fl_layer_in: 4 fl_layer_out: 5 }} }}
        layer {{ name: "t" type: "TanH" bottom: "b" top: "t" }}
        """)
    rows = as_json(chai_command("show", str(path), "--overlay", "pynq-z2", "--json"), "show")["layers"]
    first = "Xilinx(8, th 3.5)"
    assert [row["format"] for row in rows] == ["Xilinx(8, th 2)", first, first, "DynamicFixed(8, fl 5)", "float32"]
    assert [row["layer_in"] for row in rows] == [None, None, None, "DynamicFixed(8, fl 4)", None]
    text = chai_command("show", str(path), "--overlay", "pynq-z2").stdout
    assert "fpga    DynamicFixed(8, fl 5)\n" in text
    assert "formats  of its precision_param\n" in text
    assert "in the format they are written in, not in their layer_in: b\n" in text


def test_run_on_the_emulator(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    options = (
        "--device",
        "emulator",
        "--calibration",
        DIGITS,
        "--engine",
        "inception_b/output=host",
        "--trace",
        "t.json",
    )
    content = as_json(chai_command("run", "digits", "-i", DIGITS, "--batch", "90", "--json", "--perf", *options), "run")
    truth = [int(Path(r["file"]).stem[-1]) for r in content["images"]]
    said = [r["outputs"]["prob"]["top"][0]["index"] for r in content["images"]]
    assert sum(a == b for a, b in zip(truth, said)) >= 0.98 * len(truth)
    steps = {s["name"]: s["engine"] for s in content["perf"]["steps"]}
    assert steps["inception_b/output"] == "host"
    assert steps["inception_a/3x3"] == "fpga"
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {"host", "fpga", "custom"} <= {
        e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"
    }
    done = chai_command("run", "digits", "-i", DIGITS, "--device", "emulator", "--engine", "prob=fpga")
    assert done.returncode == 2
    assert "layer 'prob' cannot run on the overlay: no Softmax unit" in done.stderr


def test_show_says_which_implementation_runs_and_why(chai_command) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("show", "googlenet_gemm")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "runs as" in line]
    assert line.strip() == "runs as blas (priority 10; others: ref)"
    content = as_json(chai_command("show", "digits", "--json"), "show")
    chosen = {layer["name"]: layer["implementation"] for layer in content["layers"] if layer["engine"] == "custom"}
    assert chosen == {"classifier": line.strip().removeprefix("runs as ")}


def test_layers_show_the_versions_of_custom_types(chai_command: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import chai\n@chai.custom('Mine', version='1.4')\ndef mine(x): ...\n")
    text = chai_command("layers", "--custom", "mine.py")
    assert "mine.py:2 (version 1.4)" in " ".join(text.stdout.split())
    (row,) = [
        r
        for r in json.loads(chai_command("layers", "--custom", "mine.py", "--json").stdout)["layers"]
        if r["type"] == "Mine"
    ]
    assert row["summary"].endswith("mine.py:2 (version 1.4)")


def test_labels_that_do_not_fit_the_classes_are_named(chai_command: Any, tmp_path: Path) -> None:
    image = np.zeros((1, 1, 28, 28), np.float32)
    shape = chai.Net("digits").shapes["data"]
    np.save(tmp_path / "image.npy", np.zeros(shape, np.float32) if shape != image.shape else image)
    for lines, words in (
        (["zero"], "has 1 label, prob has 10 classes: classes without a label are shown by number"),
        ([*"0123456789x"], "has 11 labels, prob has 10 classes: they may belong to other classes"),
        ([*"0123456789"], None),
        ([*"0123456789", "", ""], None),
    ):
        (tmp_path / "labels.txt").write_text("\n".join(lines) + "\n")
        done = chai_command("run", "digits", "-i", "image.npy", "--labels", "labels.txt")
        assert done.returncode == 0
        assert (
            (f"warning: labels.txt {words}" in " ".join(done.stderr.split())) if words else "labels" not in done.stderr
        )
