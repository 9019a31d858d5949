"""Fitting a host model: known costs come back, each kind of step has samples, and rows of a pass have one owner."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.evaluate.host.fit import HostSample, fitted, least_squares, rounded, samples
from chai.evaluate.host.probes import CHAIN, HEADS, PACKED, UNFOLDED, UNPACKED, probes
from chai.report.host_work import HostWork, host_work, rows_of
from chai.runtime.times import StepTime
from tests.overlay.test_host_model import MODEL

COSTS = {
    ("driver", "pass"): {"call": 900, "conversion": 20, "step": 300},
    ("driver", "segment"): {"call": 7000},
    ("conversions", "Pack"): {"call": 500, "row": 5, "element": 0.5},
    ("conversions", "Unpack"): {"call": 600, "word": 3, "plane": 200},
    ("layers", "LRN"): {"call": 40, "element": 10},
    ("layers", "InnerProduct"): {"call": 80, "mac": 0.75},
}
TERMS = ("call", "conversion", "step", "blob", "plane", "row", "word", "element", "mac")


def some(noise: float = 0.0) -> list[HostSample]:
    """Return samples of COSTS, in sizes that differ in each count."""
    random = np.random.default_rng(3)
    measurements = []
    for (group, kind), cost in COSTS.items():
        for size in (1, 6, 35, 180, 900, 4000):
            counts = {name: int(size * random.uniform(0.3, 3)) + 1 for name in TERMS} | {"call": 1}
            if kind == "LRN":
                counts["mac"] = 0
            amount = sum(number * counts[name] for name, number in cost.items())
            measurements.append(HostSample(group, kind, counts, amount * (1 + noise * random.uniform(-1, 1))))
    return measurements


def test_costs_come_back_from_their_samples() -> None:
    costs = fitted(some(), "seen")
    for (group, kind), cost in COSTS.items():
        assert costs[group][kind].pop("source") == "seen"
        assert costs[group][kind] == pytest.approx(cost, rel=1e-3)
    assert costs["layers"]["others"]["source"] == "guess"


def test_the_error_is_that_of_the_samples() -> None:
    noisy = some(0.02)
    costs = fitted(noisy, "seen")
    for sample in noisy:
        cost = costs[sample.group][sample.kind]
        amount = sum(number * sample.counts[name] for name, number in cost.items() if name != "source")
        assert amount == pytest.approx(sample.amount, rel=0.06)


def test_layers_without_samples_are_the_median_of_those_that_have_some() -> None:
    def two(kind: str, call: float, element: float, mac: int = 0) -> list[HostSample]:
        return [
            HostSample("layers", kind, {"call": 1, "element": n, "mac": mac * n}, call + element * n) for n in (0, 1000)
        ]

    costs = fitted([*two("A", 10, 3), *two("B", 70, 90), *two("C", 40, 5), *two("D", 50, 8, 4)], "seen")
    assert costs["layers"]["others"] == {"source": "guess", "call": 45, "element": 5, "mac": 2}


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(5, 9))
def test_no_step_without_negative_numbers_comes_nearer(seed: int, columns: int, rows: int) -> None:
    """The conditions of Karush, Kuhn and Tucker, which only the least squares meet."""
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(rows, columns)), random.normal(size=rows)
    x = least_squares(matrix, target)
    gain = matrix.T @ (target - matrix @ x)  # of a small step in each number
    assert (x >= 0).all() and (gain <= 1e-5).all() and np.allclose(gain[x > 0], 0, atol=1e-5)


def test_numbers_have_four_digits() -> None:
    assert [rounded(n) for n in (123456.0, 0.0123456, 7.0)] == [123500, 0.01235, 7]
    assert isinstance(rounded(123456.0), int)


def test_samples_are_of_the_steps_that_rows_name() -> None:
    work = [
        HostWork("driver", "pass", "", {"call": 1, "conversion": 2, "step": 5}),
        HostWork("driver", "segment", "a", {"call": 1}),
        HostWork("driver", "segment", "b", {"call": 1}),
        HostWork("driver", "store", "1x3x5x7", {"call": 1, "element": 105}),
        HostWork("conversions", "Pack unfolded", "Pack x", {"call": 1, "element": 9}),
        HostWork("layers", "LRN", "norm", {"call": 1, "element": 70}),
    ]
    rows = [
        ("pack", "Pack x", 50),
        ("LRN", "norm", 700),
        ("store", "1x3x5x7", 44),
        ("driver", "segments: 2", 90),
        ("feed", "", 1),
        ("between", "", 20),
        ("call", "", 300),
    ]
    assert [*samples(work, rows)] == [
        HostSample("conversions", "Pack unfolded", work[4].counts, 50),
        HostSample("layers", "LRN", work[5].counts, 700),
        HostSample("driver", "store", work[3].counts, 44),
        HostSample("driver", "segment", Counter(call=2), 90),
        HostSample("driver", "pass", Counter(call=1, conversion=2, step=5), 321),
    ]
    with pytest.raises(ValueError, match="there is no step LRN other"):
        [*samples(work, [("LRN", "other", 3)])]


def test_what_the_accelerator_counted_is_nobodys_row() -> None:
    steps = [
        StepTime("Pack a", "Pack", "host", 3.0, 0, 0),
        StepTime("a .. b", "segment", "fpga", 11.0, 0, 0, device_ms=7.5),
        StepTime("c .. d", "segment", "fpga", 5.0, 0, 0),
        StepTime("mine", "Mish", "custom", 2.0, 0, 0),
    ]
    times = SimpleNamespace(steps=steps, feed_ms=1.0, between_ms=0.5)
    rows = rows_of(times, [], 25_000, 1000)  # type: ignore[arg-type]
    assert rows == [
        ("pack", "Pack a", 3000),
        ("custom", "mine", 2000),
        ("driver", "segments: 2", 8500),
        ("feed", "before the first step", 1000),
        ("between", "between steps", 500),
        ("call", "around the pass", 25_000 - 7500 - 15_000),
    ]


@pytest.mark.parametrize("overlay", ["pynq-z2", "ultra96"])
def test_the_networks_have_each_kind_of_step_in_many_sizes(tmp_path: Path, overlay: str) -> None:
    sizes: dict[tuple[str, str], set[float]] = {}
    for probe in probes():
        with chai.Net(*probe.write(tmp_path), "null", overlay=overlay, engine=probe.engine or None) as net:
            net.plan()
            work = host_work(net.offload)
            assert net.offload.branches == probe.name.startswith("lanes")
            assert not any(one.custom and one.kind != "gemm" for one in work)
        for one in work:
            sizes.setdefault((one.group, one.kind), set()).add(one.counts.get("element", one.counts.get("step", 0)))
    assert {kind for group, kind in sizes if group == "conversions"} == {"Pack", "Pack unfolded", "Unpack"}
    assert len(sizes["conversions", "Pack"]) >= len(PACKED) and len(sizes["conversions", "Unpack"]) >= len(UNPACKED)
    assert len(sizes["conversions", "Pack unfolded"]) >= len(UNFOLDED) - 2
    assert len(sizes["driver", "store"]) == len(sizes["driver", "load"]) == 4
    assert len(sizes["driver", "pass"]) >= len(CHAIN) and len(sizes["driver", "lanes"]) == 3
    known = {kind for group, kind in sizes if group == "layers"}
    assert {"LRN", "Softmax", "InnerProduct", "PriorBox", "DetectionOutput", "Reshape", "gemm"} < known
    ways = ("Convolution", "Convolution 1x1", "Convolution depthwise", "Convolution in tiles")
    assert all(len(sizes["layers", way]) >= 5 for way in ways)  # each fit has five numbers
    assert all(len(sizes["layers", kind]) >= min(3, len(HEADS)) for kind in known if kind != "Dropout")
    assert MODEL["layers"].keys() - {"others"} < known
