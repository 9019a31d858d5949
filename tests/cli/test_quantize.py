"""chai quantize and XportDNN's arguments, as users run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.util.paths import resource
from chai.xportdnn import main as xportdnn
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
    assert re.match(r"conv1/3x3 +fpga +Xilinx\(8, th [\d.]+\) +[\w ]+ +\d\d\.\d +\d\.\d\d +\S+$", lines[3])
    text = " ".join(done.stdout.split())
    assert re.search(r"chosen: activations \w+, weights \w+", text)
    assert re.search(r"cost \S+ on 24 calibration images, \S+ with plain maxima", text)
    assert "prob: top-1 agreement 24/24 (100.0 %)" in text and "cost most: " in text
    assert done.stderr.splitlines()[-3:-1] == ["wrote q.html", "wrote q.prototxt and q.caffemodel"]
    assert done.stderr.splitlines()[-1].startswith("next: chai check q.prototxt q.caffemodel")
    page = Page((tmp_path / "q.html").read_text())
    assert json.loads(page.data)["bits"] == 8
    assert (tmp_path / "q.toml").read_bytes() == resource("prototxt", "digits.toml").read_bytes()  # the preprocessing
    again = chai_command("check", "q.prototxt", "q.caffemodel", "-i", DIGITS, "--limit", "12", "--json")
    assert again.returncode == 0 and "was quantised for other weights" not in again.stderr
    assert json.loads(again.stdout)["formats"] == "precision_param"


def test_json_and_the_same_again(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    options = ["--calibration", DIGITS, "--limit", "16", "--bits", "6", "--scheme", "DynamicFixed", "--json", "-q"]
    first = chai_command("quantize", "digits", *options, "-o", "a.prototxt", "--layer-bits", "inception_a/3x3=8")
    second = chai_command("quantize", "digits", *options, "-o", "b.prototxt", "--layer-bits", "inception_a/3x3=8")
    assert first.returncode == second.returncode == 0, first.stderr
    content = json.loads(first.stdout)
    assert (content["schema"], content["bits"], content["scheme"]) == ("chai.quantize/1", 6, "DynamicFixed")
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
    one = next(DIGITS.iterdir())
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
        (["--layer-bits", "nothing=8"], "there is no convolution 'nothing' on the overlay whose width could be chosen"),
        (["--limit", "0"], "--batch and --limit must be at least 1"),
        (["--restart"], "--restart begins a journal anew"),
        (["-o", "q.txt"], "the output is a .prototxt"),
    ],
)
def test_refusals(chai_command, args: list[str], words: str) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("quantize", "digits", "--calibration", DIGITS, "-o", "q.prototxt", *args)
    assert done.returncode == 2 and words in done.stderr


# -- XportDNN


def test_xportdnn(tmp_path: Path) -> None:
    out = tmp_path / "out.prototxt"
    files = [str(resource("prototxt", f"digits.{end}")) for end in ("prototxt", "caffemodel")]
    done = subprocess.run(
        [sys.executable, "-m", "chai.xportdnn", "--quant_type", "Xilinx", "--deploy_model", files[0], "--weights", files[1],
         "--quantized_deploy_model", str(out), "--calibration_directory", str(DIGITS), "--calibration_size", "12",
         "--bitwidths", "6,6,6", "--dims", "1,8,8", "--transpose", "2,0,1", "--channel_swap", "2,1,0",
         "--raw_scale", "255.0", "--mean_value", "0", "--input_scale", "0.0625", "--fl_bitwidths", "8,8,8"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "8x8 gray, mean 0, scale 0.0625" in done.stdout and "12 images" in done.stdout
    net = chai.Net(out, out.with_suffix(".caffemodel"))
    assert net.graph.layer("inception_a/3x3").precision.bw_params == 6  # type: ignore[union-attr]
    assert np.isfinite(net.forward(np.zeros((1, 1, 8, 8)))["prob"]).all()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--bitwidths", "8,6,8", "expected one width for all, 8 or 6"),
        ("--bitwidths", "16,16,16", "expected one width for all, 8 or 6"),
        ("--bitwidths", "eight", "expected numbers"),
        ("--transpose", "0,1,2", "networks here are channels first"),
        ("--channel_swap", "1,0,2", "expected 2,1,0 (BGR) or 0,1,2 (RGB)"),
        ("--dims", "8,8", "expected channels,height,width"),
    ],
)
def test_xportdnn_refuses_what_has_no_equivalent(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = ["--deploy_model", "a", "--weights", "b", "--quantized_deploy_model", "c", "--calibration_directory", "d"]
    assert xportdnn([*needed, option, value]) == 2
    assert words in capsys.readouterr().err
