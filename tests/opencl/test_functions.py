"""chai.custom.opencl: TIM-VX's customised operators, whose kernels, scalars and work sizes are given in Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.env import env
from chai.errors import PluginError
from chai.evaluate.check_custom import check_layer
from chai.plugins import selection
from chai.plugins.layer import CustomLayer
from chai.plugins.registry import Registry
from tests.conftest import ROOT

from .common import network, noise, runs

SHAPE = (2, 3, 5, 7)
X = noise(SHAPE) * 3
HSWISH = """
#define HSWISH(value) (value * clamp(value + 3.0f, 0.0f, 6.0f) / 6.0f)
__constant sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;

__kernel void hswish_F32toF32(__read_only image2d_array_t input, __write_only image2d_array_t output,
                              float inputScale, float inputTail, float outputScale, float outputZP)
{
    int4 where = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
    float value = read_imagef(input, at, where).x * inputScale + inputTail;
    write_imagef(output, where, (float4)(HSWISH(value) * outputScale + outputZP, 0, 0, 1));
}

__kernel void hswish_I8toI8(__global const char* input, __global char* output,
                            float inputScale, float inputTail, float outputScale, float outputZP)
{
    size_t i = get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2));
    float value = input[i] * inputScale + inputTail;
    output[i] = convert_char_sat_rte(HSWISH(value) * outputScale + outputZP);
}
"""
SCALE = """
__kernel void scale(__global const float* x, __global const float* w, __global float* y, int n, FACTOR) {
    y[get_global_id(0)] = w[get_global_id(0) % n] * x[get_global_id(0)] * factor;
}
"""
SCALE = SCALE.replace("FACTOR", "float factor")


def hswish(x: np.ndarray) -> np.ndarray:
    """The formula of hard swish."""
    wide = x.astype(np.float64)
    return wide * np.clip(wide + 3, 0, 6) / 6


def kernel_of(x: Any) -> tuple[str, str]:
    """The kernel for the type of its numbers."""
    return ("hswish_F32toF32" if x.in_ptrs[0].dtype == np.float32 else "hswish_I8toI8"), "-cl-mad-enable"


def scales(x: Any) -> dict[str, float]:
    """Steps of codes; 1 for float."""
    if x.in_ptrs[0].dtype == np.float32:
        return {"inputScale": 1.0, "outputScale": 1.0}
    return {"inputScale": x.float_params[2], "outputScale": 1 / x.float_params[3]}


def register(**options: Any) -> Any:
    """Hard swish in both types, as TIM-VX's page has it."""
    definition: dict[str, Any] = {
        "args": {"inputTail": 0.0, "outputZP": 0.0},
        "select": kernel_of,
        "scalars": scales,
        "global_size": "X,Y,B*F",
        "dtypes": ("float32", "int8"),
        "override": True,
        **options,
    }
    return chai.custom.opencl("hswish", HSWISH, **definition)


@runs
def test_images_scalars_and_a_kernel_for_each_type(tmp_path: Path) -> None:
    """On the overlay's codes nothing is packed or unpacked around the kernel."""
    hard_swish = register()
    with network(tmp_path, "h hswish data -> y : some_param { outputZP: 0.5 }", SHAPE, hard_swish) as net:
        np.testing.assert_allclose(net.forward(X)["y"], hswish(X) + 0.5, rtol=1e-5, atol=1e-5)
    conv = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"
    lines = f"a Convolution data -> a : {conv}\nh hswish a -> b\nc Convolution b -> y : {conv}"
    with network(tmp_path, lines, SHAPE, hard_swish, device="emulator", keep="all") as net:
        net.forward(X)
        assert [net.partition.engine(name) for name in "ahc"] == ["fpga", "host", "fpga"]
        assert [c.type for c in net.schedule.conversions] == ["Pack", "Unpack"]  # of the network's ends
        a, b = net.blobs["a"], net.blobs["b"]
        formats = net.formats
        assert formats is not None
        assert np.abs(b - hswish(a)).max() <= formats["b"].step / 2 + 1e-6


@runs
def test_rows_of_check_for_each_kernel(tmp_path: Path) -> None:
    with network(tmp_path, "h hswish data -> y", SHAPE, register()) as net:
        rows = list(check_layer(net.graph.layer("h"), [SHAPE]))
    assert [(row.way, row.ok) for row in rows] == [("opencl", True), ("codes (opencl)", True)] * 3


@runs
def test_trained_parameters_a_file_and_an_error_in_it(tmp_path: Path) -> None:
    """Between bottoms and tops; sizes as numbers, scalars as sizes of the input."""
    (tmp_path / "scale.cl").write_text(SCALE)
    custom = chai.custom.opencl(
        "scaled", tmp_path / "scale.cl", args={"n": "I.F", "factor": 0.5}, global_size=[12], local_size=lambda x: (4,)
    )
    layer = CustomLayer(custom, name="s", type="scaled", bottoms=("x",), tops=("y",), blobs=[noise((3,), 1)])
    x = noise((2, 3, 2))
    (top,) = layer.forward(x)
    expected = np.resize(layer.blobs[0], 12) * x.reshape(-1) * np.float32(0.5)
    np.testing.assert_allclose(top.reshape(-1), expected, rtol=1e-6)
    layer.close()
    for source, place in (
        (tmp_path / "scale.cl", rf"{tmp_path}/scale.cl:3: "),
        (SCALE, r"test_functions.py:\d+: .*line 3: "),
    ):
        (tmp_path / "scale.cl").write_text(SCALE.replace("y[get", "z[get"))
        text = source if isinstance(source, Path) else SCALE.replace("y[get", "z[get")
        custom = chai.custom.opencl("broken", text, args={"n": 3, "factor": 0.5}, replace=True)
        layer = CustomLayer(custom, name="s", type="broken", bottoms=("x",), tops=("y",), blobs=[noise((3,), 1)])
        with pytest.raises(PluginError, match=place + ".*error: use of undeclared identifier 'z'"):
            layer.forward(x)
        layer.close()


@runs
def test_the_example_of_the_page(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n# hswish\.py\n(.*?)```", (ROOT / "docs" / "from_timvx.md").read_text(), re.DOTALL)
    (tmp_path / "hswish.py").write_text(code)
    with network(tmp_path, "h hswish data -> y", SHAPE, tmp_path / "hswish.py") as net:
        np.testing.assert_allclose(net.forward(X)["y"], hswish(X), rtol=1e-5, atol=1e-5)
        assert all(row.ok for row in check_layer(net.graph.layer("h"), [SHAPE]))


def test_sizes_without_a_batch_are_for_one_image() -> None:
    """Formulas say so; an argument that is the batch, numbers and functions are for all."""

    def alone(**options: Any) -> bool:
        return layer_of(**options).custom.options.per_image

    assert alone(global_size="X,Y,F") and alone(global_size="X,Y,F", local_size="X,1,1")
    assert not alone() and not alone(global_size="X,Y,F", local_size="B/B,1,1")
    assert not alone(global_size="X,Y,F", args={"n": "I.B", "factor": 1})
    assert not alone(global_size=[210]) and not alone(global_size=lambda x: (210,))


@runs
def test_each_image_of_a_batch(tmp_path: Path) -> None:
    """Of floats in OpenCL's images, and of the overlay's codes in pointers."""
    with network(tmp_path, "h hswish data -> y", SHAPE, register(global_size="X,Y,F")) as net:
        np.testing.assert_allclose(net.forward(X)["y"], hswish(X), rtol=1e-5, atol=1e-5)
        rows = list(check_layer(net.graph.layer("h"), [SHAPE]))
    assert [(row.way, row.ok) for row in rows] == [("opencl", True), ("codes (opencl)", True)] * 3


@runs
def test_numbers_are_for_all_images(tmp_path: Path) -> None:
    """Those of one image leave the others out, which is an error, not zeros."""
    hard_swish = register(global_size=(7, 5, 3))
    with network(tmp_path, "h hswish data -> y", SHAPE, hard_swish) as net:
        np.testing.assert_allclose(net.forward(X[:1])["y"], hswish(X[:1]), rtol=1e-5, atol=1e-5)
        with pytest.raises(PluginError, match="it writes nothing into top 0 of image 1, the batch is 2"):
            net.forward(X)


@runs
def test_a_part_of_an_image_that_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has zeros there, whatever the last pass left, and CHAI_CHECK names the first place."""
    hard_swish = register(global_size=lambda x: (6, *SHAPE[2:3], 6))
    with network(tmp_path, "h hswish data -> y", SHAPE, hard_swish) as net:
        for data in (X, -X):
            top = net.forward(data)["y"]
            np.testing.assert_allclose(top[..., :6], hswish(data)[..., :6], rtol=1e-5, atol=1e-5)
            assert not top[..., 6].any()
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    error = pytest.raises(PluginError, match=r"nothing into 30 of 210 elements of top 0, first \(0, 0, 0, 6\)")
    with network(tmp_path, "h hswish data -> y", SHAPE, hard_swish) as net, error:
        net.forward(X)


def layer_of(source: str = SCALE, **options: Any) -> CustomLayer:
    """A layer on one input of SHAPE, without OpenCL."""
    definition = {"args": {"n": 3, "factor": 0.5}, "replace": True, **options}
    custom = chai.custom.opencl("scaled", source, **definition)
    return CustomLayer(custom, name="s", type="scaled", bottoms=("x",), tops=("y",), blobs=[noise((3,))])


def test_it_is_an_ordinary_type(registry: Registry, tmp_path: Path) -> None:
    hard_swish = register(version="7")
    assert registry.find("hswish") is hard_swish and hard_swish.version == "7"
    assert re.search(r"test_functions.py:\d+", hard_swish.place)
    with pytest.raises(PluginError, match="'hswish' is defined twice"):
        network(tmp_path, "h hswish data -> y", SHAPE, {"hswish": hard_swish, "other": hard_swish}).close()
        exec(compile('import chai\nchai.custom.opencl("hswish", "__kernel void a() {}")', "elsewhere.py", "exec"))
    with pytest.raises(PluginError, match="chai has a type of that name"):
        chai.custom.opencl("ReLU", SCALE)


def test_a_type_of_one_network(registry: Registry, tmp_path: Path) -> None:
    """Of a file that the network was created with."""
    (tmp_path / "mine.py").write_text(
        f"import chai\nchai.custom.opencl('scaled', '''{SCALE}''', args={{'n': 1, 'factor': 1}})"
    )
    with network(tmp_path, "s scaled data -> y", SHAPE, tmp_path / "mine.py") as net:
        assert net.graph.layer("s").engine == "custom"
    assert registry.find("scaled") is None


def test_an_edited_kernel_is_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of its times has the source, and what chooses the kernel and its sizes."""
    edits: list[dict[str, Any]] = [
        {"source": SCALE.replace("* factor", "/ factor")},
        {"local_size": "1"},
        {"global_size": lambda x: (210,)},
        {"global_size": lambda x: (105,)},
        {"select": lambda x: "scale"},
    ]
    layers = [layer_of(**options) for options in ({}, {}, *edits)]
    keys: list[str] = []
    monkeypatch.setattr(selection, "fastest", lambda key, fit, run: keys.append(key) or fit[0])
    for layer in layers:
        layer.custom.impl("other", jit=False)(lambda x: None)
        layer.autotune = True
        layer.frame((SHAPE,))
    assert keys[0] == keys[1] and len(set(keys)) == 1 + len(edits)


def test_its_source(tmp_path: Path) -> None:
    assert layer_of().opencl_source(SHAPE) == '#line 1 "<source>"\n' + SCALE


def test_the_shape_of_the_top() -> None:
    layer = layer_of()
    assert layer.shapes(SHAPE) == (SHAPE,)
    layer.custom.shape(lambda x, n: [(n, 2)])
    assert layer.shapes(SHAPE) == ((3, 2),)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"source": HSWISH}, "kernels of 'scaled': hswish_F32toF32, hswish_I8toI8; expected one, or select="),
        ({"source": "float f() { return 1; }"}, "kernels of 'scaled': none"),
        ({"dtypes": ("int8",)}, "dtypes"),
        ({"dtypes": ("float32", "float64")}, "dtypes"),
        ({"select": lambda x, m: "scale"}, "select asks for 'm', which is neither in args"),
        ({"args": {"n": [3]}}, "expected a number, a text or a tuple"),
        ({"source": " " * (5 << 20)}, "kernel_bytes"),
    ],
)
def test_refused_at_once(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PluginError, match=re.escape(reason)) as caught:
        layer_of(**options)
    assert "test_functions.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"select": lambda x: "skale"}, "select returned 'skale', expected a kernel"),
        ({"select": lambda x: ["scale"]}, "select returned ['scale'], expected a kernel"),
        ({"select": lambda x: 1 / 0}, "ZeroDivisionError"),
        ({"scalars": lambda x: 5}, 'scalars returned 5, expected numbers by name (hint: scalars=lambda x: {"n": 4})'),
        ({"scalars": lambda x: None}, "scalars returned None, expected numbers by name"),
        ({"global_size": "X,Z"}, "'X,Z': expected a number, B, F, Y, X"),
        ({"global_size": "X/(Y-5)"}, "division by zero"),
        ({"global_size": lambda x: (0,)}, "expected one to three sizes, each at least 1"),
        ({"global_size": (1, 2, 3, 4)}, "expected one to three sizes"),
        ({"global_size": lambda x: "many"}, "work sizes 'many': expected whole numbers"),
        ({"global_size": lambda x: (float("inf"),)}, "work sizes (inf,): expected whole numbers"),
        ({"global_size": [1 << 40]}, "kernel_items"),
        ({"local_size": (4,)}, "global work size 210 is no multiple of the local one, 4"),
        ({"args": {"n": 3}}, "parameter 'factor' of kernel 'scale' is no argument"),
        ({"args": {"n": 3, "factor": "much"}}, "parameter 'factor': expected float32, found 'much'"),
        (
            {"source": SCALE.replace("__global const float* w,", "")},
            "its layer has: bottoms 1, trained parameters 1, tops 1",
        ),
        ({"source": SCALE.replace("__global float* y", "__global const float* y")}, "is to be top 0"),
        ({"source": SCALE.replace("__global float* y", "__local float* y")}, "is local memory"),
        ({"source": SCALE.replace("__global float* y", "__write_only image3d_t y")}, "expected an image2d_array_t"),
        ({"source": SCALE.replace("int n", "sampler_t n")}, "parameter 'n' of kernel 'scale' is of type 'sampler_t'"),
        ({"source": SCALE.replace("{", "{ half h = vload_half(0, x);")}, "<source>:2: 'vload_half' reads"),
    ],
)
def test_what_does_not_fit(options: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is found without OpenCL."""
    source = options.get("source", SCALE)
    if "w," not in source:  # a kernel with one pointer too few for a layer with two bottoms
        source = source.replace("__global float* y,", "")
    layer = layer_of(**{**options, "source": source})
    with pytest.raises(PluginError, match=re.escape(reason)) as caught:
        frame: Any = layer.frame((SHAPE,))
        _ = frame.python.plan
    assert "layer 's' (custom type 'scaled') failed at" in str(caught.value)
