"""A float pass computes a ReLU with the layer before it, or in new memory, and writes into no array of others."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.graph import Layer
from chai.layers.convolution import Convolution
from chai.layers.inner_product import InnerProduct
from chai.runtime.steps.layers import PreparedLayer
from tests.kernels.common import LIBRARY, NAMES, used

X = np.random.default_rng(0).normal(0, 1, (2, 3, 5, 7)).astype(np.float32)
INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 5, 7] } } }'
CONV = (
    'layer { name: "conv" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 4 kernel_size: 1 } }'
)
FULL = 'layer { name: "conv" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 4 } }'
RELU = 'layer { name: "relu" type: "ReLU" bottom: "a" top: "b" %s }'
FLAT = 'layer { name: "flat" type: "Flatten" bottom: "a" top: "f" }'
ABS = 'layer { name: "abs" type: "AbsVal" bottom: "%s" top: "c" }'


def net_of(folder: Path, *layers: str, keep: str | list[str] = "outputs") -> chai.Net:
    (folder / "net.prototxt").write_text("\n".join((INPUT, *layers)))
    return chai.Net(folder / "net.prototxt", device="float", keep=keep)


@pytest.fixture
def rectified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the layers that compute the ReLU after them, called one by one."""
    monkeypatch.setattr(PreparedLayer, "native", lambda *_, **__: None)
    names: list[str] = []

    def watched(kind: type[Layer]) -> None:
        original = kind.rectified

        def seen(self: Layer, *bottoms: np.ndarray) -> tuple[np.ndarray, ...]:
            names.append(self.name)
            return original(self, *bottoms)

        monkeypatch.setattr(kind, "rectified", seen)

    watched(Convolution)
    watched(InnerProduct)
    return names


@pytest.mark.parametrize("more", ["", "relu_param { negative_slope: 0.1 }", "relu_param { relu6: true }"])
@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        ((CONV, RELU), ["conv"]),
        ((CONV, RELU.replace('"b"', '"a"')), ["conv"]),
        ((FULL, RELU), ["conv"]),
        ((CONV, ABS % "x", RELU), []),  # another layer is between
        ((CONV, RELU, ABS % "a"), []),  # or reads it later
        ((CONV, FLAT, RELU, ABS % "f"), []),  # another blob is a view of it
        ((CONV, FLAT, RELU), []),  # and is an output
        ((RELU.replace('"a"', '"x"'),), []),  # the caller's array
    ],
)
def test_the_same_numbers_as_with_new_memory(
    tmp_path: Path, rectified: list[str], layers: tuple[str, ...], wanted: list[str], more: str
) -> None:
    wanted = [] if more else wanted  # a layer computes the ReLU after it if that is max(x, 0)
    layers = tuple(text.replace("%s", more) for text in layers)
    net, whole = net_of(tmp_path, *layers), net_of(tmp_path, *layers, keep="all")
    x = X.copy()
    outputs = net.forward(x)
    assert rectified == wanted
    assert np.array_equal(x, X)
    kept = whole.forward(X)
    assert rectified == wanted  # a network that keeps all blobs writes each
    assert outputs.keys() == kept.keys()
    assert all(np.array_equal(outputs[name], kept[name]) for name in kept)


def test_a_relu_that_is_computed_already_has_a_row_without_time(tmp_path: Path, rectified: list[str]) -> None:
    """And the layer after it runs as ever; one without bottoms, too."""
    own = 'layer { name: "own" type: "Parameter" top: "p" parameter_param { shape { dim: 3 } } }'
    net = net_of(tmp_path, CONV, RELU % "", own, ABS % "b")
    outputs = net.forward(X)
    assert rectified == ["conv"]
    assert [step.name for step in net.perf.steps] == ["conv", "relu", "own", "abs"]
    assert net.perf.steps[1].bytes == net.perf.steps[0].bytes == 4 * 2 * 4 * 5 * 7
    assert (outputs["c"] >= 0).all()
    assert outputs["p"].shape == (3,)


def test_calibration_sees_the_numbers_before_a_relu(tmp_path: Path, rectified: list[str]) -> None:
    (tmp_path / "net.prototxt").write_text("\n".join((INPUT, CONV, RELU % "")))
    net = chai.Net(tmp_path / "net.prototxt", device="emulator")
    net.calibrate(X)
    assert rectified == []


def test_a_dump_has_the_numbers_before_a_relu(
    tmp_path: Path, rectified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAI_DUMP", str(tmp_path / "dump"))
    net = net_of(tmp_path, CONV, RELU % "")
    net.forward(X)
    assert rectified == []


def test_a_kept_blob_has_the_numbers_before_a_relu(tmp_path: Path, rectified: list[str]) -> None:
    net = net_of(tmp_path, CONV, RELU % "", keep=["a"])
    net.forward(X)
    assert rectified == []
    assert (net.blobs["a"] < 0).any()


def test_a_parameter_is_not_overwritten(tmp_path: Path, rectified: list[str]) -> None:
    shape = "parameter_param { shape { dim: [2, 3] } }"
    net = net_of(
        tmp_path,
        f'layer {{ name: "p" type: "Parameter" top: "a" {shape} }}',
        RELU % "",
        ABS.replace('"c"', '"d"') % "x",
    )
    net.params["p"][0][...] = -1
    net.forward(X)
    assert (net.params["p"][0] == -1).all()
    assert rectified == []


@pytest.mark.parametrize("view", ["", "Split", "Dropout"])
def test_what_a_custom_function_has_kept_is_not_overwritten(tmp_path: Path, rectified: list[str], view: str) -> None:
    """Whether it read the blob or a view of it."""
    kept: list[np.ndarray] = []

    def probe(x: chai.xChangeLayer) -> None:
        kept.append(x.bottom[0])
        x.top[0][...] = x.bottom[0]

    sizes = "xcustom_param { top_dim: 2 top_dim: 4 top_dim: 5 top_dim: 7 }"
    same = f'layer {{ name: "same" type: "{view}" bottom: "a" top: "s" }}' if view else ""
    layer = f'layer {{ name: "probe" type: "Probe" bottom: "{"s" if view else "a"}" top: "p" {sizes} }}'
    (tmp_path / "net.prototxt").write_text("\n".join((INPUT, CONV, same, layer, RELU % "")))
    custom = {"Probe": chai.custom("Probe", jit=False)(probe)}
    with chai.Net(tmp_path / "net.prototxt", device="float", custom=custom) as net:
        copy = net.forward(X)["p"]
    assert np.array_equal(kept[0], copy) and (copy < 0).any()
    assert rectified == []


@pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
def test_a_batch_needs_no_memory_but_its_blobs(tmp_path: Path) -> None:
    """No columns of pixels, no second blob for a ReLU after a convolution."""
    sized = INPUT.replace("2, 3, 5, 7", "17, 3, 61, 67")
    wide = CONV.replace("num_output: 4 kernel_size: 1", "num_output: 16 kernel_size: 5 pad: 2")
    pool = 'layer { name: "pool" type: "Pooling" bottom: "b" top: "p" pooling_param { kernel_size: 3 stride: 2 } }'
    more = wide.replace('"x"', '"p"').replace('"conv"', '"more"').replace('"a"', '"d"')
    (tmp_path / "net.prototxt").write_text("\n".join((sized, wide, RELU % "", pool, more)))
    x = np.ones((17, 3, 61, 67), np.float32)
    with used(NAMES[0]):
        net = chai.Net(tmp_path / "net.prototxt", device="float")
        net.forward(x)
        tracemalloc.start()
        net.forward(x)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    conv, pooled = 17 * 16 * 61 * 67 * 4, 17 * 16 * 30 * 33 * 4
    # of one image after the other, and what is written, as large as what was pooled
    assert net.perf.peak_bytes == x.nbytes + (conv + pooled) // 17 + pooled
    assert peak <= 1.3 * net.perf.peak_bytes
