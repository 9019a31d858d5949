"""How to add a layer type, a device, an overlay: one file each, and every place that lists them has it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import chai
from chai import cli, devices, layers, overlay, passes
from chai.cli import main as chai_command
from chai.offload.schedule import DeviceStep
from chai.util.paths import resource

DOUBLE = dedent('''
    """Double: 2 x, on an overlay a rescaled Copy."""

    import numpy as np

    from ..graph import Layer
    from ..graph.params import within
    from ..tasks.copy import Copy
    from dataclasses import dataclass


    @dataclass(frozen=True)
    class DoubleParams:
        power: float = within(0.5, 3, 1.0)


    class Double(Layer):
        message = "power_param"
        Params = DoubleParams

        def forward(self, *bottoms):
            return (np.float32(2**self.params.power) * bottoms[0],)

        def unsupported(self, overlay, *bottoms):
            return self.beyond(overlay, "copy", size=max(bottoms[0][2:]), channels=bottoms[0][1])

        def lower(self, target):
            step = 2**self.params.power * target.formats[self.bottoms[0]].step
            return [Copy(self.bottoms, self.tops[0], self.origin, 0, target.requantization(np.array(step), self.tops[0], None))]
    ''')
ECHO = dedent('''
    """echo: the emulator, and a line about every segment."""

    from . import open
    from .base import Device

    RUNS = []


    class Echo(Device):
        fixed = True

        def status(self):
            return True, "this host, aloud"

        def compile(self, work):
            RUNS.append([task.kind for task in work.tasks])
            return open("emulator").compile(work)


    device = Echo("echo", "the emulator, aloud")
    ''')
NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 5 dim: 3 dim: 7 } } }
layer { name: "twice" type: "Double" bottom: "data" top: "out" power_param { power: 2 } }
"""
DATA = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3, 7)).astype(np.float32)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, str, str], None]]:
    """Puts a file into a package of chai, for one test."""
    files: list[tuple[Any, str]] = []

    def add(package: Any, name: str, text: str) -> None:
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        files.append((package, name))
        layers._files.cache_clear()

    yield add
    layers._files.cache_clear()
    for package, name in files:
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    return path


def test_a_layer_type(
    added: Callable[[Any, str, str], None], network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the host, on an overlay, in show and in the list of layers."""
    added(layers, "double", DOUBLE)
    assert np.array_equal(chai.Net(network, device="float").forward(DATA)["out"], 4 * DATA)
    net = chai.Net(network, device="emulator", calibrate=DATA)
    codes = net.forward(DATA)["out"]
    step = net.formats["out"].step
    assert net.schedule.engines() == ["host:Pack", "fpga:Double", "host:Unpack"]
    assert np.abs(codes - 4 * DATA).max() <= 0.5 * step + 4 * 0.5 * net.formats["data"].step
    assert chai_command(["show", str(network), "--overlay", "pynq-z2"]) == 0
    assert "Double" in capsys.readouterr().out
    assert chai_command(["layers", "--json"]) == 0
    assert "Double" in {layer["type"] for layer in json.loads(capsys.readouterr().out)["layers"]}


def test_its_parameters_are_checked(added: Callable[[Any, str, str], None], network: Path) -> None:
    added(layers, "double", DOUBLE)
    network.write_text(NET.replace("power: 2", "power: 4"))
    with pytest.raises(chai.ParseError, match=r"power: 4.0 is outside 0.5 .. 3"):
        chai.Net(network, device="float")


def test_a_device(added: Callable[[Any, str, str], None], capsys: pytest.CaptureFixture[str]) -> None:
    added(devices, "echo", ECHO)
    assert "echo" in devices.names()
    images = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    ran, expected = (chai.Net("digits", device=name, calibrate=images) for name in ("echo", "emulator"))
    assert np.array_equal(ran.forward(images)["prob"], expected.forward(images)["prob"])
    tasks = [[task.kind for task in step.tasks] for step in ran.schedule.steps if isinstance(step, DeviceStep)]
    assert tasks[0] and tasks == sys.modules["chai.devices.echo"].RUNS
    assert chai_command(["devices", "--json"]) == 0
    listed = {d["device"]: d for d in json.loads(capsys.readouterr().out)["devices"]}
    assert listed["echo"] == {
        "device": "echo",
        "usable": True,
        "state": "this host, aloud",
        "summary": "the emulator, aloud",
    }


def test_an_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a manifest next to the others: half the array of the smallest."""
    shutil.copytree(resource("hw_overlays"), tmp_path / "hw_overlays")
    value = json.loads(overlay.load("pynq-z2").path.read_text())
    value |= {"name": "half", "title": "8 x 24, for a test"}
    value["array"]["inputs"] //= 2
    value["dsp"]["array"] //= 2
    (tmp_path / "hw_overlays" / "half").mkdir()
    (tmp_path / "hw_overlays" / "half" / "overlay.json").write_text(json.dumps(value))
    monkeypatch.setattr("chai.overlay.manifest.shipped", lambda *parts: str(tmp_path.joinpath(*parts)))
    assert "half" in overlay.names()
    assert overlay.load("half").macs == overlay.load("pynq-z2").macs // 2
    assert overlay.load("half").build != overlay.load("pynq-z2").build
    images = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    found, same = (
        chai.Net("digits", device="emulator", overlay=name, calibrate=images).forward(images)["prob"]
        for name in ("half", "pynq-z2")
    )
    assert np.array_equal(found, same)
    assert chai_command(["devices", "--json"]) == 0
    assert "half" in {o["overlay"] for o in json.loads(capsys.readouterr().out)["overlays"]}
    assert chai_command(["show", "digits", "--overlay", "half"]) == 0
    assert "half" in capsys.readouterr().out


DROP_ABS = dedent('''
    """drop_abs: the absolute value of what a ReLU gives is the same."""

    from copy import copy
    from dataclasses import replace

    from ..graph import Graph


    def drop_abs(graph: Graph) -> Graph:
        positive = {layer.tops[0] for layer in graph.layers if layer.type == "ReLU"}
        same = {x.tops[0]: x.bottoms[0] for x in graph.layers if x.type == "AbsVal" and x.bottoms[0] in positive}
        layers = [copy(layer) for layer in graph.layers if not same.keys() & set(layer.tops)]
        for layer in layers:
            layer.bottoms = tuple(same.get(blob, blob) for blob in layer.bottoms)
        return replace(graph, layers=layers, latest={n: same.get(b, b) for n, b in graph.latest.items()})
    ''')
ABS = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 5 dim: 3 dim: 7 } } }
layer { name: "relu" type: "ReLU" bottom: "data" top: "r" }
layer { name: "abs" type: "AbsVal" bottom: "r" top: "a" }
layer { name: "pool" type: "Pooling" bottom: "a" top: "p" pooling_param { kernel_size: 3 stride: 1 } }
"""
GREET = dedent('''
    """chai greet: say hello."""

    from . import output

    EPILOG = "examples:"


    def arguments(parser):
        parser.add_argument("whom")


    def execute(args):
        output.result(f"hello {args.whom}")
        return 0
    ''')


def test_a_pass(added: Callable[[Any, str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file, and one line of PIPELINE: the host layer is gone from the emulator's schedule, the numbers are the same."""
    path = tmp_path / "abs.prototxt"
    path.write_text(ABS)
    before = chai.Net(path, device="emulator", calibrate=DATA)
    expected = before.forward(DATA)["p"]
    assert "host:AbsVal" in before.schedule.engines()
    added(passes, "drop_abs", DROP_ABS)
    rewrite = import_module("chai.passes.rewrite")
    drop_abs = import_module("chai.passes.drop_abs").drop_abs
    monkeypatch.setattr(rewrite, "PIPELINE", (drop_abs, *rewrite.PIPELINE))
    after = chai.Net(path, device="emulator", calibrate=DATA)
    found = after.forward(DATA)["p"]
    assert "host:AbsVal" not in after.schedule.engines()
    assert np.abs(found - expected).max() <= after.formats["p"].step
    assert np.array_equal(chai.Net(path, device="float").forward(DATA)["p"] > 0, found > 0)


def test_a_command(
    added: Callable[[Any, str, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file, and one line of COMMANDS."""
    added(cli, "greet", GREET)
    monkeypatch.setitem(cli.COMMANDS, "greet", "say hello")
    assert chai_command(["--help"]) == 0
    assert "  greet     say hello\n" in capsys.readouterr().out
    assert chai_command(["greet", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
