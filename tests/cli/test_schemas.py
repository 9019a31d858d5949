"""Every ``--json`` object has exactly the keys and types of its dataclass."""

from __future__ import annotations

import json
import types
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest
from PIL import Image

import chai
from chai.artifact.save import save
from chai.cli import run, schemas
from chai.report.layer_rows import LayerRow
from chai.util.paths import resource
from tests.cli.test_estimate import LIST

DIGITS = resource("prototxt", "digits_images")
NAMES = {**vars(schemas), "LayerRow": LayerRow, "Shape": tuple[int, ...]}


def subclasses(of: type[schemas.Schema]) -> list[type[schemas.Schema]]:
    return [s for c in of.__subclasses__() for s in (c, *subclasses(c))]


SCHEMAS = {c.schema: c for c in subclasses(schemas.Schema) if "schema" in vars(c)}


def hints(kind: Any) -> dict[str, Any]:
    """Types of the keys of a dataclass or TypedDict."""
    found = get_type_hints(kind, localns=NAMES)
    return {f.name: found[f.name] for f in fields(kind)} if is_dataclass(kind) else found


def differences(value: Any, kind: Any, place: str = "") -> list[str]:
    """Where a JSON value is not of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        each = [differences(value, arg, place) for arg in args]
        return [] if [] in each else min(each, key=len)
    if is_dataclass(kind) or is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{place}: {type(value).__name__} instead of {kind.__name__}"]
        keys = hints(kind)
        needed = keys.keys() if is_dataclass(kind) else kind.__required_keys__
        found = [f"{place}.{key}: missing" for key in needed - value.keys()]
        found += [f"{place}.{key}: not in {kind.__name__}" for key in value.keys() - keys.keys()]
        return found + [d for k in keys.keys() & value.keys() for d in differences(value[k], keys[k], f"{place}.{k}")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{place}: no object"]
        return [d for k, v in value.items() for d in differences(v, args[1], f"{place}[{k}]")]
    if origin in (list, tuple):
        if not isinstance(value, list):
            return [f"{place}: no array"]
        return [d for i, v in enumerate(value) for d in differences(v, args[0], f"{place}[{i}]")]
    right = type(value) in ((int, float) if kind is float else (kind,))
    return [] if right else [f"{place}: {type(value).__name__} instead of {getattr(kind, '__name__', kind)}"]


def checked(content: dict[str, Any], schema: str) -> dict[str, Any]:
    assert content["schema"] == schema
    assert differences({k: v for k, v in content.items() if k != "schema"}, SCHEMAS[schema]) == []
    return content


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
    with chai.Net("digits", device="null", calibrate=np.ones((1, 1, 8, 8), np.float32)) as net:
        save(net, folder / "net.chai")
    return folder


COMMANDS = [
    ("chai.show/2", "show digits --json", 0),
    ("chai.show/2", "show digits --overlay pynq-z2 --json", 0),
    ("chai.show/2", "show net.chai --json", 0),
    ("chai.show/2", "show unsized.prototxt --json", 0),
    ("chai.run/2", "run digits -i few --json --perf", 0),
    ("chai.run/2", "run digits -i broken --json", 65),
    ("chai.check/1", "check digits -i few --json", 0),
    ("chai.check.custom/1", "check digits --custom gemm --json", 0),
    ("chai.quantize/1", "quantize digits --calibration few --effort fast -o q.prototxt --json", 0),
    ("chai.evaluate/3", "evaluate digits --images few --jobs 1 --json", 0),
    ("chai.estimate/1", "estimate layers.csv --json", 0),
    ("chai.demo/1", "demo --json", 0),
    ("chai.layers/1", "layers --json", 0),
    ("chai.devices/1", "devices --json", 0),
    ("chai.selftest/1", "devices --test --device emulator --json", 0),
]


@pytest.mark.parametrize(("schema", "command", "code"), COMMANDS, ids=lambda v: str(v))
def test_what_a_command_prints_is_what_its_dataclass_says(
    schema: str,
    command: str,
    code: int,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    Path("unsized.prototxt").write_text('input: "data" layer { name: "r" type: "ReLU" bottom: "data" top: "r" }')
    assert run([*command.split(), "-q"]) == code
    checked(json.loads(capsys.readouterr().out), schema)


def test_bench_prints_what_its_dataclass_says(chai_command: Any) -> None:
    """In a process of its own: threads are set before numpy is loaded."""
    done = chai_command("bench", "digits", "--rounds", "2", "--against", "none", "--json", "-q")
    checked(json.loads(done.stdout), "chai.bench/1")


def test_every_schema_is_tested() -> None:
    assert {schema for schema, _, _ in COMMANDS} | {"chai.bench/1"} == SCHEMAS.keys()


def test_a_difference_would_be_seen() -> None:
    content = {"layers": [{"type": "a", "kind": 1, "parameters": None, "text": ""}]}
    assert sorted(differences(content, schemas.Layers)) == [
        ".layers[0].kind: int instead of str",
        ".layers[0].summary: missing",
        ".layers[0].text: not in LayerType",
    ]
    assert differences({}, schemas.Layers) == [".layers: missing"]
    assert differences({"a": True}, dict[str, int]) and differences({"a": 1.0}, dict[str, int])


def test_show_prints_the_same_keys_of_all_three(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    contents = []
    for command in ("show digits", "show digits --overlay pynq-z2", "show net.chai"):
        assert run([*command.split(), "--json", "-q"]) == 0
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
