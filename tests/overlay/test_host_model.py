"""host_model: what it says, what is refused, and that nothing but printed figures depends on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import chai
from chai import overlay
from chai.artifact.save import save
from chai.errors import ParseError
from chai.overlay import host_model
from chai.overlay.host_model import Span
from chai.util.paths import resource

SCHEMA = json.loads(resource("hw_overlays", "host_model.schema.json").read_text())
MODEL: dict[str, Any] = {
    "machine": "armv7l",
    "processor": "Cortex-A9",
    "unit": "instructions",
    "clock_mhz": 500,
    "cycles": [1.5, 4],
    "assumed": ["cycles"],
    "sources": {"clock_mhz": "read", "cycles": "assumed", "counted": "under qemu", "guess": "half of it"},
    "driver": {
        "pass": {"source": "counted", "call": 1000, "conversion": 20, "step": 300},
        "segment": {"source": "counted", "call": 7000},
        "store": {"source": "counted", "call": 13, "element": 3},
    },
    "conversions": {
        "Pack": {"source": "counted", "call": 500, "plane": 11, "row": 5, "word": 2, "element": 0.5},
        "Unpack": {"source": "counted", "call": 600, "element": 0.25},
    },
    "layers": {
        "LRN": {"source": "counted", "call": 40, "blob": 7, "row": 3, "element": 10},
        "others": {"source": "guess", "call": 60, "element": 9, "mac": 2},
    },
}
MEASURED = {
    **{key: value for key, value in MODEL.items() if key not in ("clock_mhz", "cycles")},
    "board": "Digilent Pynq-Z2",
    "unit": "nanoseconds",
    "assumed": [],
}


def changed(model: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """Return a model with another value at a place such as ``driver.pass.call``; None takes the key away."""
    copy: dict[str, Any] = json.loads(json.dumps(model))
    *outer, key = place.split(".")
    inside = copy
    for name in outer:
        inside = inside[name]
    if value is None:
        del inside[key]
    else:
        inside[key] = value
    return copy


def file(folder: Path, model: Any) -> Path:
    path = folder / "board.json"
    path.write_text(host_model.layout(model) if isinstance(model, dict) else json.dumps(model))
    return path


def manifest(folder: Path, model: Any = None, name: str = "pynq-z2") -> Path:
    """Write a shipped manifest with this host model, without one if it is None."""
    content = json.loads(resource("hw_overlays", name, "overlay.json").read_text())
    content.pop("host_model", None)
    folder.mkdir(exist_ok=True)
    path = folder / "overlay.json"
    path.write_text(json.dumps(content if model is None else {**content, "host_model": model}, indent=2))
    return path


# -- what it says


def test_an_amount_is_the_sum_of_its_terms(tmp_path: Path) -> None:
    model = host_model.load(file(tmp_path, MODEL))
    counts = {"call": 1, "plane": 3, "row": 17, "word": 19, "element": 100}
    assert model.amount("conversions", "Pack", counts) == 500 + 3 * 11 + 17 * 5 + 19 * 2 + 50
    assert model.amount("conversions", "Pack unfolded", counts) == model.amount("conversions", "Pack", counts)
    assert model.amount("layers", "LRN", {"call": 2, "blob": 4, "row": 5, "element": 6, "mac": 7}) == 80 + 28 + 15 + 60
    assert model.amount("layers", "LRN of codes", {"call": 2}) == model.amount("layers", "LRN", {"call": 2}) == 80
    assert model.amount("layers", "Mish", {"call": 1, "element": 6, "mac": 7}) == 60 + 54 + 14
    assert model.amount("driver", "flush", {"call": 1, "element": 4096}) == 0
    assert (model.knows("layers", "LRN"), model.knows("layers", "Mish")) == (True, False)


def test_milliseconds_lie_between_the_cycles_of_an_instruction(tmp_path: Path) -> None:
    model = host_model.load(file(tmp_path, MODEL))
    assert model.ms(2_000_000) == Span(pytest.approx(6.0), pytest.approx(16.0))
    measured = host_model.load(file(tmp_path, MEASURED))
    assert (model.measured, measured.measured, measured.board) == (False, True, "Digilent Pynq-Z2")
    assert measured.ms(2_500_000) == Span(2.5, 2.5)


def test_a_manifest_and_a_file_have_the_same_form(tmp_path: Path) -> None:
    assert host_model.of_manifest(manifest(tmp_path / "own", MODEL)) == host_model.load(file(tmp_path, MODEL))
    assert host_model.of_manifest(manifest(tmp_path / "own")) is None
    text = host_model.layout(MODEL)
    assert json.loads(text) == MODEL and '    "LRN": {"source": "counted", "call": 40,' in text
    for model in (MODEL, MEASURED):
        jsonschema.validate(model, SCHEMA)


@pytest.mark.parametrize("name", [name for name in overlay.names() if not overlay.load(name).emulated])
def test_the_shipped_ones_are_of_the_boards_processor(name: str) -> None:
    """Counted, not typed; what was never measured is marked."""
    on = overlay.load(name)
    model = host_model.of_manifest(on.path)
    assert model is not None and not model.measured
    expected = {"zynq7000": ("armv7l", "Cortex-A9", 650), "zynqmp": ("aarch64", "Cortex-A53", 1200)}[on.family]
    assert (model.machine, model.processor, 1200 if name == "kv260" else model.clock_mhz) == expected
    assert model.clock_mhz == (1333 if name == "kv260" else expected[2])
    assert model.cycles == (1.0, 1.7) and model.assumed == ("clock_mhz", "cycles")
    section = json.loads(on.path.read_text())["host_model"]
    jsonschema.validate(section, SCHEMA)
    costs = [cost for group in ("driver", "conversions", "layers") for cost in section[group].values()]
    assert {cost["source"] for cost in costs} == {"counted", "guess"} and all(len(cost) > 1 for cost in costs)
    first = overlay.load("pynq-z2" if model.machine == "armv7l" else "ultra96").path
    assert {**section, "clock_mhz": 0} == {**json.loads(first.read_text())["host_model"], "clock_mhz": 0}


# -- what is refused


REFUSALS = [
    ("driver.pass.call", -1, "driver.pass.call: expected 0 to 1000000000000, found -1"),
    ("driver.pass.call", "many", "driver.pass.call: expected a number"),
    ("driver.pass.element", 1e13, "driver.pass.element: expected 0 to"),
    ("driver.segment", None, 'driver: the key "segment" is missing'),
    ("driver.start", {"source": "counted"}, 'driver: unknown key "start"'),
    ("driver.segment.pixel", 3, 'driver.segment: unknown key "pixel"'),
    ("conversions.Unpack.source", "told", 'conversions.Unpack: there is no source "told"'),
    ("layers.others", None, 'layers: the key "others" is missing'),
    ("layers.LRN.source", None, 'layers.LRN: the key "source" is missing'),
    ("clock_mhz", None, "instructions take no time without the key 'clock_mhz'"),
    ("cycles", None, "instructions take no time without the key 'cycles'"),
    ("cycles", [1.7, 1.0], "cycles: expected two numbers, least and most"),
    ("cycles", [1, 2, 3], "cycles: expected two numbers, least and most"),
    ("cycles", [1], "at least 2 items"),
    ("sources.cycles", None, "sources: it does not say where cycles is from"),
    ("unit", "nanoseconds", "clock_mhz of nanoseconds, which are a time already"),
    ("unit", "cycles", 'unit: expected one of "instructions", "nanoseconds"'),
    ("assumed", ["all"], "assumed[0]: expected one of"),
    ("machine", "", "machine: expected up to 80 printable characters"),
]


@pytest.mark.parametrize(("place", "value", "text"), REFUSALS, ids=lambda value: str(value)[:40])
def test_a_wrong_one_is_refused_at_its_line(tmp_path: Path, place: str, value: Any, text: str) -> None:
    wrong = changed(MODEL, place, value)
    with pytest.raises(ParseError) as of_file:
        host_model.load(file(tmp_path, wrong))
    assert text in str(of_file.value) and f"{tmp_path}/board.json:" in str(of_file.value)
    with pytest.raises(ParseError) as of_overlay:
        overlay.load(manifest(tmp_path / "own", wrong))
    assert text.removeprefix("the file: ") in str(of_overlay.value) and "own/overlay.json:" in str(of_overlay.value)


@pytest.mark.parametrize("model", [[], 3, "text", None, {}])
def test_what_is_no_model_is_refused(tmp_path: Path, model: Any) -> None:
    with pytest.raises(ParseError):
        host_model.load(file(tmp_path, model))
    with pytest.raises(FileNotFoundError):
        host_model.load(tmp_path / "missing.json")


def test_it_is_no_architecture(tmp_path: Path) -> None:
    path = manifest(tmp_path / "own")
    path.write_text(json.dumps({**json.loads(path.read_text()), "architecture": "host_model"}))
    with pytest.raises(ParseError, match="architecture: there is no 'host_model'"):
        overlay.load(path)


# -- what does not depend on it


@pytest.mark.parametrize("name", ["pynq-z2", "kv260", "vta-z7020"])
def test_a_build_does_not_depend_on_it(tmp_path: Path, name: str) -> None:
    loaded = [overlay.load(manifest(tmp_path / f"{i}", model, name)) for i, model in enumerate((None, MODEL, MEASURED))]
    assert len({on.digest for on in loaded}) == len({on.build for on in loaded}) == 1
    assert loaded[0].build == overlay.load(name).build
    slower = json.loads(loaded[0].path.read_text())
    slower["batch_max"] += 1
    loaded[0].path.write_text(json.dumps(slower))
    assert overlay.load(loaded[0].path).build != loaded[1].build  # while this is what a build depends on


def test_plans_and_files_do_not_depend_on_it(tmp_path: Path) -> None:
    """A host on which every layer takes seconds moves none, and the bytes of a file stay."""
    heavy = changed(changed(MODEL, "driver.segment.call", 1e12), "conversions.Pack.call", 1e12)
    heavy = changed(heavy, "layers.others.call", 0)
    files, engines = [], []
    for i, model in enumerate((None, MODEL, heavy)):
        images = np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32)
        with chai.Net("digits", device="null", overlay=manifest(tmp_path / f"{i}", model), calibrate=images) as net:
            save(net, tmp_path / f"{i}.chai")
            engines.append(net.schedule.engines())
        files.append((tmp_path / f"{i}.chai").read_bytes())
    assert files[0] == files[1] == files[2] and engines[0] == engines[1] == engines[2]
    assert any(engine.startswith("fpga:") for engine in engines[0])
