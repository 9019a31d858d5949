"""Eltwise of two bottoms and more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai import overlay as overlays
from chai.fixed import Format
from chai.layers.eltwise import Eltwise, chain
from chai.tasks.arithmetic import Arithmetic
from tests.conftest import examples
from tests.reference.elementwise import eltwise

from .common import Run, close, numbers

BOTTOMS = [numbers(2, 3, 5, 7, seed=i) for i in range(3)]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("operation", ["PROD", "SUM", "MAX"])
def test_operations(run: Run, operation: str, count: int) -> None:
    (y,) = run("Eltwise", f"eltwise_param {{ operation: {operation} }}", *BOTTOMS[:count])
    close(y, eltwise(BOTTOMS[:count], operation))


@pytest.mark.parametrize("coeff", [(1, -1), (0.5, -2, 3)])
def test_weighted_sum(run: Run, coeff: tuple[float, ...]) -> None:
    bottoms = BOTTOMS[: len(coeff)]
    (y,) = run("Eltwise", f"eltwise_param {{ operation: SUM {' '.join(f'coeff: {c}' for c in coeff)} }}", *bottoms)
    close(y, eltwise(bottoms, "SUM", coeff))


def test_the_default_is_sum(run: Run) -> None:
    (y,) = run("Eltwise", "", *BOTTOMS)
    close(y, eltwise(BOTTOMS, "SUM"))


@st.composite
def formats(draw: st.DrawFn, scheme: str, bits: int) -> Format:
    value = draw(st.floats(0.1, 9)) if scheme == "Xilinx" else draw(st.integers(1, 7))
    return Format(scheme, bits, value, draw(st.booleans()))


@pytest.mark.parametrize("operation", ["SUM", "MAX"])
@pytest.mark.parametrize(("scheme", "bits"), [("Xilinx", 8), ("Xilinx", 6), ("DynamicFixed", 8)])
@settings(max_examples=examples(30))
@given(data=st.data(), count=st.integers(3, 6), seed=st.integers(0, 99))
def test_many_bottoms_are_within_one_code(
    operation: str, scheme: str, bits: int, data: st.DataObject, count: int, seed: int
) -> None:
    """Of the number that Caffe's formula gives for the same codes, rounded once, wherever no sum between saturates."""
    names = [f"x{i}" for i in range(count)]
    one = data.draw(st.none() | formats(scheme, bits))
    blobs = {name: one or data.draw(formats(scheme, bits)) for name in (*names, "y")}
    coeff = [data.draw(st.sampled_from([1.0, 1.0, -1.0, 0.5, -2.5, 0.0])) for _ in names] if operation == "SUM" else []
    layer = Eltwise("sum", tuple(names), ("y",))
    layer.slope = data.draw(st.sampled_from([None, 0.0])) if operation == "SUM" else None
    rng = np.random.default_rng(seed)
    target = Arithmetic(overlays.load(), blobs, dict.fromkeys(blobs, (1, 8, 9, 11)))
    codes = {}
    for name in names:
        low, high = blobs[name].range
        codes[name] = rng.integers(low, high + 1, (1, 8, 9, 11)).astype(np.int8)
    tasks = chain(layer, target, operation, coeff or [1.0] * count)
    assert len(tasks) == count - 1 and tasks[-1].output == "y"
    saturated = np.zeros((1, 8, 9, 11), bool)
    for task in tasks:
        codes[task.output] = top = task.define(*(codes[name] for name in task.inputs))
        if task.output != "y" and operation == "SUM":
            low, high = target.formats[task.output].range
            saturated |= (top == low) | (top == high)
    values = [(codes[name].astype(np.float64) - blobs[name].zero) * blobs[name].step for name in names]
    wanted = eltwise(values, operation, coeff) / blobs["y"].step
    low, high = blobs["y"].range
    low = blobs["y"].zero if layer.slope == 0 else low
    exact = np.clip(np.floor(np.abs(wanted) + 0.5) * np.sign(wanted) + blobs["y"].zero, low, high)
    assert (np.abs(codes["y"] - exact)[~saturated] <= 1).all()
    if operation == "MAX" and len({*blobs.values()}) == 1:
        assert np.array_equal(codes["y"], exact)
