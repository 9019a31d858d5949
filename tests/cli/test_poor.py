"""What quantize and compile say of poor fixed point, and of preprocessing that they were not given."""

from __future__ import annotations

import json
import re
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import chai
from chai.cli import check as command, main, worst
from chai.evaluate.compare import Agreement, LayerCheck, Report
from chai.evaluate.measure import counted
from chai.parser.caffemodel import write_caffemodel
from chai.util.table import floored
from chai.zoo.card_file import read_card

RNG = np.random.default_rng(3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of photos, and net.prototxt whose layer ``difference`` cancels nearly all of what fixed point keeps."""
    (tmp_path / "photos").mkdir()
    for i in range(3):
        Image.fromarray(RNG.integers(0, 255, (9, 11, 3), np.uint8)).save(tmp_path / "photos" / f"{i}.png")
    shape = "dim: 1 dim: 3 dim: 7 dim: 9"
    (tmp_path / "net.prototxt").write_text(f"""
        name: "net"
        layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {shape} }} }} }}
        layer {{ name: "pair" type: "Convolution" bottom: "data" top: "pair"
                 convolution_param {{ num_output: 2 kernel_size: 1 bias_term: false }} }}
        layer {{ name: "difference" type: "Convolution" bottom: "pair" top: "difference"
                 convolution_param {{ num_output: 1 kernel_size: 1 bias_term: false }} }}
        """)
    pair = np.array([[1, 1, 1], [1, 1, 1.002]], np.float32).reshape(2, 3, 1, 1)
    difference = np.array([1, -1], np.float32).reshape(1, 2, 1, 1)
    write_caffemodel(
        tmp_path / "net.caffemodel",
        "net",
        [("pair", "Convolution", [pair]), ("difference", "Convolution", [difference])],
    )
    return tmp_path


QUANTIZE = "quantize net.prototxt net.caffemodel --calibration photos --effort fast -o q.prototxt"
POOR = re.compile(r"warning: [12] of 3 measured layers below 10 dB: ")


def test_quantize_ends_with_the_worst_layers_and_a_warning(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main([*QUANTIZE.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert POOR.search(err)
    content = json.loads(out)
    assert content["bound_db"] == 10 and content["below_bound"][0] == "difference"
    assert main(QUANTIZE.split()) == 0
    out, err = capsys.readouterr()
    assert re.search(r"\nworst layers: difference \(-?\d\.\d dB\), pair \(\d\d\.\d dB\), data \(", out) and POOR.search(
        err
    )


def test_compile_ends_with_the_worst_layers_and_a_warning(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    compiling = "compile net.prototxt net.caffemodel -o net.chai"
    assert main([*compiling.split(), "--calibration", "photos"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("worst layers: difference (") and POOR.search(err)
    with chai.Net("net.chai") as net:
        assert net.batch == 1  # measuring leaves the file as it was asked for
    assert main(QUANTIZE.split()) == 0
    capsys.readouterr()
    quantised = ["compile", "q.prototxt", "q.caffemodel", "-o", "q.chai"]
    assert main(quantised) == 0
    assert "note: --calibration DIR measures how good its fixed point is" in capsys.readouterr().err
    assert main([*quantised, "--calibration", "photos"]) == 0  # counts, although the formats are the file's
    assert POOR.search(capsys.readouterr().err)


def test_good_fixed_point_is_no_warning() -> None:
    report = Report("net", "pynq-z2", "", 0, 1, 10.0, (LayerCheck("a", "ReLU", "fpga", sqnr_db=10.0),))
    assert worst.below(report) == [] and worst.names(report) == []


# -- a value below a bound is never printed as the bound


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.96, "9.9"), (9.999999999, "9.9"), (10.0, "10.0"), (9.7, "9.7"), (-3.21, "-3.3"), (99.95, "99.9"), (100, "100.0")],
)  # fmt: skip
def test_measured_values_are_rounded_down(value: float, text: str) -> None:
    assert floored(value) == floored(np.float64(value)) == text
    assert LayerCheck("a", "ReLU", "fpga", sqnr_db=value).decibels == text


@given(st.floats(-1e9, 1e9), st.integers(1, 3))
def test_measured_values_are_rounded_down_as_decimals_are(value: float, digits: int) -> None:
    text = str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR))
    assert floored(value, digits) == (text.removeprefix("-") if Decimal(text) == 0 else text)


def test_an_agreement_below_the_goal_is_not_printed_as_the_goal() -> None:
    hits = Agreement("prob", 10_000, 9_696, None)  # 96.96 %
    report = Report("net", "pynq-z2", "", 0, 10_000, 10.0, (), (hits,))
    assert report.agreement is not None and report.agreement < 0.97
    assert command._agreements(report) == ["top-1 agreement 9696/10000 (96.9 %)"]


def test_shares_are_rounded_down_to_what_they_are() -> None:
    assert counted(2499, 2500) == "2499/2500 (99.9 %)" and counted(2500, 2500) == "2500/2500 (100.0 %)"
    assert counted(29, 100) == "29/100 (29.0 %)"  # 100 * (29 / 100) is less
    hits = Agreement("prob", 2500, 2499, 2500)
    assert hits.sentence() == "top-1 agreement 2499/2500 (99.9 %), top-5 2500/2500"
    page = Report("net", "pynq-z2", "", 0, 2500, 10.0, (), (hits,))._repr_html_()
    assert "prob: top-1 agreement 2499/2500 (99.9 %)" in page


# -- preprocessing goes with the quantised network


def test_preprocessing_given_to_quantize_is_written_beside_its_output(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main([*QUANTIZE.split(), "--mean", "104,117,123", "--channels", "RGB", "--scale", "0.5"]) == 0
    out, err = capsys.readouterr()
    assert (
        "7x9 RGB, mean 104 117 123, scale 0.5" in out
        and "wrote q.toml: its [preprocess] is what was used here\n" in err
        and "no preprocessing" not in err
    )
    card = read_card("q.prototxt").preprocess
    assert (card.mean, card.channels, card.scale, card.resize) == ((104.0, 117.0, 123.0), "RGB", 0.5, None)
    judge = next(line for line in err.splitlines() if line.startswith("next: chai check "))
    words = judge.partition("   ")[0].split()[2:]
    main([{"IMAGES": "photos"}.get(word, word) for word in words])
    assert "7x9 RGB, mean 104 117 123, scale 0.5" in capsys.readouterr().out
    # the user's own file keeps what it has, and is not changed in silence
    Path("q.toml").write_text('# mine\ntitle = "My net"\n' + Path("q.toml").read_text())
    assert main([*QUANTIZE.split(), "--mean", "104,117,123", "--channels", "RGB", "--scale", "0.5"]) == 0
    assert "q.toml" not in capsys.readouterr().err
    assert main([*QUANTIZE.split(), "--mean", "1,2,3"]) == 0
    assert "wrote q.toml: its [preprocess] is what was used here\n" in capsys.readouterr().err
    assert Path("q.toml").read_text() == '# mine\ntitle = "My net"\n[preprocess]\nmean = [1.0, 2.0, 3.0]\n'


def test_the_networks_own_card_goes_along_with_what_was_typed(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    Path("net.toml").write_text('labels = ["a"]\n[preprocess]\nmean = [5, 6, 7]\n')
    assert main(QUANTIZE.split()) == 0
    assert Path("q.toml").read_text() == Path("net.toml").read_text()
    Path("q.toml").unlink()
    assert main([*QUANTIZE.split(), "--scale", "2"]) == 0
    assert "wrote q.toml: its [preprocess] is what was used here\n" in capsys.readouterr().err
    card = read_card("q.prototxt")
    assert (card.labels, card.preprocess.mean, card.preprocess.scale) == (("a",), (5.0, 6.0, 7.0), 2.0)


def test_a_mean_image_is_named_in_the_next_step(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    np.save("a mean.npy", np.full((3, 7, 9), 99, np.float32))
    assert main([*QUANTIZE.split(), "--mean-file", "a mean.npy"]) == 0
    assert "-i IMAGES --mean-file 'a mean.npy'" in capsys.readouterr().err.splitlines()[-1]
    assert "# mean: an image, to be named each time: --mean-file 'a mean.npy'\n" in Path("q.toml").read_text()


@pytest.mark.parametrize("command", [QUANTIZE, "compile net.prototxt net.caffemodel --calibration photos -o net.chai"])
def test_photos_without_any_preprocessing_are_worth_a_warning(
    command: str, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main(command.split()) == 0
    err = capsys.readouterr().err
    assert "warning: no preprocessing is known for net; " in err and "hint: --mean 104,117,123" in err
    assert not Path("q.toml").exists()
    assert main([*command.split(), "--mean", "9"]) == 0
    assert "no preprocessing" not in capsys.readouterr().err
