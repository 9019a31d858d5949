"""Layers of an XML file in networks: which layers they compute, arguments, shapes, sources. Needs no OpenCL."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.cli import main
from chai.errors import ParseError, PluginError
from chai.graph import Graph
from chai.plugins.layer import CustomLayer
from chai.plugins.registry import REGISTRY
from chai.zoo.locate import read_graph
from tests.passes.common import prototxt
from tests.plugins.common import python

from .common import KERNEL, MVCL, SHIFT, XML, network, write

SHAPE = (2, 3, 5, 7)
RELU = XML.replace('name="Twice"', 'name="ReLU"').replace("factor", "negative_slope")
FLAG = "user_defined_layer: true xcustom_param {{ {} }}"
BLANKS = re.compile(r"\s+")


def graph(folder: Path, lines: str, custom: object = None) -> Graph:
    """A network that is read only."""
    (folder / "net.prototxt").write_text(prototxt(lines.rstrip(" :"), SHAPE))
    return read_graph(folder / "net.prototxt", custom or folder / "layers.xml")  # type: ignore[arg-type]


def source(folder: Path, lines: str, *bottoms: tuple[int, ...]) -> str:
    """What is compiled for the last layer."""
    layer = graph(folder, lines).layers[-1]
    assert isinstance(layer, CustomLayer)
    text = layer.opencl_source(*(bottoms or (SHAPE,)))
    assert text is not None
    return text


def test_naming_the_file_takes_all_layers_of_a_built_in_type(tmp_path: Path) -> None:
    net = graph(tmp_path, "a ReLU data -> x\nb TanH x -> y", write(tmp_path, RELU))
    assert [layer.engine for layer in net.layers if layer.name != "data"] == ["custom", "host"]


def test_all_networks(tmp_path: Path) -> None:
    """CHAI_CUSTOM, load_custom, unload; listed by chai layers."""
    path = write(tmp_path, RELU + MVCL)
    (tmp_path / "net.prototxt").write_text(prototxt("a ReLU data -> y", SHAPE))
    code = f"import chai; print(chai.Net({str(tmp_path / 'net.prototxt')!r}, device='float').graph.layers[-1].engine)"
    assert python(code, CHAI_CUSTOM=path) == "custom"
    extension = chai.load_custom(path)
    assert extension.types == ("ReLU", "Shift")
    assert REGISTRY.find("Shift").place == f"{path}:{len(RELU.splitlines()) + 1}"
    extension.unload()
    assert not {"ReLU", "Shift"} & {*REGISTRY.known()}


def test_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", "--custom", str(write(tmp_path))]) == 0
    assert re.search(rf"Twice +custom +{tmp_path}", capsys.readouterr().out)


def test_a_changed_kernel_is_read_again(tmp_path: Path) -> None:
    lines = "l Twice data -> y"
    write(tmp_path)
    assert "FACTOR * source" in source(tmp_path, lines)
    (tmp_path / "twice.cl").write_text(KERNEL.replace("FACTOR *", "FACTOR +"))
    assert "FACTOR + source" in source(tmp_path, lines)


@pytest.mark.parametrize(
    ("define", "fields", "expected"),
    [
        ('type="float" param="slope" default="0.5"', "", "0.5f"),
        ('type="float" param="slope" default="0.5"', "some_param { slope: 0.1 }", "0.1f"),
        ('type="float" param="slope" default="0.5"', FLAG.format("float_args: -3"), "(-3.0f)"),
        ('type="float" param="slope"', FLAG.format("float_args: 1e-9"), "1e-09f"),
        ('type="int" param="size" default="2"', "some_param { size: 11 }", "11"),
        ('type="int[]" param="sizes" default="2,3"', "", "(int []){ 2, 3 }"),
        ('type="int[]" param="sizes"', "some_param { sizes: 4 sizes: 5 }", "(int []){ 4, 5 }"),
        ('type="float[]" param="w"', FLAG.format("float_args: 0.25 float_args: 3"), "(float []){ 0.25f, 3.0f }"),
        ('type="float[]" param="w" default="1, -2e3"', "", "(float []){ 1.0f, (-2000.0f) }"),
        ('param="mode" default="2*3"', "", "2*3"),
        ('param="mode"', "some_param { mode: 7 }", "7"),
        ('param="mode"', FLAG.format('string_args: "FAST"'), "FAST"),
        ('param="on" default="0"', "some_param { on: true }", "1"),
        ('type="float" default="FLT_MAX"', "", "FLT_MAX"),
        ('default="12"', "", "12"),
        ("", "", ""),
        ("", "xcustom_param { float_args: 1 }", ""),
    ],
)
def test_defines(define: str, fields: str, expected: str, tmp_path: Path) -> None:
    write(tmp_path, XML.replace('type="float" param="factor" default="2.0"', define))
    line = re.search("^#define FACTOR ?(.*)$", source(tmp_path, f"l Twice data -> y : {fields}"), re.MULTILINE)
    assert line and line[1] == expected


def test_a_constant_with_its_value(tmp_path: Path) -> None:
    """As the pages allow: the name holds both."""
    write(tmp_path, XML.replace('name="FACTOR" type="float" param="factor" default="2.0"', 'name="FACTOR 3"'))
    assert "\n#define FACTOR 3\n" in source(tmp_path, "l Twice data -> y")


@pytest.mark.parametrize(
    ("define", "fields", "reason"),
    [
        ('type="float" param="slope"', "", "argument 'slope' (float) is missing"),
        ('type="int" param="size"', FLAG.format("float_args: 1.5"), "argument 'size': expected a whole number"),
        ('type="int[]" param="size"', FLAG.format("float_args: 1.5"), "argument 'size': expected a whole number"),
        ('type="int" param="size"', FLAG.format("float_args: 1 float_args: 2"), "float_args has 1 value too many"),
        ('type="float" param="w"', 'some_param { w: "x" }', "argument 'w': expected a number, found 'x'"),
        ('param="mode"', FLAG.format(r'string_args: "1\nint f();"'), "argument 'mode': expected a number or a name"),
        ('param="mode"', 'some_param { mode: "f(0); g" }', "argument 'mode': expected a number or a name"),
        ('type="int" param="n" default="MAX"', 'some_param { n: "f(0)" }', "argument 'n': expected a number or a name"),
        ('type="int" param="n" default="nan"', "", "argument 'n': expected a whole number, found nan"),
        ('type="int" param="n" default="infinity"', "", "argument 'n': expected a whole number, found inf"),
        (
            'type="int[]" param="n" default="A,B"',
            'some_param { n: "1,*p" }',
            "argument 'n': expected a number or a name",
        ),
    ],
)
def test_wrong_arguments(define: str, fields: str, reason: str, tmp_path: Path) -> None:
    write(tmp_path, XML.replace('type="float" param="factor" default="2.0"', define))
    with pytest.raises(PluginError, match=re.escape(reason)):
        source(tmp_path, f"l Twice data -> y : {fields}")


def test_built_in_defines(tmp_path: Path) -> None:
    """For a top of other sizes in channels last, and a second input."""
    text = XML.replace('type="output" port-index="0" format="BFYX"', 'type="output" port-index="0" format="byxf"')
    text = text.replace("</Buffers>", '<Tensor arg-index="2" type="input" port-index="1"/></Buffers>')
    text = text.replace('global="X,Y,B*F"', 'global="X*2,B*Y" local="2,1" dim="input,1"')
    write(tmp_path, text, twice=KERNEL.replace("target)", "target, const __global float* more)"))
    top = FLAG.format("top_dim: 2 top_dim: 11 top_dim: 13")
    lines = f"more Split data -> a b\nl Twice a b -> y : {top}"
    code = source(tmp_path, lines, SHAPE, (2, 4, 1, 3))
    defines = dict(re.findall(r"^#define (\w+) (.*)$", code.partition("// Defines")[0], re.MULTILINE))
    packed = {name: BLANKS.sub("", value) for name, value in defines.items()}
    arrays = {
        "GLOBAL_WORKSIZE": "size_t[]){6,2,",
        "LOCAL_WORKSIZE": "size_t[]){2,1,",
        "INPUT0_DIMS": "int[]){2,3,5,7,",
        "INPUT0_PITCHES": "int[]){105,35,7,1,",
        "INPUT1_DIMS": "int[]){2,4,1,3,",
        "INPUT1_PITCHES": "int[]){12,3,3,1,",
        "OUTPUT0_DIMS": "int[]){2,11,13,1,",
        "OUTPUT0_PITCHES": "int[]){143,1,11,11,",
        **{
            f"{t}_{end}_PADDING": "int[]){0,0,0,0,"
            for t in ("INPUT0", "INPUT1", "OUTPUT0")
            for end in ("LOWER", "UPPER")
        },
    }
    for name, value in arrays.items():
        assert packed.pop(name) == f"({value}}}", name
        assert packed.pop(f"{name}_SIZE") == str(value.count(",")), name
    assert packed.pop("NUM_INPUTS") == "2"
    for tensor in ("INPUT0", "INPUT1", "OUTPUT0"):
        assert packed.pop(f"{tensor}_TYPE") == "float" and packed.pop(f"{tensor}_OFFSET") == "0"
    assert not packed
    for name in ("INPUT0_FORMAT_BFYX", "INPUT1_FORMAT_BFYX", "OUTPUT0_FORMAT_BYXF"):
        assert f"\n#define {name}\n" in code


def test_the_shape_of_the_top(tmp_path: Path) -> None:
    """The first input's; or top_dim; or that of chai.shape, which may be in another file."""
    path = write(tmp_path)

    def top(fields: str = "", *more: Path) -> tuple[int, ...]:
        (layer,) = graph(tmp_path, f"l Twice data -> y : {fields}", [path, *more]).layers[-1:]
        (shape,) = layer.shapes(SHAPE)
        return shape

    assert top() == SHAPE
    assert top(FLAG.format("top_dim: 1 top_dim: 9")) == (2, 9)
    rule = tmp_path / "rule.py"
    rule.write_text(
        "import chai\n@chai.shape('Twice')\ndef f(x, factor): return [(x.input_dims[0][0], int(4 * factor))]"
    )
    assert top("", rule) == (2, 8)
    assert top() == SHAPE  # the rule belongs to that network
    rule.write_text("import chai\n@chai.shape('Twice')\ndef f(x, faktor): return [(1,)]")
    with pytest.raises(PluginError, match=r"rule.py:2: .*|shape asks for 'faktor'"):
        top("", rule)


@pytest.mark.parametrize(
    ("xml", "lines", "reason"),
    [
        (XML.replace("X,Y,B*F", "X/(Y-5)"), "l Twice data -> y", "'X/(Y-5)': 7 / 0 is a division by zero"),
        (XML.replace("X,Y,B*F", "X-7"), "l Twice data -> y", "global work size 'X-7' is 0 for B 1, F 3, Y 5, X 7"),
        (XML.replace("X,Y,B*F", "F-Y"), "l Twice data -> y", "global work size 'F-Y' is -2"),
        (XML.replace("X,Y,B*F", "X*1000000000"), "l Twice data -> y", "exceeds the limit kernel_items"),
        (XML.replace('F"/>', 'F" local="2,1,1"/>'), "l Twice data -> y", "size 7 is no multiple of the local one, 2"),
        (XML.replace('F"/>', 'F" dim="input,1"/>'), "l Twice data -> y", "input 1 of its kernel: the layer has 1 bottom"),
        (XML, "l Twice data -> y z", "its kernels write 1 top, the layer has 2"),
        (XML, "r Reshape data -> a : reshape_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 dim: 1 } }\nl Twice a -> y",
         "a blob of 5 axes, OpenCL layers take at most 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_with_the_line(xml: str, lines: str, reason: str, tmp_path: Path) -> None:
    write(tmp_path, xml)
    net = graph(tmp_path, lines)
    layer = net.layers[-1]
    assert isinstance(layer, CustomLayer)
    shape = (*SHAPE, 1) if "Reshape" in lines else SHAPE
    with pytest.raises(PluginError) as caught:
        layer.frame((shape,)).run([np.zeros(shape, np.float32)])
    assert "layer 'l' (custom type 'Twice') failed at" in str(caught.value) and "layers.xml:1" in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("vstore_half(by, 0, to);", "shift.cl:3: 'vstore_half' reads or writes 16-bit numbers"),
        ("float v = vload_half(0, from);", "'vload_half' reads or writes"),
        ("half h = as_half((ushort)3);", "'as_half' takes bits for a half"),
        ("int b = n * sizeof(half);", "'sizeof(half)' is 2 in OpenVINO, 4 here"),
        ("ushort u = *(__global const ushort*)from;", "reads halfs as whole numbers"),
        ("struct s { half a; };", "puts a half into a struct"),
    ],
)
def test_what_float_cannot_do_for_half(statement: str, reason: str, tmp_path: Path) -> None:
    write(tmp_path, MVCL, shift=SHIFT.replace("{\n", "{\n    " + statement + "\n", 1))
    with pytest.raises(PluginError, match=re.escape(reason)):
        source(tmp_path, "l Shift data -> y : some_param { by: 1 }")


def test_half_is_float(tmp_path: Path) -> None:
    code = SHIFT.replace("(half)(i % n)", "1.5h + .5e-1H + 2e3h + 0x1h /* 2.0h half */")
    write(tmp_path, MVCL, shift="#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + code)
    text = source(tmp_path, "l Shift data -> y : some_param { by: 1 }")
    assert "1.5f + .5e-1f + 2e3f + 0x1h /* 2.0h half */" in text
    assert "\n// #pragma OPENCL" in text and "\n#define convert_half8_sat_rte convert_float8\n" in text
    write(tmp_path, MVCL, shift=SHIFT.replace("half", "float"))
    assert "half" not in source(tmp_path, "l Shift data -> y : some_param { by: 1 }")


def test_show_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, RELU)
    (tmp_path / "net.prototxt").write_text(prototxt("a ReLU data -> x\nb TanH x -> y", SHAPE))
    command = ["show", str(tmp_path / "net.prototxt"), "--custom", str(path), "--source"]
    assert main([*command, "a"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("// Built-in defines\n#define NUM_INPUTS 1\n") and printed.endswith(KERNEL)
    assert main([*command, "b"]) == 2
    assert "layer 'b' (TanH) is not computed by OpenCL" in capsys.readouterr().err
    assert main([*command, "c"]) == 2
    assert "there is no layer 'c'" in capsys.readouterr().err


def test_show_lists_what_the_file_takes_off_the_overlay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, RELU)
    conv = "convolution_param { num_output: 4 kernel_size: 3 }"
    lines = f"c Convolution data -> c : {conv}\na ReLU c -> a\nt TanH a -> y\nb ReLU y -> z"
    (tmp_path / "net.prototxt").write_text(prototxt(lines, SHAPE))
    command = ["show", str(tmp_path / "net.prototxt"), "--overlay", "pynq-z2", "--custom", str(path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert re.search(r"why host +a custom layer in place of the built-in ReLU: +a, b", printed)


def test_start_without_a_worker(tmp_path: Path) -> None:
    """Neither import chai nor chai show, with such a layer, load pyopencl or start a process."""
    path = write(tmp_path, RELU)
    (tmp_path / "net.prototxt").write_text(prototxt("a ReLU data -> y", SHAPE))
    command = ["show", str(tmp_path / "net.prototxt"), "--overlay", "pynq-z2", "--custom", str(path)]
    code = f"""
import sys, subprocess
subprocess.Popen = None
import chai
assert not [m for m in sys.modules if "opencl" in m]
from chai.cli import main
assert main({command!r}) == 0
print("pyopencl" in sys.modules)
"""
    assert python(code).splitlines()[-1] == "False"


def test_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a layer runs; the XML was checked before."""
    monkeypatch.setattr("chai.plugins.opencl.kernel.find_spec", lambda name: None)
    write(tmp_path)
    net = network(tmp_path, "l Twice data -> y", SHAPE)
    reason = r'its kernels need pyopencl, which is not installed \(hint: pip install "chai-fpga\[opencl\]"'
    with pytest.raises(PluginError, match=reason):
        net.forward(np.zeros(SHAPE, np.float32))
    monkeypatch.setattr("chai.plugins.opencl.kernel.platform.machine", lambda: "armv7l")
    with pytest.raises(PluginError, match=r"no package for armv7l: write the layer in Python, @chai.custom\('Twice'\)"):
        net.forward(np.zeros(SHAPE, np.float32))
    with pytest.raises(ParseError, match="version"):
        network(tmp_path, "l Twice data -> y", SHAPE, write(tmp_path, XML.replace('version="1"', 'version="2"')))


def test_a_kernel_is_no_function(tmp_path: Path) -> None:
    chai.load_custom(write(tmp_path))
    with pytest.raises(PluginError, match="a kernel runs as part of a layer only"):
        REGISTRY.find("Twice")(None)
