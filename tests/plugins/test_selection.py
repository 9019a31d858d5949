"""Which implementation runs: conditions, priorities, and autotune with its file."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.plugins import selection

from .common import DATA, SHAPE, compiles, flagged, frame, one

ONE = DATA[:1]


class Clock:
    """Time that passes only where a function says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


class Several:
    """A type whose implementations write a number of their own, and count their calls."""

    def __init__(self, **options: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.type = chai.custom("mine", jit=False, **options)(self.writes("ref", 1))

    def writes(self, name: str, number: float, wait: float = 0) -> Any:
        def function(x: Any) -> None:
            self.calls[name] += 1
            CLOCK.now += wait
            x.top[0][...] += number

        return function

    def add(self, name: str, number: float, wait: float = 0, **options: Any) -> None:
        self.type.impl(name, jit=False, **options)(self.writes(name, number, wait))


def answer(net: chai.Net, data: Any = DATA) -> float:
    """The one number that a pass wrote."""
    (number,) = set(net.forward(data)["y"].ravel().tolist())
    return number


def test_priority_and_condition(tmp_path: Path) -> None:
    several = Several(args={"k": 1})
    several.add("better", 2)
    several.add("single", 3, priority=20, when=lambda x: x.input_dims[0][0] == 1)
    several.add("never", 4, priority=30, when=lambda x: x.float_args.size > 0)
    several.add("worse", 5, priority=-1)
    net = one(tmp_path)
    assert answer(net) == 2
    assert answer(net, ONE) == 3  # asked again for every set of sizes
    assert answer(net) == 2
    layer = net.graph.layer("mine")
    assert layer.implementation((SHAPE,)) == "better (priority 10; others: ref, single, never, worse)"
    assert layer.implementation((ONE.shape,)) == "single (priority 20; others: ref, better, never, worse)"
    assert answer(one(tmp_path, flagged(floats=[7]))) == 4
    assert set(several.calls) == {"better", "single", "never"}


def test_of_equals_the_first_wins(tmp_path: Path) -> None:
    several = Several()
    several.add("equal", 2, priority=0)
    assert answer(one(tmp_path)) == 1


def test_when_sees_sizes_parameters_and_strings_but_no_data(tmp_path: Path) -> None:
    seen = []
    several = Several()
    several.add("look", 2, when=lambda x: bool(seen.append((x.string_args, x.n_params, x.in_ptrs, x.output_size))))
    assert answer(one(tmp_path, flagged(strings=["a"]))) == 1
    assert set(seen) == {(("a",), 0, (), 105)}


def test_none_that_fits_is_an_error(tmp_path: Path) -> None:
    several = Several()
    several.type.implementations[0] = replace(several.type.implementations[0], when=lambda x: x.input_dims[0][0] == 1)
    with pytest.raises(chai.PluginError, match=r"layer 'mine' .*no implementation takes inputs of these sizes"):
        one(tmp_path).forward(DATA)


def test_a_condition_that_raises_names_its_line(tmp_path: Path) -> None:
    several = Several()
    several.add("odd", 2, when=lambda x: x.input_dim[0][0] == 1)
    with pytest.raises(chai.PluginError, match=rf"layer 'mine' .*{__file__}:\d+: .*no field 'input_dim'") as caught:
        one(tmp_path).forward(DATA)
    assert "did you mean input_dims?" in caught.value.hint


@compiles
def test_one_type_may_mix_compiled_and_numpy_and_layouts(tmp_path: Path) -> None:
    @chai.custom("mine")
    def mine(x: Any) -> None:
        for i in range(x.in_ptrs[0].size):
            x.out_ptrs[0][i] = x.in_ptrs[0][i] + 1

    @mine.impl("numpy", layout="NHWC", dtype="float16", jit=False, when=lambda x: x.input_dims[0][0] == 1)
    def numpy(x: Any) -> None:
        x.top[0][...] = x.bottom[0] + np.arange(3, dtype=np.float16)

    net = one(tmp_path)
    assert np.array_equal(net.forward(DATA)["y"], DATA + np.float32(1))
    assert frame(net).compiled is not None
    wanted = ONE.astype(np.float16) + np.arange(3, dtype=np.float16).reshape(3, 1, 1)
    assert np.array_equal(net.forward(ONE)["y"], wanted.astype(np.float32))
    assert frame(net, shape=ONE.shape).compiled is None


# -- autotune


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that this test's process writes."""
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(selection, "perf_counter", CLOCK)
    return tmp_path / "cache" / "tune.json"


def test_autotune_takes_the_fastest_and_remembers(tmp_path: Path, tuned: Path) -> None:
    several = Several(version="1.2")
    several.add("slow", 2, wait=0.004, priority=50)
    several.add("fast", 3, priority=-5)
    several.add("other", 4, wait=0.001, priority=9, when=lambda x: x.input_dims[0][0] > 2)
    several.type.implementations[0] = replace(several.type.implementations[0], function=several.writes("ref", 1, 0.002))
    assert answer(one(tmp_path)) == 2  # by priority
    several.calls.clear()
    net = one(tmp_path, autotune=True)
    calls = dict(several.calls)
    assert set(calls) == {"ref", "slow", "fast"} and set(calls.values()) == {selection.ROUNDS + 1}
    assert answer(net) == 3
    assert frame(net).implementation.name == "fast"
    ((key, entry),) = json.loads(tuned.read_text()).items()
    assert key.startswith("mine 1.2 2x3x5x7 ")
    assert entry["fastest"] == "fast" and set(entry["ms"]) == {"ref", "slow", "fast"}
    assert entry["ms"] == pytest.approx({"ref": 2, "slow": 4, "fast": 0})
    several.calls.clear()
    assert answer(one(tmp_path, autotune=True)) == 3
    assert several.calls == {"fast": 1}  # nothing was timed again
    assert answer(net, ONE) == 3  # other sizes have an entry of their own
    assert len(json.loads(tuned.read_text())) == 2


def test_what_another_process_adds_meanwhile_stays(tmp_path: Path, tuned: Path) -> None:
    """As workers of chai evaluate, each of which tunes other layers."""
    other = {"other": {"fastest": "x", "ms": {"x": 1.5}}}

    def run(_: Any) -> None:
        tuned.parent.mkdir(exist_ok=True)
        tuned.write_text(json.dumps(other))

    several = Several()
    several.add("fast", 2)
    fit = selection.eligible(several.type, None, False)
    selection.fastest("mine", fit, run)
    entries = json.loads(tuned.read_text())
    assert entries.pop("mine")["fastest"] in {i.name for i in fit}
    assert entries == other


def test_an_edited_implementation_is_timed_again(tmp_path: Path, tuned: Path) -> None:
    for number in (2, 3):
        several = Several()
        several.type.impl("other", jit=False)(eval(f"lambda x: x.out_ptrs[0].fill({number})"))
        one(tmp_path, autotune=True)
    assert len(json.loads(tuned.read_text())) == 2


@pytest.mark.parametrize("text", ["", "[]", "{ not json", '{"mine": 3}', "\xff", "[" * 100_000])
def test_a_file_that_is_broken_is_written_anew(tmp_path: Path, tuned: Path, text: str) -> None:
    tuned.parent.mkdir()
    tuned.write_bytes(text.encode("latin-1"))
    several = Several()
    several.add("slow", 2, wait=0.002)
    assert answer(one(tmp_path, autotune=True)) == 1
    assert any(entry["fastest"] == "ref" for entry in json.loads(tuned.read_text()).values() if entry != 3)


@pytest.mark.parametrize(
    "entry",
    [
        *(3, None, {}, {"fastest": "gone", "ms": {}}, {"fastest": "slow"}, {"fastest": ["slow"], "ms": {}}),
        *({"fastest": "slow", "ms": 5}, {"fastest": "slow", "ms": {"slow": "quick"}}),
    ],
)
def test_an_entry_that_is_broken(tmp_path: Path, tuned: Path, entry: Any) -> None:
    several = Several()
    several.add("slow", 2, wait=0.002)
    one(tmp_path, autotune=True)
    (key,) = json.loads(tuned.read_text())
    tuned.write_text(json.dumps({key: entry}))
    assert answer(one(tmp_path, autotune=True)) == 1


def test_a_file_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, tuned: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tuned.parent.write_text("no folder")
    several = Several()
    several.add("slow", 2, wait=0.002)
    with caplog.at_level(logging.WARNING, "chai"):
        assert answer(one(tmp_path, autotune=True)) == 1
    assert "cannot be written, the next process tunes again" in caplog.text


def test_tuning_leaves_no_trace_in_results(tmp_path: Path, tuned: Path) -> None:
    """Every run has buffers of its own: what adds to its top adds to the input's copy."""
    several = Several(inplace=True)  # starts from a copy of the input
    several.add("slow", 2, wait=0.001)
    net = one(tmp_path, autotune=True)
    assert np.array_equal(net.forward(DATA)["y"], DATA + np.float32(1))


def test_tuning_is_not_disturbed_by_what_random_inputs_give(tmp_path: Path, tuned: Path) -> None:
    """A logarithm of negative numbers is NaN; nobody asked for the result."""
    custom = chai.custom("mine", jit=False)(lambda x: np.log(x.bottom[0] + 8, out=x.top[0]))
    custom.impl("other", jit=False)(lambda x: setattr(CLOCK, "now", CLOCK.now + 1) or np.log(x.bottom[0], out=x.top[0]))
    net = one(tmp_path, autotune=True)
    assert np.allclose(net.forward(DATA)["y"], np.log(DATA + 8), atol=1e-6)
