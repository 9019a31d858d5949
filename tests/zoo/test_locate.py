"""Find the files of a network: shipped, fetched, next to each other, or absent."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import chai
import chai.pycaffe
from chai.cli import main
from chai.env import env
from chai.util.paths import resource
from chai.zoo.locate import locate

PUBLISHED = "bvlc_googlenet.caffemodel"
IMAGE = sorted(resource("prototxt", "digits_images").glob("*_7.png"))[0]
QUANTIZE = "quantize --calibration IMAGE -o q.prototxt --effort fast"
NET, WEIGHTS = resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and an empty cache."""
    (tmp_path / "here").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    env.cache_clear()
    return tmp_path / "here"


def test_fetched_weights_are_found_by_their_file_name(here: Path) -> None:
    cached = here.parent / "cache" / PUBLISHED
    cached.write_bytes(b"x")
    assert locate("googlenet", PUBLISHED)[1] == locate("googlenet", None)[1] == cached
    assert locate(NET, PUBLISHED)[1] == cached  # for any network
    (here / PUBLISHED).write_bytes(b"y")
    assert locate("googlenet", PUBLISHED)[1] == Path(PUBLISHED)  # a file here goes first
    for path in (f"./sub/{PUBLISHED}", str(here.parent / PUBLISHED)):
        with pytest.raises(chai.UsageError, match="there is no file"):
            locate("googlenet", path)


def test_only_weights_are_looked_for_in_the_cache(here: Path) -> None:
    (here.parent / "cache" / "net.txt").write_bytes(b"x")
    with pytest.raises(chai.UsageError, match=r"there is no file 'net\.txt', expected a \.caffemodel"):
        locate("googlenet", "net.txt")


@pytest.mark.parametrize(
    ("weights", "hint"),
    [
        (PUBLISHED, "chai fetch googlenet"),
        ("VGG_ILSVRC_16_layers.caffemodel", "chai fetch vgg16"),
        ("mine.caffemodel", "did you mean mime.caffemodel?"),
        ("other.caffemodel", "looked in {here}"),
        ("no/other.caffemodel", "there is no folder 'no'"),
        ("a_link.caffemodel", "it is a link to 'gone'"),
    ],
)
def test_weights_that_are_not_there(here: Path, weights: str, hint: str) -> None:
    (here / "mime.caffemodel").touch()
    (here / "a_link.caffemodel").symlink_to("gone")
    with pytest.raises(chai.UsageError) as caught:
        chai.Net("googlenet", weights)
    assert caught.value.hint == hint.format(here=here)


@pytest.mark.parametrize(
    ("net", "hint"),
    [
        ("digitss", "did you mean digits?"),
        ("digit.prototxt", "did you mean digits?"),
        ("yolo_ours.prototxt", "did you mean yolo_our.prototxt?"),
        ("zzz.prototxt", "looked in {here}"),
        ("no/zzz.prototxt", "there is no folder 'no'"),
    ],
)
def test_a_network_that_is_not_there(here: Path, net: str, hint: str) -> None:
    (here / "yolo_our.prototxt").touch()
    with pytest.raises(chai.UsageError) as caught:
        chai.Net(net)
    assert caught.value.hint == hint.format(here=here)


def test_weights_next_to_a_prototxt_are_for_those_who_ask(here: Path) -> None:
    """chai.Net and pycaffe's take none that were not named: without weights a network may be meant to be random."""
    shutil.copy(NET, "net.prototxt")
    assert locate("net.prototxt", None, adjacent=True) == (Path("net.prototxt"), None)
    shutil.copy(WEIGHTS, "net.caffemodel")
    assert locate("net.prototxt", None, adjacent=True) == (Path("net.prototxt"), Path("net.caffemodel"))
    assert locate("net.prototxt", None)[1] is None
    with chai.Net("net.prototxt") as net:
        assert not net.trained
    assert not chai.pycaffe.Net("net.prototxt", chai.pycaffe.TEST).net.trained


WEIGHTED = [
    "run -i IMAGE",
    "check -i IMAGE",
    "evaluate --jobs 1 --images IMAGE",
    "compile -o net.chai --calibration IMAGE",
    QUANTIZE,
]


@pytest.mark.parametrize("command", WEIGHTED)
def test_commands_that_need_weights_read_those_next_to_the_prototxt(
    here: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    shutil.copy(NET, "net.prototxt")
    shutil.copy(NET.with_suffix(".toml"), "net.toml")
    name, *others = [str(IMAGE) if word == "IMAGE" else word for word in command.split()]
    assert main([name, "net.prototxt", *others]) == 2
    assert "no weights" in capsys.readouterr().err
    shutil.copy(WEIGHTS, "net.caffemodel")
    assert main([name, "net.prototxt", *others]) == 0
    assert "random" not in capsys.readouterr().err


@pytest.mark.parametrize("command", WEIGHTED)
def test_a_network_without_trained_parameters_needs_no_weights(
    here: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A factor that is a bottom is none; a bilinear filler is all the weights there are."""
    Path("net.prototxt").write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 10 } } }\n'
        'layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }\n'
        'layer { name: "up" type: "Deconvolution" bottom: "pool" top: "up" convolution_param { num_output: 1 '
        'kernel_size: 4 stride: 2 pad: 1 bias_term: false weight_filler { type: "bilinear" } } }\n'
        'layer { name: "scale" type: "Scale" bottom: "up" bottom: "data" top: "scale" scale_param { axis: 0 } }\n'
    )
    name, *others = [str(IMAGE) if word == "IMAGE" else word for word in command.split()]
    rest = ["--output", "scale=map"] if name == "evaluate" else []
    assert main([name, "net.prototxt", *others, *rest]) == 0
    assert "random" not in capsys.readouterr().err
    with chai.Net("net.prototxt") as net:
        assert net.trained


def test_random_weights_may_be_asked_for_all_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(NET.with_name("lenet.prototxt"), "net.prototxt")
    Path("net.caffemodel").touch()
    assert main(["run", "net.prototxt", "--random-weights", "-i", str(IMAGE)]) == 0
    assert "random weights of" in capsys.readouterr().err


def test_a_quantised_network_runs_by_its_prototxt_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "digits", "--calibration", str(IMAGE), "-o", "gq.prototxt", "--effort", "fast"]) == 0
    assert main(["run", "gq.prototxt", "gq.caffemodel", "-i", str(IMAGE), "-o", "named.npz"]) == 0
    assert main(["run", "gq.prototxt", "-i", str(IMAGE), "-o", "alone.npz", "-v"]) == 0
    assert "weights: gq.caffemodel, next to the prototxt" in capsys.readouterr().err
    assert np.array_equal(np.load("named.npz")["prob"], np.load("alone.npz")["prob"])
