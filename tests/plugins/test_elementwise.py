"""Custom layers that are functions of one number: on an overlay they are tables, made by calling them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import ModelError, PluginError, ShapeError
from tests.conftest import ROOT
from tests.passes.common import CONV, network

SHAPE = 2, 3, 5, 7
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
LINES = (
    f"c Convolution data -> c : {CONV}\nmine mine c -> m : user_defined_layer: true%s\ne Convolution m -> e : {CONV}"
)


def soft(x: Any, power: float = 2.0) -> None:
    """A function that no built-in type computes."""
    for i in range(x.in_ptrs[0].size):
        value = x.in_ptrs[0][i]
        x.out_ptrs[0][i] = value * abs(value) ** (power - 1) - 0.25


def run(folder: Path, custom: Any, more: str = "", **options: Any) -> chai.Net:
    net = network(folder, LINES % more, SHAPE, device="emulator", custom={"mine": custom}, **options)
    net.forward(DATA)  # measures formats
    net.forward(DATA)
    return net


def define(**options: Any) -> Any:
    return chai.custom("mine", args={"power": 2.0}, **{"elementwise": True, "jit": False, **options})(soft)


@pytest.mark.parametrize("jit", [False, True])
def test_it_runs_on_the_overlay_with_the_codes_of_the_host(tmp_path: Path, jit: bool) -> None:
    tabled = run(tmp_path, define(jit=jit), " xcustom_param { float_args: 3 }")
    assert tabled.schedule.engines() == ["host:Pack", "fpga:Convolution", "fpga:Convolution", "host:Unpack"]
    host = run(tmp_path, define(jit=jit), " xcustom_param { float_args: 3 }", engine={"mine": "host"})
    assert "host:mine" in host.schedule.engines()
    assert np.array_equal(tabled.blobs["e"], host.blobs["e"]) and tabled.blobs["e"].std() > 0
    other = run(tmp_path, define(jit=jit))
    assert not np.array_equal(tabled.blobs["e"], other.blobs["e"])  # of another argument


def test_the_example_of_the_page_is_a_file_that_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "custom_layers.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if '"Snake"' in block)
    (tmp_path / "snake.py").write_text(code)
    lines = LINES.replace("mine mine", "mine Snake") % " xcustom_param { float_args: 3 }"
    net = network(tmp_path, lines, SHAPE, device="float", custom=tmp_path / "snake.py", keep="all")
    net.forward(DATA)
    numbers = net.blobs["c"].astype(np.float64)
    assert np.allclose(net.blobs["m"], numbers + np.sin(3 * numbers) ** 2 / 3, atol=1e-6)


def test_undeclared_it_stays_on_the_host(tmp_path: Path) -> None:
    net = run(tmp_path, define(elementwise=False), " xcustom_param { top_dim: [2, 4, 5, 7] }")
    assert "host:mine" in net.schedule.engines()
    assert net.offload.plan.partition.reasons["mine"] == "a custom layer"


def test_an_overlay_without_the_unit_says_what_it_said(tmp_path: Path) -> None:
    net = run(tmp_path, define(), overlay="vta-z7020")
    assert net.offload.plan.partition.reasons["mine"] == "a custom layer"


def test_a_relu_after_it_is_in_its_table(tmp_path: Path) -> None:
    lines = LINES.replace("e Convolution m", "r ReLU m -> m\ne Convolution m") % ""
    nets = []
    for engine in ("fpga", "host"):
        net = network(tmp_path, lines, SHAPE, device="emulator", custom={"mine": define()}, engine={"mine": engine})
        net.forward(DATA)
        net.forward(DATA)
        nets.append(net)
    assert np.array_equal(nets[0].blobs["e"], nets[1].blobs["e"])
    assert [step for step in nets[0].schedule.engines() if step.startswith("host")] == ["host:Pack", "host:Unpack"]


def test_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="elementwise: its top is 2x4x5x9, its bottom 2x4x5x7; both have to be equal"):
        run(tmp_path, define(), " xcustom_param { top_dim: [2, 4, 5, 9] }")


def test_what_is_no_function_of_one_number_is_refused(tmp_path: Path) -> None:
    def shifted(x: Any) -> None:
        x.out_ptrs[0][1:] = x.in_ptrs[0][:-1]

    custom = chai.custom("mine", elementwise=True, jit=False)(shifted)
    with pytest.raises(ModelError, match=r"layer 'mine' .*: is no function of one number: for .* it gives .*, then"):
        run(tmp_path, custom)


def test_the_option_is_a_bool() -> None:
    with pytest.raises(PluginError, match="elementwise 'yes': expected bool"):
        define(elementwise="yes")
