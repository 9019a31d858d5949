"""LSTM and RNN, number by number."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def sums(x: Array, w: Array, b: Array | None) -> list[float]:
    """w x + b for one vector x."""
    flat = [float(v) for v in x.ravel()]
    return [
        sum(float(w[row, k]) * v for k, v in enumerate(flat)) + (0.0 if b is None else float(b[row]))
        for row in range(len(w))
    ]


def lstm(
    x: Array, cont: Array, blobs: list[Array], static: Array | None = None, state: tuple[Array, Array] | None = None
) -> tuple[Array, Array, Array]:
    """Outputs (T, N, D), and h and c of the last step (N, D)."""
    w_x, b, *middle, w_h = blobs
    steps, images = cont.shape
    size = w_h.shape[1]
    y = np.zeros((steps, images, size))
    last_h, last_c = np.zeros((images, size)), np.zeros((images, size))
    for n in range(images):
        h = [0.0] * size if state is None else [float(v) for v in state[0][n]]
        c = [0.0] * size if state is None else [float(v) for v in state[1][n]]
        for t in range(steps):
            mark = float(cont[t, n])
            total = np.array(sums(x[t, n], w_x, b)) + np.array(sums(mark * np.array(h), w_h, None))
            if static is not None:
                total += np.array(sums(static[n], middle[0], None))
            for d in range(size):
                i, f, o = (sigmoid(total[k * size + d]) for k in range(3))
                c[d] = mark * f * c[d] + i * math.tanh(total[3 * size + d])
                h[d] = o * math.tanh(c[d])
            y[t, n] = h
        last_h[n], last_c[n] = h, c
    return y, last_h, last_c


def rnn(
    x: Array, cont: Array, blobs: list[Array], static: Array | None = None, state: Array | None = None
) -> tuple[Array, Array]:
    """Outputs (T, N, D), and h of the last step (N, D)."""
    w_x, b, *middle, w_h, w_o, b_o = blobs
    steps, images = cont.shape
    size = w_h.shape[1]
    y = np.zeros((steps, images, size))
    last = np.zeros((images, size))
    for n in range(images):
        h = np.zeros(size) if state is None else state[n].astype(np.float64)
        for t in range(steps):
            total = np.array(sums(x[t, n], w_x, b)) + np.array(sums(float(cont[t, n]) * h, w_h, None))
            if static is not None:
                total += np.array(sums(static[n], middle[0], None))
            h = np.array([math.tanh(v) for v in total])
            y[t, n] = [math.tanh(v) for v in sums(h, w_o, b_o)]
        last[n] = h
    return y, last
