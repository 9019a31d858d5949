"""LSTM and RNN against loops over steps."""

from __future__ import annotations

import numpy as np
import pytest

from chai.errors import ShapeError
from tests.reference.recurrent import lstm, rnn

from .common import Array, Run, Shape, close, numbers

T, N, D = 4, 3, 5
CONT = np.array([[0, 1, 0.5], [1, 1, 1], [1, 0, 1], [0.25, 1, 1]], np.float32)


def blobs(gates: int, x: Shape, static: Shape | None, more: list[Shape]) -> list[Array]:
    rows = gates * D
    shapes = [
        (rows, int(np.prod(x))),
        (rows,),
        *([] if static is None else [(rows, int(np.prod(static)))]),
        (rows, D),
        *more,
    ]
    return [numbers(*s, seed=10 + i, low=-1, high=1) for i, s in enumerate(shapes)]


def body(expose: bool) -> str:
    return f"recurrent_param {{ num_output: {D} expose_hidden: {str(expose).lower()} }}"


@pytest.mark.parametrize(
    ("text", "bottoms"),
    [("batch_size: 3", []), ("axis: 1", [(7, 3, 2)]), ("axis: -1 batch_size: 9", [(2, 3)]), ("", [(3, 5)])],
)
def test_continuation_indicator(run: Run, text: str, bottoms: list[Shape]) -> None:
    """All sequences begin with the first step: of crnn.caffe without a bottom, of jolibrain's fork with one."""
    param = f"continuation_indicator_param {{ time_step: 4 {text} }}"
    (marks,) = run("ContinuationIndicator", param, *(numbers(*shape) for shape in bottoms))
    assert marks.tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("text", ["", "time_step: 4", "batch_size: 3"])
def test_a_continuation_indicator_without_sizes(run: Run, text: str) -> None:
    with pytest.raises(ShapeError, match="time_step, or batch_size without a bottom, is missing"):
        run("ContinuationIndicator", f"continuation_indicator_param {{ {text} }}")


@pytest.mark.parametrize("static", [None, (2,), (2, 3)])
@pytest.mark.parametrize("item", [(7,), (2, 3)])
@pytest.mark.parametrize("expose", [False, True])
def test_lstm(run: Run, item: Shape, static: Shape | None, expose: bool) -> None:
    x, weights = numbers(T, N, *item, seed=1), blobs(4, item, static, [])
    constant = None if static is None else numbers(N, *static, seed=2)
    state = (numbers(1, N, D, seed=3), numbers(1, N, D, seed=4)) if expose else ()
    bottoms = [x, CONT, *([] if constant is None else [constant]), *state]
    tops = run("LSTM", body(expose), *bottoms, weights=weights, tops=3 if expose else 1)
    y, h, c = lstm(x, CONT, weights, constant, (state[0][0], state[1][0]) if state else None)
    close(tops[0], y)
    for top, wanted in zip(tops[1:], (h, c)):
        close(top, wanted[None])


@pytest.mark.parametrize("static", [None, (2,), (2, 3)])
@pytest.mark.parametrize("item", [(7,), (2, 3)])
@pytest.mark.parametrize("expose", [False, True])
def test_rnn(run: Run, item: Shape, static: Shape | None, expose: bool) -> None:
    x, weights = numbers(T, N, *item, seed=1), blobs(1, item, static, [(D, D), (D,)])
    constant = None if static is None else numbers(N, *static, seed=2)
    state = [numbers(1, N, D, seed=3)] if expose else []
    bottoms = [x, CONT, *([] if constant is None else [constant]), *state]
    tops = run("RNN", body(expose), *bottoms, weights=weights, tops=2 if expose else 1)
    y, h = rnn(x, CONT, weights, constant, state[0][0] if state else None)
    close(tops[0], y)
    if expose:
        close(tops[1], h[None])


def test_a_sequence_in_two_passes(run: Run) -> None:
    """expose_hidden carries the state: two halves give what the whole does."""
    x, weights, cont = numbers(T, N, 7, seed=1), blobs(4, (7,), None, []), np.ones((T, N), np.float32)
    (whole,) = run("LSTM", body(False), x, cont, weights=weights)
    state = np.zeros((1, N, D), np.float32), np.zeros((1, N, D), np.float32)
    first = run("LSTM", body(True), x[:2], cont[:2], *state, weights=weights, tops=3)
    second = run("LSTM", body(True), x[2:], cont[2:], *first[1:], weights=weights, tops=3)
    close(np.concatenate([first[0], second[0]]), whole)
