"""The examples of OpenVINO's pages, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from chai.errors import PluginError
from chai.util.log import warn_once

from .common import GPU_PAGE, VPU_PAGE, cut, network, noise, runs, write

RELU = ('<CustomLayer name="ReLU"', "</CustomLayer>")
REORG = ('<CustomLayer name="ReorgYolo"', "</CustomLayer>")
REORG_KERNEL = """
{
    const int y = get_global_id(0);  // rounded up to a multiple of 8
    if (y >= h) return;
    for (int x = 0; x < w; ++x) {
        const int pixel = y / stride * (w / stride) + x / stride, part = y % stride * stride + x % stride;
        for (int k = 0; k < c; ++k)
            out[(pixel * stride * stride + part) * c + k] = src[(y * w + x) * c + k];
    }
}
"""
GRN = """
<CustomLayer name="GRN" type="MVCL" version="1">
  <Kernel entry="{entry}"><Source filename="grn.cl"/></Kernel>
  <Parameters>
    <Tensor arg-name="src_data" type="input" port-index="0" format="BFYX"/>
    <Tensor arg-name="dst_data" type="output" port-index="0" format="BFYX"/>
    <Scalar arg-name="C" type="int" port-index="0" source="I.F"/>
    {more}
    <Scalar arg-name="bias" type="float" source="bias"/>
  </Parameters>
  <WorkSizes dim="input,0" global="{work}"/>
</CustomLayer>
"""


def relu(folder: Path) -> Path:
    """The page's ReLU: its XML and its kernel."""
    kernel = cut(GPU_PAGE, "#pragma OPENCL", "\n}\n")
    return write(folder, cut(GPU_PAGE, *RELU), custom_layer_kernel=kernel)


def normalized(x: np.ndarray, bias: float) -> np.ndarray:
    """Each pixel divided by the norm of its channels."""
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide * wide).sum(1, keepdims=True) + bias)


@runs
def test_relu(tmp_path: Path) -> None:
    """Bit for bit, on every size, with its slope from relu_param and without."""
    relu(tmp_path)
    for fields, slope in ((": relu_param { negative_slope: 0.1 }", 0.1), ("", 0.0)):
        with network(tmp_path, f"act ReLU data -> y {fields}", (1, 96, 55, 55)) as net:
            assert net.graph.layer("act").engine == "custom"
            for shape in ((1, 96, 55, 55), (3, 5, 7, 11), (1, 1, 1, 1), (2, 16, 7, 3)):
                x = noise(shape, sum(shape))
                expected = np.where(x < 0, x * np.float32(slope), x)
                assert np.array_equal(net.forward(x)["y"].view("i4"), expected.view("i4")), shape


@runs
def test_an_edited_kernel_and_a_broken_one(tmp_path: Path) -> None:
    relu(tmp_path)
    x = noise((2, 3, 5, 7))
    source = tmp_path / "custom_layer_kernel.cl"
    text = source.read_text()
    source.write_text(text.replace("value * neg_slope : value", "-2 * value : value"))
    with network(tmp_path, "act ReLU data -> y", x.shape) as net:
        assert np.array_equal(net.forward(x)["y"], np.where(x < 0, -2 * x, x))
    source.write_text(text.replace("value * neg_slope", "value * nag_slope"))
    line = text.splitlines().index(next(s for s in text.splitlines() if "neg_slope :" in s)) + 1
    with network(tmp_path, "act ReLU data -> y", x.shape) as net, pytest.raises(PluginError) as caught:
        net.forward(x)
    error = caught.value
    assert f"layer 'act' (custom type 'ReLU') failed at {source}:{line}: kernel 'example_relu_kernel'" in str(error)
    assert "error: use of undeclared identifier 'nag_slope'" in str(error)
    assert "nag_slope" in error.excerpt


@runs
@pytest.mark.parametrize("batch", [1, 3])
def test_reorg(tmp_path: Path, batch: int) -> None:
    """The page gives the XML and the signature of a kernel in channels last. Its work sizes have no batch."""
    signature = cut(VPU_PAGE, "__kernel void reorg_nhwc(", ")")
    write(tmp_path, cut(VPU_PAGE, *REORG), reorg=signature + REORG_KERNEL)
    x = noise((batch, 6, 10, 14))
    top = "user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 24 top_dim: 5 top_dim: 7 float_args: 2 }"
    with network(tmp_path, f"reorg ReorgYolo data -> y : {top}", x.shape) as net:
        result = net.forward(x)["y"]
    expected = np.concatenate([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)
    assert np.array_equal(result, expected)


@runs
def test_grn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """half is computed as float32, which is said once. Its work sizes have no batch: it runs once per image."""
    warn_once.cache_clear()
    kernel = cut(VPU_PAGE, "__kernel void ocl_grn(", "\n    }\n")
    assert "half" in kernel
    write(tmp_path, GRN.format(entry="ocl_grn", more="", work="X,Y"), grn=kernel)
    with network(tmp_path, "grn GRN data -> y : grn_param { bias: 0.25 }", (1, 5, 11, 13)) as net:
        for batch in (1, 3):
            x = noise((batch, 5, 11, 13), batch)
            np.testing.assert_allclose(net.forward(x)["y"], normalized(x, 0.25), rtol=1e-6, atol=1e-6)
    assert [r.message for r in caplog.records] == ["OpenCL: half is computed as float32"]


@runs
def test_grn_by_lines(tmp_path: Path) -> None:
    """Its vectors of 8 end the process where rows do not begin at multiples of 8; the network's process lives on."""
    kernel = cut(VPU_PAGE, "__kernel void ocl_grn_line(", "\n    }\n    Both")
    more = '<Scalar arg-name="W" type="int" port-index="0" source="I.X"/>'
    write(tmp_path, GRN.format(entry="ocl_grn_line", more=more, work="1,Y"), grn=kernel.replace("    Both", ""))
    x = noise((1, 5, 3, 24))
    with network(tmp_path, "grn GRN data -> y : grn_param { bias: 0.25 }", x.shape) as net:
        for width in (24, 32, 26, 24):
            x = noise((1, 5, 3, width), width)
            try:
                result = net.forward(x)["y"]
            except PluginError as error:
                assert width == 26
                expected = r"process of its kernel ended by SIG\w+: 'ocl_grn_line', work size 1 x 3, bottom 0 1x5x3x26"
                assert re.search(expected, str(error))
            else:
                np.testing.assert_allclose(result, normalized(x, 0.25), rtol=1e-6, atol=1e-6)
