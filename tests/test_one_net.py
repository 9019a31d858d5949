"""A Net means the same whether it comes from a prototxt or from a .chai file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai import chaidnn
from chai.artifact.save import save
from chai.evaluate.compare import compare
from chai.report.layer_rows import placed
from chai.runtime.blobs import Blobs

Array = np.ndarray
DATA = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
OTHER = np.random.default_rng(1).random((5, 1, 8, 8)).astype(np.float32)
LAST = "prob"
Get = Callable[[chai.Net], Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits, compiled for batches of three."""
    path = tmp_path_factory.mktemp("compiled") / "digits.chai"
    with chai.Net("digits", device="emulator", calibrate=DATA) as net:
        save(net, path, net.card)
    return path


@pytest.fixture
def pair(file: Path) -> tuple[chai.Net, chai.Net]:
    """digits from its prototxt and from the .chai file, after a pass."""
    nets = chai.Net("digits", device="emulator", calibrate=DATA), chai.Net(file, device="emulator")
    for net in nets:
        net.forward(DATA)
    return nets


def error(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(chai.ChaiError) as caught:
        call()
    return type(caught.value).__name__, str(caught.value).replace("Digits", "digits")


def origins(net: chai.Net) -> list[tuple[str, ...]]:
    return [layer.origin for layer in net.offload.graph.layers if not layer.source]


def blobs(net: chai.Net) -> list[str]:
    """Ids of what the overlay and the host compute."""
    return [t for layer in net.offload.graph.layers for t in layer.tops]


def closed(net: chai.Net) -> Any:
    before = dict(net.blobs)
    with net as same:
        assert same is net
    calls: list[Callable[[], Any]] = [
        lambda: net.forward(DATA),
        lambda: list(net.stream([DATA])),
        lambda: net.offload,
        lambda: net.schedule,
        lambda: net.partition,
    ]
    net.close()
    return list(before), net.blobs, net.perf.steps, [error(call) for call in calls]


def resized(net: chai.Net) -> Any:
    net.reshape(data=(7, 1, 8, 8))
    shapes = net.shapes
    net.reshape()
    assert net.shapes == shapes
    return shapes, net.forward(OTHER), net.shapes, error(lambda: net.reshape(nope=(1, 1, 8, 8)))


def streamed(net: chai.Net) -> Any:
    same, other = list(net.stream([DATA, DATA[::-1]])), list(net.stream([{"data": OTHER}, OTHER[::-1]]))
    mixed = error(lambda: list(net.stream([DATA, OTHER])))
    return same, other, mixed, net.blobs, list(net.stream([]))


def images() -> list[Any]:
    from PIL import Image

    return [Image.fromarray(np.full((9, 11), 40 * i, np.uint8)) for i in range(3)]


def pictures(net: chai.Net) -> Any:
    return net.pictures(images()).pixels, error(lambda: net.pictures([]))


def preprocessed(net: chai.Net) -> Any:
    return net.preprocess(images()), error(lambda: net.preprocess([]))


def planned(net: chai.Net) -> Any:
    before = net.schedule.engines()
    net.plan()
    return before, net.schedule.engines(), [(s.engine, [x.name for x in s.layers]) for s in net.partition.segments]


MEMBERS: dict[str, Get] = {
    "batch": lambda net: net.batch,
    "blobs": lambda net: net.blobs,
    "calibrated": lambda net: net.calibrated,
    "card": lambda net: (net.card.labels, net.card.preprocess),
    "close": closed,
    "device": lambda net: net.device,
    "formats": lambda net: {b: str(f) for b, f in (net.formats or {}).items()},
    "forward": lambda net: [
        net.forward(DATA),
        net.forward(data=OTHER),
        net.forward(DATA[:1].tolist()),
        net.forward({"data": DATA}["data"]),
        error(net.forward),
        error(lambda: net.forward(nope=DATA)),
        error(lambda: net.forward(DATA, DATA)),
        error(lambda: net.forward([["a"]])),
    ],
    "graph": lambda net: (net.graph.inputs.keys(), [net.graph.caffe_name(b) for b in net.graph.outputs], origins(net)),
    "inputs": lambda net: net.inputs,
    "name": lambda net: net.name.lower(),
    "offload": lambda net: (net.offload.plan.batch, {b: net.offload.shapes[b] for b in blobs(net)}, origins(net)),
    "outputs": lambda net: net.outputs,
    "overlay": lambda net: (net.overlay.name, net.overlay.build) if net.overlay else None,
    "partition": lambda net: (
        [(s.engine, [layer.name for layer in s.layers]) for s in net.partition.segments],
        net.partition.reasons,
        [net.partition.engine(name) for around in origins(net) for name in around],
    ),
    "perf": lambda net: ([(s.name, s.type, s.engine, s.macs, s.bytes) for s in net.perf.steps], net.perf.batch),
    "pictures": pictures,
    "plan": planned,
    "preprocess": preprocessed,
    "reshape": resized,
    "schedule": lambda net: net.schedule.engines(),
    "shapes": lambda net: net.shapes,
    "shapes_of": lambda net: (net.shapes_of("data"), net.shapes_of("prob")),
    "stream": streamed,
    "trained": lambda net: net.trained,
    "tops": lambda net: (net.tops(LAST), error(lambda: net.tops("nope")), error(lambda: net.tops("conv1/3x3"))),
    "values": lambda net: net.values,
}
REFUSED: dict[str, Get] = {  # what needs the float weights, or another plan
    "params": lambda net: net.params,
    "calibrate": lambda net: net.calibrate(DATA),
}
DIFFERENT = {"weights", "basis"}  # a file has no weights in float, and formats of its own


def same(a: Any, b: Any) -> bool:
    """Equal, arrays of the compiled batch to the bit; of others a host layer in float32 rounds by the size of its batch."""
    if isinstance(a, Blobs):
        return list(a) == list(b) and same(dict(a.readable), dict(b.readable))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and (np.array_equal(a, b) if len(a) == 3 else np.allclose(a, b, 1e-5, 2e-6))
    return bool(a == b)


def test_every_public_member_is_compared() -> None:
    public = {name for name in dir(chai.Net) if not name.startswith("_")}
    assert public == {*MEMBERS, *REFUSED, *DIFFERENT}


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_means_the_same_on_both(pair: tuple[chai.Net, chai.Net], member: str) -> None:
    text, compiled = (MEMBERS[member](net) for net in pair)
    assert same(text, compiled), (text, compiled)


@pytest.mark.parametrize("member", REFUSED)
def test_what_needs_float_weights_or_another_plan_is_refused(pair: tuple[chai.Net, chai.Net], member: str) -> None:
    REFUSED[member](pair[0])
    with pytest.raises(chai.UsageError, match=r"is compiled: its (parameters|formats)"):
        REFUSED[member](pair[1])
    assert same(pair[0].forward(DATA), pair[1].forward(DATA))


OPTIONS: dict[str, Any] = {
    "overlay": "pynq-z2",
    "custom": {"nothing": lambda x: None},
    "batch": 5,
    "keep": "all",
    "shapes": {"data": (2, 1, 8, 8)},
    "engine": {"conv1/3x3": "fpga"},
    "autotune": False,  # True chooses by time
    "strict": True,
    "jit": False,
}
REFUSED_OPTIONS: dict[str, Any] = {
    "bits": 6,
    "scheme": "DynamicFixed",
    "place": "cost",
    "calibrate": DATA,
    "phase": "TRAIN",
    "level": 1,
    "stages": ["x"],
    "start_layer": "conv1/3x3",
    "end_layer": "conv1/3x3",
    "detect": "yolov8",
}


def test_every_option_is_taken_or_refused(file: Path) -> None:
    names = [p.name for p in inspect.signature(chai.Net).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert {*names} == {*OPTIONS, *REFUSED_OPTIONS}
    with pytest.raises(chai.UsageError, match="a caffemodel cannot be given any more"):
        chai.Net(file, file)
    with pytest.raises(chai.DeviceError, match="device float computes in float32"):
        chai.Net(file, device="float")


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_means_the_same_on_both(file: Path, name: str) -> None:
    options = {"device": "emulator", name: OPTIONS[name]}
    text, compiled = chai.Net("digits", calibrate=DATA, **options), chai.Net(file, **options)
    if name in ("batch", "shapes"):
        text = chai.Net("digits", **options)
        text.calibrate(DATA)
        text.reshape(data=compiled.shapes["data"])
    assert text.shapes == compiled.shapes
    for data in (DATA, OTHER):
        assert same(text.forward(data), compiled.forward(data))
    if name == "keep":
        assert text.blobs.keys() == compiled.blobs.keys() and len(compiled.blobs) > 20
        assert same({name: text.blobs[name] for name in compiled.blobs.readable}, dict(compiled.blobs.readable))


@pytest.mark.parametrize("name", REFUSED_OPTIONS)
def test_an_option_that_needs_another_plan_is_refused(file: Path, name: str) -> None:
    with pytest.raises(chai.UsageError, match="is compiled: "):
        chai.Net(file, **{"device": "emulator", name: REFUSED_OPTIONS[name]})
    chai.Net(file, device="emulator", **{name: inspect.signature(chai.Net).parameters[name].default})


@pytest.mark.parametrize("option", ["devise", "baches", "custum"])
def test_an_option_with_a_typing_error_is_named_with_the_right_one(file: Path, option: str) -> None:
    right = {"devise": "device", "baches": "batch", "custum": "custom"}[option]
    for path in ("digits", file):
        with pytest.raises(chai.UsageError, match=f"Net has no option '{option}'.*did you mean '{right}'"):
            chai.Net(path, **{option: 1})  # type: ignore[arg-type]


# -- reports and facades


def test_a_report_says_the_same_of_both(pair: tuple[chai.Net, chai.Net]) -> None:
    text, compiled = ({p.name: p for p in placed(net)} for net in pair)
    for name, row in compiled.items():
        assert (row.engine, row.format, row.reason) == (text[name].engine, text[name].format, text[name].reason)


def test_check_compares_a_compiled_network(pair: tuple[chai.Net, chai.Net]) -> None:
    reference = chai.Net("digits", device="float", keep="all")
    reports = [compare(reference, net, [DATA, DATA[::-1]]).to_json() for net in pair]
    assert reports[0] == reports[1]
    assert compare(reference, pair[1], [OTHER]).images == 5


@pytest.mark.parametrize("images", [1, 3, 5])
def test_chaidnn_runs_a_compiled_network(file: Path, images: int) -> None:
    data = np.ascontiguousarray(OTHER[:images])
    outputs = []
    infos = []
    for network in ("digits.prototxt", file):
        folder = file.parent if network == file else chai_networks()
        options = {} if network == file else {"calibrate": DATA}
        info = chaidnn.io_layer_info()
        weights = None if network == file else "digits.caffemodel"
        handle = chaidnn.xiInit(folder, Path(network).name, weights, info, images, True, device="emulator", **options)
        buffer = bytearray(info.outlayer_sizebytes)
        chaidnn.xiExec(handle, [data], [buffer])
        outputs.append(bytes(buffer))
        infos.append(info)
        assert handle.net.batch in (images, 3)
        chaidnn.xiRelease(handle)
    assert infos[0] == infos[1]
    assert np.allclose(*(np.frombuffer(o, np.float32) for o in outputs), 1e-5, 1e-7)
    assert outputs[0] == outputs[1] or images != 3
    assert outputs[1] == chai.Net(file, device="emulator").forward(data)["prob"].tobytes()


def chai_networks() -> Path:
    from chai.zoo.locate import locate

    return locate("digits", None)[0].parent


def test_pycaffe_runs_a_compiled_network(file: Path) -> None:
    text = caffe.Net("digits", caffe.TEST, device="emulator", calibrate=DATA)
    compiled = caffe.Net(str(file), caffe.TEST)
    assert compiled.net.device.name == "emulator"
    for net in (text, compiled):
        for data in (DATA, OTHER):
            net.blobs["data"].reshape(*data.shape)
            net.reshape()
            assert net.blobs["prob"].shape == (len(data), 10)
            net.blobs["data"].data[...] = data
            net.forward()
    expected = chai.Net(file, device="emulator").forward(OTHER)["prob"]
    assert np.array_equal(compiled.blobs["prob"].data, expected)
    assert (text.inputs, text.outputs) == (compiled.inputs, compiled.outputs)
    both = compiled.forward_all(data=np.concatenate([OTHER, OTHER]))["prob"]
    assert np.array_equal(both, np.concatenate([expected, expected]))


@pytest.mark.parametrize("call", ["params", "save", "copy_from", "share_with"])
def test_pycaffe_refuses_what_needs_float_weights(file: Path, tmp_path: Path, call: str) -> None:
    net, other = caffe.Net(file), caffe.Net("digits", caffe.TEST)
    weights = str(chai_networks() / "digits.caffemodel")
    calls: dict[str, Callable[[], Any]] = {
        "params": lambda: net.params,
        "save": lambda: net.save(tmp_path / "x.caffemodel"),
        "copy_from": lambda: net.copy_from(weights),
        "share_with": lambda: net.share_with(other),
    }
    with pytest.raises(chai.UsageError, match="is compiled: its parameters cannot be changed"):
        calls[call]()
    assert not (tmp_path / "x.caffemodel").exists()
