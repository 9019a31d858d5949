"""Gemm and MatMul by numpy's products."""

from __future__ import annotations

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, run, types


@pytest.mark.parametrize("flip", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("shape", [None, (7,), (1,), (), (1, 7), (3, 7), (3, 1)])
def test_gemm(flip: tuple[int, int], shape: tuple[int, ...] | None) -> None:
    x, w = numbers(3, 5), numbers(5, 7)
    c = None if shape is None else np.asarray(numbers(*shape, seed=2))
    factors = {"alpha": 0.5, "beta": 2.0, "transA": flip[0], "transB": flip[1]}
    a, b = (x.T.copy() if flip[0] else x), (w.T.copy() if flip[1] else w)
    (y,) = one("Gemm", a, b, *([] if c is None else [c]), **factors)
    np.testing.assert_allclose(y, 0.5 * (x @ w) + (0 if c is None else 2 * c), rtol=1e-4, atol=1e-4)


def test_gemm_of_blobs() -> None:
    x, z = numbers(3, 5), numbers(7, 5)
    file = model([node("Gemm", ["x", "z"], ["y"], transB=1)], {"x": x.shape, "z": z.shape}, ["y"])
    np.testing.assert_allclose(run(file, x=x, z=z)[0], x @ z.T, rtol=1e-4, atol=1e-4)


def test_a_flattened_map_is_read_through() -> None:
    """On an overlay: the product reads the map itself."""
    import chai

    nodes = [node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)]
    file = model(nodes, {"x": (2, 3, 5, 7)}, ["y"], {"w": numbers(4, 105)})
    with chai.Net(file, device="emulator", engine={"y": "fpga"}) as net:
        net.forward(x=numbers(2, 3, 5, 7))
        assert [task.kind for segment in net.schedule.segments for task in segment.tasks] == ["conv"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5), (5, 7)),
        ((2, 3, 5), (5, 7)),
        ((2, 4, 3, 5), (2, 4, 5, 7)),
        ((2, 4, 3, 5), (4, 5, 7)),
        ((5,), (5, 7)),
        ((3, 5), (5,)),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, z = numbers(*left), numbers(*right, seed=1)
    file = model([node("MatMul", ["x", "z"], ["y"])], {"x": left, "z": right}, ["y"])
    for each in (run(file, x=x, z=z)[0], one("MatMul", x, z)[0]):
        np.testing.assert_allclose(each, x @ z, rtol=1e-4, atol=1e-4)


def test_a_constant_matrix_is_an_inner_product() -> None:
    file = model([node("MatMul", ["x", "w"], ["y"])], {"x": (2, 3, 5)}, ["y"], {"w": numbers(5, 7)})
    assert types(file) == ["InnerProduct"]


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedNodes, match=r"columns of .* do not face"):
        one("MatMul", numbers(3, 5), numbers(2, 4, 7))
    with pytest.raises(UnsupportedNodes, match="a first input of 3 axes"):
        one("Gemm", numbers(2, 3, 5), numbers(5, 7))
