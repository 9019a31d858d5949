"""chai quantize and XportDNN's arguments, as users run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chai
from chai.cli import main
from chai.env import env
from chai.images.files import read
from chai.images.preprocess import Preprocess
from chai.images.resized import views
from chai.parser.caffemodel import write_caffemodel
from chai.quantizer import quantize
from chai.tasks.precision import Precision
from chai.util.paths import resource
from chai.xportdnn.__main__ import main as xportdnn
from chai.zoo.locate import read_graph
from tests.cli.conforms import checked
from tests.cli.conftest import InProcess
from tests.conftest import HANG
from tests.evaluate.test_compare import Page

DIGITS = resource("prototxt", "digits_images")


def test_the_digits(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command(
        "quantize", "digits", "--calibration", DIGITS, "--limit", "24", "-o", "q.prototxt", "--html", "q.html",
        LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "digits   input data 1x8x8   8x8 gray, scale 0.00392157"
    assert re.match(r"layer +engine +format +chosen by +SQNR +sat % +cost alone", lines[1])
    assert re.match(r"conv1/3x3 +fpga +Xilinx\(u8, th [\d.]+\) +[\w ]+ +\d\d\.\d +\d\.\d\d +\S+$", lines[3])
    text = " ".join(done.stdout.split())
    assert re.search(r"chosen: activations \w+, weights \w+", text)
    assert re.search(r"cost \S+ on 24 calibration images, \S+ with plain maxima", text)
    assert "prob: top-1 agreement 24/24 (100.0 %)" in text and "cost most: " in text
    assert done.stderr.splitlines()[-4:-2] == ["wrote q.html", "wrote q.prototxt and q.caffemodel"]
    assert re.match(r"a CHaiDNN board cannot read it: unsigned codes of \d+ blobs", done.stderr.splitlines()[-2])
    assert done.stderr.splitlines()[-1].startswith("next: chai check q.prototxt q.caffemodel")
    page = Page((tmp_path / "q.html").read_text())
    content = checked(json.loads(page.data), "chai.quantize/2")
    assert (content["bits"], content["below_bound"], content["failed"]) == (8, [], [])
    assert (tmp_path / "q.toml").read_bytes() == resource("prototxt", "digits.toml").read_bytes()  # the preprocessing
    again = chai_command("check", "q.prototxt", "q.caffemodel", "-i", DIGITS, "--limit", "12", "--json")
    assert again.returncode == 0 and "was quantised for other weights" not in again.stderr
    assert json.loads(again.stdout)["formats"] == "precision_param"


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--chaidnn"], "can read it and holds its numbers, which it rounds otherwise: --overlay chaidnn-zcu102"),
        (["--overlay", "chaidnn-zcu102"], "gives the codes that were judged here"),
        (["--overlay", "chaidnn-diet"], "gives the codes that were judged here"),
        (["--overlay", "vta-z7020"], "can read it and holds its numbers, which it rounds otherwise"),
        ([], "cannot read it: "),
    ],
)
def test_what_a_chaidnn_board_makes_of_it(chai_command, tmp_path: Path, options: list[str], answer: str) -> None:  # type: ignore[no-untyped-def]
    done = chai_command(
        "quantize", "digits", "--calibration", DIGITS, "--limit", "8", "--effort", "fast", "-o", "q.prototxt", *options
    )
    assert done.returncode == 0, done.stderr
    assert f"a CHaiDNN board {answer}" in done.stderr
    images = ["-i", DIGITS, "--limit", "8", "--json", "--overlay", "chaidnn-zcu102"]
    judged = json.loads(chai_command("check", "q.prototxt", "q.caffemodel", *images).stdout)
    assert judged["formats"] == "precision_param"


def test_json_and_the_same_again(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    options = ["--calibration", DIGITS, "--limit", "16", "--bits", "6", "--scheme", "DynamicFixed", "--json", "-q"]
    first = chai_command("quantize", "digits", *options, "-o", "a.prototxt", "--layer-bits", "inception_a/3x3=8")
    second = chai_command("quantize", "digits", *options, "-o", "b.prototxt", "--layer-bits", "inception_a/3x3=8")
    assert first.returncode == second.returncode == 0, first.stderr
    content = json.loads(first.stdout)
    assert (content["schema"], content["bits"], content["scheme"]) == ("chai.quantize/2", 6, "DynamicFixed")
    assert content["calibrated"] == content["judged"] == 16
    chosen = next(t for t in content["tried"] if t["recipe"] == content["recipe"])
    assert content["cost"] == chosen["cost"] < content["cost_of_plain_maxima"]
    assert content["cost_alone"].keys() >= {"conv1/3x3", "inception_a/3x3"}
    assert (tmp_path / "a.caffemodel").read_bytes() == (tmp_path / "b.caffemodel").read_bytes()
    texts = [(tmp_path / f"{name}.prototxt").read_text().split("\n", 1) for name in "ab"]
    assert texts[0][1] == texts[1][1] and texts[0][0].replace(" a.", " b.") == texts[1][0]
    net = chai.Net(tmp_path / "a.prototxt", tmp_path / "a.caffemodel", device="float")
    bits = {x.name: x.precision.bw_params for x in net.graph.layers if x.precision is not None}
    assert (bits["conv1/3x3"], bits["inception_a/3x3"], bits["inception_b/3x3"]) == (8, 8, 6)


def test_an_image_that_cannot_be_read_is_left_out(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "bad.png").write_bytes(b"no image")
    one = min(DIGITS.glob("*.png"))
    done = chai_command("quantize", "digits", "--calibration", "bad.png", one, "-o", "q.prototxt", "--effort", "fast")
    assert done.returncode == 65 and "this is no readable image" in done.stderr
    assert (tmp_path / "q.caffemodel").exists()
    none = chai_command("quantize", "digits", "--calibration", "bad.png", "-o", "r.prototxt")
    assert none.returncode == 65 and "none of the images can be read" in none.stderr
    assert not (tmp_path / "r.prototxt").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--layer-bits", "conv1=7"], "--layer-bits conv1=7: expected LAYER=8 or LAYER=6"),
        (["--layer-bits", "nothing=6"], "there is no convolution or InnerProduct 'nothing' on the overlay whose width"),
        (["--limit", "0"], "argument --limit: '0': expected a number of at least 1"),
        (["--restart"], "--restart does nothing without a journal"),
        (["-o", "q.txt"], "the output is a .prototxt"),
    ],
)
def test_refusals(chai_command, args: list[str], words: str) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("quantize", "digits", "--calibration", DIGITS, "-o", "q.prototxt", *args)
    assert done.returncode == 2 and words in done.stderr


def test_6_bits_are_said_to_be_no_faster(
    in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "quantize",
        "digits",
        "--calibration",
        DIGITS,
        "--limit",
        8,
        "--effort",
        "fast",
        "-o",
        tmp_path / "q.prototxt",
    ]
    said = []
    for bits in ("6", "8,6,8", "8,8,8"):
        assert in_process(*command, "--bits", bits) == 0
        said.append(capsys.readouterr().err.count("6-bit codes take as many cycles and bytes as 8-bit ones"))
    assert said == [1, 1, 0]


@pytest.mark.parametrize("overlay", ["pynq-z2", "zcu102"])
def test_and_so_it_is(overlay: str) -> None:
    """By the cycle model, Task by Task."""
    data = np.random.default_rng(4).random((1, 1, 8, 8), np.float32)
    costs = []
    for bits in (8, 6):
        with chai.Net("digits", device="emulator", overlay=overlay, bits=bits, calibrate=data) as net:
            tasks = [task for step in net.schedule.steps for task in getattr(step, "tasks", ())]
            assert net.overlay is not None and {f.bits for f in net.formats.values()} == {bits}
            assert net.offload is not None
            shapes = net.offload.shapes
            costs.append(
                [(task.origin, task.cycles(net.overlay, shapes), task.cycles(net.overlay, shapes)) for task in tasks]
            )
    assert costs[0] == costs[1] and costs[0]


def test_mixed_widths(in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "quantize",
        "digits",
        "--calibration",
        DIGITS,
        "--limit",
        24,
        "--effort",
        "fast",
        "-o",
        tmp_path / "q.prototxt",
    ]
    assert in_process(*command, "--bits", "mixed", "--budget", "25%", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["bits"], content["budget"]) == ("mixed", 0.25)
    assert 0 < sum(content["widened"].values()) <= 0.25
    widths = {name: p.bw_params for name, p in precisions(tmp_path / "q.prototxt").items() if p.bw_params}
    assert {name for name, width in widths.items() if width == 8} == {*content["widened"], "conv1/3x3"}
    assert 6 in widths.values()
    assert (tmp_path / "q.toml").read_bytes() == resource("prototxt", "digits.toml").read_bytes()
    assert in_process(*command, "--bits", "mixed", "--budget", "0") == 0
    assert "8 bits in no layer (0.0 % of the multiply-accumulates)" in " ".join(capsys.readouterr().out.split())
    assert in_process(*command, "--budget", "5") == 2
    assert "--budget does nothing without --bits mixed" in capsys.readouterr().err
    assert in_process(*command, "--bits", "mixed", "--budget", "200") == 2
    assert "'200': expected a percentage, 0 to 100" in capsys.readouterr().err


def test_images_that_look_resized(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranges are chosen on two views of each; costs are those of the images as they are."""
    for i in range(4):
        side = (128, 120) if i < 3 else (140, 140)
        Image.fromarray(np.random.default_rng(i).integers(0, 255, (*side, 3), np.uint8)).save(f"photos/{i}.png")
    Path("photos/4.png").write_bytes(b"none")
    command = "quantize net.prototxt net.caffemodel --calibration photos --limit 5 --effort fast --mean 99,99,99"
    command += " --resize 128x120 --crop 5x7 -o q.prototxt --json"
    assert main(command.split()) == 65
    said, content = capsys.readouterr(), Path("q.prototxt").read_text()
    told = "warning: 3 of 5 images are 128x120, the size they would be resized to: if they are copies, originals serve better"
    assert said.err.count(told) == 1 and said.err.count("4.png") == 1
    how = Preprocess(resize=(128, 120), crop=(5, 7), mean=(99, 99, 99))
    files, shape = [f"photos/{i}.png" for i in range(4)], (1, 3, 5, 7)
    data = np.stack([how(read(f), shape) for f in files])
    seen = [view for f in files[:3] for view in views(read(f), how, shape)]
    choice = quantize(
        "net.prototxt", "net.caffemodel", [data], "r.prototxt", effort="fast", views=[np.stack([*seen, data[3]])]
    )
    assert precisions("q.prototxt") == precisions("r.prototxt")
    assert json.loads(said.out)["cost"] == choice.cost
    plain = quantize("net.prototxt", "net.caffemodel", [data], "r.prototxt", effort="fast")
    assert precisions("q.prototxt") != precisions("r.prototxt") and content.count("precision_param") == 4
    assert plain.images == choice.images == 4
    assert main([*command.replace("128x120", "64x64").split()]) == 65
    assert "originals serve better" not in capsys.readouterr().err


# -- XportDNN


def test_xportdnn(tmp_path: Path) -> None:
    out = tmp_path / "out.prototxt"
    files = [str(resource("prototxt", f"digits.{end}")) for end in ("prototxt", "caffemodel")]
    done = subprocess.run(
        [sys.executable, "-m", "chai.xportdnn", "--quant_type", "Xilinx", "--deploy_model", files[0], "--weights", files[1],
         "--quantized_deploy_model", str(out), "--calibration_directory", str(DIGITS), "--calibration_size", "12",
         "--bitwidths", "6,6,6", "--dims", "1,8,8", "--transpose", "2,0,1", "--channel_swap", "2,1,0",
         "--raw_scale", "255.0", "--mean_value", "0", "--input_scale", "0.0625", "--fl_bitwidths", "8,8,8"],
        capture_output=True, text=True, cwd=tmp_path, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "8x8 gray, mean 0, scale 0.0625" in done.stdout and "12 images" in done.stdout
    net = chai.Net(out, out.with_suffix(".caffemodel"))
    assert net.graph.layer("inception_a/3x3").precision.bw_params == 6  # type: ignore[union-attr]
    assert np.isfinite(net.forward(np.zeros((1, 1, 8, 8)))["prob"]).all()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--bitwidths", "8,6", "expected three whole numbers, of input, params and output"),
        ("--bitwidths", "16,16,16", "expected three times 8 or 6, of input, params and output"),
        ("--bitwidths", "eight", "expected numbers"),
        ("--bitwidths", "inf,8,8", "--bitwidths inf,8,8: expected numbers"),
        ("--mean_value", "nan,117,123", "expected numbers"),
        ("--transpose", "0,1,2", "networks here are channels first"),
        ("--channel_swap", "1,0,2", "expected 2,1,0 (BGR) or 0,1,2 (RGB)"),
        ("--dims", "8,8", "expected channels,height,width"),
        ("--dims", "3,inf,224", "expected numbers"),
        ("--dims", "3,224.5,224", "--dims 3,224.5,224: expected channels,height,width"),
        ("--dims", "3,0,224", "expected channels,height,width"),
    ],
)
def test_xportdnn_refuses_what_has_no_equivalent(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = ["--deploy_model", "a", "--weights", "b", "--quantized_deploy_model", "c", "--calibration_directory", "d"]
    assert xportdnn([*needed, option, value]) == 2
    assert words in capsys.readouterr().err


def test_xportdnn_passes_every_digit_on(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr("chai.xportdnn.__main__.chai_command", lambda command: commands.append(command) or 0)
    means = [
        "--mean_value",
        "104.00698793,116,122.67891434",
        "--input_scale",
        "0.00784313725490196",
        "--raw_scale",
        "255",
    ]
    assert xportdnn([*FILES, "--calibration_directory", "photos", *means]) == 0
    (command,) = commands
    assert command[-1] == "--mean=104.00698793,116,122.67891434"
    assert command[-5:-1] == ["--raw-scale", "255", "--scale", "0.00784313725490196"]


FILES = ["--deploy_model", "net.prototxt", "--weights", "net.caffemodel", "--quantized_deploy_model", "q.prototxt"]
MIXED = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 5 dim: 7 } } }
    layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 4 kernel_size: 1 } }
    layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }
    layer { name: "pool" type: "Pooling" bottom: "a" top: "pool" pooling_param { kernel_size: 2 } }
    layer { name: "b" type: "Convolution" bottom: "pool" top: "b" convolution_param { num_output: 6 kernel_size: 2 } }
    layer { name: "sum" type: "Eltwise" bottom: "b" bottom: "b" top: "sum" }
    layer { name: "both" type: "Concat" bottom: "b" bottom: "sum" top: "both" }
    """


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """net.prototxt with its caffemodel in the current folder, and photos in one of their own."""
    rng = np.random.default_rng(2)
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(MIXED)
    shapes = {"a": [(4, 3, 1, 1), (4,)], "b": [(6, 4, 2, 2), (6,)]}
    layers = [(n, "Convolution", [rng.normal(0, 0.1, s).astype("f") for s in each]) for n, each in shapes.items()]
    write_caffemodel("net.caffemodel", "net", layers)
    Path("photos").mkdir()
    for i in range(10):
        Image.fromarray(rng.integers(0, 255, (224, 224, 3), np.uint8)).save(f"photos/{i}.png")
    return tmp_path


def precisions(file: str | Path) -> dict[str, Precision]:
    return {x.name: x.precision for x in read_graph(Path(file)).layers if x.precision is not None}


def test_xportdnns_dynamic_fixed_takes_the_fractions_as_they_are(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of input, params and output; no image is needed."""
    assert xportdnn(["--quant_type", "DynamicFixed", "--bitwidths", "8,6,8", "--fl_bitwidths", "3,4,1", *FILES]) == 0
    formats = precisions("q.prototxt")
    assert set(formats) == {"a", "pool", "b", "sum"}
    for name, p in formats.items():
        assert (p.quant_type, p.bw_layer_in, p.bw_layer_out, p.fl_layer_in, p.fl_layer_out) == (
            "DynamicFixed",
            8,
            8,
            3,
            1,
        )
        assert (p.bw_params, p.fl_params) == ((6, 4) if name in "ab" else (None, None))
    assert Path("q.prototxt").read_text().count("precision_param") == 4 and not Path("q.caffemodel").exists()
    assert "next: chai check q.prototxt net.caffemodel -i IMAGES" in capsys.readouterr().err
    net = chai.Net("q.prototxt", "net.caffemodel")
    out = net.forward(np.random.default_rng(0).uniform(-1, 1, (1, 3, 5, 7)))["both"]
    assert np.unique(out * 2) == pytest.approx(np.round(np.unique(out * 2)))  # fl 1: halves
    assert "fpga:Convolution" in net.schedule.engines()


def test_xportdnn_refuses_a_variable_that_is_wrong(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHAI_DEBUG", "9")
    env.cache_clear()
    assert xportdnn(["--quant_type", "DynamicFixed", *FILES]) == 2
    assert capsys.readouterr().err.startswith("error: CHAI_DEBUG is '9'; expected a number from 0 to 3\n")


def test_xportdnns_defaults_are_the_originals(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert xportdnn(["--quant_type", "DynamicFixed", *FILES]) == 0
    p = precisions("q.prototxt")["a"]
    assert (p.bw_layer_in, p.bw_params, p.bw_layer_out) == (6, 6, 6)
    assert (p.fl_layer_in, p.fl_params, p.fl_layer_out) == (2, 5, 2)
    Path("net.prototxt").write_text(MIXED.replace("dim: 5 dim: 7", "dim: 224 dim: 224"))
    assert xportdnn([*FILES, "--calibration_directory", "photos"]) == 0
    out = capsys.readouterr().out
    assert "224x224 BGR, mean 104 117 123" in out and "8 images" in out
    assert {(p.bw_layer_in, p.bw_layer_out) for p in precisions("q.prototxt").values()} == {(6, 6)}
    assert precisions("q.prototxt")["a"].bw_params == 6
    assert xportdnn(FILES) == 2
    assert "--quant_type Xilinx needs images: --calibration_directory FOLDER" in capsys.readouterr().err


def test_xportdnns_widths_are_of_input_params_and_output(mixed: Path) -> None:
    dims = ["--dims", "3,5,7", "--calibration_directory", "photos", "--calibration_size", "2"]
    assert xportdnn([*FILES, *dims, "--bitwidths", "6,8,8"]) == 0
    formats = precisions("q.prototxt")
    assert [(formats[n].bw_layer_in, formats[n].bw_params, formats[n].bw_layer_out) for n in "ab"] == [
        (6, 8, 8),
        (8, 8, 8),
    ]
    assert xportdnn([*FILES, *dims, "--bitwidths", "8,6,6"]) == 0
    formats = precisions("q.prototxt")
    assert [(formats[n].bw_layer_in, formats[n].bw_params, formats[n].bw_layer_out) for n in "ab"] == [
        (8, 6, 6),
        (6, 6, 6),
    ]


def test_xportdnns_arguments_of_the_other_mode_are_said_to_do_nothing(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xportdnn(["--quant_type", "DynamicFixed", "--mean_value", "1,2,3", *FILES]) == 0
    assert "note: --mean_value has no effect with --quant_type DynamicFixed" in capsys.readouterr().err
    assert xportdnn(["--quant_type", "DynamicFixed", "--fl_bitwidths", "2,99,2", *FILES]) == 2
    assert "expected fraction lengths from -32 to 64" in capsys.readouterr().err
    wrong = ["--deploy_model", "none.prototxt", *FILES[2:]]
    assert xportdnn(["--quant_type", "DynamicFixed", *wrong]) == 2
    assert "error: there is no file 'none.prototxt'" in capsys.readouterr().err
    over = [*FILES[:-1], "net.prototxt"]
    assert xportdnn(["--quant_type", "DynamicFixed", *over]) == 2
    assert "would be written over what it is made from" in capsys.readouterr().err


def test_three_widths_for_the_command_too(mixed: Path) -> None:
    command = (
        "quantize net.prototxt net.caffemodel --calibration photos --limit 2 --effort fast --bits 8,6,8 -o q.prototxt"
    )
    assert main(command.split()) == 0
    assert {p.bw_params for p in precisions("q.prototxt").values()} == {6, None}
    assert main([*command.split(), "--bits", "8,6"]) == 2
    assert [main([*command.split(), "--journal", "j.jsonl"]) for _ in range(2)] == [
        0,
        0,
    ]  # the second resumes the first
