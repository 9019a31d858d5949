"""LRN: the definition against loops over whole numbers and against Caffe's function, and the kernel in C against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import chai
from chai.fixed import Format
from chai.kernels.native import library
from chai.offload.schedule import DeviceStep
from chai.tasks.lrn import FACTOR_BITS, REST_BITS, SEGMENTS, SUM_BITS, LRNTask, starts
from chai.tasks.unsupported import Unsupported
from tests.conftest import examples, need_models, report
from tests.reference import fixed as reference
from tests.tasks.common import Array, emulated, kernel_form
from tests.tasks.lrns import Parameters, random_case, random_format, random_parameters

FORMS = ["numpy", *(variant.name for variant in library.state().variants)]
GOOGLENET = Parameters(5, 1e-4, 0.75, 1, Format("Xilinx", 8, 600.0, True), Format("Xilinx", 8, 300.0, True))


def by_loops(task: LRNTask, x: Array) -> Array:
    """One number at a time; the segment of a sum is searched for."""
    first, r = starts().tolist(), task.requantization
    result = np.zeros(x.shape, np.int64)
    for n, c, i, j in np.ndindex(*x.shape):
        near = range(max(0, c - task.local_size // 2), min(x.shape[1], c + task.local_size // 2 + 1))
        total = sum((int(x[n, d, i, j]) - task.zero) ** 2 for d in near)
        segment = next(s for s in range(SEGMENTS) if first[s] <= total < first[s + 1])
        slope = int(task.slopes[segment]) * (total - first[segment]) << REST_BITS
        whole = slope // (first[segment + 1] - first[segment])
        factor = int(task.bases[segment]) + (whole + (1 << (REST_BITS - 1)) >> REST_BITS)
        value = (int(x[n, c, i, j]) - task.zero) * factor
        result[n, c, i, j] = reference.requantize(value, 1, r.shift, r.low, r.high, zero=r.zero)
    return result


def test_segments_cover_all_sums_and_those_of_an_octave_are_equally_long() -> None:
    first = starts()
    assert first[0] == 0
    assert first[-1] == 1 << SUM_BITS
    lengths = np.diff(first)
    assert (lengths[:64] == 1).all()
    assert (lengths[64:] * 64 >= first[64:-1] + 1).all()
    assert (lengths[64:] * 32 <= first[64:-1]).all()
    assert 1 << SUM_BITS > 15 * 255**2


@pytest.mark.parametrize("form", FORMS)
def test_definition_and_kernel_are_the_loops(form: str) -> None:
    rng = np.random.default_rng(1)
    saturated = {-128: 0, 127: 0}
    with kernel_form(form):
        for _ in range(examples(12)):
            task, x, _ = random_case(rng, 15)
            x = x[:1, :, :3, :5]
            wanted = by_loops(task, x)
            assert np.array_equal(task.define(x), wanted)
            assert np.array_equal(emulated([task], {"x": x}, {"y": x.shape})["y"], wanted)
            for code in saturated:
                saturated[code] += int((wanted == code).sum())
    assert all(saturated.values())


@pytest.mark.parametrize("form", FORMS[1:])
def test_the_kernel_is_the_definition(form: str) -> None:
    """In any shape; saturated results among the others."""
    rng = np.random.default_rng(2)
    with kernel_form(form):
        _compared(rng, examples(60))


@pytest.mark.slow
def test_the_kernel_is_the_definition_for_ten_thousand_tasks() -> None:
    _compared(np.random.default_rng(3), 10_000)


def _compared(rng: np.random.Generator, count: int) -> None:
    saturated, of_layers = 0, 0
    for _ in range(count):
        task, x, parameters = random_case(rng, 15)
        wanted = task.define(x)
        assert np.array_equal(emulated([task], {"x": x}, {"y": x.shape})["y"], wanted), task
        saturated += int(((wanted == task.requantization.low) | (wanted == task.requantization.high)).any())
        of_layers += parameters is not None
    assert saturated > count // 4
    assert of_layers > count // 2


def test_codes_are_at_most_one_from_the_rounded_function() -> None:
    rng = np.random.default_rng(4)
    for _ in range(examples(150)):
        _, x, parameters = random_case(rng)
        if parameters is None:
            continue
        task, target = parameters.task(x.shape), parameters.target
        exact = np.clip(np.rint(parameters.values(x) / target.step) + target.zero, *target.range)
        assert np.abs(task.define(x) - exact).max() <= 1


@pytest.mark.parametrize("local_size", [3, 5, 9])
@pytest.mark.parametrize("unsigned", [False, True])
def test_the_error_of_the_table_is_far_below_48_db(local_size: int, unsigned: bool) -> None:
    """Of the products before they are rounded to codes, for inputs of any magnitude."""
    rng = np.random.default_rng(5)
    formats = [Format("Xilinx", 8, value, unsigned) for value in (600.0, 300.0)]
    p = GOOGLENET._replace(local_size=local_size, source=formats[0], target=formats[1])
    x = np.clip(rng.normal(0, 1, (2, 64, 8, 8)) * rng.choice([3, 30, 100], (2, 1, 8, 8)), -127, 127)
    x = (np.abs(x) - 128 if unsigned else x).astype(np.int8)
    task = p.task(x.shape)
    v = x.astype(np.int64) - task.zero
    sums = np.stack(
        [np.square(v[:, max(c - local_size // 2, 0) : c + local_size // 2 + 1]).sum(1) for c in range(64)], 1
    )
    products = v * task.factor(sums) * 2.0**-task.requantization.shift * p.target.step
    exact = p.values(x)
    assert 10 * np.log10(np.square(exact).sum() / np.square(products - exact).sum()) > 65


def test_a_layer_whose_numbers_do_not_fit_is_refused() -> None:
    shape = (1, 16, 3, 3)
    for changes, reason in [
        ({"alpha": -1.0}, "not positive for all codes"),
        ({"k": -1.0}, "not positive for all codes"),
        ({"k": 0.0}, "would change results by 1.7 codes"),
        ({"target": Format("Xilinx", 8, 1e-3, True)}, "too fine for 18-bit factors"),
        ({"source": Format("Xilinx", 8, 1e-45, True)}, "every value is 0"),
    ]:
        with pytest.raises(Unsupported, match=reason):
            GOOGLENET._replace(**changes).task(shape)
    assert GOOGLENET.task(shape).requantization.shift >= 11


def test_formats_and_parameters_of_networks_fit() -> None:
    """Of random layers with a format that covers what they reach, nearly all."""
    rng = np.random.default_rng(6)
    refused = 0
    for _ in range(100):
        parameters = random_parameters(rng)
        try:
            task = parameters._replace(k=1.0).task((1, 16, 2, 2))
        except Unsupported:
            refused += 1
        else:
            assert (task.bases >= 0).all()
            assert (task.bases < 1 << FACTOR_BITS).all()
    assert refused < 10


def test_factors_do_not_depend_on_sums_that_no_codes_reach() -> None:
    p = GOOGLENET._replace(source=random_format(np.random.default_rng(0), 600.0))
    task = p.task((1, 1, 2, 2))  # one channel: a sum is one square
    most = p.source.largest**2 if p.source.unsigned else (p.source.largest + 1) ** 2
    beyond = int(np.searchsorted(starts(), most, side="right"))
    assert (task.bases[beyond:] == task.bases[beyond]).all()
    assert not task.slopes[beyond:].any()


def test_zero_points_are_the_codes_of_zero() -> None:
    task = GOOGLENET.task((1, 3, 1, 1))
    assert task.zero_points() == (-128, -128)
    assert (task.define(np.full((1, 3, 1, 1), -128, np.int8)) == -128).all()
    assert replace(task, zero=0).zero_points() == (0, -128)


def test_googlenets_own_norms() -> None:
    """Codes of a real pass against the float layer of the same input: before they are rounded, and as codes."""
    folder = need_models() / "googlenet"
    cases = [np.load(folder / "cases" / case / "input.npy") for case in ("camel", "cat", "goldfish")]
    x = np.concatenate(cases)
    with chai.Net(
        folder / "deploy.prototxt", folder / "weights.caffemodel", batch=3, device="emulator", keep="all"
    ) as net:
        net.calibrate(x)
        net.forward(x)
        tasks = [t for step in net.schedule.steps if isinstance(step, DeviceStep) for t in step.tasks]
        norms = [task for task in tasks if isinstance(task, LRNTask)]
        assert [task.origin for task in norms] == [("pool1/norm1",), ("conv2/norm2",)]
        assert net.formats is not None
        for task in norms:
            layer = net.graph.layer(task.origin[0])
            source, target = net.formats[task.inputs[0]], net.formats[task.output]
            (result,), (blob,) = net.tops(layer.name), layer.bottoms
            codes = source.quantize(net.blobs[net.graph.caffe_name(blob)])
            exact = layer.forward(source.dequantize(codes))[0].astype(np.float64)
            v = codes.astype(np.int64) - task.zero
            sums = np.zeros_like(v)
            for c in range(v.shape[1]):
                sums[:, c] = np.square(v[:, max(c - 2, 0) : c + 3]).sum(1)
            products = v * task.factor(sums) * 2.0**-task.requantization.shift * target.step
            perfect = np.clip(np.rint(exact / target.step) + target.zero, *target.range)
            output_codes = target.quantize(result).astype(int)
            assert np.array_equal(output_codes, task.define(codes))
            assert np.abs(output_codes - perfect).max() <= 1
            unit, best, whole = (
                10 * np.log10(np.square(exact).sum() / np.square(y - exact).sum())
                for y in (products, (perfect - target.zero) * target.step, (output_codes - target.zero) * target.step)
            )
            report(
                f"{layer.name}: {unit:.1f} dB before rounding; rounded {whole:.2f} dB, float rounded {best:.2f} dB; "
                f"{(output_codes != perfect).mean():.2%} of codes differ by one"
            )
            assert unit > 65
            assert whole > best - 0.05
