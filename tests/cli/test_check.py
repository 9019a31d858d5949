"""chai check, as users run it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from PIL import Image

from chai.cli import main
from chai.util.paths import resource
from tests.conftest import need_models
from tests.evaluate.test_compare import HOSTILE, SCHEMA, Page

DIGITS = resource("prototxt", "digits_images")
COMMAND = {
    **SCHEMA,
    "required": [*SCHEMA["required"], "schema", "agreement_goal", "preprocess", "failed", "ok"],
    "properties": {
        **SCHEMA["properties"],
        "schema": {"const": "chai.check/1"},
        "ok": {"type": "boolean"},
        "agreement_goal": {"type": "number"},
        "failed": {"type": "array"},
    },
}


def as_json(done: Any, code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(content, COMMAND)
    return content


def test_the_digits_pass(chai_command) -> None:  # type: ignore[no-untyped-def]
    done = chai_command(
        "check", "digits", "-i", DIGITS, "--limit", "24", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "digits   input data 1x8x8   8x8 gray, scale 0.00392157"
    assert lines[1] == "24 images on the emulator of pynq-z2, 8-bit Xilinx formats from the first 8"
    assert lines[2] == "  images, largest values times 1.25"
    assert lines[3] == "layer                        SQNR  sat %  engine  0 dB      20        40"
    assert re.fullmatch(r"data +\d\d\.\d   0\.00  input   #+", lines[4])
    assert re.fullmatch(r"conv1/3x3 +\d\d\.\d   \d\.\d\d  fpga    #+", lines[5])
    assert lines[6] == "conv1/relu_3x3                            fpga    in conv1/3x3"
    assert re.fullmatch(r"prob +\d\d\.\d      -  host    #+", lines[-3])
    assert lines[-2] == "top-1 agreement 24/24 (100.0 %)   top-5 24/24"
    assert lines[-1].startswith("every layer has 10 dB or more; the least: inception_b/")
    assert max(map(len, lines)) <= 80
    assert done.stdout.isascii()
    assert done.stderr.splitlines()[-1] == "next: chai check digits ... --html check.html   shows it as a page"


def test_json(chai_command) -> None:  # type: ignore[no-untyped-def]
    content = as_json(chai_command("check", "digits", "-i", DIGITS, "--limit", "12", "--batch", "5", "--json"))
    assert (content["images"], content["calibrated"], content["ok"]) == (12, 10, True)  # two batches have 8
    assert (content["bound_db"], content["agreement_goal"], content["first_bad"]) == (10, 0.97, None)
    assert content["preprocess"] == "8x8 gray, scale 0.00392157"
    few = as_json(chai_command("check", "digits", "-i", DIGITS, "--limit", "9", "--json", "--overlay", "zcu104"))
    assert (few["agreement_goal"], few["overlay"]) == (0, "zcu104")  # nine images say too little


def test_a_layer_below_the_bound_is_exit_1_and_named(chai_command) -> None:  # type: ignore[no-untyped-def]
    options = ["--limit", "8", "--bits", "6", "--bound", "35"]
    content = as_json(chai_command("check", "digits", "-i", DIGITS, *options, "--json"), 1)
    assert content["ok"] is False
    assert content["first_bad"] == "conv1/3x3"
    done = chai_command("check", "digits", "-i", DIGITS, *options)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert re.search(r"conv1/3x3 +\d+\.\d .*<- first bad$", done.stdout, re.MULTILINE)
    assert done.stdout.count("first bad") == 1
    assert re.search(r"missed: \d+ of \d+ measured layers below 35 dB", text)
    assert re.search(
        r"first layer that goes wrong: conv1/3x3: \d+\.\d dB, max seen \S+ \(channel \d+\)\. try: --bits 8$", text
    )
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("overlay", "closer"), [("pynq-z2", True), ("vta-z7020", False)])
def test_a_scheme_is_advised_where_the_overlay_has_it(
    overlay: str, closer: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--limit", "2", "--bound", "35", "--overlay", overlay, "--scheme", "DynamicFixed"]
    assert main(["check", "digits", "-i", str(DIGITS), *options]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert ("try: --scheme Xilinx, whose steps fit closer" in text) == closer
    assert ("try: --engine" in text or "try: the layers before it" in text) == (not closer)


@pytest.fixture
def dark(tmp_path: Path) -> Path:
    """A folder of inputs far smaller than the digits: formats taken from them cut most values off."""
    (tmp_path / "dark").mkdir()
    np.save(tmp_path / "dark" / "x.npy", np.full((1, 8, 8), 0.05, np.float32))
    return Path("dark")


def test_a_planted_fault_is_explained(chai_command, dark: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("check", "digits", "-i", DIGITS, "--limit", "10", "--calibration", dark)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "8-bit Xilinx formats from dark" in text
    assert "<- first bad" in next(line for line in done.stdout.splitlines() if line.startswith("data "))
    # twice the largest value of the one image
    match = re.search(r"goes wrong: data: \S+ dB, (\d+) % of values saturate at 0.1, max seen 1 \(channel 0\)", text)
    assert match
    assert int(match[1]) > 20
    assert text.endswith("try: formats from more images, --calibration DIR")


def test_too_little_agreement_is_exit_1(chai_command, dark: Path) -> None:  # type: ignore[no-untyped-def]
    options = ["check", "digits", "-i", DIGITS, "--limit", "12", "--calibration", dark, "--bound", "-100"]
    done = chai_command(*options)
    assert done.returncode == 1
    assert "missed: top-1 agreement below 97 %" in done.stdout
    content = as_json(chai_command(*options, "--agreement", "0", "--json"))
    assert content["agreement"][0]["share"] < 0.97
    assert (content["agreement_goal"], content["ok"], content["calibrated"]) == (0, True, 0)
    done = chai_command("check", "digits", "-i", DIGITS, "--agreement", "1.5")
    assert done.returncode == 2
    assert "expected a number from 0 to 1" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["digits"], 2, "no images: chai check NET WEIGHTS -i"),
        (["lenet", "-i", "bad.png"], 2, "no weights: chai check lenet WEIGHTS.caffemodel"),
        (["digits", "-i", "bad.png"], 65, "none of the images can be read"),
        (["digits", "-i", "nowhere"], 2, "there is no image 'nowhere'"),
        (["digits", "-i", "bad.png", "--limit", "0"], 2, "argument --limit: '0': expected a number of at least 1"),
        (["digits", "-i", "bad.png", "--bound", "nan"], 2, "argument --bound: 'nan': expected decibels, e.g. 10"),
        (["digits", "-i", "bad.png", "--bound", "10dB"], 2, "argument --bound: '10dB': expected decibels, e.g. 10"),
        (["digits", "-i", "bad.png", "--overlay", "pynqz2"], 69, "did you mean 'pynq-z2'?"),
        (
            ["digits", "-i", DIGITS, "--limit", "2", "--html", "no/where.html"],
            2,
            "cannot write no/where.html: there is no folder 'no'",
        ),
    ],
)
def test_exit_codes_and_words(chai_command, tmp_path: Path, args: list[Any], code: int, words: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "bad.png").write_bytes(b"not a picture")
    done = chai_command("check", *args)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_image_that_cannot_be_read_is_left_out(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    good = sorted(DIGITS.glob("*.png"))[:2]
    (tmp_path / "bad.png").write_bytes(b"not a picture")
    content = as_json(chai_command("check", "digits", "-i", good[0], "bad.png", good[1], "--json"), 65)
    assert content["images"] == 2
    assert [f["file"] for f in content["failed"]] == ["bad.png"]
    assert content["ok"] is True


def test_page_and_picture(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = resource("prototxt", "digits.prototxt").read_text()
    assert text.count('"conv1/relu_3x3"') == 1
    (tmp_path / "own.prototxt").write_text(text.replace("conv1/relu_3x3", HOSTILE))
    (tmp_path / "own.toml").write_text(resource("prototxt", "digits.toml").read_text())
    options = ["own.prototxt", resource("prototxt", "digits.caffemodel"), "-i", DIGITS, "--limit", "4"]
    done = chai_command("check", *options, "--html", "a.html", "--png", "a.png")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-3:-1] == ["wrote a.html", "wrote a.png"]
    assert done.stderr.splitlines()[-1].startswith("next: ")
    page = Page((tmp_path / "a.html").read_text())
    assert "img" not in [tag for tag, _ in page.tags]
    assert HOSTILE in page.text
    content = json.loads(page.data)
    assert [layer["name"] for layer in content["layers"]][2] == HOSTILE
    printed = as_json(chai_command("check", *options, "--json"))
    assert content == printed
    first = (tmp_path / "a.html").read_bytes()
    chai_command("check", *options, "--html", "a.html", "-q")
    assert (tmp_path / "a.html").read_bytes() == first  # the same input, the same page
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.format == "PNG"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "a.png", "own.prototxt", "own.toml"]


def test_a_bound_that_no_error_reaches_is_null_on_the_page(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    image = sorted(DIGITS.glob("*.png"))[0]
    done = chai_command(
        "check", "digits", "-i", image, "--bound", "inf", "--html", "a.html", "--png", "a.png", "--json"
    )
    printed = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert printed["bound_db"] is None and printed["first_bad"] == "data"
    assert json.loads(Page((tmp_path / "a.html").read_text()).data) == printed


def test_googlenet(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    weights, images = need_models() / "googlenet" / "weights.caffemodel", need_models() / "calibration_images"
    done = chai_command("check", "googlenet", weights, "-i", images, "--limit", "2", "--html", "g.html")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "inception_4a/relu_5x5_reduce" in done.stdout
    assert "in inception_4a/5x5_reduce" in done.stdout
    assert (tmp_path / "g.html").stat().st_size < 150_000


def test_long_names_keep_their_end(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    name = "a_block_with_a_very_long_name/and_a_branch_of_it/relu"
    text = resource("prototxt", "digits.prototxt").read_text()
    (tmp_path / "own.prototxt").write_text(text.replace('"pool/drop_4x4"', f'"{name}"'))
    weights = resource("prototxt", "digits.caffemodel")
    done = chai_command(
        "check", "own.prototxt", weights, "-i", DIGITS, "--limit", "2", "--scale", "0.0039", "--bound", "38"
    )
    assert done.returncode == 1, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\n..." + name[-33:] in done.stdout
    assert " <-" in done.stdout
