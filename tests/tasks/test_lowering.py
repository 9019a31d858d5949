"""From a layer in float to codes: what Net gives on the emulator is the reference's arithmetic from end to end."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import overlay
from chai.fixed import Format
from chai.layers.pooling import Pooling
from chai.offload.schedule import DeviceStep, HostStep, Pack
from chai.tasks import Task
from chai.tasks.arithmetic import Arithmetic
from chai.tasks.window import Window
from tests.conftest import thinned
from tests.layers.common import blob_shape, numbers
from tests.reference import fixed as reference
from tests.reference.fixed import Form, float64, half_away

from .common import FORMS, Array, kernel_form

OVERLAY = overlay.load()
MULT_BITS, SHIFT_MAX = 17, 40  # of the shipped overlays

# widths and steps that differ on the two sides of a layer, in both schemes
FORMATS = [
    (Form("DynamicFixed", 8, 5), Form("DynamicFixed", 8, 3)),
    (Form("DynamicFixed", 6, 3), Form("DynamicFixed", 6, 2)),
    (Form("DynamicFixed", 6, 3), Form("DynamicFixed", 8, 4)),
    (Form("Xilinx", 8, 2.3), Form("Xilinx", 8, 7.1)),
    (Form("Xilinx", 6, 2.0), Form("Xilinx", 6, 5.5)),
    (Form("Xilinx", 8, 1.7), Form("Xilinx", 6, 6.25)),
]
NAMES = [f"{a.scheme}-{a.bits}-{b.bits}" for a, b in FORMATS]
BOTH = [(FORMATS[0], "DynamicFixed"), (FORMATS[3], "Xilinx")]
SLOPES = [None, 0.0, 0.1]


def precision(source: Form, target: Form, params: str = "") -> str:
    def side(name: str, form: Form) -> str:
        value = "th" if form.scheme == "Xilinx" else "fl"
        return f"bw_layer_{name}: {form.bits} {value}_layer_{name}: {form.value}"

    return (
        f'precision_param {{ quant_type: "{source.scheme}" {side("in", source)} {side("out", target)} '
        f"bw_params: {source.bits} {params} }}"
    )


def relu(blob: str, slope: float | None) -> str:
    if slope is None:
        return ""
    return (
        f'layer {{ name: "relu_{blob}" type: "ReLU" bottom: "{blob}" top: "{blob}" '
        f"relu_param {{ negative_slope: {slope} }} }}\n"
    )


def relu6(blob: str) -> str:
    """As the Synopsys fork writes it, or as a type of its own."""
    return f'layer {{ name: "relu_{blob}" type: "ReLU" bottom: "{blob}" top: "{blob}" relu_param {{ relu6: true }} }}\n'


def layer(type: str, bottoms: Sequence[str], top: str, body: str) -> str:
    wires = " ".join(f'bottom: "{b}"' for b in bottoms)
    return f'layer {{ name: "{top}" type: "{type}" {wires} top: "{top}" {body} }}\n'


class Network:
    """Layers on the emulator; every layer is called after its top."""

    def __init__(
        self,
        folder: Path,
        text: str,
        inputs: Sequence[Array],
        weights: dict[str, Sequence[Array]],
        overlay: str = "pynq-z2",
    ) -> None:
        path = folder / "net.prototxt"
        path.write_text(
            "".join(
                f'layer {{ name: "x{i}" type: "Input" top: "x{i}" input_param {{ {blob_shape(x.shape)} }} }}\n'
                for i, x in enumerate(inputs)
            )
            + text
        )
        self.net = chai.Net(path, device="emulator", overlay=overlay)
        for name, stored in weights.items():
            assert [b.shape for b in self.net.params[name]] == [w.shape for w in stored]
            for blob, values in zip(self.net.params[name], stored):
                blob[...] = values
        self.output = self.net.forward(*inputs)
        again = self.net.forward(*inputs)
        assert all(np.array_equal(again[name], values) for name, values in self.output.items())

    @property
    def tasks(self) -> list[Task]:
        return [t for step in self.net.schedule.steps if isinstance(step, DeviceStep) for t in step.tasks]

    def all_on_the_overlay(self) -> bool:
        return not any(isinstance(step, HostStep) for step in self.net.schedule.steps)

    def equals(self, form: Form, codes: Array) -> None:
        assert self.all_on_the_overlay()
        (top,) = self.output.values()
        assert top.dtype == np.float32 and top.shape == codes.shape
        assert top.ravel().tolist() == [float(form.dequantize(c)) for c in codes.ravel().tolist()]


def quantized(form: Form, x: Array) -> Array:
    return np.array([form.quantize(v) for v in x.ravel().tolist()]).reshape(x.shape)


def requantized(sums: Array, steps: Sequence[Fraction], target: Form, slope: float | None) -> Array:
    """Codes of sums (N, C, H, W), with a step per channel, in float64 as the design has them."""
    ratios = [float64(s / target.step) for s in steps]
    pair = reference.multipliers(ratios, MULT_BITS, SHIFT_MAX)
    assert pair is not None
    m, shift = pair
    below = None if not slope else [half_away(float64(Fraction(slope) * r) * (1 << shift)) for r in ratios]
    result = np.zeros(sums.shape, np.int64)
    for at in np.ndindex(sums.shape):
        negative = None if below is None else below[at[1]]
        low = 0 if slope == 0 else target.smallest
        result[at] = reference.requantize(int(sums[at]), m[at[1]], shift, low, target.largest, 0, negative)
    return result


def convolved(
    x: Array, w: Array, b: Array | None, window: Window, group: int, forms: tuple[Form, Form], slope: float | None,
    weight: Form | None = None, thresholds: Sequence[float] | None = None,
) -> Array:  # fmt: skip
    """Output codes of input codes x; ``weight`` is the DynamicFixed format of the weights."""
    source, target = forms
    bits = source.bits
    if weight is not None:
        steps = [weight.step] * len(w)
    else:
        maxima = thresholds or [float(np.abs(channel).max()) for channel in w]
        steps = reference.weight_steps(maxima, bits, source.step)
    codes = [[reference.weight_code(v, s, bits) for v in c.ravel().tolist()] for c, s in zip(w, steps)]
    sums = [float64(s * source.step) for s in steps]
    bias = [0] * len(w) if b is None else [reference.bias_code(v, s) for v, s in zip(b.tolist(), sums)]
    qw = np.array(codes).reshape(w.shape)
    accumulators = reference.convolution(x, qw, bias, window.stride, window.pad, window.dilation, group)
    return requantized(accumulators, sums, target, slope)


GEOMETRIES = {
    "plain": (Window((3, 3), (1, 1), (1, 1)), 1, (3, 4)),
    "rectangular": (Window((3, 2), (2, 1), (0, 1), (2, 1)), 1, (3, 4)),
    "group": (Window((2, 3), (1, 2), (1, 0)), 2, (4, 6)),
    "depthwise": (Window((3, 3), (2, 2), (1, 1)), 4, (4, 4)),
    "pointwise": (Window((1, 1), (1, 1), (0, 0)), 1, (5, 3)),
}


def conv_text(window: Window, group: int, outputs: int, bias: bool) -> str:
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = window
    return (
        f"convolution_param {{ num_output: {outputs} kernel_h: {kh} kernel_w: {kw} stride_h: {sh} stride_w: {sw} "
        f"pad_h: {ph} pad_w: {pw} dilation: {dh} dilation: {dw} group: {group} bias_term: {str(bias).lower()} }}"
    )


@cache  # the reference's loops, once for all forms of the kernels
def convolution(kind: str, forms: tuple[Form, Form], slope: float | None) -> tuple[Array, Array, Array, Array]:
    """Input codes, weights, biases, and the output's codes."""
    window, group, (channels, outputs) = GEOMETRIES[kind]
    x = numbers(2, channels, 5, 6, seed=1)
    w = numbers(outputs, channels // group, *window.kernel, seed=2, low=-1, high=1)
    w *= np.linspace(0.1, 1, outputs, dtype=np.float32).reshape(-1, 1, 1, 1)  # channels of different range
    b = numbers(outputs, seed=3)
    wanted = convolved(quantized(forms[0], x), w, b, window, group, forms, slope, weight_form(forms[0]))
    return x, w, b, wanted


def weight_form(source: Form) -> Form | None:
    """The DynamicFixed format of weights, None for Xilinx's."""
    return None if source.scheme == "Xilinx" else Form("DynamicFixed", source.bits, source.bits - 1)


@pytest.mark.parametrize(
    ("slope", "form"), [*((0.1, form) for form in FORMS), *((slope, FORMS[0]) for slope in SLOPES[:2])]
)
@pytest.mark.parametrize("forms", FORMATS, ids=NAMES)
@pytest.mark.parametrize("kind", GEOMETRIES)
def test_convolution(tmp_path: Path, kind: str, forms: tuple[Form, Form], slope: float | None, form: str) -> None:
    window, group, (_, outputs) = GEOMETRIES[kind]
    x, w, b, wanted = convolution(kind, forms, slope)
    weight = weight_form(forms[0])
    params = "" if weight is None else f"fl_params: {int(weight.value)}"
    text = layer("Convolution", ["x0"], "y", conv_text(window, group, outputs, True) + precision(*forms, params))
    with kernel_form(form):
        case = Network(tmp_path, text + relu("y", slope), [x], {"y": [w, b]})
    assert len(np.unique(wanted)) > 5
    case.equals(forms[1], wanted)


def test_the_overlay_has_these_multipliers() -> None:
    assert (OVERLAY.requant.mult_bits, OVERLAY.requant.shift_max) == (MULT_BITS, SHIFT_MAX)


def test_given_thresholds_and_no_bias(tmp_path: Path) -> None:
    """One below what the weights reach, one far below the others, one above."""
    forms = FORMATS[3]
    x, w = numbers(1, 3, 4, 5, seed=1), numbers(4, 3, 1, 1, seed=2)
    thresholds = [float(np.float32(t)) for t in (1.25, 0.001, 7.5, 0)]
    window = Window((1, 1), (1, 1), (0, 0))
    params = " ".join(f"th_params: {t!r}" for t in thresholds)
    text = layer("Convolution", ["x0"], "y", conv_text(window, 1, 4, False) + precision(*forms, params))
    case = Network(tmp_path, text, [x], {"y": [w]})
    wanted = convolved(quantized(forms[0], x), w, None, window, 1, forms, None, None, thresholds)
    case.equals(forms[1], wanted)


def test_a_layer_of_zero_weights_is_its_bias(tmp_path: Path) -> None:
    forms = FORMATS[3]
    x, w, b = numbers(1, 3, 2, 2), np.zeros((4, 3, 1, 1), np.float32), numbers(4, seed=3)
    window = Window((1, 1), (1, 1), (0, 0))
    text = layer("Convolution", ["x0"], "y", conv_text(window, 1, 4, True) + precision(*forms))
    case = Network(tmp_path, text, [x], {"y": [w, b]})
    wanted = convolved(quantized(forms[0], x), w, b, window, 1, forms, None)
    assert len(np.unique(wanted)) == 4
    case.equals(forms[1], wanted)


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("forms", FORMATS, ids=NAMES)
@pytest.mark.parametrize("type", ["Scale", "BatchNorm"])
def test_affine(tmp_path: Path, type: str, forms: tuple[Form, Form], slope: float | None) -> None:
    """A BatchNorm or Scale on its own: weights of 127, whatever the widths are."""
    source, target = forms
    x = numbers(2, 5, 3, 4, seed=1)
    factor, addend = numbers(5, seed=2), numbers(5, seed=3)
    factor[2] = 1e-4  # below 1/256 of the largest
    if type == "Scale":
        stored, body = [factor, addend], "scale_param { bias_term: true }"
        factors, addends = factor.astype(np.float64), addend.astype(np.float64)
    else:
        mean, variance = addend, np.abs(factor) + np.float32(0.1)
        stored, body = [mean, variance, np.ones(1, np.float32)], "batch_norm_param { eps: 0.0009765625 }"
        factors = 1 / np.sqrt(variance.astype(np.float64) + 2.0**-10)
        addends = -mean.astype(np.float64) * factors
    case = Network(tmp_path, layer(type, ["x0"], "y", body + precision(*forms)) + relu("y", slope), [x], {"y": stored})
    exact = [Fraction(f) for f in factors.tolist()]
    floor = float64(float64(max(map(abs, exact)) / 127) / 256)
    steps = [max(float64(abs(f) / 127), floor) for f in exact]
    weights = np.array([half_away(f / s) for f, s in zip(exact, steps)]).reshape(-1, 1, 1, 1)
    sums = [float64(s * source.step) for s in steps]
    bias = [reference.bias_code(a, s) for a, s in zip(addends.tolist(), sums)]
    accumulators = reference.convolution(quantized(source, x), weights, bias, (1, 1), (0, 0), (1, 1), 5)
    case.equals(target, requantized(accumulators, sums, target, slope))
    (task,) = case.tasks
    assert task.kind == "affine"


@pytest.mark.parametrize("type", ["Convolution", "Scale", "Eltwise"])
@pytest.mark.parametrize("forms", [*FORMATS, (Form("Xilinx", 8, 2.3), Form("Xilinx", 8, 3.9))], ids=[*NAMES, "below"])
def test_a_relu6_is_a_clamp(tmp_path: Path, type: str, forms: tuple[Form, Form]) -> None:
    """Codes of min(max(v, 0), 6) are those of v, held between the codes of 0 and 6; formats below 6 reach their end."""
    source, target = forms
    x = numbers(2, 16, 3, 4, seed=1, low=-9, high=9)
    weights = {
        "Convolution": [8 * np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)],
        "Scale": [np.full(16, 8, np.float32)],
        "Eltwise": [],
    }[type]
    body = {
        "Convolution": conv_text(Window((1, 1), (1, 1), (0, 0)), 1, 16, False),
        "Scale": "",
        "Eltwise": "eltwise_param { coeff: 5 coeff: 3 }",
    }[type]
    params = "" if source.scheme == "Xilinx" else f"fl_params: {source.bits - 5}"
    bottoms = ["x0", "x0"] if type == "Eltwise" else ["x0"]
    text = layer(type, bottoms, "y", body + precision(*forms, params))
    blobs = {"y": weights} if weights else {}
    free = Network(tmp_path, text + relu("y", 0), [x], blobs)
    held = Network(tmp_path, text + relu6("y"), [x], blobs)
    (before,), (after,) = free.output.values(), held.output.values()
    assert held.all_on_the_overlay()
    most = float(target.dequantize(target.quantize(6.0)))
    assert before.max() > 6 or float(target.dequantize(target.largest)) < 6
    assert (before > most / 2).any() and (before == 0).any()
    assert np.array_equal(after, np.minimum(before, np.float32(most)))


def test_uneven_padding_is_a_kernel_with_zeros(tmp_path: Path) -> None:
    """Of 5 x 6 pixels, kernel 3 and stride 2, a row below and a column to the right: windows begin at 0, 2 and 4."""
    forms = FORMATS[3]
    x, w, b = numbers(2, 3, 5, 6, seed=1), numbers(4, 3, 3, 3, seed=2, low=-1, high=1), numbers(4, seed=3)
    text = "convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad_b: 1 pad_r: 1 }"
    case = Network(tmp_path, layer("Convolution", ["x0"], "y", text + precision(*forms)), [x], {"y": [w, b]})
    codes = quantized(forms[0], x)
    wider = np.zeros((2, 3, 6, 7), np.int64)
    wider[:, :, :5, :6] = codes
    case.equals(forms[1], convolved(wider, w, b, Window((3, 3), (2, 2), (0, 0)), 1, forms, None))
    (pack,) = (step for step in case.net.schedule.steps if isinstance(step, Pack))
    assert pack.unfold is not None and pack.unfold.window == Window((4, 4), (2, 2), (1, 1))


POOLS = [
    ("kernel_size: 3 stride: 2", (3, 3), (2, 2), (0, 0), (3, 4)),
    ("kernel_size: 3 stride: 2 pad: 1", (3, 3), (2, 2), (1, 1), (4, 5)),
    ("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 1 pad_w: 2", (2, 3), (1, 2), (1, 2), (7, 5)),
    ("global_pooling: true", (6, 8), (1, 1), (0, 0), (1, 1)),
]


@pytest.mark.parametrize("forms", FORMATS, ids=NAMES)
@pytest.mark.parametrize(("body", "kernel", "stride", "pad", "out"), POOLS, ids=["ceil", "pad", "unequal", "global"])
def test_average_pooling(
    tmp_path: Path,
    body: str,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    out: tuple[int, int],
    forms: tuple[Form, Form],
) -> None:
    source, target = forms
    x = numbers(2, 3, 6, 8, seed=1, high=6)
    text = layer("Pooling", ["x0"], "y", f"pooling_param {{ pool: AVE {body} }}" + precision(*forms))
    case = Network(tmp_path, text, [x], {})
    sums = reference.pooled(quantized(source, x), kernel, stride, pad, out, False)
    areas = {at: reference.area(kernel, stride, pad, (6, 8), at) for at in product(*map(range, out))}
    # one multiplier per window, as if windows were channels
    flat = np.moveaxis(sums.reshape(2, 3, -1, 1), 2, 1)
    steps = [float64(source.step / a) for a in areas.values()]
    wanted = np.moveaxis(requantized(flat, steps, target, None), 1, 2).reshape(sums.shape)
    case.equals(target, wanted)


@pytest.mark.parametrize("forms", FORMATS, ids=NAMES)
def test_average_without_the_padding(tmp_path: Path, forms: tuple[Form, Form]) -> None:
    """Paddings that differ from side to side: windows begin at -1, 1, 3 and at -2, 0, 2, 4, 6."""
    source, target = forms
    x = numbers(2, 3, 6, 8, seed=1, high=6)
    body = "pooling_param { pool: AVE_EXC_PAD kernel_size: 3 stride: 2 pad_t: 1 pad_l: 2 pad_r: 1 }"
    case = Network(tmp_path, layer("Pooling", ["x0"], "y", body + precision(*forms)), [x], {})
    codes = quantized(source, x)
    rows = [(0, 2), (1, 4), (3, 6)]
    columns = [(0, 1), (0, 3), (2, 5), (4, 7), (6, 8)]
    sums = np.array([[codes[:, :, a:b, c:d].sum((2, 3)) for c, d in columns] for a, b in rows]).transpose(2, 3, 0, 1)
    steps = [float64(source.step / ((b - a) * (d - c))) for a, b in rows for c, d in columns]
    flat = np.moveaxis(sums.reshape(2, 3, -1, 1), 2, 1)
    case.equals(target, np.moveaxis(requantized(flat, steps, target, None), 1, 2).reshape(sums.shape))


def test_multipliers_of_an_average_come_from_float64() -> None:
    """Steps in float32 would move one multiplier in 600 by one."""
    pooling = Pooling("probe", ("x",), ("y",), Pooling.Params(pool="AVE", global_pooling=True))
    target = Form("Xilinx", 8, 7.1)
    wrong = []
    for threshold, area in product(np.arange(1, 9, 0.07).tolist(), range(2, 60)):
        source = Form("Xilinx", 8, threshold)
        formats = {"x": Format(*source), "y": Format(*target)}
        (task,) = pooling.lower(Arithmetic(OVERLAY, formats, {"x": (1, 2, 1, area), "y": (1, 2, 1, 1)}))
        r = task.requantization  # type: ignore[attr-defined]
        wanted = reference.multipliers([float64(float64(source.step / area) / target.step)], MULT_BITS, SHIFT_MAX)
        if (r.multiplier.ravel().tolist(), r.shift) != wanted:
            wrong.append((threshold, area, r.multiplier.item(), wanted))
    assert not wrong


@pytest.mark.parametrize("forms", FORMATS, ids=NAMES)
@pytest.mark.parametrize(("body", "kernel", "stride", "pad", "out"), POOLS, ids=["ceil", "pad", "unequal", "global"])
def test_max_pooling_keeps_codes_and_format(
    tmp_path: Path,
    body: str,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    out: tuple[int, int],
    forms: tuple[Form, Form],
) -> None:
    source, _ = forms  # a format of its own that a maximum is given has no meaning
    x = numbers(2, 3, 6, 8, seed=1, low=-3, high=0.5)
    text = layer("Pooling", ["x0"], "y", f"pooling_param {{ pool: MAX {body} }}" + precision(*forms))
    case = Network(tmp_path, text, [x], {})
    case.equals(source, reference.pooled(quantized(source, x), kernel, stride, pad, out, True))


# -- blobs of different formats

IDENTITY = np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)


def converted(blob: str, top: str, source: Form, target: Form) -> str:
    """A convolution that only changes the format."""
    params = f"fl_params: {source.bits - 2}" if source.scheme == "DynamicFixed" else ""
    window = Window((1, 1), (1, 1), (0, 0))
    return layer("Convolution", [blob], top, conv_text(window, 1, 16, False) + precision(source, target, params))


def identity(x: Array, source: Form, target: Form) -> Array:
    weight = Form("DynamicFixed", source.bits, source.bits - 2) if source.scheme == "DynamicFixed" else None
    window = Window((1, 1), (1, 1), (0, 0))
    return convolved(quantized(source, x), IDENTITY, None, window, 1, (source, target), None, weight)


def summed(codes: Sequence[Array], factors: Sequence[Fraction], target: Form, slope: float | None) -> Array:
    """Eltwise SUM: ``factors`` are coefficient * step."""
    ratios = [float64(f / target.step) for f in factors]
    pair = reference.multipliers(ratios, MULT_BITS, SHIFT_MAX)
    assert pair is not None
    m, shift = pair
    below = [half_away(float64(Fraction(slope) * r) * (1 << shift)) for r in ratios] if slope else m
    result = np.zeros(codes[0].shape, np.int64)
    for at in np.ndindex(result.shape):
        total = sum(int(c[at]) * f for c, f in zip(codes, m))
        if total < 0:
            total = sum(int(c[at]) * f for c, f in zip(codes, below))
        result[at] = reference.requantize(total, 1, shift, 0 if slope == 0 else target.smallest, target.largest)
    return result


@pytest.mark.parametrize(
    ("form", "forms", "coefficients", "slope"),
    thinned(5, FORMS, [pair for pair, _ in BOTH], [(1.0, 1.0), (0.3, 1.7), (-1.0, 0.7)], SLOPES),
)
def test_eltwise(
    tmp_path: Path,
    forms: tuple[Form, Form],
    coefficients: tuple[float, float],
    slope: float | None,
    form: str,
) -> None:
    first, second = forms
    target = Form(first.scheme, 8, first.value - 1 if first.scheme == "DynamicFixed" else 3.1)
    x, y = numbers(2, 16, 3, 4, seed=1), numbers(2, 16, 3, 4, seed=2)
    coeff = "" if coefficients == (1, 1) else " ".join(f"coeff: {c}" for c in coefficients)
    text = converted("x0", "a", second, first) + converted("x1", "b", first, second)
    text += layer("Eltwise", ["a", "b"], "y", f"eltwise_param {{ operation: SUM {coeff} }}" + precision(first, target))
    with kernel_form(form):
        case = Network(tmp_path, text + relu("y", slope), [x, y], {"a": [IDENTITY], "b": [IDENTITY]})
    codes = [identity(x, second, first), identity(y, first, second)]
    # Caffe's coefficients are float32
    exact = [Fraction(float(np.float32(c))) for c in coefficients]
    factors = [float64(c * f.step) for c, f in zip(exact, (first, second))]
    case.equals(target, summed(codes, factors, target, slope))


def test_negative_multipliers_of_a_leaky_sum_are_rounded_to_nearest(tmp_path: Path) -> None:
    form = Form("DynamicFixed", 8, 4)
    x, y = numbers(1, 16, 2, 2, seed=1), numbers(1, 16, 2, 2, seed=2)
    text = layer("Eltwise", ["x0", "x1"], "y", "eltwise_param { coeff: -1 coeff: -0.5 }" + precision(form, form))
    (task,) = Network(tmp_path, text + relu("y", 0.3), [x, y], {}).tasks
    slope = Fraction(float(np.float32(0.3)))
    exact = [slope * Fraction(-1) * (1 << 16), slope * Fraction(-1, 2) * (1 << 16)]
    assert task.factors == (-65536, -32768)  # type: ignore[attr-defined]
    assert task.negative == tuple(map(half_away, exact))  # type: ignore[attr-defined]


@pytest.mark.parametrize("forms", [f for f, _ in BOTH], ids=[n for _, n in BOTH])
@pytest.mark.parametrize("swapped", [False, True])
def test_concat(tmp_path: Path, forms: tuple[Form, Form], swapped: bool) -> None:
    """The branch with the largest step gives the format; the other is written in its own, then rescaled."""
    first, second = forms[::-1] if swapped else forms
    x, y = numbers(2, 16, 3, 4, seed=1), numbers(2, 16, 3, 4, seed=2)
    text = converted("x0", "a", second, first) + converted("x1", "b", first, second)
    text += layer("Concat", ["a", "b"], "y", "")
    case = Network(tmp_path, text, [x, y], {"a": [IDENTITY], "b": [IDENTITY]})
    target = max((first, second), key=lambda f: f.step)
    parts = []
    for codes, form in ((identity(x, second, first), first), (identity(y, first, second), second)):
        parts.append(codes if form == target else requantized(codes, [form.step] * 16, target, None))
    case.equals(target, np.concatenate(parts, 1))
    assert sorted(t.kind for t in case.tasks) == ["conv", "conv", "copy"]


def test_concat_of_one_format_moves_nothing(tmp_path: Path) -> None:
    first, second = FORMATS[3]
    x, y = numbers(2, 16, 3, 4, seed=1), numbers(2, 16, 3, 4, seed=2)
    text = converted("x0", "a", first, second) + converted("x1", "b", first, second)
    text += layer("Concat", ["a", "b"], "y", "")
    case = Network(tmp_path, text, [x, y], {"a": [IDENTITY], "b": [IDENTITY]})
    case.equals(second, np.concatenate([identity(x, first, second), identity(y, first, second)], 1))
    assert [t.kind for t in case.tasks] == ["conv", "conv"]
    assert case.net.schedule.views.keys() == {b for t in case.tasks for b in (t.output,)}


def test_concat_of_a_blob_with_itself(tmp_path: Path) -> None:
    first, second = FORMATS[3]
    x = numbers(2, 16, 3, 4, seed=1)
    text = converted("x0", "a", first, second) + layer("Concat", ["a", "a"], "y", "")
    case = Network(tmp_path, text, [x], {"a": [IDENTITY]})
    codes = identity(x, first, second)
    case.equals(second, np.concatenate([codes, codes], 1))


def test_concat_of_network_inputs(tmp_path: Path) -> None:
    x, y = numbers(2, 32, 3, 4, seed=1), numbers(2, 5, 3, 4, seed=2)
    form = FORMATS[3][0]
    case = Network(tmp_path, layer("Concat", ["x0", "x1"], "y", precision(form, form)), [x, y], {})
    case.equals(form, np.concatenate([quantized(form, x), quantized(form, y)], 1))
