"""What the benchmark of a clone measures beside chai bench: peak, roofline, history."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import chai
from chai.kernels.native import library
from tests.passes.common import network
from tools.bench import peak
from tools.bench.history import remember
from tools.bench.peak import Roof
from tools.bench.roofline import Operation, operations, picture, shares

SVG = "{http://www.w3.org/2000/svg}"


def test_operations_count_each_number_once(tmp_path: Path) -> None:
    """On the host in float32, on the device in codes; a fully connected layer has one product per weight and image."""
    lines = """
a Convolution data -> a : convolution_param { num_output: 6 kernel_h: 3 kernel_w: 2 }
b Pooling a -> b : pooling_param { pool: MAX kernel_size: 2 stride: 2 }
c InnerProduct b -> c : inner_product_param { num_output: 11 bias_term: false }
"""
    shape = (2, 3, 9, 13)
    sizes = {"data": 2 * 3 * 9 * 13, "a": 2 * 6 * 7 * 12, "b": 2 * 6 * 4 * 6, "c": 2 * 11}
    weights = {"a": 6 * 3 * 3 * 2, "c": 11 * 144}
    macs = {"a": 7 * 12 * 6 * 3 * 3 * 2 * 2, "c": weights["c"] * 2}
    for device, engines in (("float", {"a": "host", "c": "host"}), ("emulator", {"a": "fpga", "c": "host"})):
        net = network(tmp_path, lines, shape, device=device)
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        passes = []
        for _ in range(3):
            net.forward(x)
            passes.append(net.perf)
        counted = operations(passes, net.graph, {"data": shape})
        assert [(o.name, o.macs) for o in counted] == [*macs.items()]
        for o, (read, bias) in zip(counted, (("data", 6), ("b", 0))):
            assert o.engine == engines[o.name]
            assert o.bytes == (4 if o.engine == "host" else 1) * (sizes[read] + weights[o.name] + bias + sizes[o.name])
            assert o.ms == min(step.ms for each in passes for step in each.steps if step.name == o.name)
            assert o.rate == pytest.approx(o.macs / o.ms / 1e6) and o.intensity == o.macs / o.bytes


def test_shares_of_the_peak() -> None:
    """Convolutions by their own sum of a pass, the least of all; everything by the clock around it."""

    def one(*steps: tuple[str, float, int]) -> SimpleNamespace:
        return SimpleNamespace(steps=[SimpleNamespace(type=t, ms=ms, macs=macs) for t, ms, macs in steps])

    passes = [one(("conv", 3.0, 4_000_000), ("Pack", 9.0, 0), ("gemm", 1.0, 1_000_000)), one(("conv", 2.0, 4_000_000))]
    assert shares(passes, 10.0, 4.0) == {"whole": pytest.approx(0.125), "convolutions": pytest.approx(0.5)}  # type: ignore[arg-type]
    assert shares([one(("gemm", 1.0, 1_000_000))], 1.0, 1.0) == {"whole": 1.0}  # type: ignore[arg-type]


def test_the_roofline_is_drawn_to_scale() -> None:
    counted = [Operation(f"<{i}>", "conv", "fpga", 10 ** (3 + i), 10**3, 0.01 * 10**i) for i in range(1, 4)]
    drawn = ElementTree.fromstring(picture(counted, Roof("avx2", 1000.0, {"memory": 10.0}), "net & all"))
    circles = drawn.findall(f"{SVG}circle")
    across = [float(c.attrib["cx"]) for c in circles]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)  # a decade each
    assert len({c.attrib["cy"] for c in circles}) == 1  # 0.1 GMAC/s all
    peak_line, memory = [line for line in drawn.findall(f"{SVG}line") if line.attrib["stroke"] == "#000"]
    assert (
        peak_line.attrib["y1"] == peak_line.attrib["y2"] == memory.attrib["y2"]
    )  # 10 GB/s meet the peak at 100 MAC/byte
    assert float(memory.attrib["x2"]) == pytest.approx(across[1], abs=0.2)
    assert float(circles[0].attrib["cy"]) > float(peak_line.attrib["y1"])
    words = [text.text for text in drawn.findall(f"{SVG}text")]
    assert "net & all" in words and words[-3:] == ["10.00 ms  <3>", "1.00 ms  <2>", "0.10 ms  <1>"]
    picture([], Roof("avx2", 1.0, {}), "empty")


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs a C compiler")
def test_the_peak_is_of_the_instructions_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = peak.peaks()
    assert all(value > 0 for value in rates.values())
    used = library.library()
    if used is not None and used.name in rates:
        assert peak.roof(True).instructions == used.name
    monkeypatch.setattr(peak, "peaks", dict)
    with pytest.raises(chai.UsageError, match="is not known"):
        peak.roof(True)


def test_no_peak_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(chai.UsageError, match="CC names 'no-such-compiler', which is no command here"):
        peak.peaks()


def test_a_slow_down_is_of_the_same_circumstances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of another size, device or processor says nothing about this run."""

    def remembered(ms: float, **others: object) -> str:
        run = {"batch": 1, "threads": 1, "ms_per_image": {"chai": {"min": ms}}}
        figures = {"network": "n", "inputs": {"data": [1, 3, 8, 9]}, "device": "float", "overlay": None}
        figures |= {"kernels": "avx2", "processor": "p", "clock": "wall", "runs": [run], "start": None}
        remember(tmp_path / "h.jsonl", {**figures, **others})
        return capsys.readouterr().err

    assert remembered(2.0) == ""
    for others in (
        {"inputs": {"data": [1, 3, 80, 90]}},
        {"device": "emulator"},
        {"processor": "q"},
        {"clock": "processor"},
    ):
        assert remembered(9.0, **others) == ""
    assert "batch 1, 1 thread: 3.00 ms at least, 2.00 ms at" in remembered(3.0)
