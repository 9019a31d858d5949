"""Tables of codes: functions of one number in float64, as Tasks by definition and on the emulator, alone and after others."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from chai import devices
from chai.errors import ModelError
from chai.fixed import Format
from chai.overlay import Overlay
from chai.parser.load import load_graph
from chai.plugins.registry import Registry
from chai.tasks import Task
from chai.tasks.copy import Copy
from chai.tasks.lookup import lookup_of
from chai.tasks.unsupported import Unsupported
from chai.tasks.work import Work
from tests.lookups import FUNCTIONS, KINDS, layer_text, looked_up, random_task, with_lookups

from .common import FORMS, kernel_form

FORMATS = [
    Format("DynamicFixed", 8, 4),
    Format("DynamicFixed", 8, 7, True),
    Format("DynamicFixed", 6, 3),
    Format("Xilinx", 8, 2.7),
    Format("Xilinx", 8, 5.1, True),
    Format("Xilinx", 6, 0.9, True),
]
CODES = np.arange(-128, 128, dtype=np.int8)


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    return with_lookups(tmp_path_factory.mktemp("lookups"))


def run(overlay: Overlay, tasks: list[Task], shapes: dict[str, tuple[int, ...]], **inputs: np.ndarray) -> np.ndarray:
    """The codes of the last Task on the emulator."""
    blobs = dict(inputs)
    devices.open("emulator").compile(Work(overlay, tasks, shapes, {}, tuple(inputs), (tasks[-1].output,))).run(blobs)
    return blobs[tasks[-1].output]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_code_of_a_function(overlay: Overlay, name: str, tmp_path: Path) -> None:
    """The nearest code of its value in float64; where two are about as near, one of them."""
    path = tmp_path / "net.prototxt"
    path.write_text(
        layer_text("data", "shape { dim: 1 dim: 1 dim: 16 dim: 16 }", "Input")
        + layer_text("f", *FUNCTIONS[name][1::-1])
    )
    (layer,) = [each for each in load_graph(path, Registry()).layers if not each.source]
    shape = 1, 16, 4, 4
    for source, target in product(FORMATS, FORMATS):
        table = lookup_of(layer.of_numbers, source, target)
        assert table.dtype == np.int8 and table.shape == (256,)
        low, high = source.range
        for code in range(low, high + 1):
            exact = FUNCTIONS[name][2]((code - source.zero) * float(np.float32(source.step))) / target.step
            least, most = (edge - target.zero for edge in target.packed)
            exact = min(max(exact, least), most)
            value = int(table[code + 128]) - target.zero
            assert abs(value - exact) < 0.501, (source, target, code)
            assert abs(exact - math.floor(exact) - 0.5) < 0.001 or value == round(exact)
        task = Copy(("x",), "y", ("f",), 0, None, lookup=table)
        x = CODES.reshape(shape)
        wanted = np.array([table[int(code) + 128] for code in CODES], np.int8).reshape(shape)
        assert np.array_equal(task.define(x), wanted)
        assert np.array_equal(run(overlay, [task], {"x": shape, "y": shape}, x=x), wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_with_a_table_is_the_task_and_then_the_table(overlay: Overlay, kind: str, form: str) -> None:
    varied = 0
    for seed in range(12):
        task, shapes, codes = random_task(kind, seed)
        fused, (first, second) = looked_up(task, seed)
        wanted = fused.define(*codes.values())
        assert np.array_equal(wanted, second.define(first.define(*codes.values())))
        varied += len(np.unique(wanted)) > 20 and not np.array_equal(wanted, task.define(*codes.values()))
        with kernel_form(form):
            assert np.array_equal(run(overlay, [fused], shapes, **codes), wanted)
            every = {**shapes, first.output: shapes[task.output]}
            assert np.array_equal(run(overlay, [first, second], every, **codes), wanted)
    assert varied > 5


def test_a_number_without_a_value_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"its value for -8, .* is not a number"):
        lookup_of(np.sqrt, FORMATS[0], FORMATS[0])
    assert lookup_of(np.sqrt, FORMATS[1], FORMATS[1])[0] == -128  # whose numbers are not negative


def test_what_nothing_writes_has_the_value_of_its_neighbour() -> None:
    """Of 6 bits: codes beyond the range may have no value at all."""
    table = lookup_of(lambda x: np.sqrt(4 + x), FORMATS[2], FORMATS[0])
    low, high = FORMATS[2].range
    assert (table[: low + 128] == table[low + 128]).all() and (table[high + 128 :] == table[high + 128]).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[..., :1], "it makes"),
        (lambda x: np.cumsum(x, -1), "it gives"),
        (lambda x: x - x.mean(-1, keepdims=True), "it gives"),
        (lambda x: x + np.arange(x.size, dtype=np.float32).reshape(x.shape), "it gives"),
    ],
)
def test_what_is_no_function_of_one_number_is_refused(function: object, message: str) -> None:
    with pytest.raises(ModelError, match=f"is no function of one number: .* {message}"):
        lookup_of(function, FORMATS[0], FORMATS[0])  # type: ignore[arg-type]


def test_state_is_refused() -> None:
    calls: list[int] = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x * len(calls)

    with pytest.raises(ModelError, match="is no function of one number"):
        lookup_of(counted, FORMATS[0], FORMATS[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_without_the_unit_excludes_it(overlay: Overlay, kind: str) -> None:
    task, shapes, _ = random_task(kind, 1)
    task, _ = looked_up(task, 1)
    without = replace(
        overlay, tasks=tuple(s._replace(limits=tuple(x for x in s.limits if x[0] != "lookup")) for s in overlay.tasks)
    )
    assert task.excluded(overlay, shapes) is None
    assert task.excluded(without, shapes) == f"the overlay has no lookup {task.kind}"


def test_its_bytes_are_fetched(overlay: Overlay) -> None:
    slow = replace(overlay, memory_mb_per_s=1, memory_port=None)
    for kind in KINDS:
        task, shapes, _ = random_task(kind, 1)
        fused, _ = looked_up(task, 1)
        more = fused.cycles(slow, shapes) - task.cycles(slow, shapes)
        assert abs(more - 256 * slow.clock_mhz) <= 1
