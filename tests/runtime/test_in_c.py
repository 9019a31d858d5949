"""Steps of a Schedule in C run as one table from the second pass on: the same bits, rows, peak and counts as one by one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import DeviceError, ModelError
from chai.kernels.native import chain as chains
from chai.kernels.native.chain import NativeChain
from chai.kernels.native.library import Library
from chai.runtime.execution import Execution
from tests.kernels.common import LIBRARY
from tests.passes.common import AFFINE, network

pytestmark = pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
Array = np.ndarray
SHAPE = (1, 3, 5, 7)
CONV = "convolution_param { num_output: %d kernel_size: 3 pad: 1 }"
TOP = "user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 16 top_dim: 5 top_dim: 7 }"
# networks, and the tables that a pass runs: one for what is between two layers that C does not compute
NETS = {
    "layers after a segment": (
        f"a Convolution data -> a : {CONV % 16}\nf InnerProduct a -> f : inner_product_param {{ num_output: 9 }}\n"
        "p Softmax f -> p",
        1,
    ),
    "a layer in numpy": (
        f"a Convolution data -> a : {CONV % 16}\nb Convolution a -> b : {CONV % 16}\nq MVN b -> q\n"
        f"c Convolution q -> c : {CONV % 5}\nd Convolution c -> d : {CONV % 5}\ns Softmax d -> s",
        2,
    ),
    "a custom layer": (
        f"a Convolution data -> a : {CONV % 16}\none twice a -> t : {TOP}\nb Convolution t -> b : {CONV % 5}\np Softmax b -> p",
        2,
    ),
    "views of what others write": (
        f"a Convolution data -> a : {CONV % 16}\none twice a -> t : {TOP}\nf Flatten t -> f\nd Dropout f -> d\ns Softmax d -> s",
        2,
    ),
}


def twice(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0] * 2


def images(batch: int = 1, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, (batch, *SHAPE[1:])).astype(np.float32)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of the library, by name."""
    names: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        run = getattr(Library, name)
        return lambda *arguments: (names.append(name), run(*arguments))[1]

    for name in ("run", "run_one"):
        monkeypatch.setattr(Library, name, counted(name))
    return names


def seen(net: chai.Net) -> tuple[Any, ...]:
    """What a pass reports besides its blobs, but for times."""
    rows = [(s.name, s.type, s.engine, s.macs, s.bytes, s.reads, s.writes, s.layers) for s in net.perf.steps]
    return rows, net.perf.peak_bytes, net.perf.blob_bytes, net.perf.converted, net.perf.saturated


def both(
    folder: Path, lines: str, keep: str, batch: int = 1
) -> tuple[chai.Net, dict[str, Array], tuple[Any, ...], Array]:
    """A network after its second pass, blobs and reports of the first one, and the images of both."""
    x = images(batch)
    net = network(folder, lines, (batch, *SHAPE[1:]), device="emulator", custom={"twice": twice}, keep=keep)
    net.calibrate(images(batch, seed=3) / 2)  # so that some codes are saturated
    net.forward(x)
    blobs, reported = dict(net.blobs), seen(net)
    net.forward(x)
    return net, blobs, reported, x


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize(("lines", "tables"), NETS.values(), ids=NETS)
def test_a_pass_is_that_of_steps_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str], lines: str, tables: int, keep: str, batch: int
) -> None:
    aligned = chains.aligned
    monkeypatch.setattr(chains, "aligned", lambda size: (memory := aligned(size), memory.fill(0xA5))[0])
    net, wanted, reported, x = both(tmp_path, lines, keep, batch)
    assert seen(net) == reported and net.perf.saturated > 0
    assert list(net.blobs) == list(wanted)
    assert all(np.array_equal(net.blobs[name], value) for name, value in wanted.items())
    calls.clear()
    kept = net.forward(images(batch, seed=1))
    assert batch > 1 or keep == "all" or calls == ["run"] * tables
    again = {name: value.copy() for name, value in kept.items()}
    net.forward(x)
    assert all(np.array_equal(net.blobs[name], value) for name, value in wanted.items())
    assert all(np.array_equal(kept[name], value) for name, value in again.items())  # of the pass before
    assert sum(step.ms for step in net.perf.steps) + net.perf.feed_ms <= net.perf.wall_ms


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("fields", ["", "negative_slope: 0.1", "relu6: true"])
def test_layers_on_the_host_compute_the_relus_that_they_took_in(
    tmp_path: Path, calls: list[str], batch: int, fields: str
) -> None:
    """In C with the rest, where numbers below 0 are 0; in numpy, where they are not, or are limited."""
    relu = f"relu_param {{ {fields} }}"
    lines = f"""a Convolution data -> a : {CONV % 6}
        ra ReLU a -> ra : {relu}
        s Scale ra -> s : {AFFINE}
        rs ReLU s -> rs : {relu}
        e Eltwise rs a -> e
        re ReLU e -> re : {relu}
        f InnerProduct re -> f : inner_product_param {{ num_output: 9 }}
        rf ReLU f -> rf : {relu}
        p Softmax rf -> p"""
    engine = dict.fromkeys(("a", "s", "e", "f"), "host")
    net = network(
        tmp_path, lines, (batch, *SHAPE[1:]), device="emulator", engine=engine, keep="all", calibrate=images()
    )
    assert {layer.name for layer in net.offload.graph.layers if layer.slope is not None} == {"s", "e", "f"}
    assert not net.schedule.segments
    x = images(batch)
    net.forward(x)
    wanted = {name: value.tobytes() for name, value in net.blobs.items()}
    assert all((net.blobs[name] < 0).any() == ("slope" in fields) for name in ("rs", "re", "rf"))
    calls.clear()
    net.forward(x)
    assert {name: value.tobytes() for name, value in net.blobs.items()} == wanted
    assert (calls.count("run") == 1) == (not fields)


def test_with_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation begins before what it waits for: within Tasks, before them, and after them."""
    from chai.kernels.native import program, single

    lines, _ = NETS["a layer in numpy"]
    wanted = both(tmp_path, lines, "outputs")[1]
    for module in (chains, program, single):
        monkeypatch.setattr(module, "SHARED", 0)
        monkeypatch.setattr(module, "threads", lambda: 3)
    net, _, _, x = both(tmp_path, lines, "outputs")
    for _ in range(20):
        assert all(np.array_equal(value, wanted[name]) for name, value in net.forward(x).items())


def test_passes_in_several_threads_have_memory_of_their_own(tmp_path: Path) -> None:
    net = both(tmp_path, NETS["layers after a segment"][0], "outputs")[0]
    batches = [images(seed=seed) for seed in range(8)]
    wanted = [net.forward(x)["p"] for x in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(np.array_equal, [result["p"] for result in pool.map(net.forward, batches)], wanted))


def test_a_number_that_is_none_is_refused_in_each_pass(tmp_path: Path) -> None:
    net, wanted, _, x = both(tmp_path, NETS["a custom layer"][0], "outputs")
    bad = x.copy()
    bad[0, 1, 2, 3] = np.nan
    for _ in range(2):
        with pytest.raises(ModelError, match=r"layer 'data' .*: blob 'data': a value is not a number"):
            net.forward(bad)
        assert all(np.array_equal(value, wanted[name]) for name, value in net.forward(x).items())


def test_parameters_of_layers_on_the_host_may_change(tmp_path: Path) -> None:
    net, wanted, _, x = both(tmp_path, NETS["layers after a segment"][0], "outputs")
    weights = net.params["f"][0]
    weights *= 2
    fresh = network(tmp_path, NETS["layers after a segment"][0], SHAPE, device="emulator")
    fresh.calibrate(images(seed=3) / 2)
    fresh.params["f"][0][...] = weights
    for _ in range(2):
        changed = net.forward(x)["p"]
        assert np.array_equal(changed, fresh.forward(x)["p"]) and not np.array_equal(changed, wanted["p"])


def test_streams_and_branches_run_steps_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their steps overlap."""
    net, wanted, _, x = both(tmp_path, NETS["layers after a segment"][0], "outputs")
    execution = net.offload
    with monkeypatch.context() as patch:
        patch.setattr(NativeChain, "run", None)
        for result in net.stream(iter([x, x])):
            assert np.array_equal(result["p"], wanted["p"])
        vars(execution)["_together"] = False
        execution._kept.clear()
        assert np.array_equal(net.forward(x)["p"], wanted["p"])
    lines = f"a Convolution data -> a : {CONV % 16}\nabs Softmax data -> b"
    assert not network(tmp_path, lines, SHAPE, device="emulator", calibrate=x).offload._together


def test_a_closed_network_holds_no_memory(tmp_path: Path) -> None:
    net = both(tmp_path, NETS["layers after a segment"][0], "outputs")[0]
    execution = net.offload
    assert isinstance(execution, Execution) and execution._memory._free
    net.close()
    assert not execution._memory._free and not execution._kept


def test_a_blob_of_another_size_is_refused(tmp_path: Path) -> None:
    net = both(tmp_path, NETS["layers after a segment"][0], "outputs")[0]
    with pytest.raises(DeviceError, match="blob 'host data': expected 1x3x5x7, found float32 1x3x5x6"):
        net.offload.run({"data": images()[..., :6]}, {"p"})
