"""How to add one of each: the templates of docs/architecture.md, and every place that lists them has it."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import cli, devices, layers, overlay, passes, plugins
from chai.cli import main as chai_command
from chai.evaluate import selftest
from chai.offload.schedule import DeviceStep
from chai.util.paths import resource
from tests.templates import FILES, PAGE, merged, values

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 5 dim: 3 dim: 7 } } }
layer { name: "twice" type: "Double" bottom: "data" top: "out" power_param { power: 2 } }
"""
DATA = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3, 7)).astype(np.float32)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, str], None]]:
    """Puts a template into a package of chai, for one test."""
    files: list[tuple[Any, str]] = []

    def add(package: Any, name: str) -> None:
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(FILES[f"{package.__name__.replace('.', '/')}/{name}.py"])
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


def test_an_onnx_operator(added: Callable[[Any, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    from chai.onnx import ops
    from tests.onnx.common import one

    monkeypatch.setattr(ops, "_OPERATORS", dict(ops.operators()))
    added(ops, "shrink")
    ops.operators.cache_clear()
    try:
        (y,) = one("Shrink", DATA, lambd=0.5)
    finally:
        ops.operators.cache_clear()
    np.testing.assert_array_equal(y, np.where(np.abs(DATA) > 0.5, DATA, 0))


def test_a_layer_type(added: Callable[[Any, str], None], network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the host, on an overlay, in show and in the list of layers."""
    added(layers, "double")
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


def test_its_parameters_are_checked(added: Callable[[Any, str], None], network: Path) -> None:
    added(layers, "double")
    network.write_text(NET.replace("power: 2", "power: 4"))
    with pytest.raises(chai.ParseError, match=r"power: 4.0 is outside 0.5 .. 3"):
        chai.Net(network, device="float")


def test_a_device(
    added: Callable[[Any, str], None], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    added(devices, "echo")
    assert "echo" in devices.names()
    images = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    with caplog.at_level(logging.INFO, "chai"):
        ran, expected = (chai.Net("digits", device=name, calibrate=images) for name in ("echo", "emulator"))
        assert np.array_equal(ran.forward(images)["prob"], expected.forward(images)["prob"])
    tasks = [" ".join(task.kind for task in step.tasks) for step in ran.schedule.steps if isinstance(step, DeviceStep)]
    assert tasks[0] and tasks == [r.message for r in caplog.records if r.name == "chai.devices.echo"]
    assert chai_command(["devices", "--json"]) == 0
    listed = {d["device"]: d for d in json.loads(capsys.readouterr().out)["devices"]}
    assert listed["echo"] == {
        "device": "echo",
        "usable": True,
        "state": "this host, with a log",
        "summary": "the emulator, with a log",
    }


@pytest.fixture
def manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of overlays, as a copy."""
    shutil.copytree(resource("hw_overlays"), tmp_path / "hw_overlays")
    for module in ("manifest", "checks"):
        monkeypatch.setattr(f"chai.overlay.{module}.shipped", lambda *parts: str(tmp_path.joinpath(*parts)))
    return tmp_path / "hw_overlays"


def test_an_overlay(manifests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a manifest next to the others: half the array of the smallest."""
    (changes,) = values("An overlay")
    value = merged(json.loads(overlay.load("pynq-z2").path.read_text()), changes)
    (manifests / "half").mkdir()
    (manifests / "half" / "overlay.json").write_text(json.dumps(value))
    assert "half" in overlay.names()
    assert overlay.load("half").macs == overlay.load("pynq-z2").macs // 2
    assert overlay.load("half").build != overlay.load("pynq-z2").build
    images = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    top, same = (
        chai.Net("digits", device="emulator", overlay=name, calibrate=images).forward(images)["prob"]
        for name in ("half", "pynq-z2")
    )
    assert np.array_equal(top, same)
    assert chai_command(["devices", "--json"]) == 0
    assert "half" in {o["overlay"] for o in json.loads(capsys.readouterr().out)["overlays"]}
    assert chai_command(["show", "digits", "--overlay", "half"]) == 0
    assert "half" in capsys.readouterr().out


def test_an_architecture(
    manifests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planned, refused, shown with its times, run on the emulator, and its manifest checked."""
    manifest, changes = values("An architecture")
    schema = json.loads((manifests / "vta.schema.json").read_text())
    for key in ("fclk", "coherent", "machine", "registers", "bitstreams"):
        del schema["properties"][key]
        schema["required"].remove(key)
    schema = merged(schema, {**changes, "required": [*schema["required"], *changes["required"]]})
    (manifests / "tiny.schema.json").write_text(json.dumps(schema))
    (manifests / "tiny-z2").mkdir()
    (manifests / "tiny-z2" / "overlay.json").write_text(json.dumps(manifest))
    (tmp_path / "package" / "tiny").mkdir(parents=True)
    (tmp_path / "package" / "tiny" / "__init__.py").touch()
    (tmp_path / "package" / "tiny" / "architecture.py").write_text(FILES["chai/tiny/architecture.py"])
    monkeypatch.setattr(chai, "__path__", [*chai.__path__, str(tmp_path / "package")])
    names = ("chai.tiny", "chai.tiny.architecture")
    for name in names:  # an import in between is taken back
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    tiny = overlay.load("tiny-z2")
    assert (tiny.architecture, tiny.kinds, tiny.macs) == ("tiny", ("conv", "copy"), 16)
    images = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    net = chai.Net("digits", device="emulator", overlay="tiny-z2", calibrate=images)
    assert np.abs(net.forward(images)["prob"] - chai.Net("digits").forward(images)["prob"]).max() < 0.05
    assert {"fpga:Convolution", "fpga:Concat", "host:Pooling"} <= {*net.schedule.engines()}
    assert all(result.ok for result in selftest.run(devices.open("emulator"), tiny))
    assert chai_command(["show", "digits", "--overlay", "tiny-z2"]) == 0
    assert " ms a pass, modelled" in capsys.readouterr().out
    (manifests / "tiny-z2" / "overlay.json").write_text(json.dumps({**manifest, "macs": 0}))
    with pytest.raises(chai.ParseError, match="macs"):
        overlay.load("tiny-z2")


ABS = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 5 dim: 3 dim: 7 } } }
layer { name: "relu" type: "ReLU" bottom: "data" top: "r" }
layer { name: "abs" type: "AbsVal" bottom: "r" top: "a" }
layer { name: "pool" type: "Pooling" bottom: "a" top: "p" pooling_param { kernel_size: 3 stride: 1 } }
"""


def test_a_pass(added: Callable[[Any, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file, and one line of PIPELINE: the host layer is gone from the emulator's schedule, the numbers are the same."""
    path = tmp_path / "abs.prototxt"
    path.write_text(ABS)
    before = chai.Net(path, device="emulator", calibrate=DATA)
    expected = before.forward(DATA)["p"]
    assert "host:AbsVal" in before.schedule.engines()
    added(passes, "drop_abs")
    rewrite = import_module("chai.passes.rewrite")
    drop_abs = import_module("chai.passes.drop_abs").drop_abs
    monkeypatch.setattr(rewrite, "PIPELINE", (drop_abs, *rewrite.PIPELINE))
    after = chai.Net(path, device="emulator", calibrate=DATA)
    answer = after.forward(DATA)["p"]
    assert "host:AbsVal" not in after.schedule.engines()
    assert np.abs(answer - expected).max() <= after.formats["p"].step
    assert np.array_equal(chai.Net(path, device="float").forward(DATA)["p"] > 0, answer > 0)


def test_a_command(
    added: Callable[[Any, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file, and one line of COMMANDS."""
    added(cli, "greet")
    (line,) = values("A command")
    monkeypatch.setattr(cli, "COMMANDS", cli.COMMANDS | line)
    assert chai_command(["--help"]) == 0
    assert "  greet     say hello\n" in capsys.readouterr().out
    assert chai_command(["greet", "Ada"]) == 0
    assert capsys.readouterr().out == "hello Ada\n"


def test_a_way_to_define_custom_layers(
    added: Callable[[Any, str], None], network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One module, and one line of FORMS."""
    added(plugins.python, "elementwise")
    (line,) = values("A way to define custom layers")
    monkeypatch.setattr(plugins.registry, "FORMS", {**plugins.registry.FORMS, **line})
    code = '@chai.custom.elementwise("Double")\ndef twice(x):\n    return x + x\n'
    (tmp_path / "mine.py").write_text(f"import chai\n\n\n{code}")
    net = chai.Net(network, device="float", custom=tmp_path / "mine.py")
    assert np.array_equal(net.forward(DATA)["out"], DATA + DATA)
    layer = net.graph.layer("twice")
    assert (layer.engine, layer.defined) == ("custom", f"{tmp_path / 'mine.py'}:4")


def test_every_template_is_tried() -> None:
    """Here or, those of a kind of Task, in tests/tasks/test_add_one.py; and each row of the table has one."""
    tried = "layers/double onnx/ops/shrink devices/echo passes/drop_abs cli/greet plugins/python/elementwise tiny/architecture"
    tasks = "tasks/mirror kernels/in_numpy"
    assert {*FILES} == {f"chai/{name}.py" for name in f"{tried} {tasks}".split()}
    table, templates = PAGE.split("\n## Templates\n")
    headings = re.findall(r"^### (.*)$", templates, re.MULTILINE)
    rows = re.findall(r"^\| \[(an? .*?)\]\(#", table, re.MULTILINE)
    assert [heading.lower() for heading in headings] == [row.lower() for row in rows]
