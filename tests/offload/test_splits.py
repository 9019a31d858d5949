"""What splits segments: host layers between layers on the overlay, by reason, and the segments without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai.cli import main
from chai.offload.partition import SegmentSplit, joined, splits

CONV = 'layer {{ name: "{0}" type: "Convolution" bottom: "{1}" top: "{0}" convolution_param {{ num_output: 8 kernel_size: 1 }} }}'
ON_HOST = 'layer {{ name: "{0}" type: "{2}" bottom: "{1}" top: "{0}" }}'


def network(*layers: tuple[str, ...]) -> str:
    """A prototxt of (name, bottom) convolutions and (name, bottom, type) layers of the host."""
    head = 'name: "n" input: "x" input_shape { dim: 1 dim: 8 dim: 5 dim: 7 }\n'
    return head + "\n".join((CONV if len(layer) == 2 else ON_HOST).format(*layer) for layer in layers)


def plan_of(folder: Path, text: str) -> chai.Net:
    (folder / "n.prototxt").write_text(text)
    net = chai.Net(folder / "n.prototxt", device="null", calibrate=np.ones((1, 8, 5, 7), np.float32))
    net.plan()
    return net


@pytest.mark.filterwarnings("ignore")
def test_reasons_and_counts(tmp_path: Path) -> None:
    """a - sigmoid - b - tanh - c - sigmoid2 - d, and a softmax at the end that splits nothing."""
    chain = [("a", "x"), ("s", "a", "MVN"), ("b", "s"), ("t", "b", "Normalize"), ("c", "t"), ("u", "c", "MVN")]
    net = plan_of(tmp_path, network(*chain, ("d", "u"), ("last", "d", "Softmax")))
    plan = net.offload.plan
    assert len(net.schedule.segments) == 4
    assert splits(plan) == [
        SegmentSplit("no MVN unit", ["s", "u"], 2),
        SegmentSplit("no Normalize unit", ["t"], 3),
    ]
    assert joined(plan) == 1


@pytest.mark.filterwarnings("ignore")
def test_what_is_beside_splits_nothing(tmp_path: Path) -> None:
    """A branch of the host before, after and next to the overlay's is no split."""
    layers = [("p", "x", "Normalize"), ("a", "p"), ("side", "a", "MVN"), ("b", "a"), ("end", "b", "Normalize")]
    net = plan_of(tmp_path, network(*layers))
    assert len(net.schedule.segments) == 1 and splits(net.offload.plan) == []


@pytest.mark.filterwarnings("ignore")
def test_a_branch_that_has_to_wait(tmp_path: Path) -> None:
    """Two chains of the host, of which both have to be on the overlay for one segment."""
    layers = [("a", "x"), ("s", "a", "MVN"), ("b", "s"), ("t", "a", "Normalize"), ("c", "t")]
    net = plan_of(tmp_path, network(*layers))
    plan = net.offload.plan
    assert len(net.schedule.segments) == 2
    assert [(split.layers, split.without) for split in splits(plan)] == [(["s"], 2), (["t"], 2)]
    assert joined(plan) == 1


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, as JSON, and on the page, whose picture has the reasons."""
    (tmp_path / "n.prototxt").write_text(network(("a", "x"), ("s", "a", "MVN"), ("b", "s")))
    page = tmp_path / "n.html"
    assert main(["show", str(tmp_path / "n.prototxt"), "--overlay", "pynq-z2", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "2 Tasks in 2 segments" in text
    assert "split    no MVN unit; 1 segment without: s" in text
    assert "join     1 segment if all of these ran on the overlay" in text
    shown = page.read_text()
    assert "<title>s - MVN 1x8x5x7 - host: no MVN unit</title>" in shown
    assert all(f'class="in-{engine}"' in shown for engine in ("fpga", "host", "pack", "unpack"))
    assert "1 segment if all of these ran on the overlay" in shown
    assert main(["show", str(tmp_path / "n.prototxt"), "--overlay", "pynq-z2", "--json"]) == 0
    assert '"without": 1' in capsys.readouterr().out
