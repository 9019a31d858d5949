"""Files for CHaiDNN: its registers hold the sums and results of the calibration images, and each layer has its formats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.chaidnn_v2.conv import ChaidnnConv, reach
from chai.fixed import Requantization
from chai.quantizer import PLAIN, Recipe, quantize
from chai.tasks.window import Window
from tests.passes.common import AFFINE, GLOBAL, network
from tests.quantizer.test_writeback import save

SHAPE = (2, 48, 5, 7)
NET = """
    a Convolution data -> a : convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 }}
    {relu}
    b Convolution a -> b : convolution_param {{ num_output: 5 kernel_size: 1 }}
    """
FITTED = Recipe("mse", "mse", 0.0, "compensated", "tuned")


def batches() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(1.0, 0.6, (3, *SHAPE[1:])).astype(np.float32) for _ in range(2)]


def quantised(folder: Path, lines: str, **options: Any) -> tuple[Path, Any]:
    """A network whose first channel has the largest sums; and a bias far below them, which a ReLU hides."""
    net = network(folder, lines, SHAPE)
    weights, bias = net.params["a"]
    rng = np.random.default_rng(6)
    weights[...] = rng.normal(0, 0.05, weights.shape)
    weights[0] = 0.3 + rng.normal(0, 0.01, weights[0].shape)
    if options.get("scheme") == "Xilinx":  # whose results have a bound, and whose channels have thresholds of their own
        weights[1] *= 40
        bias[1] = -300
    save(net, folder / "net.caffemodel")
    out = folder / "q.prototxt"
    return out, quantize(folder / "net.prototxt", folder / "net.caffemodel", batches(), out, **options)


def far(out: Path) -> tuple[float, float]:
    """The largest sum and result of layer ``a`` of a written file, by numpy alone: in units of the sum, and output steps."""
    net = chai.Net(out, out.with_suffix(".caffemodel"), device="float")
    p, (weights, bias) = net.graph.layer("a").precision, net.params["a"]
    assert p is not None
    high = 127
    if p.quant_type == "Xilinx":
        read, written = p.th_layer_in / high, p.th_layer_out / high
        steps = np.array(p.th_params) / high
    else:
        read, written = 2.0**-p.fl_layer_in, 2.0**-p.fl_layer_out
        steps = np.full(len(weights), 2.0**-p.fl_params)
    codes = np.clip(np.rint(weights / steps[:, None, None, None]), -high, high)
    sums = result = 0.0
    for batch in batches():
        x = np.pad(np.clip(np.rint(batch / read), -128, 127), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        each = np.einsum("nchwij,mcij->mnhw", windows, codes)
        sums = max(sums, float(np.abs(each).max()))
        results = each * (steps * read).reshape(-1, 1, 1, 1) + bias.reshape(-1, 1, 1, 1)
        result = max(result, float(np.abs(results).max() / written))
    return sums, result


@pytest.mark.parametrize("recipe", [PLAIN, FITTED], ids=["plain", "fitted"])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("overlay", ["pynq-z2", "chaidnn-zcu102"])
def test_sums_and_results_are_held(tmp_path: Path, overlay: str, scheme: str, recipe: Recipe) -> None:
    """On any overlay with the option, on CHaiDNN's always; a result far below 0 counts, too, before its ReLU."""
    lines = NET.format(relu="r ReLU a -> a")
    options = {"overlay": overlay, "scheme": scheme, "recipe": recipe}
    out, result = quantised(tmp_path, lines, **options, chaidnn=overlay == "pynq-z2")
    sums, steps = far(out)
    assert result.beyond == {} and sums < 1 << 17 and (steps < 512 or scheme == "DynamicFixed")
    assert sums > 0.6 * (1 << 17) if scheme == "Xilinx" else sums > 0.45 * (1 << 17)  # no coarser than that takes


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_without_the_option_they_are_named(tmp_path: Path, scheme: str) -> None:
    """Of a file that CHaiDNN can read: without a ReLU no code is unsigned."""
    out, result = quantised(tmp_path, NET.format(relu=""), scheme=scheme, recipe=PLAIN)
    sums, steps = far(out)
    assert sums > 1 << 17 and list(result.beyond) == ["a"]
    assert result.beyond["a"] == f"sums up to {sums / (1 << 17):.1f} times 2^17" and steps < 512
    other, unsigned = quantised(tmp_path, NET.format(relu="r ReLU a -> a"), scheme=scheme, recipe=PLAIN)
    assert unsigned.beyond == {} and far(other)[0] > 1 << 17


def test_what_chaidnn_cannot_compute_is_named(tmp_path: Path) -> None:
    lines = NET.format(relu="").replace("kernel_size: 3 pad: 1", "kernel_size: 9 pad: 4")
    _, result = quantised(tmp_path, lines, recipe=PLAIN, chaidnn=True)
    assert result.beyond["a"] == "a kernel above 8x8 with more than 4 input channels"


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_a_reach_is_that_of_exact_sums(scheme: str) -> None:
    rng = np.random.default_rng(2)
    weights, bias = rng.integers(-127, 128, (3, 2200, 1, 1)).astype(np.int8), rng.integers(-999, 999, 3) << 14
    multipliers = rng.integers(1, 1 << 24, (3, 1, 1)) if scheme == "Xilinx" else np.ones((3, 1, 1), np.int64)
    r = Requantization(multipliers, 22, -128, 127)
    task = ChaidnnConv(("x",), "y", ("y",), weights, bias, Window((1, 1), (1, 1), (0, 0)), 1, r)
    x = rng.integers(-128, 128, (2, 2200, 3, 4)).astype(np.int8)
    halves = [  # of more than 4 * 511 weights
        np.tensordot(weights[:, part, 0, 0].astype(np.int64), x[:, part].astype(np.int64), (1, 1))
        for part in (slice(0, 1100), slice(1100, 2200))
    ]
    total = halves[0] + halves[1]
    sums = np.abs([*halves, total]).max((0, 2, 3, 4))
    products = np.abs(total * multipliers[..., None] + bias.reshape(-1, 1, 1, 1)).max((1, 2, 3))
    far = reach(task, x)
    assert np.array_equal(far.sums * (1 << 17), sums) and np.array_equal(far.products * 2.0**31, products)


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_a_batchnorm_and_its_scale_have_formats_of_their_own(tmp_path: Path, scheme: str) -> None:
    """CHaiDNN takes the output's from the Scale; without the option the first layer alone has some, as ever."""
    lines = f"""
        a Convolution data -> a : convolution_param {{ num_output: 16 kernel_size: 3 }}
        n BatchNorm a -> n : {GLOBAL}
        s Scale n -> s : {AFFINE}
        p Pooling s -> p : pooling_param {{ kernel_size: 2 }}
        m BatchNorm p -> m : {GLOBAL}
        t Scale m -> t : {AFFINE}
        b Convolution t -> b : convolution_param {{ num_output: 5 kernel_size: 1 }}"""
    overlay = "chaidnn-zcu102"
    out, result = quantised(tmp_path, lines, overlay=overlay, scheme=scheme, recipe=PLAIN)
    net = chai.Net(out, out.with_suffix(".caffemodel"), device="float")
    formats = {layer.name: layer.precision for layer in net.graph.layers if layer.precision is not None}
    assert {"a", "n", "s", "m", "t", "b"} <= set(formats)
    kind = "th" if scheme == "Xilinx" else "fl"
    for name in ("n", "s"):
        sides = [getattr(formats[name], f"{kind}_layer_{side}") for side in ("in", "out")]
        assert sides == [getattr(formats["a"], f"{kind}_layer_out")] * 2
    assert formats["m"].side("out") == formats["t"].side("in") == formats["t"].side("out")
    assert (formats["t"].scale_beta_fl is None) == (scheme == "Xilinx") and formats["s"].scale_beta_fl is None
    judged = {blob: str(format) for blob, format in result.built.formats.items()}
    x = batches()[0]
    read = chai.Net(out, out.with_suffix(".caffemodel"), overlay=overlay)
    y = read.forward(x)["b"]
    assert read.formats is not None and {blob: str(read.formats[blob]) for blob in judged} == judged
    text = out.read_text()
    assert ("scale_gamma_by_std_fl" in text) == (scheme != "Xilinx")
    if scheme == "DynamicFixed":  # what the overlay chooses itself for tables that no file states
        out.write_text(re.sub(r"scale_(gamma_by_std|beta)_fl: -?[0-9]+ ?", "", text))
        assert np.array_equal(chai.Net(out, out.with_suffix(".caffemodel"), overlay=overlay).forward(x)["b"], y)


def test_a_deconvolution_with_an_argmax_states_the_width_of_its_weights(tmp_path: Path) -> None:
    """CHaiDNN takes 6 bits where none is stated."""
    lines = """
        a Convolution data -> a : convolution_param { num_output: 16 kernel_size: 3 }
        d Deconvolution a -> d : convolution_param { num_output: 16 group: 16 kernel_size: 4 stride: 2 }
        m ArgMax d -> m : argmax_param { axis: 1 }"""
    out, _ = quantised(tmp_path, lines, overlay="chaidnn-zcu102", scheme="Xilinx", recipe=PLAIN)
    net = chai.Net(out, out.with_suffix(".caffemodel"), overlay="chaidnn-zcu102")
    y = net.forward(batches()[0])["m"]
    p = net.graph.layer("d").precision
    assert p is not None and p.bw_params == 8 and not net.partition.reasons
    (task,) = (task for step in net.schedule.segments for task in step.tasks if task.kind == "argmax")
    assert np.abs(task.weights).max() == 127 and {*y.ravel()} <= {*range(16)}
