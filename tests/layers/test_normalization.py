"""BatchNorm, BN, LRN, MVN, Normalize and Softmax."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.reference import normalization as ref

from .common import Run, build, close, numbers

X = numbers(2, 3, 5, 7, seed=1)
MEAN = np.array([0.5, -3.0, 7.0], np.float32)
VARIANCE = np.array([2.0, 0.25, 30.0], np.float32)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 3), (2, 3, 5)])
@pytest.mark.parametrize("divisor", [1.0, 0.0, 4.0, 999.98])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_batch_norm(run: Run, shape: tuple[int, ...], divisor: float, eps: float) -> None:
    x = numbers(*shape, seed=1)
    weights = (MEAN, VARIANCE, np.array([divisor], np.float32))
    (y,) = run("BatchNorm", f"batch_norm_param {{ eps: {eps} }}", x, weights=weights)
    close(y, ref.batch_norm(x, MEAN, VARIANCE, divisor, eps))


def test_batch_norm_of_one_axis_has_one_channel(run: Run) -> None:
    x = numbers(4, seed=1)
    weights = (MEAN[:1], VARIANCE[:1], np.array([2], np.float32))
    (y,) = run("BatchNorm", "", x, weights=weights)
    close(y, ref.batch_norm(x, MEAN, VARIANCE, 2, 1e-5))


@pytest.mark.parametrize("stated", [True, False])
def test_batch_norm_of_the_batch_itself(run: Run, stated: bool) -> None:
    text = f"batch_norm_param {{ use_global_stats: {str(stated).lower()} eps: 0.01 }}"
    (y,) = run("BatchNorm", text, X, weights=(MEAN, VARIANCE, np.array([3], np.float32)))
    means, variances = (MEAN, VARIANCE) if stated else ref.batch_statistics(X)
    close(y, ref.batch_norm(X, means, variances, 3 if stated else 1, 0.01))


FACTOR, ADDEND = np.array([2.0, -0.5, 0.25], np.float32), np.array([-1.0, 0.0, 3.0], np.float32)


@pytest.mark.parametrize("text", ["scale_bias: true", "scale_filler { value: 2 }", "bias_filler { value: 3 }"])
@pytest.mark.parametrize("stated", [True, False])
def test_batch_norm_of_nvcaffe(run: Run, text: str, stated: bool) -> None:
    """It has the factor and the addend of a Scale."""
    weights = (MEAN, VARIANCE, np.ones(1, np.float32), FACTOR, ADDEND)
    text = f"batch_norm_param {{ use_global_stats: {str(stated).lower()} eps: 0.01 {text} }}"
    (y,) = run("BatchNorm", text, X, weights=weights)
    means, variances = (MEAN, VARIANCE) if stated else ref.batch_statistics(X)
    normal = ref.batch_norm(X, means, variances, 1, 0.01)
    close(y, normal * FACTOR[:, None, None] + ADDEND[:, None, None])


def test_fillers_of_nvcaffe(tmp_path: Path) -> None:
    text = "batch_norm_param { scale_bias: true bias_filler { value: 3 } }"
    stored = [b.ravel().tolist() for b in build(tmp_path, "BatchNorm", text, [X.shape]).params["probe"]]
    assert stored[2:] == [[1.0], [1.0] * 3, [3.0] * 3]


@pytest.mark.parametrize("bottom", [(2, 3, 5, 7), (2, 3)])
def test_a_tuned_bias_of_nvcaffe_moves_the_result(tmp_path: Path, bottom: tuple[int, ...]) -> None:
    """As the quantiser changes it: by what the result is to change."""
    layer = build(tmp_path, "BatchNorm", "batch_norm_param { scale_bias: true }", [bottom]).graph.layer("probe")
    layer.blobs = [MEAN, VARIANCE, np.array([4], np.float32), FACTOR, ADDEND]
    x, moved = numbers(*bottom, seed=1), np.array([0.5, -1.0, 2.0], np.float32)
    before = layer.forward(x)[0]
    assert layer.bias_blob is not None
    layer.blobs[layer.bias_blob] = layer.blobs[layer.bias_blob] + layer.bias_change(moved)
    close(layer.forward(x)[0], before + moved.reshape(-1, *(1,) * (len(bottom) - 2)))


@pytest.mark.parametrize(
    ("size", "alpha", "beta", "k"), [(3, 0.7, 0.75, 1), (5, 2, 0.5, 2.5), (1, 1, 0.75, 2), (9, 1, 1, 1)]
)
def test_lrn_across_channels(run: Run, size: int, alpha: float, beta: float, k: float) -> None:
    x = numbers(2, 6, 5, 7, seed=1)
    (y,) = run("LRN", f"lrn_param {{ local_size: {size} alpha: {alpha} beta: {beta} k: {k} }}", x)
    close(y, ref.lrn_across(x, size, alpha, beta, k))


def test_lrn_defaults(run: Run) -> None:
    (y,) = run("LRN", "", X)
    close(y, ref.lrn_across(X, 5, 1, 0.75, 1))


@pytest.mark.parametrize(("size", "alpha", "beta"), [(3, 0.7, 0.75), (5, 2, 0.5), (1, 1, 0.75), (9, 1, 1)])
def test_lrn_within_channels(run: Run, size: int, alpha: float, beta: float) -> None:
    text = f"norm_region: WITHIN_CHANNEL local_size: {size} alpha: {alpha} beta: {beta} k: 3"
    (y,) = run("LRN", f"lrn_param {{ {text} }}", X)
    close(y, ref.lrn_within(X, size, alpha, beta))


@pytest.mark.parametrize("across_spatial", [True, False])
@pytest.mark.parametrize("channel_shared", [True, False])
@pytest.mark.parametrize("eps", [1e-10, 0.5])
def test_normalize(run: Run, across_spatial: bool, channel_shared: bool, eps: float) -> None:
    scales = np.array(20.0, np.float32) if channel_shared else np.array([2, -3, 10], np.float32)
    flags = f"across_spatial: {str(across_spatial).lower()} channel_shared: {str(channel_shared).lower()}"
    (y,) = run("Normalize", f"norm_param {{ {flags} eps: {eps} }}", X, weights=(scales,))
    close(y, ref.normalize(X, scales.reshape(-1), across_spatial, eps))


def test_normalize_without_space(run: Run) -> None:
    """SSD asks for two axes or more; height and width are 1 where they are not given."""
    x = numbers(2, 3, seed=1)
    (y,) = run("Normalize", "norm_param { channel_shared: false }", x, weights=(np.array([2, -3, 10], np.float32),))
    close(y, ref.normalize(x.reshape(2, 3, 1, 1), [2, -3, 10], True, 1e-10).reshape(2, 3))


def test_normalize_of_nothing_is_nothing(run: Run) -> None:
    (y,) = run("Normalize", "", np.zeros((2, 3, 5, 7), np.float32), weights=(np.ones((), np.float32),))
    assert not y.any()


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -4])
def test_softmax(run: Run, axis: int) -> None:
    (y,) = run("Softmax", f"softmax_param {{ axis: {axis} }}", X)
    close(y, ref.softmax(X, axis % 4))


def test_softmax_of_large_numbers(run: Run) -> None:
    x = numbers(2, 3, seed=1) + np.float32([[1000], [-1000]])
    (y,) = run("Softmax", "", x)
    close(y, ref.softmax(x, 1))
    assert np.allclose(y.sum(1), 1)


@pytest.mark.parametrize("stored", [True, False])
def test_batch_norm_with_eps_behind_the_root(run: Run, stored: bool) -> None:
    """y = (x - mean) / (sqrt(variance) + eps)."""
    text = f"batch_norm_param {{ eps: 0.5 add_eps_before_sqrt: false use_global_stats: {str(stored).lower()} }}"
    (y,) = run("BatchNorm", text, X, weights=(MEAN, VARIANCE, np.ones(1, np.float32)))
    means, variances = (MEAN, VARIANCE) if stored else ref.batch_statistics(X)
    close(y, ref.bn(X, [1] * 3, [0] * 3, means, [np.sqrt(v) + 0.5 for v in variances]))


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("variance", [True, False])
@pytest.mark.parametrize("eps", [1e-9, 0.5])
def test_mvn(run: Run, across: bool, variance: bool, eps: float) -> None:
    text = f"normalize_variance: {str(variance).lower()} across_channels: {str(across).lower()} eps: {eps}"
    (y,) = run("MVN", f"mvn_param {{ {text} }}", X)
    close(y, ref.mvn(X, variance, across, eps))


SCALE = np.array([0.5, -2.0, 3.0], np.float32)
SHIFT = np.array([1.0, 0.25, -4.0], np.float32)


def column(values: np.ndarray) -> np.ndarray:
    """As BN stores it."""
    return values.reshape(1, -1, 1, 1)


def test_bn_of_segnet_in_use(run: Run) -> None:
    (y,) = run("BN", "bn_param { bn_mode: INFERENCE }", X, weights=(column(SCALE), column(SHIFT)))
    close(y, ref.bn(X, SCALE, SHIFT, [0] * 3, [1] * 3))


def test_bn_of_segnet_with_the_statistics_of_the_batch(run: Run) -> None:
    (y,) = run("BN", "bn_param { scale_filler { value: 1 } }", X, weights=(column(SCALE), column(SHIFT)))
    means, variances = ref.batch_statistics(X)
    close(y, ref.bn(X, SCALE, SHIFT, means, [np.sqrt(v + 1e-9) for v in variances]))


@pytest.mark.parametrize("text", ["frozen: true", "momentum: 0.9", "slope_filler { value: 1 }", "bias_filler { }"])
def test_bn_of_pspnet(run: Run, text: str) -> None:
    weights = tuple(map(column, (SCALE, SHIFT, MEAN, VARIANCE)))
    (y,) = run("BN", f"bn_param {{ {text} eps: 0.125 }}", X, weights=weights)
    close(y, ref.bn(X, SCALE, SHIFT, MEAN, [np.sqrt(v + 0.125) for v in VARIANCE]))


@pytest.mark.parametrize("text", ["bn_mode: INFERENCE", "frozen: true eps: 0.125"])
def test_bn_as_one_factor_and_addend(tmp_path: Path, text: str) -> None:
    """What passes fold into a convolution is what forward computes."""
    net = build(tmp_path, "BN", f"bn_param {{ {text} }}", [X.shape])
    for i, blob in enumerate(net.params["probe"]):
        blob[...] = column(np.abs(MEAN + i))
    factor, addend = net.graph.layer("probe").affine()
    close(net.forward(X)["y0"], ref.bn(X, factor, addend, [0] * 3, [1] * 3))


def test_bn_starts_from_its_fillers(tmp_path: Path) -> None:
    """Vectors of four axes are not drawn at random: a variance would be negative."""
    segnet = "bn_param { scale_filler { value: 2 } shift_filler { value: 0.5 } }"
    assert [b.ravel().tolist() for b in build(tmp_path, "BN", segnet, [X.shape]).params["probe"]] == [
        [2] * 3,
        [0.5] * 3,
    ]
    pspnet = "bn_param { slope_filler { value: 3 } frozen: true }"
    vectors = [b.ravel().tolist() for b in build(tmp_path, "BN", pspnet, [X.shape]).params["probe"]]
    assert vectors == [[3] * 3, [0] * 3, [0] * 3, [1] * 3]


def test_bn_that_learns_is_no_factor(tmp_path: Path) -> None:
    assert build(tmp_path, "BN", "", [X.shape]).graph.layer("probe").affine() is None
