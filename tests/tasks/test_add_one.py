"""How to add a kind of Task: the template of docs/architecture.md, and its limits in a manifest and the schema."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai import devices, overlay as overlays, tasks
from chai.codegen.encoding import encode
from chai.errors import DeviceError, ParseError
from chai.evaluate import selftest
from chai.kernels import in_numpy
from chai.overlay import Overlay, checks
from chai.overlay.layout import Placed
from chai.overlay.records import unpack
from chai.tasks import Task
from chai.tasks.fields import Operands
from chai.tasks.work import Work
from chai.util.data import jsonfile
from chai.util.paths import resource
from tests.codegen.cases import decoded
from tests.codegen.equality import equal
from tests.tasks.common import joined, kinds
from tests.templates import FILES, values

SHAPES = dict.fromkeys(("a", "b"), (2, 20, 3, 7))
PLACES = {"a": Placed(0, 4096), "b": Placed(8192, 4096)}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Task]]:
    """The new kind, as if its file were in chai/tasks."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mirror.py").write_text(FILES["chai/tasks/mirror.py"])
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path / "tasks")])
    tasks.find.cache_clear()
    yield tasks.find("mirror")
    tasks.find.cache_clear()
    sys.modules.pop(f"{tasks.__name__}.mirror", None)
    vars(tasks).pop("mirror", None)


@pytest.fixture
def extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Overlay:
    """A copy of the default manifest with a section for it, and the schema of that section."""
    value: dict[str, Any] = json.loads(overlays.load().path.read_text())
    limits, ranges = values("A kind of Task")
    value["tasks"] |= limits
    schema: dict[str, Any] = copy.deepcopy(jsonfile.load(resource("hw_overlays", "overlay.schema.json")).value)
    schema["properties"]["tasks"]["properties"] |= ranges
    monkeypatch.setattr(checks, "_schema", lambda _name: schema)
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(value))
    return overlays.load(path)


def codes() -> np.ndarray:
    return np.random.default_rng(3).integers(-128, 128, SHAPES["a"]).astype(np.int8)


def emulated(overlay: Overlay, task: Task, x: np.ndarray) -> np.ndarray:
    blobs = {"a": x}
    devices.open("emulator").compile(Work(overlay, [task], SHAPES, {}, ("a",), ("b",))).run(blobs)
    return blobs["b"]


def test_it_is_listed_and_its_limits_are_read(mirror: type[Task], extended: Overlay) -> None:
    assert "mirror" in kinds() and "mirror" in extended.kinds
    limits = mirror.limits(extended)
    assert limits is not None and (limits.opcode, limits.channel_step) == (200, 8)
    assert mirror.limits(overlays.load()) is None
    assert [p.name for p in selftest.probes(extended) if p.name.startswith("mirror")] == [
        f"mirror, {bits} bit {scheme}" for scheme in extended.schemes for bits in extended.bits
    ]


def test_the_emulator_runs_its_definition(mirror: type[Task], extended: Overlay) -> None:
    x = codes()
    assert np.array_equal(emulated(extended, mirror(("a",), "b", ("m",)), x), x[..., ::-1])
    results = [r for r in selftest.run(devices.open("emulator"), extended) if r.name.startswith("mirror")]
    assert len(results) == 4 and all(r.ok for r in results)


def test_it_may_have_a_fast_kernel(mirror: type[Task], extended: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_numpy, "KERNELS", {**in_numpy.KERNELS})
    exec(FILES["chai/kernels/in_numpy.py"], {**vars(in_numpy)})
    x, task = codes(), mirror(("a",), "b", ("m",))
    monkeypatch.setattr(mirror, "define", None)  # nothing else computes it
    assert np.array_equal(emulated(extended, task, x), x[..., ::-1])


def test_it_is_encoded_and_decoded(mirror: type[Task], extended: Overlay) -> None:
    task = mirror(("a",), "b", ("m",))
    descriptor, constants = encode(task, Operands(extended, PLACES, SHAPES), 0)
    assert joined(constants) == b"" and unpack(extended.descriptor, descriptor)["opcode"] == 200
    decoded_task = decoded(descriptor, b"", extended, PLACES, SHAPES, 0, task)
    assert type(decoded_task) is mirror and equal(task, decoded_task)
    with pytest.raises(DeviceError, match="opcode = 200 is that of no Task of overlay pynq-z2"):
        decoded(descriptor, b"", overlays.load(), PLACES, SHAPES, 0, task)
    with pytest.raises(DeviceError, match="has no mirror unit"):
        encode(task, Operands(overlays.load(), PLACES, SHAPES), 0)


def test_it_has_cycles_and_an_engine(mirror: type[Task], extended: Overlay) -> None:
    """Two words a cycle, as its limits say, where the memory is fast enough: 2 images of 3 words for 20 channels."""
    task = mirror(("a",), "b", ("m",))
    words = 2 * 3 * 3 * 7
    fast = replace(extended, memory_mb_per_s=1e6, memory_port=None)
    assert task.cycles(fast, SHAPES) == words // 2 + extended.overhead.task_cycles
    assert task.cycles(extended, SHAPES) > task.cycles(fast, SHAPES)
    assert task.engine == "window"


def test_a_section_that_the_schema_does_not_have_is_refused(tmp_path: Path) -> None:
    value = json.loads(overlays.load().path.read_text())
    value["tasks"]["mirror"] = {**value["tasks"]["copy"], "opcode": 200}
    (tmp_path / "overlay.json").write_text(json.dumps(value))
    with pytest.raises(ParseError, match="mirror"):
        overlays.load(tmp_path / "overlay.json")
