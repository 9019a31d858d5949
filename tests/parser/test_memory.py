"""What reading costs in memory, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chai.parser.wire import varint
from tests.conftest import report

from .common import field

MB = 1 << 20
PEAK = """
import pathlib, sys

def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
"""


def growth(code: str, *arguments: object) -> tuple[int, str]:
    """By how many bytes the peak grows between the lines ``before = peak()`` and the end, and what was said."""
    if sys.platform != "linux":
        pytest.skip("the peak is read from /proc/self/status, which only Linux has")
    code = f"{PEAK}{code}\nprint(peak() - before, said)"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    grown, _, said = run.stdout.strip().rpartition("\n")[2].partition(" ")
    return int(grown), said


NET = """
import numpy
import chai.net
from chai.parser.schema import message_class

digits = chai.net.Net("digits")
digits.forward(numpy.zeros(next(iter(digits.shapes.values())), numpy.float32))
message_class("NetParameter")()
before = peak()
net = chai.net.Net(sys.argv[1], sys.argv[2], batch=1)
said = sum(blob.nbytes for blobs in net.params.values() for blob in blobs)
"""


def test_weights_exist_once(models: Path) -> None:
    """Loading a network takes its weights and a little more, not a second copy of them."""
    folder = models / "googlenet"
    grown, weights = growth(NET, folder / "deploy.prototxt", folder / "weights.caffemodel")
    bound = int(weights) + 3 * 1024 * 1000 * 4  # three times the largest layer
    report(
        f"googlenet: loading takes {grown / MB:.1f} MB, its weights are {int(weights) / MB:.1f}, bound {bound / MB:.1f}"
    )
    assert int(weights) > 27_000_000
    assert grown <= bound


WALK = """
from chai.errors import ChaiError
from chai.parser.caffemodel import Weights, walk_file

before = peak()
try:
    Weights(sys.argv[1])
    said = "read"
except ChaiError as error:
    said = str(error)
"""


def test_an_unpacked_run_costs_no_more_than_its_bytes(tmp_path: Path) -> None:
    """Old files have a tag before every number; the walk may not build anything for each of them."""
    count = 2_000_000
    dims = field(7, field(1, varint(count)))
    blob = (bytes([5 << 3 | 5]) + b"\0\0\x80\x3f") * count + dims
    path = tmp_path / "w.caffemodel"
    path.write_bytes(field(100, field(1, b"a") + field(7, blob)))
    grown, said = growth(WALK, path)
    report(f"unpacked caffemodel of {len(blob) / MB:.1f} MB: the walk takes {grown / MB:.1f} MB")
    assert said == "read"
    assert grown <= 2 * len(blob)  # the mapped file itself, and as much again


TEXT = """
from chai.errors import ChaiError
from chai.parser.text import parse, read_source

before = peak()
try:
    parse(read_source(sys.argv[1]))
    said = "read"
except ChaiError as error:
    said = str(error)
"""
SIZE = 4 * MB
PER_BYTE = 64  # so that a file at the limit of 16 MB takes less than 1 GB


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        ("one string", None),
        ("one comment", "#"),
        ("blanks", " "),
        ("semicolons", ";"),
        ("braces", "a{"),
        ("values", "a:1 "),
        ("short names", "a "),
    ],
)
def test_hostile_text_takes_memory_in_proportion(tmp_path: Path, kind: str, unit: str | None) -> None:
    path = tmp_path / "n.prototxt"
    path.write_text('a: "' + "x" * SIZE + '"' if unit is None else "a: 1 " + unit * (SIZE // len(unit)))
    grown, said = growth(TEXT, path)
    report(f"{SIZE // MB} MB of {kind}: {grown / MB:.0f} MB to be {'read' if said == 'read' else 'refused'}")
    assert grown <= PER_BYTE * SIZE
