"""Published networks in full size run on pynq-z2 in one segment, and the page's table is what the command prints."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from chai.cli import main

from . import full

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from_onnx.md"
# from the papers, or counted by others: GoogLeNet 1.58 G, ResNet-18 1.81 G, SqueezeNet 1.1 0.35 G, MobileNetV2 0.30 G
MACS = {"GoogLeNet without LRN": 1.58e9, "ResNet-18": 1.814e9, "SqueezeNet 1.1": 0.35e9, "MobileNetV2": 0.3008e9}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", full.FULL)
def test_one_segment(name: str) -> None:
    rows, segments = full.planned(name)
    assert segments == 1
    assert math.isclose(sum(row.macs or 0 for row in rows), MACS[name], rel_tol=0.01)
    host = {row.type for row in rows if row.engine == "host"}
    assert host <= {"InnerProduct", "Flatten"}  # the scores, in float32, and what has no numbers to compute


@pytest.mark.filterwarnings("ignore")
def test_the_page_has_the_table() -> None:
    """Written by: python -m tests.onnx.full"""
    assert "\n".join(full.table()) in PAGE.read_text()


def test_the_page_shows_what_splits_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = re.findall(r"GoogLeNet on `vta-z7020`:\n\n```\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert main(["show", "googlenet", "--overlay", "vta-z7020", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(shown.splitlines()) == 3 and {*shown.splitlines()} <= {*lines}
