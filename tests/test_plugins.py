"""Custom layers: registration, the object they are given, and what happens when they go wrong."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import plugins
from chai.parser.caffemodel import write_caffemodel
from chai.xchange import FIELDS

NET = """
name: "t"
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 2 dim: 3 dim: 5 dim: 7 }} }} }}
layer {{ name: "mine" type: "{type}" bottom: "data" top: "out" user_defined_layer: true
  xcustom_param {{ float_args: [2.5, -1] string_args: "up" top_dim: [{dims}] }} }}
"""


def make(tmp_path: Path, function: Any, type: str = "mine", dims: str = "1, 3, 5, 7") -> chai.Net:
    path = tmp_path / "net.prototxt"
    path.write_text(NET.format(type=type, dims=dims))
    return chai.Net(path, custom={} if function is None else {type: function})


@pytest.fixture
def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> plugins.Registry:
    """A registry that forgets what a test puts into it."""
    own = plugins.Registry(parent=plugins.REGISTRY)
    monkeypatch.setattr(plugins, "REGISTRY", own)
    return own


def double(x: Any) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * x.float_args[0]


@pytest.mark.parametrize("type", ["Softmax", "Reorg", "BN"])
def test_a_user_defined_layer_comes_before_a_built_in_type(tmp_path: Path, data: np.ndarray, type: str) -> None:
    assert np.allclose(make(tmp_path, double, type).forward(data)["out"], 2.5 * data)


def test_a_plain_function_is_run_as_it_is(tmp_path: Path, data: np.ndarray) -> None:
    seen = []

    def mine(x: chai.xChangeLayer) -> None:
        seen.append(x)
        x.top[0][...] = np.flip(x.bottom[0], 3)  # numpy, shaped views

    net = make(tmp_path, mine)
    assert np.array_equal(net.forward(data)["out"], data[..., ::-1])
    x = seen[-1]
    assert [d.tolist() for d in x.input_dims] == [[2, 3, 5, 7]]
    assert [d.tolist() for d in x.output_dims] == [[2, 3, 5, 7]]  # the batch is the run's, not top_dim's
    assert x.in_ptrs[0].shape == (210,)
    assert x.float_args.tolist() == [2.5, -1.0]
    assert x.string_args == ("up",)
    assert (x.layername, x.custom_layer_type) == ("mine", "mine")
    assert x.custom_float_params == () == x.params_dims
    assert net.perf.custom[0].name == "mine"
    assert [s.engine for s in net.perf.steps] == ["custom"]


def test_the_decorator_compiles_with_numba(tmp_path: Path, data: np.ndarray, registry: plugins.Registry) -> None:
    pytest.importorskip("numba")
    assert chai.custom("mine")(double) is double
    net = make(tmp_path, None)
    layer = net.graph.layer("mine")
    assert hasattr(layer._run, "signatures")  # compiled at load, before any image
    assert len(layer._run.signatures) == 1
    assert np.array_equal(net.forward(data)["out"], data * np.float32(2.5))
    assert np.array_equal(net.forward(data[:1])["out"], data[:1] * np.float32(2.5))  # another batch: no new compilation
    assert len(layer._run.signatures) == 1


def test_a_numba_function_keeps_its_own_options(tmp_path: Path, data: np.ndarray) -> None:
    numba = pytest.importorskip("numba")
    net = make(tmp_path, numba.njit(boundscheck=True)(double))
    assert np.array_equal(net.forward(data)["out"], data * np.float32(2.5))


def test_jit_false_runs_python(tmp_path: Path, data: np.ndarray, registry: plugins.Registry) -> None:
    chai.custom("mine", jit=False)(double)
    net = make(tmp_path, None)
    assert net.graph.layer("mine")._run is double
    assert np.array_equal(net.forward(data)["out"], data * np.float32(2.5))


def test_strings_and_every_field_reach_compiled_code(tmp_path: Path, data: np.ndarray) -> None:
    numba = pytest.importorskip("numba")

    @numba.njit
    def mine(x: Any) -> None:
        x.out_ptrs[0][:] = x.in_ptrs[0] if x.string_args[0] == "up" and x.layername == "mine" else -x.in_ptrs[0]
        x.top[0][0, 0, 0, 0] = x.input_dims[0][1] + 10 * x.output_dims[0][3] + 100 * x.bottom[0].ndim

    out = make(tmp_path, mine).forward(data)["out"]
    assert out[0, 0, 0, 0] == 3 + 70 + 400
    assert np.array_equal(out.ravel()[1:], data.ravel()[1:])


def test_trained_parameters_arrive_in_caffemodel_order(tmp_path: Path, data: np.ndarray) -> None:
    blobs = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([7, 8])]
    write_caffemodel(tmp_path / "w.caffemodel", "t", [("mine", "mine", blobs)])
    seen = []
    (tmp_path / "net.prototxt").write_text(NET.format(type="mine", dims="1, 3, 5, 7"))
    chai.Net(tmp_path / "net.prototxt", tmp_path / "w.caffemodel", custom={"mine": seen.append}).forward(data)
    x = seen[-1]
    assert [p.tolist() for p in x.custom_float_params] == [[0, 1, 2, 3, 4, 5], [7, 8]]
    assert [d.tolist() for d in x.params_dims] == [[2, 3], [2]]
    with pytest.raises(ValueError, match="read-only"):
        x.custom_float_params[0][0] = 1
    with pytest.raises(ValueError, match="read-only"):
        x.in_ptrs[0][0] = 1


def test_the_flag_wins_over_a_built_in_type(tmp_path: Path, data: np.ndarray) -> None:
    def relu(x: chai.xChangeLayer) -> None:
        x.out_ptrs[0][:] = 42

    assert (make(tmp_path, relu, type="ReLU").forward(data)["out"] == 42).all()


def test_outputs_are_zero_before_the_call(tmp_path: Path, data: np.ndarray) -> None:
    assert not make(tmp_path, lambda x: None).forward(data)["out"].any()


def test_an_unregistered_type_says_where_custom_code_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(chai.PluginError, match=r"layer 'mine': type 'gemmm' is marked user_defined_layer") as caught:
        make(tmp_path, None, type="gemmm")
    assert "did you mean 'gemm'?" in caught.value.hint
    assert "custom" in caught.value.hint


def test_top_dim_is_needed(tmp_path: Path) -> None:
    with pytest.raises(chai.ShapeError, match=r"layer 'mine' \(mine\): top_dim is missing"):
        make(tmp_path, double, dims="")


def raises(x: Any) -> None:
    raise RuntimeError("no good")


def test_an_exception_names_layer_type_and_line_and_the_net_lives_on(tmp_path: Path, data: np.ndarray) -> None:
    broken = [True]

    def mine(x: chai.xChangeLayer) -> None:
        if broken[0]:
            raises(x)
        x.out_ptrs[0][:] = x.in_ptrs[0]

    net = make(tmp_path, mine)
    with pytest.raises(
        chai.PluginError, match=rf"layer 'mine' \(custom type 'mine'\) failed at {__file__}:\d+: RuntimeError: no good"
    ) as caught:
        net.forward(data)
    assert isinstance(caught.value.__cause__, RuntimeError)
    broken[0] = False
    assert np.array_equal(net.forward(data)["out"], data)


def typo(x: Any) -> None:
    x.out_ptrs[0][0] = x.float_arg[0]


@pytest.mark.parametrize("jit", [True, False])
def test_a_misspelt_field_gets_a_near_miss(
    tmp_path: Path, data: np.ndarray, registry: plugins.Registry, jit: bool
) -> None:
    if jit:
        pytest.importorskip("numba")
    chai.custom("mine", jit=jit)(typo)
    with pytest.raises(chai.PluginError, match=r"layer 'mine'.*xChangeLayer has no field 'float_arg'") as caught:
        make(tmp_path, None).forward(data)
    assert "did you mean float_args?" in caught.value.hint
    assert "test_plugins.py:" in caught.value.message


def test_without_numba_the_function_runs_as_python_with_one_warning(
    tmp_path: Path,
    data: np.ndarray,
    registry: plugins.Registry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(plugins, "_warned", False)
    chai.custom("mine")(double)
    with caplog.at_level(logging.WARNING, "chai"):
        for _ in range(2):
            assert np.array_equal(make(tmp_path, None).forward(data)["out"], data * np.float32(2.5))
    assert [r.message for r in caplog.records if "numba" in r.message] == [
        "numba is not installed: custom layers run as plain Python, about a hundred times slower for loops"
    ]


def test_two_definitions_of_one_type_are_refused(registry: plugins.Registry) -> None:
    chai.custom("mine")(double)
    chai.custom("mine")(typo)  # the same file again is a reload
    with pytest.raises(chai.PluginError, match="defined twice"):
        chai.custom("mine")(plugins.dims)


def test_a_users_definition_wins_over_a_shipped_one_in_any_order(registry: plugins.Registry) -> None:
    shipped = plugins.REGISTRY.parent.find("gemm")
    for order in ((double, shipped.function), (shipped.function, double)):
        own = plugins.Registry()
        for function in order:
            own.register("gemm", function, jit=True)
        assert own.find("gemm").function is double


def test_a_file_is_run_when_named_and_again_when_it_changed(tmp_path: Path, registry: plugins.Registry) -> None:
    import os

    file = tmp_path / "own.py"
    file.write_text('import chai\n@chai.custom("own", jit=False)\ndef own(x): x.out_ptrs[0][:] = 1\n')
    plugins.load(tmp_path)
    first = registry.find("own").function
    plugins.load(tmp_path)
    assert registry.find("own").function is first
    file.write_text('import chai\n@chai.custom("own", jit=False)\ndef own(x): x.out_ptrs[0][:] = 2\n')
    os.utime(file, ns=(1, 1))
    plugins.load(tmp_path)
    assert registry.find("own").function is not first


@pytest.mark.parametrize(("text", "line"), [("import chai\n1 / 0\n", 2), ("def f(:\n", 1)])
def test_a_file_that_fails_is_named_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(chai.PluginError, match=rf"{file}:{line}: (ZeroDivision|Syntax)Error"):
        plugins.load(file)
    with pytest.raises(chai.PluginError, match="does not exist"):
        plugins.load(tmp_path / "absent.py")


def test_custom_code_beside_a_prototxt_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "trap.py").write_text("raise SystemExit('run!')")
    (tmp_path / "trap.py").write_text("raise SystemExit('run!')")
    monkeypatch.chdir(tmp_path)
    make(tmp_path, double)


def test_the_fields_documented_are_the_fields_compiled() -> None:
    assert all(name in chai.xChangeLayer.__doc__ for name in FIELDS)


def test_a_layer_without_its_parameters_says_so() -> None:
    from chai.paths import resource

    net = chai.Net(resource("prototxt", "digits.prototxt"))  # by path: no weights are taken
    with pytest.raises(chai.PluginError, match="layer 'classifier'") as caught:
        net.forward(np.zeros((1, 1, 8, 8)))
    assert "without its caffemodel" in caught.value.hint


def test_gemm_against_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights, bias = rng.standard_normal((11, 30)).astype(np.float32), rng.standard_normal(11).astype(np.float32)
    write_caffemodel(tmp_path / "w.caffemodel", "t", [("fc", "gemm", [weights, bias])])
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 5 dim: 3 dim: 2 } } }\n'
        'layer { name: "fc" type: "gemm" bottom: "data" top: "fc" user_defined_layer: true\n'
        "xcustom_param { float_args: 11 top_dim: 1 top_dim: 11 } }"
    )
    x = rng.standard_normal((4, 5, 3, 2)).astype(np.float32)
    found = chai.Net(tmp_path / "net.prototxt", tmp_path / "w.caffemodel").forward(x)["fc"]
    assert np.allclose(found, x.reshape(4, 30) @ weights.T + bias, rtol=1e-5, atol=1e-5)
