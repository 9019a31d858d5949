"""check_custom: finds what is wrong, and passes what is right."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import chai

from .common import SHAPE, compiles

WAYS = ("2x3x5x7", "1x3x5x7", "3x3x5x7")


def shifted(x: Any, by: float) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] + by


@pytest.fixture
def custom() -> Any:
    """A type that is right, with a rule for its shape."""
    custom_type = chai.custom("mine", args={"by": 0.5})(shifted)
    custom_type.shape(lambda x: [x.input_dims[0]])
    return custom_type


@compiles
def test_what_is_right_passes(custom: Any) -> None:
    custom.impl("numpy", jit=False)(lambda x, by: np.add(x.bottom[0], np.float32(by), out=x.top[0]))
    custom.impl("nhwc", jit=False, layout="NHWC", dtype="float16")(lambda x, by: np.add(x.bottom[0], by, out=x.top[0]))
    custom.impl("single", jit=False, when=lambda x: x.input_dims[0][0] == 1)(shifted)
    report = chai.check_custom("mine", [SHAPE], float_args=[0.25])
    assert report.ok and report.type == "mine"
    ways = [(row.inputs, row.way) for row in report.rows]
    wanted = ["python", "ref (compiled)", "numpy (python)", "nhwc (python)"]
    for inputs in WAYS:
        expected = {*wanted, *(["single (python)"] if inputs == WAYS[1] else [])}
        assert {w for i, w in ways if i == inputs} == expected
    assert all(row.ms >= 0 and row.difference < 1e-3 and row.layer == "mine" for row in report.rows)
    assert json.loads(json.dumps(report.to_json()))["ok"] is True
    assert "python" in str(report) and "FAILED" not in str(report)


def test_an_implementation_that_is_wrong(custom: Any) -> None:
    custom.impl("wrong", jit=False)(lambda x, by: np.subtract(x.bottom[0], np.float32(by), out=x.top[0]))
    report = chai.check_custom(custom, [SHAPE])
    wrong = [row for row in report.rows if row.way == "wrong (python)"]
    assert not report.ok and [row.ok for row in wrong] == [False] * 3
    largest = 3 + 0.5  # of a few hundred normal numbers, about
    assert all(0.5 / largest < row.difference < 2 / largest * 2 for row in wrong)
    assert str(report).count("FAILED") == 3


def test_one_that_is_wrong_for_some_batches_only(custom: Any) -> None:
    def first_image(x: Any, by: float) -> None:
        x.top[0][:1] = x.bottom[0][:1] + np.float32(by)

    custom.impl("first", jit=False)(first_image)
    verdicts = {row.inputs: row.ok for row in chai.check_custom(custom, [SHAPE]).rows if row.way == "first (python)"}
    assert verdicts == {"2x3x5x7": False, "1x3x5x7": True, "3x3x5x7": False}


@pytest.mark.parametrize("reference", [True, False])
def test_one_that_keeps_a_state(reference: bool) -> None:
    calls = [0.0]

    def counting(x: Any) -> None:
        calls[0] += 1
        x.top[0][...] = x.bottom[0] * (1 + 1e-6 * calls[0])

    plain: Any = lambda x: np.copyto(x.top[0], x.bottom[0])  # noqa: E731
    custom = chai.custom("mine", jit=False)(counting if reference else plain)
    if not reference:
        custom.impl("counting", jit=False)(counting)
    custom.shape(lambda x: [x.input_dims[0]])
    report = chai.check_custom(custom, [SHAPE])
    assert not report.ok
    assert {r.way for r in report.rows if not r.ok} == {"python" if reference else "counting (python)"}
    assert all(r.note == "two runs on the same inputs differ" for r in report.rows if not r.ok)


@compiles
def test_one_that_writes_outside(custom: Any) -> None:
    @custom.impl("far")
    def far(x: Any, by: float) -> None:
        for i in range(x.in_ptrs[0].size + 1):
            x.out_ptrs[0][i] = by

    rows = [row for row in chai.check_custom(custom, [SHAPE]).rows if row.way == "far (compiled)"]
    assert len(rows) == 3 and not any(row.ok for row in rows)
    assert all(
        "it reads or writes outside of an array (index " in row.note and row.difference == np.inf for row in rows
    )
    assert f"{__file__}:" in rows[0].note


def test_one_that_raises_or_does_not_compile(custom: Any) -> None:
    custom.impl("raises", jit=False)(lambda x, by: 1 / 0)
    report = chai.check_custom(custom, [SHAPE])
    assert {r.way for r in report.rows if not r.ok} == {"raises (python)"}
    assert "ZeroDivisionError" in next(r.note for r in report.rows if not r.ok)
    custom.implementations[0] = custom.implementations[-1]  # nothing to compare with
    with pytest.raises(chai.PluginError, match="ZeroDivisionError"):
        chai.check_custom(custom, [SHAPE])


@pytest.mark.parametrize(("error", "ok"), [(0.0, True), (0.4, True), (2.0, False)])
def test_codes_may_be_one_step_off(custom: Any, error: float, ok: bool) -> None:
    @custom.impl("codes", dtype="int8", jit=False)
    def codes(x: Any, by: float) -> None:
        value = (x.bottom[0] * x.float_params[2] + by) / x.float_params[3] + error
        x.top[0][...] = np.clip(np.rint(value), -127, 127)

    rows = [row for row in chai.check_custom(custom, [SHAPE]).rows if row.way == "codes (python)"]
    assert [row.ok for row in rows] == [ok] * 3
    assert all((row.difference <= 1) == ok for row in rows)


def test_parameters_several_blobs_and_tops() -> None:
    @chai.custom("mine", jit=False)
    def mine(x: Any) -> None:
        x.top[0][...] = x.bottom[0].reshape(len(x.bottom[0]), -1) @ x.param(0).T + x.param(1)
        x.top[1][...] = x.bottom[1].sum(1)

    @mine.impl("sums", jit=False)
    def sums(x: Any) -> None:
        flat = x.bottom[0].reshape(len(x.bottom[0]), -1)
        x.top[0][...] = (flat[:, None] * x.param(0)).sum(2) + x.param(1)
        x.top[1][...] = x.bottom[1][:, 0] + x.bottom[1][:, 1]

    mine.shape(lambda x: [(x.input_dims[0][0], x.params_dims[0][0]), (x.input_dims[1][0],)])
    bias = np.arange(4, dtype=np.float32)
    assert chai.check_custom(mine, [SHAPE, (2, 2)], params=[(4, 105), bias], tops=2).ok


def test_a_plain_function_may_be_given() -> None:
    assert chai.check_custom(lambda x: None, [(2, 3)], top_dim=(2, 3)).ok


def test_reports_of_what_is_not_there() -> None:
    with pytest.raises(chai.PluginError, match="there is no custom type 'mime'"):
        chai.check_custom("mime", [SHAPE])
    with pytest.raises(chai.UsageError, match="check_custom needs the shape of every input"):
        chai.check_custom(lambda x: None, [])


def test_infinity_is_a_value(custom: Any) -> None:
    """Equal ones agree, and numpy's warnings about them are not raised."""
    infinite: Any = lambda x: np.divide(1, np.abs(x.bottom[0]) * 0, out=x.top[0])  # noqa: E731
    custom.impl("inf", jit=False)(infinite)
    rows = [row for row in chai.check_custom(custom, [SHAPE]).rows if row.way == "inf (python)"]
    assert [(row.ok, row.difference, row.note) for row in rows] == [(False, np.inf, "")] * 3
    same = chai.custom("mine", jit=False)(infinite)
    same.impl("inf", jit=False)(infinite)
    same.shape(lambda x: [x.input_dims[0]])
    assert chai.check_custom(same, [SHAPE]).ok
    same.impl("finite", jit=False)(lambda x: np.copyto(x.top[0], x.bottom[0]))
    assert not chai.check_custom(same, [SHAPE]).ok
