"""When two Tasks are the same to an accelerator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from chai.fixed import Requantization
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.window import Window
from tests.codegen.cases import Case, average, conv, copy, eltwise
from tests.codegen.equality import equal

# -- equality


@pytest.mark.parametrize(
    ("case", "change"),
    [
        (conv, {"weights": np.zeros((2, 3, 2, 1), np.int8)}),
        (conv, {"bias": np.array([100, -101])}),
        (conv, {"window": Window((2, 1), (1, 2), (1, 0), (2, 1))}),
        (conv, {"group": 3}),
        (conv, {"output": "concat"}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 8, -32, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, 0, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 127)}),
        (conv, {"requantization": Requantization(np.array([5, 7]).reshape(2, 1, 1), 7, -32, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31, np.array(0))}),
        (conv, {"requantization": Requantization(np.array([5, 6]), 7, -32, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31, zero=-128)}),
        (conv, {"zero": -128}),
        (eltwise, {"inputs": ("b", "a")}),
        (eltwise, {"factors": (1 << 16, 3)}),
        (eltwise, {"negative": (1 << 16, -3)}),
        (eltwise, {"zeros": (0, -128)}),
        (copy, {"first": 0}),
        (copy, {"requantization": Requantization(np.array(1), 0, -128, 31)}),
        (copy, {"requantization": Requantization(np.array(1), 0, -128, 127), "zero": -128}),
        (average, {"requantization": None}),
        (average, {"zero": -128}),
        (average, {"out": (3, 2)}),
    ],
)
def test_tasks_that_differ(case: Callable[..., Case], change: dict[str, Any]) -> None:
    assert not equal(case().task, case(**change).task)
    assert not equal(case(**change).task, case().task)


def test_tasks_that_do_not_differ() -> None:
    assert equal(conv().task, conv(origin=("other",)).task)
    same = Requantization(np.array([[[5]], [[6]]], np.int32), 7, -32, 31)
    assert equal(conv().task, conv(requantization=same).task)
    assert equal(copy().task, copy(requantization=Requantization(np.array(1), 0, -128, 127)).task)
    assert equal(copy().task, copy(zero=-128).task)
    assert equal(average(requantization=None).task, average(requantization=None, zero=-128).task)
    task = conv().task
    assert isinstance(task, Conv)
    affine = Affine(**{field.name: getattr(task, field.name) for field in fields(task)})
    assert not equal(task, affine)


def test_multipliers_of_another_shape_differ() -> None:
    five = np.array([5, 5])
    channels, columns = (Requantization(m, 7, -32, 31) for m in (five.reshape(2, 1, 1), five))
    assert not equal(conv(requantization=channels).task, conv(requantization=columns).task)


def test_one_multiplier_stands_for_all_channels() -> None:
    case = conv(requantization=Requantization(np.array(9), 3, -128, 127))
    assert equal(case.decode(*case.encode()), case.task)
