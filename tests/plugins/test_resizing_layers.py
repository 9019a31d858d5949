"""Python layers of Caffe whose reshape gives other sizes for unchanged bottoms, in the middle of a network."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.artifact.save import save
from chai.layers.convolution import Convolution
from tests.passes.common import prototxt

# Window takes the next of its sizes in each reshape, Fit one that the numbers of its bottom say. Count has a state.
CODE = """
import caffe
import numpy as np

class Window(caffe.Layer):
    def setup(self, bottom, top):
        self.sizes = [tuple(map(int, size.split("x"))) for size in self.param_str.split()]
        self.reshapes = 0

    def reshape(self, bottom, top):
        self.size = self.sizes[self.reshapes % len(self.sizes)]
        self.reshapes += 1
        top[0].reshape(*bottom[0].shape[:2], *self.size)

    def forward(self, bottom, top):
        h, w = self.size
        top[0].data[...] = bottom[0].data[:, :, :h, :w]

class Fit(Window):
    def reshape(self, bottom, top):
        self.reshapes += 1
        self.size = self.sizes[int(bottom[0].data.mean() > 0)]
        top[0].reshape(*bottom[0].shape[:2], *self.size)

class Count(caffe.Layer):
    def setup(self, bottom, top):
        self.calls = 0

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        self.calls += 1
        top[0].data[...] = bottom[0].data + self.calls % 3
"""
SHAPE = 1, 3, 8, 9
SIZES = (6, 5), (8, 3), (8, 3), (4, 9), (7, 2)
DEVICES = pytest.mark.parametrize("device", ["float", "emulator"])


def python(kind: str, sizes: Sequence[tuple[int, int]] = ()) -> str:
    return f'python_param {{ module: "mine" layer: "{kind}" param_str: "{" ".join(f"{h}x{w}" for h, w in sizes)}" }}'


def conv(outputs: int) -> str:
    filler = 'weight_filler { type: "gaussian" std: 0.2 } bias_filler { type: "constant" value: 0.3 }'
    return f"convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 {filler} }}"


class Case:
    """Counted numbers, convolved, a window of them, convolved again on the overlay, and two layers on the host."""

    def __init__(self, folder: Path, kind: str = "Window", sizes: Sequence[tuple[int, int]] = SIZES) -> None:
        self.path, self.code, self.sizes = folder / "net.prototxt", folder / "mine.py", sizes
        self.code.write_text(CODE)
        lines = (
            f"k Python data -> k : {python('Count')}\n"
            f"u Convolution k -> u : {conv(5)}\n"
            f"w Python u -> w : {python(kind, sizes)}\n"
            f"c Convolution w -> c : {conv(4)}\n"
            "s Sigmoid c -> s\n"
            f"n Python s -> n : {python('Count')}\n"
        )
        self.path.write_text(prototxt(lines, SHAPE))
        self.data = np.random.default_rng(7).uniform(-1, 1, (9, *SHAPE)).astype(np.float32)

    def net(self, device: str, calibrated: bool = True, **options: Any) -> chai.Net:
        net = chai.Net(self.path, device=device, custom=self.code, **options)
        if device == "emulator" and calibrated:
            net.calibrate(iter(self.data))
        return net


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def layer(net: Any, name: str) -> Any:
    """The user's object of a Python layer."""
    graph = net.graph if isinstance(net, chai.Net) else net._graph
    return graph.layer(name)._data["caffe"].layer


def convolved(x: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A convolution of 3x3 with a pad of 1, by its definition."""
    _, _, h, w = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    top = np.zeros((1, len(weights), h, w)) + bias.reshape(1, -1, 1, 1)
    for i in range(3):
        for j in range(3):
            top += np.einsum("nchw,oc->nohw", padded[:, :, i : i + h, j : j + w], weights[:, :, i, j])
    return top


Params = Mapping[str, Sequence[np.ndarray]]


def params_of(net: chai.Net) -> Params:
    """Copies of the trained parameters."""
    return {name: [blob.copy() for blob in blobs] for name, blobs in net.params.items()}


def cut(params: Params, data: np.ndarray, size: tuple[int, int], count: int) -> np.ndarray:
    """Blob w of the pass in which Count counts ``count``."""
    u: np.ndarray = convolved(data + np.float32(count % 3), *params["u"])
    return u[:, :, : size[0], : size[1]]


def finished(params: Params, w: np.ndarray, count: int) -> np.ndarray:
    """Blob n, if the second Count counts ``count``."""
    n: np.ndarray = 1 / (1 + np.exp(-convolved(w, *params["c"]))) + count % 3
    return n


def sizes_after(net: Any, sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The sizes of the passes to come: each takes the next one."""
    at = layer(net, "w").reshapes
    while True:
        yield sizes[at % len(sizes)]
        at += 1


@DEVICES
def test_each_pass_has_the_size_that_reshape_gives(case: Case, device: str) -> None:
    net = case.net(device)
    params = params_of(net)
    counts, sizes = [layer(net, name).calls for name in "kn"], sizes_after(net, SIZES)
    for data in case.data:
        counts, size = [count + 1 for count in counts], next(sizes)
        out = net.forward(data)["n"]
        assert out.shape == (1, 4, *size)
        wanted = finished(params, cut(params, data, size, counts[0]), counts[1])
        assert np.allclose(out, wanted, atol=1e-5 if device == "float" else 0.03)
        assert [layer(net, name).calls for name in "kn"] == counts  # once per pass, also when it is planned again
        assert net.shapes["w"] == (1, 5, *size)
        engines, own = {step.name: step.engine for step in net.perf.steps}, "host" if device == "float" else "fpga"
        assert engines == engines | {"k": "custom", "u": own, "w": "custom", "c": own, "n": "custom"}
        assert engines.get("s") == ("host" if device == "float" else None)  # on the overlay it is a table of c
    assert layer(net, "w").reshapes == len(case.data) * (1 if device == "float" else 2) + 1  # as in Caffe


def test_the_first_pass_measures_formats_and_shows_no_layer_a_pass_twice(case: Case) -> None:
    net = case.net("emulator", calibrated=False)
    sizes = [net.forward(data)["n"].shape[2:] for data in case.data[:3]]
    assert sizes == [*SIZES[1:4]]  # the first is that of the network before any pass
    assert [layer(net, name).calls for name in "kn"] == [3, 3]


@DEVICES
def test_a_pass_that_is_planned_again_counts_the_time_of_layers_that_do_not_run_again(case: Case, device: str) -> None:
    """In its wall time as in its rows: no other part of it is less than nothing."""
    case.code.write_text(
        CODE.replace("import caffe", "import caffe, time", 1).replace("+= 1\n", "+= 1; time.sleep(0.01)\n")
    )
    net = case.net(device)
    for data in case.data[:3]:
        net.forward(data)
        perf = net.perf
        assert sum(step.ms for step in perf.custom) >= 20  # both that count
        assert perf.between_ms >= 0
        assert perf.total_ms <= perf.wall_ms + 1e-6


@DEVICES
def test_sizes_that_depend_on_the_numbers_of_the_bottom(tmp_path: Path, device: str) -> None:
    """Reshape sees the numbers that forward sees, of its own pass."""
    case = Case(tmp_path, "Fit", ((5, 4), (3, 8)))
    case.data = case.data + np.float32(30) * np.float32([1, -1, -1, 1, -1, 1, 1, -1, 1]).reshape(-1, 1, 1, 1, 1)
    net = case.net(device)
    params, counts, shapes = params_of(net), [layer(net, name).calls for name in "kn"], set()
    for data in case.data:
        counts = [count + 1 for count in counts]
        mean = cut(params, data, SHAPE[2:], counts[0]).mean()
        assert abs(mean) > 1
        size = case.sizes[int(mean > 0)]
        out = net.forward(data)["n"]
        assert out.shape == (1, 4, *size)
        wanted = finished(params, cut(params, data, size, counts[0]), counts[1])
        assert np.allclose(out, wanted, atol=1e-4 if device == "float" else 0.3)
        shapes.add(out.shape)
    assert len(shapes) == 2


@DEVICES
def test_a_stream_and_what_other_layers_have_seen(case: Case, device: str) -> None:
    net, single = case.net(device), case.net(device)
    wanted = [single.forward(data)["n"] for data in case.data]
    out = [out["n"] for out in net.stream(iter(case.data))]
    assert [array.shape for array in out] == [array.shape for array in wanted]
    assert all(map(np.array_equal, out, wanted))
    assert [layer(net, name).calls for name in "kn"] == [layer(single, name).calls for name in "kn"]
    assert layer(net, "w").reshapes == layer(single, "w").reshapes


def test_a_stream_whose_sizes_stay_overlaps(tmp_path: Path) -> None:
    """A Python layer that might change sizes costs no overlap as long as it does not."""
    case = Case(tmp_path, sizes=((6, 5),))
    net = case.net("emulator")
    taken: list[int] = []

    def source() -> Iterator[np.ndarray]:
        for i, data in enumerate(case.data):
            taken.append(i)
            yield data

    first = next(results := net.stream(source()))
    assert len(taken) > 1
    assert len([first, *results]) == len(case.data)


def test_the_end_of_a_stream_after_a_change(case: Case) -> None:
    """An error of the source is raised after the batches before it, also when these are planned again."""
    for broken in range(1, 6):
        net = case.net("emulator")

        def source(broken: int = broken) -> Iterator[np.ndarray]:
            yield from case.data[:broken]
            raise KeyError("no more")

        out: list[Any] = []
        with pytest.raises(KeyError, match="no more"):
            out.extend(net.stream(source()))
        assert len(out) == broken


@DEVICES
def test_pycaffe(case: Case, device: str) -> None:
    net = caffe.Net(case.path, caffe.TEST, device=device, custom=case.code)
    if device == "emulator":
        net.net.calibrate(iter(case.data))
    params = {name: [blob.data.copy() for blob in blobs] for name, blobs in net.params.items()}
    counts, sizes = [layer(net, name).calls for name in "kn"], sizes_after(net, SIZES)
    near = 1e-5 if device == "float" else 0.03
    for data in case.data:
        counts, size = [count + 1 for count in counts], next(sizes)
        out = net.forward(data=data)["n"]
        w = cut(params, data, size, counts[0])
        assert net.blobs["w"].shape == w.shape
        assert np.allclose(net.blobs["w"].data, w, atol=near * 5)
        assert out.shape == (1, 4, *size)
        assert np.allclose(out, finished(params, w, counts[1]), atol=near)
        assert [layer(net, name).calls for name in "kn"] == counts


def test_pycaffe_runs_each_layer_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those before a layer that gives other sizes than in the last pass, as in Caffe."""
    runs, forward = [], Convolution.forward

    def counted(self: Convolution, *bottoms: np.ndarray) -> tuple[np.ndarray, ...]:
        runs.append(self.name)
        return forward(self, *bottoms)

    monkeypatch.setattr(Convolution, "forward", counted)
    net = caffe.Net(case.path, caffe.TEST, device="float", custom=case.code)
    for data in case.data[: len(SIZES)]:
        net.forward(data=data)
    assert runs == ["u", "c"] * len(SIZES)
    assert [step.name for step in net.perf.steps] == [*"kuwcsn"]


def test_pycaffe_reshape_asks_the_layer_as_in_caffe(case: Case) -> None:
    net = caffe.Net(case.path, caffe.TEST, device="float", custom=case.code)
    for _ in range(3):
        before = layer(net, "w").reshapes
        net.reshape()
        assert layer(net, "w").reshapes == before + 1
        assert net.blobs["w"].shape[2:] == SIZES[before % len(SIZES)]


def test_threads_have_each_their_own_size(case: Case) -> None:
    """Passes overlap; each is planned for the size that its own reshape gave."""
    net = case.net("emulator")
    wrong: list[Any] = []

    def run() -> None:
        for data in case.data[:4]:
            shape = net.forward(data)["n"].shape
            if shape[2:] not in SIZES:
                wrong.append(shape)

    before = layer(net, "w").reshapes
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert layer(net, "w").reshapes == before + 16


def test_a_compiled_network_has_one_size(case: Case, tmp_path: Path) -> None:
    net = case.net("emulator")
    planned = net.forward(case.data[0])["n"].shape[2:]
    save(net, tmp_path / "net.chai")
    with chai.Net(tmp_path / "net.chai", custom=case.code) as compiled:
        for data in case.data:
            at = layer(compiled, "w").reshapes
            size = SIZES[at % len(SIZES)]
            if size == planned:
                assert compiled.forward(data)["n"].shape == (1, 4, *size)
                continue
            text = rf"layer 'w' \(Python\): its tops are 1x5x{size[0]}x{size[1]} in this pass: .* compiled for 1x5x"
            with pytest.raises(chai.ShapeError, match=text) as error:
                compiled.forward(data)
            assert error.value.hint == "load the prototxt, which is planned for each size"
            assert layer(compiled, "w").reshapes == at + 1


def test_a_size_that_a_later_layer_refuses(tmp_path: Path) -> None:
    case = Case(tmp_path, sizes=((6, 5), (6, 5), (6, 0), (4, 3)))
    net = case.net("float")
    assert net.forward(case.data[0])["n"].shape == (1, 4, 6, 5)
    with pytest.raises(chai.ChaiError, match="layer 'c'"):
        net.forward(case.data[0])
    assert net.forward(case.data[0])["n"].shape == (1, 4, 4, 3)
