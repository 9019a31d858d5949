"""LSTM: long short-term memory, without peepholes."""

from __future__ import annotations

from ..blob import Array
from ..util.lazy_numpy import np
from ._recurrent import RecurrentLayer
from .sigmoid import sigmoid


class LSTM(RecurrentLayer):
    """c = cont * f * c_before + i * g, h = o * tanh(c), with gates i, f, o by sigmoid and g by tanh, in this order.

    Blobs: weights of x (4 * D, I) and their bias (4 * D,), weights of the input for all steps if there is one,
    weights of h (4 * D, D). State: h, c.
    """

    gates = 4
    states = 2

    def step(
        self, gates: Array, mark: Array, state: tuple[Array, ...], weights: list[Array]
    ) -> tuple[Array, tuple[Array, ...]]:
        *doors, g = np.split(gates, 4, 1)
        i, f, o = map(sigmoid, doors)
        c = mark * f * state[1] + i * np.tanh(g)
        h = o * np.tanh(c)
        return h, (h, c)
