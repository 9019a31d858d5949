"""Memory for several arrays: each has elements of its own, also beyond the sizes that were named."""

from __future__ import annotations

import numpy as np

from chai.util.data.malloc import Room


def test_arrays_do_not_share_elements() -> None:
    room = Room([6, 35])
    shapes = [(2, 3), (5, 1, 7), (4, 9), (0, 3), (11,)]
    arrays = [room.take(shape) for shape in shapes]
    for i, array in enumerate(arrays):
        array[...] = i
    for i, (array, shape) in enumerate(zip(arrays, shapes)):
        assert array.shape == shape and array.dtype == np.float32 and array.flags.c_contiguous
        assert (array == i).all()
    assert arrays[0].base is arrays[1].base and not np.shares_memory(arrays[0], arrays[1])


def test_arrays_outlive_their_room() -> None:
    array = Room([5]).take((5,))
    array[...] = np.arange(5)
    assert array.sum() == 10
