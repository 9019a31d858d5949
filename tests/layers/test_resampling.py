"""Layers that make a map of another size, and those that trade channels for pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from tests.reference import resampling as ref
from tests.reference.window import pooling

from .common import Pair, Run, build, close, numbers
from .test_arrangement import same

X = numbers(2, 3, 5, 7, seed=1)


@pytest.mark.parametrize("side", [1, 2, 3])
def test_squares(run: Run, side: int) -> None:
    same(run("Upsample", f"upsample_param {{ scale: {side} }}", X)[0], ref.squares(X, side))
    same(run("UpsampleDarknet", f"upsample_darknet_param {{ stride: {side} }}", X)[0], ref.squares(X, side))


def test_without_a_scale_nothing_changes(run: Run) -> None:
    same(run("Upsample", "", X)[0], X)
    same(run("UpsampleDarknet", "", X)[0], X)


UNPOOLED = [
    ("", (10, 14)),
    ("scale: 3", (15, 21)),
    ("scale_h: 4 scale_w: 2", (20, 14)),
    ("scale: 2 pad_out_h: true", (9, 14)),
    ("scale: 2 pad_out_w: true", (10, 13)),
    ("scale: 2 upsample_h: 11 upsample_w: 8", (11, 8)),
]


@pytest.mark.parametrize(("text", "size"), UNPOOLED)
def test_back_to_their_places(run: Run, text: str, size: Pair) -> None:
    places = np.random.default_rng(0).integers(0, size[0] * size[1], X.shape).astype(np.float32)
    assert max(np.unique(p, return_counts=True)[1].max() for p in places.reshape(6, -1)) > 1  # two for one place
    same(run("Upsample", f"upsample_param {{ {text} }}", X, places)[0], ref.unpooled(X, places, size))


def test_a_pooling_and_back(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 8 } } }
        layer { name: "pool" type: "Pooling" bottom: "x" top: "p" top: "mask" pooling_param { kernel_size: 2 stride: 2 } }
        layer { name: "up" type: "Upsample" bottom: "p" bottom: "mask" top: "y" upsample_param { scale: 2 } }
        """
    )
    x = numbers(2, 3, 6, 8, seed=2)
    best = ref.squares(pooling(x, "MAX", (2, 2), (2, 2), (0, 0)), 2)
    same(chai.Net(path, device="float").forward(x)["y"], np.where(x == best, x, 0))


def test_places_outside_the_map(tmp_path: Path) -> None:
    net = build(tmp_path, "Upsample", "upsample_param { scale: 2 }", [(1, 1, 2, 2)] * 2)
    with pytest.raises(chai.ModelError, match=r"'probe' \(Upsample\).*places from 0 to 16 .* 4x4"):
        net.forward(np.ones((1, 1, 2, 2), np.float32), np.array([[[[0, 1], [2, 16]]]], np.float32))


NEAREST = [
    ("output_height: 10 output_width: 14", (10, 14)),
    ("output_height: 3 output_width: 11", (3, 11)),
    ("scale_height: 1.5 scale_width: 0.5", (7, 3)),
    ("output_height: 1 scale_width: 2", (1, 14)),
]


@pytest.mark.parametrize("how", ["", "align_corners", "half_pixel_centers"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("text", "size"), NEAREST)
def test_nearest_neighbour(run: Run, text: str, size: Pair, layout: str, how: str) -> None:
    x = X if layout == "NCHW" else np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    body = f'{text} data_format: "{layout}" {how and how + ": true"}'
    (y,) = run("ResizeNearestNeighbor", f"resize_nearest_neighbor_param {{ {body} }}", x)
    y = y if layout == "NCHW" else y.transpose(0, 3, 1, 2)
    same(y, ref.nearest(X, size, how == "align_corners", how == "half_pixel_centers"))


INTERP = [
    ("height: 9 width: 4", (9, 4), (0, 0)),
    ("height: 1 width: 1", (1, 1), (0, 0)),
    ("height: 5 width: 7", (5, 7), (0, 0)),
    ("zoom_factor: 3", (13, 19), (0, 0)),
    ("zoom_factor: 2 height: 3 width: 3", (9, 13), (0, 0)),  # a factor alone comes first
    ("shrink_factor: 2", (3, 4), (0, 0)),
    ("shrink_factor: 3 zoom_factor: 2", (3, 5), (0, 0)),
    ("shrink_factor: 3 zoom_factor: 2 height: 4 width: 6", (4, 6), (0, 0)),  # both come behind height and width
    ("full_zoom_factor: 2", (10, 14), (0, 0)),
    ("zoom_factor: 2 pad_beg: -1 pad_end: -2", (3, 7), (1, 2)),
]


@pytest.mark.parametrize(("text", "size", "cropped"), INTERP)
def test_interp(run: Run, text: str, size: Pair, cropped: Pair) -> None:
    part = X[:, :, cropped[0] : 5 - cropped[1], cropped[0] : 7 - cropped[1]]
    close(run("Interp", f"interp_param {{ {text} }}", X)[0], ref.bilinear(part, size))


def test_icnet_subgraph(run: Run) -> None:
    x = numbers(1, 2, 33, 65, seed=3)
    wanted = x.astype(np.float64)
    sizes = [((33, 65), (33, 65)), ((17, 33), (16, 32)), ((13, 25), (10, 20)), ((8, 15), (5, 10))]
    for (kernel, stride), bins in zip(sizes, (1, 2, 3, 6)):
        mean = pooling(x, "AVE", kernel, stride, (0, 0))
        assert mean.shape[2:] == (bins, bins)
        wanted += ref.bilinear(mean, (33, 65))
    close(run("ICNetSubgraph", "", x)[0], wanted)


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 4, 6, 6), 2), ((2, 8, 4, 6), 2), ((2, 18, 3, 6), 3), ((1, 3, 5, 7), 1)]
)
@pytest.mark.parametrize("reverse", [True, False])
def test_reorg(run: Run, shape: tuple[int, ...], stride: int, reverse: bool) -> None:
    x = numbers(*shape, seed=4)
    (y,) = run("Reorg", f"reorg_param {{ stride: {stride} reverse: {str(reverse).lower()} }}", x)
    same(y, ref.darknet_reorg(x, stride, reverse))


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("layout", ["NCHW", "DCR", "CRD", "NHWC"])
def test_depth_to_space(run: Run, block: int, layout: str) -> None:
    x = numbers(2, 5 * block * block, 3, 4, seed=5)
    wanted = ref.depth_to_space(x, block, layout == "CRD")
    bottom = x if layout != "NHWC" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    (y,) = run("DepthToSpace", f'depth_to_space_param {{ block_size: {block} data_format: "{layout}" }}', bottom)
    same(y if layout != "NHWC" else y.transpose(0, 3, 1, 2), wanted)


@pytest.mark.parametrize("side", [2, 3])
def test_pixelshuffler(run: Run, side: int) -> None:
    x = numbers(2, 5 * side * side, 3, 4, seed=6)
    same(run("Reshape", f"reshape_param {{ pixelshuffler: {side} }}", x)[0], ref.depth_to_space(x, side, True))


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("rest", [(), (5,), (5, 7)])
def test_shuffle_channel(run: Run, group: int, rest: tuple[int, ...]) -> None:
    x = numbers(2, 6, *rest, seed=7)
    same(run("ShuffleChannel", f"shuffle_channel_param {{ group: {group} }}", x)[0], ref.shuffled(x, group))


def test_shuffle_channel_of_six_in_three(run: Run) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 6)
    assert run("ShuffleChannel", "shuffle_channel_param { group: 3 }", x)[0].tolist() == [[0, 2, 4, 1, 3, 5]]
