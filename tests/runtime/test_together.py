"""Consecutive layers in C run as one: every bit is that of layers one by one, and arrays that a caller keeps are his own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.kernels.native import chain
from chai.kernels.native.chain import NativeChain
from chai.kernels.native.table import Kind
from chai.runtime.steps import forward
from chai.runtime.steps.layers import PreparedLayer
from tests.kernels.common import LIBRARY
from tests.passes.common import network

pytestmark = pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
Array = np.ndarray


def conv(outputs: int, kernel: int = 1) -> str:
    return f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} pad: {kernel // 2} }}"


POOL = "pooling_param { pool: %s kernel_size: 3 stride: 2 pad: 1 }"
INCEPTION = f"""a Convolution data -> a : {conv(5)}
    ra ReLU a -> a
    b Convolution data -> b : {conv(3)}
    rb ReLU b -> b
    c Convolution b -> c : {conv(7, 3)}
    cat Concat a c -> cat"""
# networks, and the layers that each run takes together
NETS = {
    "a chain": (
        f"""conv Convolution data -> c : {conv(6, 3)}
        relu ReLU c -> c
        norm LRN c -> n
        max Pooling n -> m : {POOL % "MAX"}
        mean Pooling m -> a : {POOL % "AVE"}
        drop Dropout a -> d
        full InnerProduct d -> f : inner_product_param {{ num_output: 9 }}
        prob Softmax f -> p""",
        [8],
    ),
    "branches": (f"{INCEPTION}\nmax Pooling cat -> p : {POOL % 'MAX'}", [7]),
    "a branch that another layer reads": (f"{INCEPTION}\nmore Convolution a -> m : {conv(2, 3)}", [7]),
    "a branch in two sums": (
        f"{INCEPTION}\nd Convolution cat -> d : {conv(4, 3)}\nother Concat c d cat -> o\nlast Convolution o -> l : {conv(2)}",
        [9],
    ),
    "a blob twice, and the input": (
        f"{INCEPTION}\nother Concat c data cat c -> o\nlast Convolution o -> l : {conv(2)}",
        [8],
    ),
    "joined images": (
        f"a Convolution data -> a : {conv(5)}\nb Convolution data -> b : {conv(5)}\n"
        f"cat Concat a b -> c : concat_param {{ axis: 0 }}\nlast Convolution c -> l : {conv(2)}",
        [4],
    ),
    "joined rows": (
        f"a Convolution data -> a : {conv(5)}\nb Convolution data -> b : {conv(5)}\n"
        f"cat Concat a b -> c : concat_param {{ axis: 2 }}\nlast Convolution c -> l : {conv(2, 3)}",
        [4],
    ),
    "a joined blob that is joined": (
        f"{INCEPTION}\nother Concat cat b -> o\nthird Concat data o -> t\nlast Convolution t -> l : {conv(2, 3)}",
        [9],
    ),
    "one blob joined": (f"a Convolution data -> a : {conv(5)}\ncat Concat a -> c\nact ReLU a -> r", [3]),
    "flat branches": (
        f"a Convolution data -> a : {conv(5)}\nf Flatten a -> f\nb Convolution data -> b : {conv(3)}\ng Flatten b -> g\n"
        "cat Concat f g -> c\nfull InnerProduct c -> y : inner_product_param { num_output: 4 }",
        [6],
    ),
    "a residual block": (
        f"""a Convolution data -> a : {conv(5, 3)}
        norm BatchNorm a -> a
        scale Scale a -> a : scale_param {{ bias_term: true }}
        act ReLU a -> a
        b Convolution a -> b : {conv(5, 3)}
        other BatchNorm b -> n
        factor Scale n -> f : scale_param {{ bias_term: true }}
        sum Eltwise a f -> s
        last ReLU s -> s
        mean Pooling s -> m : pooling_param {{ pool: AVE global_pooling: true }}
        line Power m -> p : power_param {{ scale: 0.3 shift: -0.2 }}
        bias Bias p -> q""",
        [12],
    ),
    "sums that are scaled": (
        f"""a Convolution data -> a : {conv(6, 3)}
        norm BatchNorm a -> b
        act ReLU b -> b
        c Convolution b -> c : convolution_param {{ num_output: 6 kernel_size: 3 group: 6 bias_term: false }}
        only Scale c -> c : scale_param {{ bias_term: false }}
        d Convolution c -> d : {conv(4)}
        scale Scale d -> e : scale_param {{ bias_term: true }}
        later BatchNorm e -> e
        f Convolution e -> f : {conv(7)}
        once BatchNorm f -> g
        twice Scale g -> h : scale_param {{ bias_term: true }}
        product Eltwise g h -> p : eltwise_param {{ operation: PROD }}
        full InnerProduct p -> i : inner_product_param {{ num_output: 5 }}
        last BatchNorm i -> j""",
        [14],
    ),
    "factors that a branch computes": (
        f"a Convolution data -> a : {conv(5, 3)}\nm Pooling a -> m : pooling_param {{ pool: AVE global_pooling: true }}\n"
        f"f Flatten m -> f\nfull InnerProduct f -> e : inner_product_param {{ num_output: 5 }}\nact ReLU e -> e\n"
        f"scale Scale a e -> s : scale_param {{ axis: 0 }}\nmore Convolution s -> y : {conv(3)}",
        [7],
    ),
    "pairs of joined blobs": (
        f"{INCEPTION}\nd Convolution data -> d : {conv(5)}\nsum Eltwise d a -> s"
        + f"\nmost Eltwise d s -> t : eltwise_param {{ operation: MAX }}\nact ReLU cat -> r\nother Concat t r s -> o\n"
        f"twice Eltwise o o -> u : eltwise_param {{ operation: PROD }}\nlast Convolution u -> y : {conv(2, 3)}",
        [13],
    ),
    "others in between": (
        f"split Split data -> s t\na Convolution s -> a : {conv(5, 3)}\nup ELU a -> e\nb Convolution e -> b : {conv(4, 3)}\n"
        f"drop Dropout b -> d\nleaky ReLU d -> d : relu_param {{ negative_slope: 0.1 }}\nmax Pooling d -> m : {POOL % 'MAX'}\n"
        "abs AbsVal t -> u",
        [2, 4],
    ),
    "views at the end": (
        f"a Convolution data -> a : {conv(5)}\nf Flatten a -> f\ndrop Dropout a -> d\nabs AbsVal f -> u\n"
        f"b Convolution d -> b : {conv(2)}",
        [3, 1],
    ),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of layers of each run of several."""
    counts: list[int] = []
    run = NativeChain.run

    def counted(self: NativeChain, *arguments: Any) -> Any:
        counts.append(len(self.links))
        return run(self, *arguments)

    monkeypatch.setattr(NativeChain, "run", counted)
    return counts


def images(batch: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((batch, 3, 5, 7)).astype(np.float32)


def one_by_one(folder: Path, lines: str, x: Array, patch: pytest.MonkeyPatch) -> dict[str, Array]:
    """Every blob of a pass that calls layers one by one."""
    with patch.context() as without:
        without.setattr(PreparedLayer, "native", lambda *_, **__: None)
        net = network(folder, lines, keep="all", batch=len(x))
        net.forward(x)
        return dict(net.blobs)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("lines", "together"), NETS.values(), ids=NETS)
def test_every_bit_is_that_of_layers_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int], lines: str, together: list[int], batch: int
) -> None:
    x = images(batch)
    wanted = one_by_one(tmp_path, lines, x, monkeypatch)
    assert taken == []
    for keep in ("outputs", "all", *([name] for name in wanted)):
        net = network(tmp_path, lines, keep=keep, batch=batch)
        first, copy = net.forward(x), x.copy()
        assert keep == "all" or taken == together
        blobs = dict(net.blobs)
        assert all(value.shape == net.shapes[name] and value.dtype == np.float32 for name, value in blobs.items())
        assert all(np.array_equal(value, wanted[name]) for name, value in blobs.items())
        taken.clear()
        net.forward(images(batch, seed=1))
        assert all(np.array_equal(value, wanted[name]) for name, value in blobs.items())  # of before
        assert all(np.array_equal(value, wanted[name]) for name, value in first.items())
        assert np.array_equal(x, copy)
        assert [step.name for step in net.perf.steps] == [line.split()[0] for line in lines.splitlines()]
        taken.clear()


@pytest.mark.parametrize("lines", [NETS["branches"][0], NETS["a branch in two sums"][0]])
def test_with_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    x = images(2)
    wanted = network(tmp_path, lines, batch=2).forward(x)
    monkeypatch.setattr(chain, "SHARED", 0)
    monkeypatch.setattr(chain, "threads", lambda: 3)
    net = network(tmp_path, lines, batch=2)
    for _ in range(10):
        assert all(np.array_equal(value, wanted[name]) for name, value in net.forward(x).items())


def test_passes_in_several_threads_have_memory_of_their_own(tmp_path: Path) -> None:
    net = network(tmp_path, NETS["branches"][0], batch=2)
    batches = [images(2, seed) for seed in range(8)]
    wanted = [net.forward(x)["p"] for x in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            outputs = [result["p"] for result in pool.map(net.forward, batches)]
            assert all(map(np.array_equal, outputs, wanted))


def test_weights_are_those_of_the_pass(tmp_path: Path, taken: list[int]) -> None:
    """Changed in place, or replaced by another array, of whatever type."""
    net = network(tmp_path, f"conv Convolution data -> c : {conv(2)}\nflat Flatten c -> f", batch=1)
    net.forward(images(1))
    weights, bias = net.params["conv"]
    net.forward(images(1))
    weights[...], bias[...] = 0, [3, 5]
    assert np.array_equal(net.forward(images(1))["f"], np.repeat([[3, 5]], 35, axis=1))
    layer = net.graph.layer("conv")
    layer.blobs[1] = np.array([7, 9], np.float32)
    assert np.array_equal(net.forward(images(1))["f"], np.repeat([[7, 9]], 35, axis=1))
    assert taken == [2] * 4
    layer.blobs[1] = np.array([1, 2], np.float64)
    assert np.array_equal(net.forward(images(1))["f"], np.repeat([[1, 2]], 35, axis=1))
    assert taken == [2] * 4


def test_a_batch_norm_and_a_scale_are_computed_with_the_convolution_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless something else reads between them, or they follow each other the other way round."""
    kinds: list[str] = []
    run = NativeChain.run

    def recorded(self: NativeChain, *arguments: Any) -> Any:
        kinds.extend(Kind.name(operation.kind) for operation in self._table)
        return run(self, *arguments)

    monkeypatch.setattr(NativeChain, "run", recorded)
    network(tmp_path, NETS["sums that are scaled"][0], batch=1).forward(images(1))
    assert kinds == ["product", "product", "product", "normalise", "product", "scale", "times", "product"]


@pytest.mark.parametrize("large", [False, True])
def test_packed_weights_are_those_of_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """Changed in place at any time after a program has them, in all sizes; as by layers one by one, which pack in each pass."""
    lines = f"""a Convolution data -> a : {conv(17, 3)}
        norm BatchNorm a -> a
        scale Scale a -> a : scale_param {{ bias_term: true }}
        act ReLU a -> a
        b Convolution a -> b : {conv(16, 3)}"""

    def changed(net: chai.Net) -> list[Array]:
        return [net.params["b"][0][3:5], *net.params["norm"], *net.params["scale"], net.params["a"][1]]

    net = network(tmp_path, lines, shape=(1, 19, 14, 15))
    if large:
        monkeypatch.setattr(forward, "SMALL", 1)
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((n, 19, 14, 15)).astype(np.float32) for n in (1, 3, 1)]
    tops = [net.forward(batches[0])["b"]]
    held = changed(net)
    for x in batches:
        for blob in held:
            blob *= np.float32(1.25)
        tops.append(net.forward(x)["b"])
    net.graph.layer("b").blobs[0] = net.params["b"][0] + 1
    tops.append(net.forward(batches[0])["b"])
    other = network(tmp_path, lines, shape=(1, 19, 14, 15))
    monkeypatch.setattr(forward, "library", lambda: None)  # no chains
    wanted = [other.forward(batches[0])["b"]]
    for x in batches:
        for blob in changed(other):
            blob *= np.float32(1.25)
        wanted.append(other.forward(x)["b"])
    other.params["b"][0] += 1
    wanted.append(other.forward(batches[0])["b"])
    assert all(map(np.array_equal, tops, wanted))
    assert not np.array_equal(tops[0], tops[1])
    assert not np.array_equal(tops[1], tops[3])


@pytest.mark.parametrize("shape", [(2, 6, 3, 3), (3, 3, 3, 3), (6, 3, 9), (12, 3, 3, 3)])
def test_weights_of_another_shape_are_an_error(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """In the layer's own list, of as many numbers, fewer or more: C neither reads beyond them nor leaves a top unwritten."""
    net = network(tmp_path, f"conv Convolution data -> c : {conv(6, 3)}\nflat Flatten c -> f", batch=1)
    net.forward(images(1))
    net.graph.layer("conv").blobs[0] = np.ones(shape, np.float32)
    with pytest.raises(chai.ShapeError, match=r"layer 'conv'.*\(blob 0\) would be 6x3x3x3"):
        net.forward(images(1))


def test_large_blobs_are_computed_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int]) -> None:
    """Their memory is free as soon as their last reader has run."""
    lines, together = NETS["a chain"]
    monkeypatch.setattr(forward, "SMALL", 4 * 6 * 5 * 7)
    network(tmp_path, lines, batch=1).forward(images(1))
    assert taken == together
    taken.clear()
    monkeypatch.setattr(forward, "SMALL", 4 * 6 * 5 * 7 - 1)
    network(tmp_path, lines, batch=1).forward(images(1))
    assert taken == [1, 1, 1, 4]  # together after the pool


@pytest.mark.parametrize("lines", [lines for lines, _ in NETS.values()], ids=NETS)
def test_images_whose_blobs_are_large_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    """Every bit is that of layers one by one; a layer that mixes images takes all of them."""
    x = images(3)
    wanted = one_by_one(tmp_path, lines, x, monkeypatch)
    monkeypatch.setattr(forward, "APART", 4 * 2 * 3 * 5 * 7)  # two images of the input
    for keep in ("outputs", "all"):
        net = network(tmp_path, lines, keep=keep, batch=3)
        for _ in range(2):
            net.forward(x)
            assert all(np.array_equal(value, wanted[name]) for name, value in net.blobs.items())


def test_which_layers_run_for_one_image_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    """Those from a layer with large blobs on, up to one that needs all weights for each pixel."""
    counts: list[int] = []
    run = NativeChain.run

    def counted(self: NativeChain, blobs: Any, memory: Array, images: int = 1) -> Any:
        counts.append(images)
        return run(self, blobs, memory, images)

    monkeypatch.setattr(NativeChain, "run", counted)
    monkeypatch.setattr(forward, "APART", 4 * 3 * 6 * 5 * 7 - 1)  # less than three images after the convolution have
    network(tmp_path, NETS["a chain"][0], batch=3).forward(images(3))
    assert (taken, counts) == ([6, 2], [3, 1])  # what follows the pool, too, which is small again
    taken.clear(), counts.clear()
    monkeypatch.setattr(forward, "APART", 4 * 3 * 3 * 5 * 7 - 1)  # nor the input
    network(tmp_path, NETS["joined images"][0], batch=3).forward(images(3))
    assert counts == [3, 6]  # before and after the Concat, in which they are not apart


def test_layers_of_large_blobs_are_in_c_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    lines = NETS["a residual block"][0]
    wanted = one_by_one(tmp_path, lines, images(2), monkeypatch)["q"]
    monkeypatch.setattr(forward, "SMALL", 0)
    assert np.array_equal(network(tmp_path, lines, batch=2).forward(images(2))["q"], wanted)
    assert taken == [1] * 10  # both ReLUs are computed with the layers before them
    taken.clear()
    lines = f"max Pooling data -> m : {POOL % 'MAX'}\nact ReLU m -> r"
    wanted = one_by_one(tmp_path, lines, images(2), monkeypatch)["r"]
    assert np.array_equal(network(tmp_path, lines, batch=2).forward(images(2))["r"], wanted)
    assert taken == [1, 1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "layer",
    [
        "Eltwise data data -> y : eltwise_param { coeff: 1e39 coeff: 1 }",
        "Power data -> y : power_param { scale: 1e39 }",
        "ReLU data -> y : relu_param { negative_slope: 1e39 }",
    ],
)
def test_a_factor_beyond_float32_is_infinity_without_a_warning(tmp_path: Path, taken: list[int], layer: str) -> None:
    y = network(tmp_path, f"one {layer}", batch=1).forward(np.full((1, 3, 5, 7), -1, np.float32))["y"]
    assert np.isinf(y).all()
    assert taken == [1]


def test_memory_that_runs_out_is_an_error_of_the_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(tmp_path, NETS["branches"][0], batch=1)
    wanted = net.forward(images(1))["p"]
    with monkeypatch.context() as patch:

        def short(*_: object) -> None:
            raise MemoryError

        patch.setattr(NativeChain, "run", short)
        with pytest.raises(chai.ModelError, match=r"layer 'max'.*not enough memory"):
            net.forward(images(1))
    assert np.array_equal(net.forward(images(1))["p"], wanted)
