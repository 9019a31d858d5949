"""Weights in the order of the array's words: each byte has its place."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from chai import overlay as overlays
from chai.blob import Shape
from chai.errors import DeviceError
from chai.overlay import Overlay, weights as packing
from chai.overlay.weights import ByteSource, Packed, pack_weights, weight_bytes
from tests.codegen.cases import OVERLAYS, Z2

WEIGHTS = pytest.mark.parametrize(
    ("shape", "group"),
    [
        ((50, 37, 3, 2), 1),
        ((52, 20, 2, 3), 2),
        ((40, 1, 3, 2), 40),
        ((40, 1, 3, 2), 20),
        ((1, 1, 1, 1), 1),
        ((5, 130, 4, 2), 1),
    ],
)


@WEIGHTS
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda o: o.name)
def test_the_order_of_weights(overlay: Overlay, shape: Shape, group: int) -> None:
    """Every byte by the words of the docstring, with plain loops."""
    array = overlay.array
    weights = np.random.default_rng(5).integers(-127, 128, shape).astype(np.int8)
    codes = np.frombuffer(pack_weights(weights, group, array), np.int8)
    m, c, kh, kw = shape
    wanted: list[int] = []

    def weight(o: int, i: int, y: int, x: int, g: int = 0) -> int:
        return int(weights[g * (m // group) + o, i, y, x]) if o < m // group and i < c else 0

    if m == group and c == 1:
        for block in range(0, m, array.inputs):
            for y in range(kh):
                for x in range(kw):
                    channels = range(block, block + array.inputs)
                    wanted += [int(weights[k, 0, y, x]) if k < m else 0 for k in channels]
    else:
        for g in range(group):
            for outputs in range(0, m // group, array.outputs):
                for inputs in range(0, c, array.inputs):
                    for y in range(kh):
                        for x in range(kw):
                            for i in range(inputs, inputs + array.inputs):
                                wanted += [weight(o, i, y, x, g) for o in range(outputs, outputs + array.outputs)]
    assert codes.tolist() == wanted
    assert len(codes) == weight_bytes(shape, group, array)
    packed = Packed(ByteSource(codes.tobytes()), 0, shape, group, array)
    assert np.array_equal(packed, weights)
    assert np.array_equal(packed.magnitudes(), np.abs(weights.astype(int)).reshape(len(weights), -1).sum(1))


@WEIGHTS
@pytest.mark.parametrize("part", [1, 3000, packing.PART])
def test_each_byte_of_packed_weights_is_checked(
    shape: Shape, group: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are not written for any weight are padding."""
    monkeypatch.setattr(packing, "PART", part)
    array, random = Z2.array, np.random.default_rng(part)
    ones = np.frombuffer(pack_weights(np.ones(shape, np.int8), group, array), np.int8)
    assert ones.sum() == prod(shape)
    for padding in (False, True):
        places = np.flatnonzero(ones == (0 if padding else 1))
        for at in random.permutation(places)[:30]:
            for code in (-128, 5):
                changed = ones.copy()
                changed[at] = code
                if code == -128 or padding:
                    words = "is outside -127..127" if code == -128 else "padding of the constants"
                    with pytest.raises(DeviceError, match=words):
                        Packed(ByteSource(changed.tobytes()), 0, shape, group, array)
                else:
                    sums = Packed(ByteSource(changed.tobytes()), 0, shape, group, array).magnitudes()
                    assert sums.sum() == prod(shape) + 4 and sums.max() == prod(shape[1:]) + 4


def test_a_word_of_weights_is_a_word_of_the_buffer() -> None:
    for name in overlays.names("array"):
        overlay = overlays.load(name)
        assert 8 * overlay.array.outputs * overlay.weight_rows == overlay.buffers.weights.word_bits


def test_the_largest_weight_is_what_the_array_can_hold() -> None:
    for overlay in map(overlays.load, overlays.names("array")):
        assert overlay.array.chain * packing.WEIGHT * 128 < 1 << (overlay.array.pack_shift - 1)
