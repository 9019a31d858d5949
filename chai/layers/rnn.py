"""RNN: a state through tanh, and an output through tanh."""

from __future__ import annotations

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ._recurrent import RecurrentLayer


class RNN(RecurrentLayer):
    """h = tanh(W_xh x + b_h + W_hh (cont * h_before)), o = tanh(W_ho h + b_o).

    Blobs: W_xh (D, I), b_h (D,), weights of the input for all steps if there is one, W_hh (D, D), W_ho (D, D), b_o (D,).
    State: h.
    """

    gates = 1
    states = 1

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        d = self.params.num_output
        return (*super().weight_shapes(*bottoms), (d, d), (d,))

    def step(
        self, gates: Array, mark: Array, state: tuple[Array, ...], weights: list[Array]
    ) -> tuple[Array, tuple[Array, ...]]:
        h = np.tanh(gates)
        return np.tanh(h @ weights[0].T + weights[1]), (h,)
