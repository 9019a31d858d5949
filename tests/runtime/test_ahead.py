"""Formats from the first of many images, in every command and call that gets many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai import cli
from chai.chaidnn import io_layer_info, xiExec, xiInit
from chai.evaluate.compare import check
from chai.offload.headroom import IMAGES, Basis
from chai.runtime.batches import ahead
from tests.passes.common import network
from tools.bench import engines

from .test_measuring import END, MIDDLE, SHAPE, Counting

SIZE = (1, 8, 8)


def images(count: int) -> np.ndarray:
    """Images of which each reaches a little further than those before it."""
    base = np.random.default_rng(0).uniform(0, 1, (count, *SIZE)).astype(np.float32)
    return base * np.linspace(1, 2, count, dtype=np.float32).reshape(-1, 1, 1, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve inputs for the digits network."""
    path = tmp_path / "inputs"
    path.mkdir()
    for i, image in enumerate(images(12)):
        np.save(path / f"{i:02}.npy", image)
    return path


def ran(capsys: pytest.CaptureFixture[str], *args: str | Path) -> dict[str, Any]:
    assert cli.main(["run", *map(str, args), "--json"]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


@pytest.mark.parametrize("batch", [1, 3, 5, 12])
def test_run_reads_ahead_in_a_folder(folder: Path, capsys: pytest.CaptureFixture[str], batch: int) -> None:
    """At least 8, in whole batches; the answers do not depend on which of them comes first."""
    report = ran(capsys, "digits", "-i", folder, "--batch", str(batch))
    count = -(-IMAGES // batch) * batch
    assert report["formats"]["images"] == count == {1: 8, 3: 9, 5: 10, 12: 12}[batch]
    assert report["formats"]["margin"] == 1.25
    assert len(report["images"]) == 12
    net = chai.Net("digits", device="emulator", calibrate=images(12)[:count])
    wanted = net.forward(images(12))["prob"]
    scores = [[top["score"] for top in each["outputs"]["prob"]["top"]] for each in report["images"]]
    assert np.allclose(scores, -np.sort(-wanted, 1)[:, :5], atol=1e-6)


def test_run_says_what_its_formats_are_from_and_names_the_cure(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "digits", "-i", str(folder / "03.npy")]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("digits-inception   device emulator"))
    assert "   formats from 1 image times 2, 0 % saturated; better: " in line
    assert line.endswith("--calibration FOLDER or chai quantize")
    loud = tmp_path / "loud.npy"
    np.save(loud, 9 * images(2)[0])
    few = ran(capsys, "digits", "-i", loud, "--calibration", folder)["formats"]
    assert few["images"] == 12 and few["saturated"] > 0 and "--calibration" in few["cure"]
    enough = ran(capsys, "digits", "-i", folder)["formats"]
    assert enough["saturated"] == 0 and enough["cure"] is None
    floats = ran(capsys, "digits", "-i", folder, "--device", "float")
    assert floats["formats"] is None


def test_a_layer_with_a_state_is_shown_no_image_ahead(tmp_path: Path) -> None:
    """Where it has to run for the formats, these come from the first batch, whose pass it then does not run in again."""
    for lines, basis in ((MIDDLE, 2), (END, 8)):
        layer = Counting()
        net = layer.opened(tmp_path, lines)
        batches = [np.full(SHAPE, i / 4, np.float32) for i in range(6)]
        for batch in ahead(net, batches, lambda x: {"data": x}):
            net.forward(batch)
        assert layer.calls == [2] * 6
        assert net.basis is not None and net.basis.images == basis


def test_ahead_keeps_every_batch_and_its_order(tmp_path: Path) -> None:
    """Also if there are fewer than 8 images, or none; a network with formats reads nothing ahead."""
    lines = "a Convolution data -> a : convolution_param { num_output: 16 kernel_size: 3 pad: 1 }"
    for count in (0, 2, 9):
        net = network(tmp_path, lines, SHAPE, device="emulator")
        batches = [np.full((1 + i % 2, 3, 5, 7), i, np.float32) for i in range(count)]
        assert [x[0, 0, 0, 0] for x in ahead(net, batches, lambda x: {"data": x})] == [*range(count)]
        assert count == 0 or (net.basis is not None and net.basis.images == {2: 3, 9: 9}[count])
    taken = list[int]()
    source = (taken.append(i) or np.zeros(SHAPE, np.float32) for i in range(3))
    ahead(net, source, lambda x: {"data": x})
    assert taken == []


def test_check_takes_eight_images_from_several_batches() -> None:
    report = check("digits", None, [images(12)[i : i + 3] for i in range(0, 12, 3)])
    assert (report.calibrated, report.margin, report.images) == (9, 1.25, 12)


def test_evaluate_takes_eight_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "digits", "--images", str(folder), "--batch", "2", "--jobs", "1"]) == 0
    assert f"8-bit Xilinx formats from the largest values of {IMAGES} images times 1.25" in capsys.readouterr().err


def test_pycaffes_forward_all_takes_eight_items(tmp_path: Path) -> None:
    """None of the zeros that the last batch is filled up with."""
    for items, basis in ((9, 8), (3, 3)):
        prototxt = tmp_path / "net.prototxt"
        network(tmp_path, f"{END.splitlines()[0]}", SHAPE)
        net = caffe.Net(str(prototxt), caffe.TEST, device="emulator")
        net.forward_all(data=np.ones((items, 3, 5, 7), np.float32))
        assert net.net.basis is not None and net.net.basis.images == basis


def test_chaidnns_calls_have_the_margin_of_their_batch(tmp_path: Path) -> None:
    network(tmp_path, END.splitlines()[0], SHAPE)
    info = io_layer_info()
    handle = xiInit(tmp_path, "net.prototxt", None, info, 2, True, device="emulator")
    data, out = np.ones(SHAPE, np.float32), np.zeros(handle.net.shapes["a"], np.float32)
    xiExec(handle, [data.reshape(-1)], [out.reshape(-1)])
    assert handle.net.basis == Basis(2, 8, "Xilinx")
    assert handle.net.formats is not None and handle.net.formats["data"].value == 1.5


def test_the_peers_of_bench_get_the_same_formats(tmp_path: Path) -> None:
    net = network(tmp_path, END.splitlines()[0], SHAPE, device="emulator")
    data = np.random.default_rng(1).uniform(-1, 1, SHAPE).astype(np.float32)
    net.forward(data)
    formats = engines._formats(net.offload.graph, net.offload.shapes, {"data": data})
    assert net.formats is not None and formats == {"data": net.formats["data"]}


def test_a_stream_says_how_many_images_its_formats_are_from(caplog: pytest.LogCaptureFixture) -> None:
    net = chai.Net("digits", device="emulator")
    list(net.stream([images(6)[:3]] * 2))
    words = "8-bit Xilinx formats from the largest values of 3 images times 1.5; 8 or more are better: net.calibrate(images)"
    assert [words in record.message for record in caplog.records] == [True]
