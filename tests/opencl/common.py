"""Layers in XML and their kernels: OpenVINO's own examples, cut out of its pages, and small ones of ours."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import chai
from tests.conftest import MODELS
from tests.passes.common import prototxt

T = TypeVar("T")
Array = np.ndarray
RUNS = [
    pytest.mark.extras,
    pytest.mark.skipif(find_spec("pyopencl") is None, reason='no OpenCL: pip install -e ".[opencl]"'),
]
PAGES = MODELS.parent / "seeds"  # the pages of OpenVINO and TIM-VX that this follows
GPU_PAGE = "openvino_gpu_custom_operations_ja.txt"
VPU_PAGE = "openvino_ie_kernels_extensibility.txt"

XML = """\
<CustomLayer name="Twice" type="SimpleGPU" version="1">
  <Kernel entry="twice">
    <Source filename="twice.cl"/>
    <Define name="FACTOR" type="float" param="factor" default="2.0"/>
  </Kernel>
  <Buffers>
    <Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>
    <Tensor arg-index="1" type="output" port-index="0" format="BFYX"/>
  </Buffers>
  <CompilerOptions options="-cl-mad-enable"/>
  <WorkSizes global="X,Y,B*F"/>
</CustomLayer>
"""
KERNEL = """\
__kernel void twice(const __global INPUT0_TYPE* source, __global OUTPUT0_TYPE* target)
{
    const size_t at = get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2));
    target[at] = FACTOR * source[at];
}
"""
MVCL = """\
<CustomLayer name="Shift" type="MVCL" version="1" max-shaves="1">
  <Kernel entry="shift"><Source filename="shift.cl"/></Kernel>
  <Parameters>
    <Tensor arg-name="from" type="input" port-index="0" format="BFYX"/>
    <Tensor arg-name="to" type="output" port-index="0" format="BFYX"/>
    <Scalar arg-name="n" type="int" port-index="0" source="I.X"/>
    <Scalar arg-name="by" type="float" source="by"/>
  </Parameters>
  <WorkSizes dim="input,0" global="B*F*Y*X"/>
</CustomLayer>
"""
SHIFT = """\
__kernel void shift(const __global half* restrict from, __global half* restrict to, int n, float by)
{
    size_t i = get_global_id(0);
    to[i] = from[i] + by + (half)(i % n);
}
"""


def runs(test: T) -> T:
    """Mark a test that runs kernels."""
    for mark in RUNS:
        test = mark(test)
    return test


def write(folder: Path, xml: str = XML, **sources: str) -> Path:
    """An XML file with its sources beside it; without any, those of XML and MVCL."""
    folder.mkdir(exist_ok=True)
    for name, text in (sources or {"twice": KERNEL, "shift": SHIFT}).items():
        (folder / f"{name}.cl").write_text(text)
    (folder / "layers.xml").write_text(xml)
    return folder / "layers.xml"


def cut(page: str, start: str, end: str) -> str:
    """The text of a page from ``start`` to the first ``end`` after it; skips the test without the pages."""
    if not PAGES.is_dir():
        stop = pytest.fail if os.environ.get("CHAI_TEST_REQUIRE_DATA") == "1" else pytest.skip
        stop(f"no data: {PAGES} does not exist (set CHAI_TEST_DATA)")
    text = (PAGES / page).read_text()
    first = text.index(start)
    return text[first : text.index(end, first) + len(end)]


def network(folder: Path, lines: str, shape: tuple[int, ...], custom: Any = None, **options: Any) -> chai.Net:
    """A network on the host, its layers by ``prototxt``'s lines."""
    (folder / "net.prototxt").write_text(prototxt(lines, shape))
    types = folder / "layers.xml" if custom is None else custom
    return chai.Net(folder / "net.prototxt", **{"device": "float", "custom": types, **options})


def noise(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
