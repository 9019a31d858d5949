"""What kernels compute: every kind of argument, format and define, in networks on the host and beside an overlay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.cli import main
from chai.env import env
from chai.evaluate.check_custom import check_layer
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.opencl.half import macros
from tests.passes.common import prototxt, source

from .common import KERNEL, MVCL, RUNS, SHIFT, XML, network, noise, write

pytestmark = RUNS
SHAPE = (2, 3, 5, 7)
X = noise(SHAPE)
NUMBERS = [
    "NUM_INPUTS",
    "GLOBAL_WORKSIZE_SIZE",
    "LOCAL_WORKSIZE_SIZE",
    "sizeof(INPUT0_TYPE)",
    "INPUT0_OFFSET",
    "OUTPUT0_OFFSET",
]
ARRAYS = [
    f"{t}_{part}" for t in ("INPUT0", "OUTPUT0") for part in ("DIMS", "LOWER_PADDING", "UPPER_PADDING", "PITCHES")
]


def test_every_built_in_define_in_a_kernel(tmp_path: Path) -> None:
    """Written into the top by one item, and compared with what they are by hand."""
    lines = [f"target[n++] = {name};" for name in NUMBERS]
    for name in [*ARRAYS, "GLOBAL_WORKSIZE", "LOCAL_WORKSIZE"]:
        lines += [f"target[n++] = {name}_SIZE;", f"for (int i = 0; i < {name}_SIZE; ++i) target[n++] = {name}[i];"]
    lines += [
        "#ifdef INPUT0_FORMAT_BYXF",
        "target[n++] = 77;",
        "#endif",
        "#ifdef OUTPUT0_FORMAT_BFYX",
        "target[n++] = 78;",
        "#endif",
    ]
    body = "\n".join(["int n = 0;", "if (get_global_id(0) + get_global_id(1)) return;", *lines])
    kernel = f"__kernel void twice(const __global INPUT0_TYPE* source, __global OUTPUT0_TYPE* target) {{\n{body}\n}}\n"
    text = XML.replace('format="BFYX"', 'format="byxf"', 1).replace(
        'global="X,Y,B*F"', 'global="X-1,Y*B" local="2,5" dim="input,0"'
    )
    write(tmp_path, text, twice=kernel)
    top = "user_defined_layer: true xcustom_param { top_dim: 2 top_dim: 32 }"
    with network(tmp_path, f"l Twice data -> y : {top}", SHAPE) as net:
        numbers = net.forward(X)["y"].reshape(-1)
    input = [4, 2, 3, 5, 7, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 105, 1, 21, 3]
    output = [4, 2, 32, 1, 1, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 32, 1, 1, 1]
    expected = [1, 2, 2, 4, 0, 0, *input, *output, 2, 6, 10, 2, 2, 5, 77, 78]
    assert list(numbers[: len(expected)]) == expected
    assert not numbers[len(expected) :].any()


def test_formats(tmp_path: Path) -> None:
    """A kernel that copies its memory in order turns the axes as the formats say."""
    formats = ["BFYX", "BYXF", "YXFB", "FYXB"]
    pairs = list(zip(formats, formats[1:] + formats[:1]))
    types = [
        XML.replace('"BFYX"', f'"{into}"', 1)
        .replace('"output" port-index="0" format="BFYX"', f'"output" port-index="0" format="{out.lower()}"')
        .replace("Twice", into)
        .replace('<WorkSizes global="X,Y,B*F"/>', "")
        for into, out in pairs
    ]
    copy = KERNEL.replace("FACTOR * ", "")
    write(tmp_path, "".join(types), twice=copy)
    tops = "\n".join(f"{into} {into} data -> {into}" for into, _ in pairs)
    with network(tmp_path, tops, SHAPE) as net:
        results = net.forward(X)
    sizes = dict(zip("BFYX", SHAPE))
    for into, out in pairs:
        memory = X.transpose(["BFYX".index(a) for a in into]).reshape(-1)
        expected = memory.reshape([sizes[a] for a in out]).transpose([out.index(a) for a in "BFYX"])
        assert np.array_equal(results[into], expected), (into, out)


def test_trained_parameters_and_a_second_input(tmp_path: Path) -> None:
    """By weights, biases and blobN; a kernel in several files."""
    xml = """
<CustomLayer name="Mix" type="SimpleGPU" version="1">
  <Kernel entry="blend"><Source filename="first.cl"/><Source filename="second.cl"/></Kernel>
  <Buffers>
    <Data name="biases" arg-index="0"/>
    <Tensor arg-index="3" type="input" port-index="1"/>
    <Tensor arg-index="1" type="input" port-index="0"/>
    <Data name="weights" arg-index="4"/>
    <Tensor arg-index="2" type="output" port-index="0"/>
    <Data name="blob2" arg-index="5"/>
  </Buffers>
  <CompilerOptions options="-DSIGN=-1"/>
</CustomLayer>
"""
    second = """
__kernel void blend(__constant float* b, __global const float* x, __global float* y, __global const float* z,
                  __global const float* w, const __global float *c) {
    size_t i = get_global_id(0);
    y[i] = sum(w[i % 3] * x[i], b[i % 2]) SIGN * z[i] * c[0];
}
"""
    write(tmp_path, xml, first="float sum(float a, float b) { return a + b; }", second=second)
    w, b, c = noise((3,), 1), noise((1, 2), 2), np.full(1, 0.5, np.float32)
    write_caffemodel(tmp_path / "w.caffemodel", "net", [("m", "Mix", [w, b, c])])
    lines = "p Power data -> z : power_param { power: 2 }\nm Mix data z -> y"
    error = pytest.raises(chai.PluginError, match="biases: the layer has 0 trained parameters")
    with network(tmp_path, lines, SHAPE) as net, error:
        net.forward(X)
    net = chai.Net(tmp_path / "net.prototxt", tmp_path / "w.caffemodel", device="float", custom=tmp_path / "layers.xml")
    with net:
        flat = X.reshape(-1).astype(np.float64)
        i = np.arange(flat.size)
        expected = w[i % 3] * flat + b.reshape(-1)[i % 2] - flat**2 * 0.5
        np.testing.assert_allclose(net.forward(X)["y"].reshape(-1), expected, rtol=1e-5, atol=1e-5)


def test_stages_share_buffers(tmp_path: Path) -> None:
    """A mean in two kernels: sums of rows into a buffer, then the difference from their mean; on one thread."""
    stage = """
<CustomLayer name="Mean" type="MVCL" version="1" max-shaves="1" stage="{n}">
  <Kernel entry="{entry}"><Source filename="mean.cl"/></Kernel>
  <Parameters>
    <Tensor arg-name="src" type="input" port-index="0" format="BFYX"/>
    {out}
    <Tensor arg-name="sums" type="{kind}_buffer" port-index="0" dim="input,0" size="B*F*Y*4"/>
    <Scalar arg-name="width" type="int" port-index="0" source="I0.X"/>
  </Parameters>
  <WorkSizes dim="input,0" global="Y,F,B"/>
</CustomLayer>
"""
    out = '<Tensor arg-name="dst" type="output" port-index="0" format="BFYX"/>'
    kernels = """
int row(void) { return get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2)); }
__kernel void sum(__global const float* src, __global float* sums, int width) {
    float total = 0;
    for (int x = 0; x < width; ++x) total += src[row() * width + x];
    sums[row()] = total;
}
__kernel void subtract(__global const float* src, __global float* dst, __global float* sums, int width) {
    for (int x = 0; x < width; ++x) dst[row() * width + x] = src[row() * width + x] - sums[row()] / width;
}
"""
    stages = stage.format(n=1, entry="subtract", out=out, kind="input") + stage.format(
        n=0, entry="sum", out="", kind="output"
    )
    write(tmp_path, stages, mean=kernels)
    with network(tmp_path, "m Mean data -> y", SHAPE) as net:
        top = net.forward(X)["y"]
    np.testing.assert_allclose(top, X - X.mean(3, keepdims=True), rtol=1e-5, atol=1e-6)


def test_an_output_that_is_numbered_after_the_input(tmp_path: Path) -> None:
    """As in Intel's tutorial on custom layers, a cosh; its kernel speaks of OUTPUT0. Written here from its description."""
    xml = XML.replace("Twice", "Cosh").replace("twice", "cosh_kernel")
    xml = xml.replace('type="output" port-index="0"', 'type="output" port-index="1"')
    kernel = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__kernel void cosh_kernel(const __global INPUT0_TYPE* input0, __global OUTPUT0_TYPE* output)
{
    const uint idx = get_global_id(0), idy = get_global_id(1), idbf = get_global_id(2);
    const uint feature = idbf % OUTPUT0_DIMS[1], batch = idbf / OUTPUT0_DIMS[1];
    const uint from = batch * INPUT0_PITCHES[0] + feature * INPUT0_PITCHES[1] + idy * INPUT0_PITCHES[2]
        + idx * INPUT0_PITCHES[3] + INPUT0_OFFSET;
    const uint to = batch * OUTPUT0_PITCHES[0] + feature * OUTPUT0_PITCHES[1] + idy * OUTPUT0_PITCHES[2]
        + idx * OUTPUT0_PITCHES[3] + OUTPUT0_OFFSET;
    output[to] = cosh(input0[from]);
}
"""
    write(tmp_path, xml, cosh_kernel=kernel)
    with network(tmp_path, "c Cosh data -> y", SHAPE) as net:
        np.testing.assert_allclose(net.forward(X)["y"], np.cosh(X.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("check", ["0", "1"])
def test_work_sizes_without_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    """The kernel runs once per image; one that names B has them all, and leaving one out is an error."""
    monkeypatch.setenv("CHAI_CHECK", check)
    env.cache_clear()
    write(tmp_path, XML.replace("X,Y,B*F", "X,Y,F"))
    with network(tmp_path, "l Twice data -> y", SHAPE) as net:
        assert np.array_equal(net.forward(X)["y"], 2 * X)
    write(tmp_path, XML.replace("X,Y,B*F", "X*B/B,Y,F"))
    with network(tmp_path, "l Twice data -> y", SHAPE) as net:
        assert np.array_equal(net.forward(X[:1])["y"], 2 * X[:1])
        for _ in range(2):
            with pytest.raises(chai.PluginError, match="it writes nothing into top 0 of image 1, the batch is 2"):
                net.forward(X)


def test_headers_below_the_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of the options, from wherever chai is started."""
    folder = tmp_path / "layers"
    write(folder, XML.replace("-cl-mad-enable", "-I include"), twice='#include "factor.h"\n' + KERNEL)
    (folder / "include").mkdir()
    (folder / "include" / "factor.h").write_text("#undef FACTOR\n#define FACTOR 3\n")
    monkeypatch.chdir("/")
    with network(tmp_path, "l Twice data -> y", SHAPE, folder / "layers.xml") as net:
        assert np.array_equal(net.forward(X)["y"], 3 * X)


def test_the_first_part_that_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the axes of the top, whatever its format; a value that is zero, or is what the memory had, was written."""
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    kernel = KERNEL.replace("FACTOR * source[at]", "as_float(at % 2 ? 0 : 0xA5A5A5A5)")
    formats = XML.replace("BFYX", "YXFB")  # its memory is in the order of the work items: rows first, images last
    write(tmp_path, formats, twice=kernel.replace("target[at]", "if (at / 42 != 3) target[at]"))
    reason = r"nothing into 42 of 210 elements of top 0, first \(0, 0, 3, 0\)"
    with network(tmp_path, "l Twice data -> y", SHAPE) as net, pytest.raises(chai.PluginError, match=reason):
        net.forward(X)
    write(tmp_path, formats, twice=kernel)
    with network(tmp_path, "l Twice data -> y", SHAPE) as net:
        assert np.count_nonzero(net.forward(X)["y"]) == 105


def test_once_per_image_with_what_all_images_share(tmp_path: Path) -> None:
    """A second bottom without a batch is whole in each run; a top without one cannot be."""
    xml = """
<CustomLayer name="Add" type="MVCL" version="1">
  <Kernel entry="add"><Source filename="add.cl"/></Kernel>
  <Parameters>
    <Tensor arg-name="x" type="input" port-index="0"/>
    <Tensor arg-name="more" type="input" port-index="1"/>
    <Tensor arg-name="y" type="output" port-index="0"/>
    <Scalar arg-name="n" type="int" source="I1.F"/>
  </Parameters>
  <WorkSizes dim="input,0" global="F*Y*X"/>
</CustomLayer>
"""
    kernel = """
__kernel void add(__global const float* x, __global const float* more, __global float* y, int n) {
    y[get_global_id(0)] = x[get_global_id(0)] + more[get_global_id(0) % n];
}
"""
    path = write(tmp_path, xml, add=kernel)
    text = source("more", (1, 4)) + prototxt("a Add data more -> y", SHAPE)
    (tmp_path / "net.prototxt").write_text(text)
    more = noise((1, 4), 1)
    with chai.Net(tmp_path / "net.prototxt", device="float", custom=path) as net:
        top = net.forward(data=X, more=more)["y"]
    assert np.array_equal(top, X + more[0, np.arange(105) % 4].reshape(3, 5, 7))
    (tmp_path / "rule.py").write_text("import chai\n@chai.shape('Add')\ndef f(x): return [(6, 35)]\n")
    with pytest.raises(chai.ChaiError, match="called once for each of 2 images, but its top of 6x35 is not that of 2"):
        chai.Net(tmp_path / "net.prototxt", device="float", custom=[path, tmp_path / "rule.py"])


def test_vectors_of_half(tmp_path: Path) -> None:
    """half2 to half16 and their conversions, with rounding and saturation, become float's.

    The conversion of 16 is read, not run: PoCL 3.0 compiles ``convert_float16`` for ever on some processors.
    """
    body = "".join(f"r += convert_half{n}_sat_rte(*(__global const half{n}*)(from)).s0;" for n in (2, 3, 4, 8))
    body += "half16 whole = *(__global const half16*)(from); r += whole.s0;"
    kernel = SHIFT.replace("to[i] =", f"half r = convert_half_rtz(0);\n{body}\nto[i] = r * 1.0h +")
    write(tmp_path, MVCL, shift=kernel)
    with network(tmp_path, "l Shift data -> y : some_param { by: 0.25 }", SHAPE) as net:
        top = net.forward(X)["y"]
    assert "#define convert_half16_sat_rte convert_float16\n" in macros()
    expected = X + 5 * X.reshape(-1)[0] + np.float32(0.25) + np.arange(210).reshape(SHAPE) % 7
    np.testing.assert_allclose(top, expected, rtol=1e-5, atol=1e-5)


CONV = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"


def test_between_two_convolutions_of_an_overlay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The convolutions stay there; Unpack and Pack stand around the kernel, and getPerfInfo names them."""
    write(tmp_path)
    top = "xcustom_param { top_dim: 2 top_dim: 4 top_dim: 5 top_dim: 7 }"
    lines = f"a Convolution data -> a : {CONV}\nl Twice a -> b : {top}\nc Convolution b -> y : {CONV}"
    python = {"Twice": lambda x: np.multiply(x.in_ptrs[0], 2, out=x.out_ptrs[0])}
    results = []
    for custom in (tmp_path / "layers.xml", python):
        with network(tmp_path, lines, SHAPE, custom, device="emulator") as net:
            net.calibrate(X)  # else the first pass has what the kernel wrote while formats were measured, in float
            results.append(net.forward(X)["y"])
            engines = [net.partition.engine(name) for name in "alc"]
            chai.getPerfInfo(net)
            info = capsys.readouterr().err
            stream = list(net.stream([X, X[:, ::-1].copy()]))
            assert np.array_equal(stream[0]["y"], results[-1])
        assert engines == ["fpga", "host", "fpga"]
        assert "Total Number of Custom layers : 1" in info and "Custom Layer - 1 : l" in info
    assert np.array_equal(*results)


def test_a_compiled_network(tmp_path: Path) -> None:
    """It names the type; the XML is given where it is loaded."""
    path = write(tmp_path)
    lines = f"a Convolution data -> a : {CONV}\nl Twice a -> y : some_param {{ factor: 3 }}"
    with network(tmp_path, lines, SHAPE, device="emulator") as net:
        expected = net.forward(X)["y"]
        save(net, tmp_path / "net.chai")
    with pytest.raises(chai.ChaiError, match="Twice"):
        chai.Net(tmp_path / "net.chai")
    with chai.Net(tmp_path / "net.chai", custom=path) as net:
        assert np.array_equal(net.forward(X)["y"], expected)


def test_check_and_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    with network(tmp_path, "l Twice data -> y", SHAPE) as net:
        rows = list(check_layer(net.graph.layer("l"), [SHAPE]))
        assert np.array_equal(chai.run_layer(net, "l", [X])["y"], 2 * X)
    assert [(row.way, row.ok) for row in rows] == [("opencl", True)] * 3
    command = [
        "check",
        str(tmp_path / "net.prototxt"),
        "--custom",
        str(tmp_path / "layers.xml"),
        "--custom",
        "Twice",
        "--json",
    ]
    assert main(command) == 0
    assert [row["way"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["opencl"] * 3
