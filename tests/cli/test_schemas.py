"""Every ``--json`` object has exactly the keys and types of its dataclass."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.artifact.save import save
from chai.cli.layers import Layers
from chai.report.layer_rows import LayerRow
from chai.util.paths import resource
from tests.cli.conforms import SCHEMAS, changes, checked, described, differences
from tests.cli.conftest import InProcess
from tests.cli.test_estimate import LIST
from tests.frames.common import jpeg
from tests.onnx import common as onnx

DIGITS = resource("prototxt", "digits_images")
SNAPSHOT = Path(__file__).with_name("schemas.json")  # written by: python -m tests.cli.test_schemas


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with net.chai, few/ (3 digits and a broken image), a list of layers and a map of one channel."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "few").mkdir()
    for file in sorted(DIGITS.glob("*.png"))[:3]:
        (folder / "few" / file.name).write_bytes(file.read_bytes())
    (folder / "broken").mkdir()
    (folder / "broken" / "bad.png").write_bytes(b"none")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "broken" / "good.png")
    (folder / "layers.csv").write_text(LIST)
    (folder / "torn.mjpeg").write_bytes(jpeg(np.zeros((8, 8, 3), np.uint8)) * 2 + b"\xff\xd8")
    nodes = [onnx.node("Einsum", ["x"], ["y"], "sums")]
    (folder / "refused.onnx").write_bytes(onnx.model(nodes, {"x": (2, 3)}, ["y"]))
    with chai.Net("digits", device="null", calibrate=np.ones((1, 1, 8, 8), np.float32)) as net:
        save(net, folder / "net.chai")
    return folder


COMMANDS = [
    ("chai.show/3", "show digits --json", 0),
    ("chai.show/3", "show digits --overlay pynq-z2 --json", 0),
    ("chai.show/3", "show net.chai --json", 0),
    ("chai.show/3", "show unsized.prototxt --json", 0),
    ("chai.show.refused/1", "show refused.onnx --json", 65),
    ("chai.run/3", "run digits -i few --json --perf", 0),
    ("chai.run/3", "run digits -i broken --json", 65),
    ("chai.video/1", "run digits -i few --live --json", 0),
    ("chai.video/1", "run digits -i torn.mjpeg --json", 65),
    ("chai.check/1", "check digits -i few --json", 0),
    ("chai.check.custom/1", "check digits --custom gemm --json", 0),
    ("chai.quantize/2", "quantize digits --calibration few --effort fast -o q.prototxt --json", 0),
    (
        "chai.quantize/2",
        "quantize digits_detector --calibration SCENES --effort fast --judge boxes -o d.prototxt --json",
        0,
    ),
    ("chai.evaluate/3", "evaluate digits --images few --jobs 1 --json", 0),
    ("chai.estimate/1", "estimate layers.csv --json", 0),
    ("chai.demo/1", "demo --json", 0),
    ("chai.demo.detect/1", "demo --detect --json", 0),
    ("chai.layers/1", "layers --json", 0),
    ("chai.devices/1", "devices --json", 0),
    ("chai.selftest/1", "devices --test --device emulator --json", 0),
]


@pytest.mark.parametrize(("schema", "command", "code"), COMMANDS, ids=lambda v: str(v))
def test_what_a_command_prints_is_what_its_dataclass_says(
    in_process: InProcess,
    schema: str,
    command: str,
    code: int,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    Path("unsized.prototxt").write_text('input: "data" layer { name: "r" type: "ReLU" bottom: "data" top: "r" }')
    command = command.replace("SCENES", str(resource("prototxt", "digits_scenes")))
    assert in_process(*[*command.split(), "-q"]) == code
    checked(json.loads(capsys.readouterr().out), schema)


def test_bench_prints_what_its_dataclass_says(chai_command: Any) -> None:
    """In a process of its own: threads are set before numpy is loaded."""
    done = chai_command("bench", "digits", "--rounds", "2", "--against", "none", "--json", "-q")
    checked(json.loads(done.stdout), "chai.bench/5")


def test_every_schema_is_tested() -> None:
    assert {schema for schema, _, _ in COMMANDS} | {"chai.bench/5"} == SCHEMAS.keys()


def test_a_difference_would_be_seen() -> None:
    content = {"layers": [{"type": "a", "kind": 1, "parameters": None, "text": ""}]}
    assert sorted(differences(content, Layers)) == [
        ".layers[0].kind: int instead of str",
        ".layers[0].summary: missing",
        ".layers[0].text: not in LayerType",
    ]
    assert differences({}, Layers) == [".layers: missing"]
    assert differences({"a": True}, dict[str, int]) and differences({"a": 1.0}, dict[str, int])


def test_show_prints_the_same_keys_of_all_three(
    in_process: InProcess, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    contents = []
    for command in ("show digits", "show digits --overlay pynq-z2", "show net.chai"):
        assert in_process(*[*command.split(), "--json", "-q"]) == 0
        contents.append(json.loads(capsys.readouterr().out))
    assert list(contents[0]) == list(contents[1]) == list(contents[2])
    rows = [row for content in contents for row in content["layers"]]
    assert {tuple(row) for row in rows} == {tuple(f.name for f in fields(LayerRow))}
    first = {row["name"]: row for row in contents[0]["layers"]}
    for content in contents[1:]:  # what does not depend on a plan is the same
        for row in content["layers"]:
            assert (row["type"], row["shapes"], row["defined"]) == tuple(
                first[row["name"]][key] for key in ("type", "shapes", "defined")
            )
    assert all(row[key] is None for row in contents[0]["layers"] for key in ("cycles", "format", "reason", "sum_open"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_changes_only_with_its_number(schema: str) -> None:
    snapshot, now = json.loads(SNAPSHOT.read_text()), described(SCHEMAS[schema])
    assert changes(snapshot.get(schema, {}), now) == [], "raise the number of the schema"
    assert snapshot.get(schema) == now, "add what is new to the snapshot: python -m tests.cli.test_schemas"


def test_a_change_of_a_schema_would_be_seen() -> None:
    before = {"a": "int", "b": [{"c": "str"}], "d": {"any of": ["float", "null"]}}
    assert changes(before, {**before, "e": "int"}) == []
    assert changes(before, {"b": [{"c": "int"}], "d": {"any of": ["str", "null"]}}) == [
        ".a: removed",
        ".b[].c: str is now int",
        ".d: float is now str",
    ]
    assert changes(before, {**before, "d": "float"}) != []


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps({name: described(kind) for name, kind in SCHEMAS.items()}, indent=1) + "\n")
