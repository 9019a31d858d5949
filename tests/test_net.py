"""Net: loading, feeding, keeping, reshaping."""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.codegen.compile import chain
from chai.runtime.batches import numbers
from tests.passes.common import network

TWO = """
name: "two"
layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "s" }
layer { name: "relu" type: "ReLU" bottom: "s" top: "s" }
layer { name: "neg" type: "Power" bottom: "s" top: "n" power_param { scale: -1 } }
layer { name: "again" type: "Power" bottom: "n" top: "n" power_param { shift: 1 } }
layer { name: "side" type: "AbsVal" bottom: "a" top: "abs" }
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.prototxt"
    path.write_text(TWO)
    return path


A = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
B = np.array([[-1, -1, -1], [1, 1, 1]], np.float32)


def test_several_inputs_and_outputs(two: Path) -> None:
    net = chai.Net(two)
    assert (net.inputs, net.outputs) == (["a", "b"], ["n", "abs"])
    for out in (net.forward(a=A, b=B), net.forward(A, B), net.forward(A, b=B.tolist())):
        assert np.array_equal(out["n"], 1 - np.maximum(A + B, 0))
        assert np.array_equal(out["abs"], np.abs(A))
    assert set(net.blobs) == {"n", "abs"}
    assert repr(net) == "<chai.Net 'two': 6 layers, a 2x3, b 2x3 -> n, abs, device emulator>"


def test_parts_of_a_network_print_in_a_line_each() -> None:
    net = chai.Net("digits")
    net.plan()
    plan, segment = net.offload.plan, net.schedule.segments[0]
    tasks, work = len(segment.tasks), segment.work(plan.overlay, plan.device_shapes, plan.schedule.views)
    assert repr(net.graph) == f"<Graph 'digits-inception': {len(net.graph.layers)} layers, data -> prob>"
    assert repr(net.overlay) == f"<Overlay pynq-z2, build {plan.overlay.build:08x}>"
    on_host, on_overlay = len(net.partition.on("host")), len(net.partition.on("fpga"))
    assert repr(net.partition) == f"<Partition: fpga {on_overlay} layers, host {on_host} layers, 2 segments>"
    assert repr(plan) == "<Plan of 'digits-inception' for pynq-z2>"
    assert repr(segment) == f"<DeviceStep: {tasks} Tasks, {', '.join(segment.inputs)} -> {', '.join(segment.outputs)}>"
    task = segment.tasks[0]
    assert repr(task) == f"<conv '{'+'.join(task.origin)}': data unfolded -> {task.output}>"
    descriptors = chain(work)
    assert repr(descriptors) == f"<Chain: {len(descriptors.tasks)} descriptors>"


def test_keep_decides_which_blobs_stay(two: Path) -> None:
    net = chai.Net(two, device="float", keep="all")
    net.forward(A, B)
    assert set(net.blobs) == {"a", "b", "s", "n", "abs"}
    assert np.array_equal(net.blobs["s"], np.maximum(A + B, 0))  # in place: the last writer's
    assert np.array_equal(net.tops("sum")[0], A + B)
    assert np.array_equal(net.tops("neg")[0], -np.maximum(A + B, 0))
    some = chai.Net(two, keep=["s"])
    with pytest.raises(KeyError, match="two has no blobs: its first pass is to come"):
        _ = some.blobs["s"]
    some.forward(A, B)
    assert set(some.blobs) == {"s", "n", "abs"}
    assert "a" not in some.blobs and some.blobs.get("a") is None
    with pytest.raises(
        KeyError, match=r"blob 'a' of two was not kept \(hint: Net\(\.\.\., keep=\['a'\]\), or \"all\"\)"
    ):
        _ = some.blobs["a"]
    with pytest.raises(chai.UsageError, match=r"there is no blob 'aps' in two \(hint: did you mean 'abs'\?\)"):
        _ = some.blobs["aps"]
    with pytest.raises(chai.UsageError, match="were not kept"):
        some.tops("neg")
    with pytest.raises(chai.UsageError, match="keep: there is no blob 'x'"):
        chai.Net(two, keep=["x"])


def test_keeping_changes_no_bits(two: Path) -> None:
    first, second = chai.Net(two).forward(A, B), chai.Net(two, keep="all").forward(A, B)
    assert all(np.array_equal(first[k], second[k]) for k in first)


def test_inputs_are_not_written(two: Path) -> None:
    a, b = A.copy(), B.copy()
    chai.Net(two).forward(a, b)
    assert np.array_equal(a, A)
    assert np.array_equal(b, B)


def test_sizes_follow_the_data_and_a_refused_size_changes_nothing(two: Path) -> None:
    net = chai.Net(two)
    assert net.forward(np.ones((5, 3)), np.ones((5, 3)))["n"].shape == (5, 3)
    with pytest.raises(
        chai.ShapeError, match=r"two\.prototxt:4: layer 'sum' \(Eltwise\): bottom 1 is 4x3, bottom 0 is 5x3"
    ):
        net.forward(np.ones((5, 3)), np.ones((4, 3)))
    assert net.shapes["n"] == (5, 3)
    assert net.forward(A, B)["n"].shape == (2, 3)
    assert chai.Net(two, batch=7).shapes["abs"] == (7, 3)


@pytest.mark.parametrize(
    ("args", "inputs", "words"),
    [
        ((A,), {}, "input 'b' is missing"),
        ((A, B, A), {}, "3 arrays for 2 inputs: a, b"),
        ((), {"a": A, "b": B, "c": A}, "'c' is no input of two"),
        ((A, B), {"a": A}, "input 'a' has two arrays"),
        (({"a": A, "b": B},), {"b": B}, "input 'b' has two arrays"),
        ((A, [["x", "y"]]), {}, "input 'b': expected numbers, found dtype"),
        ((A, [[1, 2], [3]]), {}, "input 'b': expected numbers: .* inhomogeneous shape"),
    ],
)
def test_wrong_inputs(two: Path, args: tuple[object, ...], inputs: dict[str, object], words: str) -> None:
    with pytest.raises(chai.UsageError, match=words):
        chai.Net(two).forward(*args, **inputs)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("prototxt", 3, r"prototxt: expected str \| Path \| bytes, found int"),
        ("caffemodel", b"x", "caffemodel: expected .*, found bytes"),
        ("batch", "2", r"batch: expected int \| None, found str"),
        ("batch", 1.5, r"batch: expected int \| None, found float"),
        ("bits", None, "bits: expected int, found NoneType"),
        ("scheme", A, "scheme: expected .*, found ndarray"),
        ("phase", 1, "phase: expected str, found int"),
        ("level", "1", "level: expected int, found str"),
        ("stages", None, "stages: expected .*, found NoneType"),
        ("shapes", [1, 3], "shapes: expected .*, found list"),
        ("shapes", {"a": 3}, "input 'a': expected a shape, found 3"),
        ("shapes", {"a": (2.5, 3)}, r"input 'a': expected a shape, found \(2.5, 3\)"),
        ("keep", None, "keep: expected .*, found NoneType"),
        ("engine", "host", "engine: expected .*, found str"),
        ("place", None, "place: expected .*, found NoneType"),
        ("overlay", 2, "overlay: expected .*, found int"),
        ("detect", 2, "detect: expected .*, found int"),
        ("start_layer", 3, "start_layer: expected str, found int"),
        ("device", 3, "there is no device 3"),
    ],
)
def test_options_of_another_type(two: Path, option: str, value: Any, words: str) -> None:
    with pytest.raises(chai.ChaiError, match=words):
        chai.Net(**{"prototxt": two, option: value})


def test_numbers_of_numpy_are_options_and_sizes(two: Path) -> None:
    net = chai.Net(
        two, batch=np.int64(4), level=np.int32(0), start_layer=None, stages=frozenset(), shapes={"a": [2, 3]}
    )
    assert net.shapes["n"] == (4, 3)
    net.reshape(a=np.array([5, 3]), b=iter((5, 3)))
    assert net.shapes["n"] == (5, 3)
    net.reshape(a=np.array([5, 3]))
    assert net.shapes["n"] == (5, 3)


def test_bits_of_numpy(tmp_path: Path) -> None:
    """C takes none of them, and numbers of 8 bits overflow."""
    line = "conv Convolution data -> y : convolution_param { num_output: 3 kernel_size: 1 }"
    data = np.random.default_rng(0).random((2, 3, 5, 7))
    outputs = []
    for number in (int, np.uint8):
        net = network(tmp_path, line, (2, 3, 5, 7), device="emulator", bits=number(6), batch=number(2))
        outputs.append(net.forward(data)["y"])
        assert net.basis is not None and type(net.basis.bits) is int
    assert np.array_equal(*outputs)


@pytest.mark.parametrize("size", [None, 3, "2x3", (2.5, 3), ("2", "3"), ((2,), 3)], ids=str)
def test_sizes_that_are_none(two: Path, size: Any) -> None:
    net = chai.Net(two)
    with pytest.raises(chai.UsageError, match="input 'a': expected a shape"):
        net.reshape(a=size)
    assert net.forward(A, B)["n"].shape == (2, 3)


@pytest.mark.parametrize("batches", [None, 3, A.sum()], ids=str)
def test_a_stream_of_what_has_no_batches(two: Path, batches: Any) -> None:
    with pytest.raises(chai.UsageError, match="stream: expected batches, found"):
        list(chai.Net(two).stream(batches))


def test_one_stage_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "staged.prototxt").write_text(
        'input: "x" input_shape { dim: [2, 3] } layer { name: "y" type: "AbsVal" bottom: "x" top: "y" }'
        'layer { name: "z" type: "AbsVal" bottom: "y" top: "z" include { stage: "deploy" } }'
    )
    assert chai.Net(tmp_path / "staged.prototxt", stages="deploy").outputs == ["z"]


def test_perf_accounts_for_every_layer(two: Path) -> None:
    net = chai.Net(two, device="float")
    assert net.perf.steps == ()
    a, b = (np.tile(x, 100) for x in (A, B))  # blobs inside a chain begin at multiples of 64 bytes
    net.forward(a, b)
    assert [s.name for s in net.perf.steps] == ["sum", "relu", "neg", "again", "side"]
    assert sum(s.ms for s in net.perf.steps) <= net.perf.wall_ms
    assert net.perf.batch == 2
    assert net.perf.steps[0].bytes == a.nbytes
    assert net.perf.peak_bytes < net.perf.blob_bytes == 7 * a.nbytes
    assert "images/second" in str(net.perf)
    assert net.perf.to_json()["steps"][1]["name"] == "relu"


def test_get_perf_info_prints_chaidnns_report(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = chai.Net("digits", device="float")
    net.forward(np.zeros((1, 1, 8, 8)))
    perf = chai.getPerfInfo(net)
    ms = perf.custom[0].ms
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "[INFOx] Total Number of Custom layers : 1",
        "",
        "[INFOx] Custom Layer - 1 : classifier",
        "[PERFM] Unpack layer Latency : 0.000000 ms",
        f"[PERFM] Custom layer Latency : {ms:f} ms",
        "[PERFM] Pack   layer Latency : 0.000000 ms",
        "",
    ]
    assert chai.getPerfInfo(chai.Net(two)).custom == ()
    assert capsys.readouterr().err.startswith("[INFOx] Total Number of Custom layers : 0\n")


def test_devices_by_name(two: Path) -> None:
    with pytest.raises(chai.DeviceError, match="there is no device 'flaot'") as caught:
        chai.Net(two, device="flaot")
    assert "did you mean 'float'?" in caught.value.hint


def test_a_closed_net_holds_nothing() -> None:
    with chai.Net("digits") as net:
        net.forward(np.zeros((1, 1, 8, 8)))
        assert net.params
    assert not net.params
    assert not net.blobs
    for use in (lambda: net.forward(np.zeros((1, 1, 8, 8))), lambda: net.schedule):
        with pytest.raises(chai.UsageError, match="digits-inception is closed"):
            use()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(chai.UsageError, match="no file 'nope' and no shipped network") as caught:
        chai.Net("nope")
    assert "googlenet" in caught.value.hint
    with pytest.raises(chai.UsageError, match=r"is a folder"):
        chai.Net(tmp_path)
    with pytest.raises(chai.UsageError, match=r"neither a file 'nope' .* nor 'w\.caffemodel'"):
        chai.Net("nope", "w.caffemodel")
    with pytest.raises(chai.UsageError, match=r"no file '.*w.caffemodel'"):
        chai.Net("lenet", tmp_path / "w.caffemodel")


def test_debug_levels_log_every_pass(
    two: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from chai.env import env

    monkeypatch.setenv("CHAI_DEBUG", "3")
    env.cache_clear()
    with caplog.at_level(logging.INFO, "chai"):
        chai.Net(two).forward(A, B)
    messages = [r.message for r in caplog.records]
    assert any("neg (Power)" in m for m in messages)
    assert "abs 2x3 [1, 6]" in messages


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CHAI_DEBUG", "lots", "CHAI_DEBUG is 'lots'"),
        ("CHAI_DEBUG", "4", "CHAI_DEBUG is '4'; expected a number from 0 to 3"),
        ("CHAI_DEBUG", "1" * 4301, "CHAI_DEBUG is '1111"),  # int() refuses more than 4,300 digits
        ("CHAI_LIMITS", f"layers={'1' * 4301}", "CHAI_LIMITS: cannot follow 'layers=1111"),
        ("CHAI_LIMITS", "layer=3", "CHAI_LIMITS: cannot follow 'layer=3'"),
        ("CHAI_LIMITS", "layers=x", "cannot follow"),
    ],
)
def test_environment_that_makes_no_sense(
    two: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    from chai.env import env
    from chai.limits import limits

    monkeypatch.setenv(name, value)
    env.cache_clear()
    limits.cache_clear()
    with pytest.raises(chai.UsageError, match=words):
        chai.Net(two).forward(A, B)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("activation_bytes=50", "asks too much"),
        ("layers=3", "too many layers"),
        ("blob_elements=5", "top of shape 2x3"),
    ],
)
def test_limits_refuse_before_memory_is_asked_for(
    two: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    from chai.env import env
    from chai.limits import limits

    monkeypatch.setenv("CHAI_LIMITS", limit)
    env.cache_clear()
    limits.cache_clear()
    with pytest.raises(chai.ChaiError, match=words) as caught:
        chai.Net(two)
    assert f"CHAI_LIMITS={limit.partition('=')[0]}=N" in str(caught.value)


def test_the_default_device_is_the_emulator_and_chai_device_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from chai.env import env

    net = chai.Net("digits")
    net.forward(np.zeros((1, 1, 8, 8)))
    assert net.device.name == "emulator" and "fpga:Convolution" in net.schedule.engines()
    monkeypatch.setenv("CHAI_DEVICE", "float")
    env.cache_clear()
    assert chai.Net("digits").device.name == "float"


def test_inputs_of_other_channels_than_the_weights_say_what_to_feed() -> None:
    with pytest.raises(chai.ShapeError, match=r"its weights .* would be 16x3x3x3, they are 16x1x3x3") as refusal:
        chai.Net("digits").forward(np.zeros((1, 3, 8, 8)))
    assert "trained for" in str(refusal.value.hint)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_outputs_that_relay_a_blob_share_memory_with_each_other_alone(tmp_path: Path, device: str) -> None:
    (tmp_path / "n.prototxt").write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }\n'
        'layer { name: "f" type: "Flatten" bottom: "x" top: "f" }\n'
        'layer { name: "s" type: "Split" bottom: "x" top: "a" top: "b" }\n'
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 7)).astype(np.float32)
    net = chai.Net(tmp_path / "n.prototxt", device=device)
    first, second = net.forward(x), net.forward(x)
    for name, value in first.items():
        np.testing.assert_array_equal(value.ravel(), x.ravel())
        assert not np.shares_memory(value, x) and not np.shares_memory(value, second[name])
    assert np.shares_memory(first["a"], first["b"]) and np.shares_memory(first["a"], first["f"])


def test_a_network_that_is_dropped_without_close_is_freed_at_once() -> None:
    """Its codes of weights, and a board, do not wait for the garbage collector."""
    net = chai.Net("digits", device="emulator", calibrate=np.ones((1, 1, 8, 8), np.float32))
    execution = weakref.ref(net.offload)
    gc.disable()
    try:
        del net
        assert execution() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize(("blob", "shape"), [(0, (4, 2, 3, 3)), (0, (3, 3, 3, 3)), (1, (3,)), (1, (1,))])
def test_parameters_of_another_shape(tmp_path: Path, device: str, blob: int, shape: tuple[int, ...]) -> None:
    """In the next pass, not only in one for inputs of a new size."""
    (tmp_path / "one.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 5, 7] } } }'
        'layer { name: "conv" type: "Convolution" bottom: "x" top: "y" '
        "convolution_param { num_output: 4 kernel_size: 3 } }"
    )
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 5, 7)).astype(np.float32)
    with chai.Net(tmp_path / "one.prototxt", device=device) as net:
        before = net.forward(x)["y"]
        good, net.params["conv"][blob] = net.params["conv"][blob], np.ones(shape, np.float32)
        with pytest.raises(chai.ShapeError, match=rf"layer 'conv' .* \(blob {blob}\)"):
            net.forward(x)
        net.params["conv"][blob] = good
        assert np.array_equal(net.forward(x)["y"], before)
        kept = net.params["conv"]
        net.forward(x)
        kept[blob] = np.ones(shape, np.float32)
        for _ in range(2):
            with pytest.raises(chai.ShapeError, match=rf"layer 'conv' .* \(blob {blob}\)"):
                net.forward(x)
        kept[blob] = good
        assert np.array_equal(net.forward(x)["y"], before)
        kept[blob] = good + 1
        assert not np.array_equal(net.forward(x)["y"], before)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_list_of_parameters_that_holds_something_else(tmp_path: Path, device: str) -> None:
    (tmp_path / "one.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 5, 7] } } }'
        'layer { name: "scale" type: "Scale" bottom: "x" top: "y" scale_param { bias_term: true } }'
    )
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 5, 7)).astype(np.float32)
    with chai.Net(tmp_path / "one.prototxt", device=device) as net:
        before = net.forward(x)["y"]
        parameters = net.params["scale"]
        good = [*parameters]
        for layer in ("scale", "scales"):
            with pytest.raises(chai.UsageError, match=rf"params\['{layer}'\]: the list cannot be replaced"):
                net.params[layer] = good
        copies = copy.deepcopy(net.params)
        copies["scale"] = [np.zeros(3)]
        assert np.array_equal(net.forward(x)["y"], before)
        parameters[1:] = [[1.0, 2.0, 3.0]]  # type: ignore[list-item]
        with pytest.raises(chai.ShapeError, match=r"'scale' \(Scale\): blob 1 is a list, expected an array"):
            net.forward(x)
        del parameters[1]
        with pytest.raises(chai.ShapeError, match=r"'scale' \(Scale\): expected 2 trained parameters, found 1"):
            net.forward(x)
        for wrong in (np.array(["1", "2", "3"]), np.ones(3, np.complex64)):
            parameters[:] = [good[0], wrong]
            with pytest.raises(chai.ShapeError, match=r"'scale' \(Scale\): blob 1 has dtype .*, expected numbers"):
                net.forward(x)
        parameters[:] = [np.ma.array(values) for values in good]  # whose functions are not numpy's
        assert np.array_equal(net.forward(x)["y"], before)
        parameters[:] = good
        assert np.array_equal(net.forward(x)["y"], before)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_an_input_of_any_name(tmp_path: Path, device: str) -> None:
    """It is no argument of a method."""
    (tmp_path / "self.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "self" input_param { shape { dim: [2, 3] } } }'
        'layer { name: "abs" type: "AbsVal" bottom: "self" top: "y" }'
    )
    with chai.Net(tmp_path / "self.prototxt", device=device) as net:
        net.calibrate(self=A)
        (last,) = net.stream([{"self": A}])
        assert np.array_equal(net.forward(self=A)["y"], last["y"])
        net.reshape(self=(1, 3))
        assert net.shapes["y"] == (1, 3)


def test_layers_get_aligned_numbers() -> None:
    data = np.frombuffer(b"." + A.tobytes(), np.float32, A.size, 1).reshape(A.shape)
    assert not data.flags.aligned
    read = numbers("data", data)
    assert read.flags.aligned and np.array_equal(read, A)
    assert numbers("data", A) is A
