"""Maps between coordinates, against the pixels that layers really compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai.pycaffe as caffe
from chai.pycaffe import layers as L  # noqa: N812
from chai.pycaffe.coord_map import (
    AxisMismatchException,
    UndefinedMapException,
    compose,
    coord_map,
    coord_map_from_to,
    crop,
    inverse,
)
from tests.conftest import examples


def data(*dims: int) -> Any:
    return L.Input(shape={"dim": list(dims or (2, 1, 100, 100))})


def conv(top: Any, **params: Any) -> Any:
    return L.Convolution(top, num_output=1, **params)


def pool(top: Any, **params: Any) -> Any:
    return L.Pooling(top, **params)


def up(top: Any, **params: Any) -> Any:
    return L.Deconvolution(top, convolution_param=dict(num_output=1, **params))


def numbers(map: Any) -> tuple[Any, list[float], list[float]]:
    return map[0], np.atleast_1d(map[1]).tolist(), np.atleast_1d(map[2]).tolist()


def test_padding_moves_by_as_much() -> None:
    top = data()
    three, padded = conv(top, kernel_size=3), conv(top, kernel_size=3, pad=1)
    _, scale, offset = numbers(coord_map_from_to(padded, top))
    assert (scale, offset) == ([1], [0])
    axis, scale, offset = numbers(coord_map_from_to(three, top))
    assert (axis, scale, offset) == (1, [1], [1])
    with pytest.raises(AssertionError):  # the map of the other direction would have to pad
        crop(three, top)
    _, scale, offset = numbers(coord_map_from_to(top, three))
    assert (scale, offset) == ([1], [-1])


def test_layers_one_after_another_multiply() -> None:
    top = data()
    many = top
    for _ in range(3):
        many = pool(conv(many, kernel_size=3, pad=1), kernel_size=2, stride=2)
    _, scale, offset = numbers(coord_map_from_to(many, top))
    assert (scale, offset) == ([8], [3.5])
    _, scale, offset = numbers(coord_map_from_to(up(many, kernel_size=16, stride=8), top))
    assert (scale, offset) == ([1], [-4])


def test_each_axis_has_its_own_numbers() -> None:
    top = data()
    axis, scale, offset = numbers(
        coord_map_from_to(conv(top, kernel_size=[3, 5, 7], stride=[1, 2, 2], pad=[0, 1, 0]), top)
    )
    assert (axis, scale, offset) == (1, [1, 2, 2], [1, 1, 3])
    volume = conv(data(1, 1, 1, 20, 20), kernel_size=3, axis=2)
    with pytest.raises(AxisMismatchException):
        coord_map_from_to(conv(volume, kernel_size=3), volume.fn.inputs[0])


def test_what_has_no_map() -> None:
    top = data()
    flat = L.InnerProduct(top, num_output=10)
    with pytest.raises(UndefinedMapException, match="InnerProduct"):
        coord_map(flat.fn)
    with pytest.raises(UndefinedMapException, match="Pooling without kernel_size"):
        coord_map(pool(top, global_pooling=True).fn)
    with pytest.raises(RuntimeError, match="connected by spatial layers"):
        coord_map_from_to(flat, top)
    with pytest.raises(RuntimeError):
        coord_map_from_to(data(), top)
    with pytest.raises(AssertionError, match="kernel_h has no axis"):
        coord_map(pool(top, kernel_h=3, kernel_w=5).fn)


def test_layers_that_keep_pixels() -> None:
    top = conv(data(), kernel_size=3)
    after = L.Eltwise(L.ReLU(top, in_place=True), L.Scale(L.Dropout(top)))
    _axis, scale, offset = numbers(coord_map_from_to(after, top))
    assert (scale, offset) == ([1], [0])


def test_the_branches_of_a_skip_net() -> None:
    """A network that adds two scales: the crop of FCN."""
    n = caffe.NetSpec()
    n.data = data(1, 1, 50, 70)
    n.conv = conv(n.data, kernel_size=3, pad=21)
    n.pool = pool(n.conv, kernel_size=2, stride=2)
    n.up = up(n.pool, kernel_size=4, stride=2)
    n.score = crop(n.up, n.data)
    message = n.to_proto().layer[-1]
    assert (message.type, list(message.bottom)) == ("Crop", ["up", "data"])
    assert (message.crop_param.axis, list(message.crop_param.offset)) == (2, [21])
    _, scale, offset = numbers(coord_map_from_to(n.score, n.data))
    assert (scale, offset) == ([1], [0])


def vgg(n: Any) -> None:
    """VGG16's sizes up to pool5 and fc7, for FCN: 100 pixels are added at each edge."""
    n.data = data(1, 3, 500, 500)
    top, pad = n.data, 100
    for block, convs in enumerate([2, 2, 3, 3, 3], 1):
        for _ in range(convs):
            top, pad = L.ReLU(conv(top, kernel_size=3, pad=pad), in_place=True), 1
        n[f"pool{block}"] = top = pool(top, kernel_size=2, stride=2)
    n.fc7 = conv(L.Dropout(conv(top, kernel_size=7), in_place=True), kernel_size=1)


def test_the_offsets_of_the_published_fcn_networks() -> None:
    """FCN-32s crops its scores by 19 pixels; FCN-8s by 5, 9 and 31."""
    n = caffe.NetSpec()
    vgg(n)
    assert list(crop(up(n.fc7, kernel_size=64, stride=32), n.data).fn.params["crop_param"]["offset"]) == [19]
    upscore2 = up(n.fc7, kernel_size=4, stride=2)
    score_pool4 = conv(n.pool4, kernel_size=1)
    first = crop(score_pool4, upscore2)
    upscore_pool4 = up(L.Eltwise(upscore2, first), kernel_size=4, stride=2)
    second = crop(conv(n.pool3, kernel_size=1), upscore_pool4)
    last = crop(up(L.Eltwise(upscore_pool4, second), kernel_size=16, stride=8), n.data)
    assert [c.fn.params["crop_param"]["offset"] for c in (first, second, last)] == [[5], [9], [31]]
    assert {c.fn.params["crop_param"]["axis"] for c in (first, second, last)} == {2}


def test_crops_that_cannot_be() -> None:
    top = data()
    with pytest.raises(AssertionError, match="scale mismatch"):
        crop(top, pool(top, kernel_size=2, stride=2))
    with pytest.raises(AssertionError, match="negative offset"):
        crop(conv(top, kernel_size=3), top)
    with pytest.raises(AssertionError, match="noninteger offset"):
        crop(conv(top, kernel_size=1, pad=1), pool(top, kernel_size=2))


def test_maps_undo_each_other() -> None:
    map = coord_map(conv(data(), kernel_size=[3, 6], stride=[2, 3], pad=[0, 2]).fn)
    axis, scale, offset = numbers(compose(map, inverse(map)))
    assert (axis, scale, offset) == (1, [1, 1], [0, 0])


@settings(max_examples=examples(15))
@given(half=st.integers(0, 2), pad=st.integers(0, 3), dilation=st.integers(1, 2), layers=st.integers(1, 2))
def test_a_crop_lays_pixels_on_pixels(
    tmp_path_factory: pytest.TempPathFactory, half: int, pad: int, dilation: int, layers: int
) -> None:
    """A convolution with a single 1 in the middle of its kernel only moves the image."""
    n = caffe.NetSpec()
    n.data = top = data(1, 1, 23, 29)
    for i in range(layers):
        n[f"conv{i}"] = top = conv(
            top, kernel_size=2 * half + 1, dilation=dilation, pad=half * dilation + pad, bias_term=False
        )
    n.out = crop(top, n.data)
    path = tmp_path_factory.mktemp("net") / "net.prototxt"
    path.write_text(str(n.to_proto()))
    net = caffe.Net(str(path), caffe.TEST)
    for blobs in net.params.values():
        blobs[0].data[...] = 0
        blobs[0].data[0, 0, half, half] = 1
    image = np.random.default_rng(0).uniform(1, 2, (1, 1, 23, 29)).astype(np.float32)
    assert np.array_equal(net.forward(data=image)["out"], image)


def test_a_crop_of_a_written_net_runs(tmp_path: Path) -> None:
    n = caffe.NetSpec()
    n.data = data(1, 1, 9, 11)
    n.wide = conv(n.data, kernel_size=1, pad=[2, 3])
    n.out = crop(n.wide, n.data)
    (tmp_path / "net.prototxt").write_text(str(n.to_proto()))
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    assert net.blobs["wide"].shape == (1, 1, 13, 17)
    assert net.forward()["out"].shape == (1, 1, 9, 11)
