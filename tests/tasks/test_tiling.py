"""Tiles of a convolution: what they must cover, and what of them must fit the overlay's memories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from chai import overlay as overlays
from chai.overlay.weights import pack_weights, weight_bytes
from chai.tasks.conv_waits import conv_waits
from chai.tasks.tiling import (
    IMAGE,
    IMAGES,
    NOTHING,
    WEIGHTS,
    Convolved,
    array_cycles,
    beyond_ring,
    weight_traffic,
)
from chai.tasks.window import Window
from chai.util.lazy_numpy import np

Z2 = overlays.load("pynq-z2")
sizes = st.integers(1, 9)


def plain(kernel: int, stride: int = 1, pad: int = 0) -> Window:
    return Window((kernel, kernel), (stride, stride), (pad, pad))


def convolved(window: Window, weights: tuple[int, ...], source: tuple[int, ...]) -> Convolved:
    """All of a convolution without groups."""
    return Convolved(window, weights, 1, source, window.sizes(source[2:]))


@given(
    st.sampled_from(overlays.names("array")),
    st.tuples(st.integers(1, 3), st.integers(1, 700), st.integers(1, 120), st.integers(1, 1500)),
    st.tuples(sizes, sizes, st.integers(1, 3), st.integers(1, 3)),
)
def test_tiles_cover_every_pixel_and_fit(name: str, source: tuple[int, ...], numbers: tuple[int, ...]) -> None:
    """By the words of hw_overlays/README.md, tile by tile."""
    overlay = overlays.load(name)
    kh, kw, stride, dilation = numbers
    window = Window((kh, kw), (stride, stride), (kh - 1, kw - 1), (dilation, 1))
    _, c, height, width = source
    oh, ow = window.sizes((height, width))
    if oh < 1 or ow < 1:
        return
    plan = convolved(window, (10, c, kh, kw), source).tiling(overlay)
    tiles = [(top, left) for top in range(0, oh, plan.rows) for left in range(0, ow, plan.columns)]
    assert plan.tiles == len(tiles)
    lanes = overlay.array.lanes
    assert plan.rows * plan.columns <= overlay.buffers.accumulators.depth * lanes
    assert plan.columns == ow or plan.rows == 1
    row = width * -(-c // overlay.array.inputs)
    ring = overlay.buffers.input.depth
    two_tiles = min(height, (2 * plan.rows - 1) * stride + (kh - 1) * dilation + 1) * row
    assert two_tiles <= ring or (plan.waits and plan.rows == 1)
    reason = beyond_ring(overlay, window, (10, c, kh, kw), 1, source)
    assert (reason is None) == (min(height, (kh - 1) * dilation + 1) * row <= ring)


@pytest.mark.parametrize(("outputs", "blocks", "held"), [(72, 3, 1.0), (192, 8, 4 / 8)])
def test_constants_and_room(outputs: int, blocks: int, held: float) -> None:
    """By hand, on 16 x 24: 256 channels of 14 x 14 pixels, 16 words each of the 8,192 of the input buffer, in one tile.

    A word of 8 weights is stored in a cycle, and half a record; tables of four blocks are there before the Task works.
    """
    waits = conv_waits(overlays.load("pynq-z2"), convolved(plain(1), (outputs, 256, 1, 1), (1, 256, 14, 14)))
    assert waits.constants == outputs * 256 / 8 + 2 * outputs
    assert (waits.blocks, waits.held) == (blocks, held)
    assert waits.rows == waits.all == waits.keeps == 14 * 14 * 16 / 8192
    tall = conv_waits(overlays.load("pynq-z2"), convolved(plain(1), (outputs, 16, 1, 1), (1, 16, 56, 56)))
    tiles = 56 * 56 // (8 * 56)  # 8 rows of the 9 that the accumulators hold, so that all have as many
    assert (tall.blocks, tall.chunk) == (blocks * tiles, 8 * 56 / 8192)
    assert tall.constants == outputs * 16 / 8 + 2 * outputs * tiles  # tables again for each tile


@pytest.mark.parametrize(("kernel", "pad"), [(1, 1), (1, 3), (3, 10)])
def test_a_first_tile_that_sees_padding_alone_waits_for_no_rows(kernel: int, pad: int) -> None:
    """Tiles are single rows of 300 pixels and more; the image is read as fast as without padding."""
    source = (1, 8, 3, 300)
    waits = conv_waits(Z2, convolved(plain(kernel, pad=pad), (8, 8, kernel, kernel), source))
    assert waits.rows == 0 and min(waits) >= 0
    assert waits.reading == conv_waits(Z2, convolved(plain(1), (8, 8, 1, 1), source)).reading


def test_rows_of_the_next_image_wait_for_room() -> None:
    """By hand: 14 x 14 pixels of 512 channels are 6,272 words of the input buffer's 8,192, so 4,352 of the next image come late.

    The array computes 32 blocks of inputs, 196 pixels each, for the first block of outputs meanwhile.
    """
    tight = overlays.load("zcu102")
    roomy = replace(tight, buffers=tight.buffers._replace(input=tight.buffers.input._replace(depth=2 * 6272)))

    def work(overlay: overlays.Overlay, images: int) -> float:
        return conv_waits(overlay, convolved(plain(1), (64, 512, 1, 1), (images, 512, 14, 14))).work

    assert work(tight, 1) == work(roomy, 1)
    late = 4352 / tight.rates(14 * 14)[0] - 32 * 25
    assert work(tight, 3) - work(roomy, 3) == pytest.approx(2 * late, abs=1)


@pytest.mark.parametrize(
    ("source", "weights", "stays", "times"),
    [
        ((2, 32, 14, 14), (48, 32, 3, 3), IMAGES, 1),  # 2 * 14 * 28 words of 8192
        ((2, 256, 28, 28), (96, 256, 1, 1), WEIGHTS, 1),  # 24,576 bytes of 98,304
        ((3, 160, 28, 28), (384, 160, 3, 3), IMAGE, 3),  # 7,840 words
        ((2, 128, 56, 56), (128, 128, 3, 3), NOTHING, 14),  # tiles of 8 rows, by the ring: (2 * 8 - 1 + 3) * 448
    ],
)
def test_weights_are_fetched_again_where_nothing_stays(
    source: tuple[int, ...], weights: tuple[int, ...], stays: int, times: int
) -> None:
    window = plain(weights[2], 1, weights[2] // 2)
    conv = convolved(window, weights, source)
    assert conv.tiling(Z2).stays == stays
    assert weight_traffic(Z2, conv) == times * weight_bytes(weights, 1, Z2.array)


def test_rows_are_as_many_as_the_ring_holds() -> None:
    """28 x 28 x 512: a row takes 896 of 8,192 words, so 7 rows of output need 16 of input; 4 need 10, and fit not either."""
    plan = convolved(plain(3, 1, 1), (512, 512, 3, 3), (1, 512, 28, 28)).tiling(Z2)
    assert (plan.rows, plan.tiles, plan.waits) == (3, 10, False)  # (2 * 3 - 1 + 3) * 896 = 7,168
    long = convolved(plain(3, 1, 1), (512, 512, 3, 3), (1, 512, 28, 68)).tiling(Z2)
    assert (long.rows, long.waits) == (1, True)  # three rows of 2,176 fit, four do not


def test_a_tile_by_hand() -> None:
    """4 rows of 112 pixels, 28 tiles, 12 passes, 3 blocks; the last of 5 rows in tiles of 2 has one."""
    window = Window((4, 1), (1, 1), (0, 0))
    assert array_cycles(Z2, convolved(window, (64, 42, 4, 1), (2, 42, 115, 112))) == 2 * 3 * 28 * (12 * 448 + 8)
    wide = array_cycles(Z2, convolved(plain(1), (24, 16, 1, 1), (1, 16, 5, 250)))  # draining takes 3 cycles a pixel
    assert wide == 2 * (1500 + 8) + 750 + 8


def test_lanes_share_the_pixels_of_a_tile_but_not_the_drain() -> None:
    """25 x 41 pixels in one tile on 4 lanes, 18 passes; 4 planes of 32 outputs are drained together, pixel by pixel."""
    kv260 = overlays.load("kv260")
    window = Window((3, 3), (1, 1), (1, 1))
    assert array_cycles(kv260, convolved(window, (64, 32, 3, 3), (1, 32, 25, 41))) == 2 * (18 * 257 + 8)
    assert array_cycles(kv260, convolved(plain(1), (64, 32, 1, 1), (1, 32, 25, 41))) == 2 * (25 * 41 + 8)
    narrow = replace(kv260, requant=kv260.requant._replace(lanes=8))
    assert array_cycles(narrow, convolved(plain(1), (64, 32, 1, 1), (1, 32, 25, 41))) == 2 * (4 * 25 * 41 + 8)


def test_groups_begin_in_words_of_their_own() -> None:
    """Two groups of 24 channels take two words each; 48 channels of a depthwise convolution take three."""
    weights = np.ones((48, 24, 1, 1), np.int8)
    room = 8192 // 4
    assert beyond_ring(Z2, plain(1), weights.shape, 2, (1, 48, 3, room)) is None
    assert beyond_ring(Z2, plain(1), weights.shape, 2, (1, 48, 3, room + 1)) is not None
    assert beyond_ring(Z2, plain(1), (48, 1, 1, 1), 48, (1, 48, 3, 8192 // 3)) is None
    assert len(pack_weights(weights, 2, Z2.array)) == weight_bytes(weights.shape, 2, Z2.array)
