"""chai show: plans without weights, sizes that are not known, and options that would do nothing."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.cli import main
from chai.errors import UsageError
from chai.evaluate import compare
from chai.parser.caffemodel import write_caffemodel
from chai.report.layer_rows import placed, summary
from tests.tasks.common import narrow

DEEP, SHALLOW = (
    (4, 900, 5, 5),
    (6, 4, 1, 1),
)  # 22,500 products could leave the accumulator with steps 8 times as coarse, 4 never
FORMATS = 'precision_param { quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 th_layer_in: 1 th_layer_out: 9 }'


def write_net(folder: Path, precision: str = "") -> Path:
    path = folder / "net.prototxt"
    path.write_text(f"""
        layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 900 dim: 5 dim: 7 }} }} }}
        layer {{ name: "deep" type: "Convolution" bottom: "data" top: "deep"
                 convolution_param {{ num_output: 4 kernel_size: 5 bias_term: false }} {precision} }}
        layer {{ name: "relu" type: "ReLU" bottom: "deep" top: "deep" }}
        layer {{ name: "shallow" type: "Convolution" bottom: "deep" top: "shallow"
                 convolution_param {{ num_output: 6 kernel_size: 1 bias_term: false }} {precision} }}
        """)
    return path


def write_weights(folder: Path, nonzero: int) -> Path:
    """Weights of which each output of ``deep`` has this many: its sums reach nonzero * 127 * 128."""
    deep = np.zeros(DEEP, np.float32)
    deep.reshape(4, -1)[:, :nonzero] = 0.5
    path = folder / "net.caffemodel"
    write_caffemodel(
        path, "net", [("deep", "Convolution", [deep]), ("shallow", "Convolution", [np.ones(SHALLOW, "f")])]
    )
    return path


def shown(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out


# -- plans without weights


def test_a_plan_without_weights_refuses_no_layer_for_its_sums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = write_net(tmp_path)
    lines = shown(capsys, net, "--overlay", narrow(tmp_path)).splitlines()
    engines = {row.split()[0]: row.split()[-4] for row in lines if row.endswith("  at first batch")}
    assert engines == {"deep": "fpga?", "relu": "fpga", "shallow": "fpga", "data": "input"}
    assert "3 layers fpga (100.0 % of 270 k MACs), 0 host; no weights: whether the sums of 1 fit is open" in lines[5]
    assert lines[6] == "fpga?    planned as if its sums fitted the accumulator, which its weights decide: deep"
    content = json.loads(shown(capsys, net, "--overlay", narrow(tmp_path), "--json"))
    assert content["weights"] is False and content["open_sums"] == ["deep"]
    assert [(x["engine"], x["sum_open"]) for x in content["layers"][1:]] == [
        ("fpga", True),
        ("fpga", False),
        ("fpga", False),
    ]


def test_weights_decide_where_they_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = write_net(tmp_path)
    for nonzero, engine in ((8191, "fpga"), (8192, "host")):  # with steps 8 times as coarse, 8192 * 16 * 128 is 2^24
        weights = write_weights(tmp_path, nonzero)
        content = json.loads(shown(capsys, net, weights, "--overlay", narrow(tmp_path), "--json"))
        assert content["layers"][1]["engine"] == engine
        assert content["weights"] is True and content["open_sums"] == []
        assert "no weights" not in shown(capsys, net, weights, "--overlay", narrow(tmp_path))


def test_layers_with_wide_sums_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """8,191 products of 127 and 128 leave 25 bits, 1,032 do not; without weights nothing is open."""
    net = write_net(tmp_path)
    assert "fpga?" not in shown(capsys, net, "--overlay", "pynq-z2")
    for nonzero, wide in ((8191, ["deep"]), (1032, [])):
        weights = write_weights(tmp_path, nonzero)
        content = json.loads(shown(capsys, net, weights, "--overlay", "pynq-z2", "--json"))
        assert content["wide"] == wide and content["layers"][1]["engine"] == "fpga" and content["coarser"] == {}
        lines = shown(capsys, net, weights, "--overlay", "pynq-z2").splitlines()
        named = [line for line in lines if line.startswith("wide")]
        assert named == ["wide     sums of 32 bits, which take two cycles to requantise: deep"] * len(wide)


def test_six_bits_leave_nothing_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, write_net(tmp_path), "--overlay", "pynq-z2", "--bits", "6")  # 22,500 * 4 * 32 is below 2^24
    assert "0 host; no weights\n" in out and "fpga?" not in out


def test_speed_is_that_of_one_image_and_of_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """Both are cycles of whole chains, and a batch is no slower: weights are fetched once, and one image waits for the other.

    A chain takes about as long as its Tasks: their waits come to it, and what two of them do side by side is counted once.
    """
    content = {n: json.loads(shown(capsys, "digits", "--overlay", "pynq-z2", "--batch", n, "--json")) for n in "13"}
    one, three = content["1"], content["3"]
    assert one["modelled_fps"] == one["modelled_fps_batch_1"] == three["modelled_fps_batch_1"] < three["modelled_fps"]
    assert one["modelled_fps"] == pytest.approx(1e8 / one["cycles"])
    assert three["modelled_fps"] == pytest.approx(3e8 / three["cycles"])
    assert one["cycles"] == pytest.approx(sum(layer["cycles"] or 0 for layer in one["layers"]), rel=0.1)
    rows = {layer["name"]: layer["cycles"] for layer in one["layers"]}
    assert rows["pool/2x2_s2"] == 0 < rows["inception_a/pool"]  # the convolutions before the first one pool their codes
    lines = shown(capsys, "digits", "--overlay", "pynq-z2", "--batch", "3").splitlines()
    (speed,) = (line for line in lines if line.startswith("speed"))
    first, second = one["modelled_fps"], three["modelled_fps"]
    assert f"{first:.1f} images/second at batch 1, {second:.1f} at batch 3, on the overlay alone, modelled" in speed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg16", "alexnet", "yolov2_tiny", "resnet50", "vgg_ssd300"])
def test_large_networks_are_planned_without_their_weights(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(shown(capsys, name, "--overlay", narrow(tmp_path), "--json"))
    assert content["open_sums"] and not content["weights"]
    assert not any("a sum could reach" in (layer["reason"] or "") for layer in content["layers"])
    macs = [(layer["engine"], layer["macs"]) for layer in content["layers"]]
    assert sum(m for engine, m in macs if engine == "fpga") > 0.9 * sum(m for _, m in macs)


@pytest.mark.parametrize("precision", ["", FORMATS])
def test_a_pass_judges_the_weights_that_it_has(tmp_path: Path, precision: str) -> None:
    """Random weights are as good as others then: sums that overflow would be other numbers than the overlay's."""
    path = write_net(tmp_path, precision)
    with chai.Net(path, overlay=narrow(tmp_path)) as net, chai.Net(path, overlay=narrow(tmp_path)) as other:
        net.plan()
        assert not net.calibrated and not net.trained
        assert [(p.engine, p.sum_open) for p in placed(net)][1:] == [("fpga", True), ("fpga", False), ("fpga", False)]
        assert summary(net, placed(net)).endswith("; no weights: whether the sums of 1 fit is open")
        data = np.random.default_rng(0).uniform(-1, 1, (1, 900, 5, 7))
        assert (net.forward(data)["shallow"] == other.forward(data)["shallow"]).all()
        reasons = {p.name: p.reason for p in placed(net)}
        assert str(reasons["deep"]).startswith("a sum could reach ") and not any(p.sum_open for p in placed(net))
        net.plan()  # what is calibrated keeps its formats and its schedule
        assert net.calibrated and net.formats == other.formats


def test_what_compares_and_streams_judges_the_weights_too(tmp_path: Path) -> None:
    path = write_net(tmp_path, FORMATS)
    data = np.random.default_rng(1).uniform(-1, 1, (2, 1, 900, 5, 7))
    with (
        ExitStack() as stack,
        chai.Net(path, device="float", keep="all") as reference,
        chai.Net(path, overlay=narrow(tmp_path)) as net,
    ):
        other = stack.enter_context(chai.Net(path, overlay=narrow(tmp_path)))
        net.plan()
        other.plan()
        report = compare.compare(reference, net, list(data))
        assert {x.name: x.engine for x in report.layers}["deep"] == "host"
        assert len(list(other.stream(data))) == 2
        assert {p.name: p.engine for p in placed(other)}["deep"] == "host"


# -- sizes that are not known


@pytest.fixture
def unsized(tmp_path: Path) -> Path:
    path = tmp_path / "unsized.prototxt"
    path.write_text("""
        input: "data"
        layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
        layer { name: "own" type: "DummyData" top: "own" dummy_data_param { shape { dim: 2 dim: 3 } } }
        layer { name: "square" type: "Power" bottom: "own" top: "square" power_param { power: 2 } }
        """)
    return path


def test_a_layer_of_unknown_size_has_a_question_mark(unsized: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, unsized, "--params").splitlines()
    rows = [line.split() for line in lines[1 : [line[:7] for line in lines].index("summary")]]
    assert [row[-5:] for row in rows if row[0] == "conv"] == [["Convolution", "?", "?", "?", "host"]]
    assert [row[-5:] for row in rows if row[0] == "square"] == [["Power", "1x3", "-", "-", "host"]]
    assert "summary  " + f"{len(rows)} layers, ? MACs, ? parameters" in lines
    assert "?        the file does not say the size of input data" in lines
    assert any(line.startswith("outputs  ") and "conv ?" in line and "square 1x3" in line for line in lines)
    content = json.loads(shown(capsys, unsized, "--json"))
    conv = next(layer for layer in content["layers"] if layer["name"] == "conv")
    assert (conv["shapes"], conv["macs"], conv["parameters"]) == ([None], None, None)
    assert content["inputs"] == {"data": None, "own": [1, 3]}
    assert "Convolution ?" in shown(capsys, unsized, "--dot")
    assert "1x4x3x5" in shown(capsys, unsized, "--shape", "data=1x3x5x7")


def test_a_label_that_no_layer_reads_leaves_no_size_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.prototxt"
    path.write_text("""
        layer { name: "data" type: "Data" top: "data" top: "label" transform_param { crop_size: 7 } }
        layer { name: "relu" type: "ReLU" bottom: "data" top: "relu" }
        """)
    assert "?" not in shown(capsys, path)
    assert json.loads(shown(capsys, path, "--json"))["layers"][0]["shapes"] == [[1, 3, 7, 7]]


def test_the_hint_about_shape_comes_where_a_size_is_needed(
    unsized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(unsized), "--overlay", "pynq-z2"]) == 65
    assert "--shape data=1x3x224x224" in capsys.readouterr().err
    write_caffemodel(tmp_path / "w.caffemodel", "w", [("conv", "Convolution", [np.ones((4, 3, 3, 3), np.float32)])])
    assert main(["show", str(unsized), str(tmp_path / "w.caffemodel")]) == 65  # do they fit?
    assert "--shape data=1x3x224x224" in capsys.readouterr().err


# -- options, and files that are not there


def test_options_that_count_are_taken() -> None:
    for command in ("show digits --overlay pynq-z2 --bits 6 --scheme DynamicFixed --autotune", "show digits --params"):
        assert main(command.split()) == 0


def test_weights_that_are_a_folder(tmp_path: Path) -> None:
    write_net(tmp_path)
    with pytest.raises(UsageError, match="is a folder, expected a") as error:
        chai.Net(tmp_path / "net.prototxt", tmp_path)
    assert error.value.hint == "name the file in it"
    write_weights(tmp_path, 3)
    with pytest.raises(UsageError) as error:
        chai.Net(tmp_path / "net.prototxt", tmp_path)
    assert error.value.hint == "it holds net.caffemodel"
