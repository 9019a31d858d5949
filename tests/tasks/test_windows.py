"""Windows at and inside the padding, in every form of the kernels."""

from __future__ import annotations

import numpy as np
import pytest

from chai.fixed import Requantization
from chai.tasks.conv import Conv
from chai.tasks.pool import Pool
from chai.tasks.window import Window

from .common import check_forms, codes


@pytest.mark.parametrize(("stride", "dilation"), [(5, 1), (1, 2)])
def test_one_window_that_is_not_the_image(stride: int, dilation: int) -> None:
    """The kernel has the image's size and one place, but begins in the padding."""
    rng = np.random.default_rng(stride)
    window = Window((3, 3), (stride, stride), (1, 1), (dilation, dilation))
    r = Requantization(np.full((5, 1, 1), 300), 16, -128, 127)
    weights = codes(rng, 5, 4, 3, 3, low=-127)
    check_forms(Conv(("x",), "y", ("probe",), weights, np.arange(5), window, 1, r), codes(rng, 2, 4, 3, 3))


@pytest.mark.parametrize("maximum", [True, False], ids=["MAX", "AVE"])
def test_windows_inside_the_padding(maximum: bool) -> None:
    """They have no pixel: the least code, or a sum of 0."""
    x = codes(np.random.default_rng(3), 1, 3, 4, 5)
    r = None if maximum else Requantization(np.full((11, 12), 300), 10, -128, 127)
    task = Pool(("x",), "y", ("probe",), Window((2, 1), (1, 1), (4, 4)), (11, 12), r)
    assert (task.define(x)[:, :, :2, :3] == (-128 if maximum else 0)).all()
    check_forms(task, x)
