"""chai devices --measure on the simulated board: which figures it writes, and that nothing is left behind.

Its times are this computer's, those of segments the simulator's: what they are worth only a board can tell.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from chai.cli import main
from chai.devices.pynq import program
from chai.evaluate.host import board as measuring
from chai.evaluate.host.probes import probes
from chai.overlay import host_model
from chai.util.paths import resource

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")


def test_a_board_is_measured_and_read_again(
    board: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board.exact = False  # by the emulator's kernels: the definitions take longer
    monkeypatch.setattr(measuring, "REPEAT", 3)
    path, manifest = tmp_path / "board.json", str(board.overlay.path)
    assert main(["devices", "--measure", "--device", "pynq", "--overlay", manifest, "-o", str(path), "-q"]) == 0
    assert capsys.readouterr().err == f"wrote {path}\n"
    content = json.loads(path.read_text())
    jsonschema.validate(content, json.loads(resource("hw_overlays", "host_model.schema.json").read_text()))
    assert content["unit"] == "nanoseconds" and "clock_mhz" not in content and content["assumed"] == []
    assert {"pass", "segment", "store", "load", "flush", "picture"} <= content["driver"].keys()
    assert content["conversions"].keys() == {"Pack", "Pack unfolded", "Unpack"}
    assert {"LRN", "Softmax", "InnerProduct", "Permute", "gemm", "others"} <= content["layers"].keys()
    assert not board.memory.held and board.downloads == 1

    model = host_model.load(path)
    small, large = ({"call": 1, "element": n, "word": n // 8, "row": 1, "plane": 1} for n in (64, 64 * 4096))
    for group, kind in (("conversions", "Pack"), ("conversions", "Unpack"), ("layers", "LRN")):
        assert (
            0 < model.amount(group, kind, small) <= model.amount(group, kind, large) < 1e10
        )  # equal on a busy machine

    assert main(["show", "digits", "--overlay", manifest, "--host-model", str(path), "--json"]) == 0
    host = json.loads(capsys.readouterr().out)["host"]
    assert host["measured"] and host["board"] == model.board and host["left_out"] == host["guessed"] == []
    assert main(["show", "digits", "--overlay", manifest, "--host-model", str(path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("host "))
    assert line.startswith("host     measured: ") and " ms an image on " in line and "modelled" not in line


def test_flushing_is_timed_where_the_board_does_it(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SIZES", (64, 4096))
    samples = [*measuring._flushes(program.device, board.overlay)]
    assert [(one.kind, one.counts["element"]) for one in samples] == [("flush", size) for size in (64, 64, 4096, 4096)]
    assert all(one.amount > 0 for one in samples) and not board.memory.held
    coherent = replace(board.overlay, coherent=True)
    assert [*measuring._flushes(program.device, coherent)] == []


def test_networks_whose_passes_have_two_threads_are_not_timed() -> None:
    assert {probe.name for probe in probes()} - {probe.name for probe in measuring.networks()} == {
        f"lanes{count}" for count in (3, 12, 28)
    }
