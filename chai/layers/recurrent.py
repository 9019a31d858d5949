"""Steps in time with a state.

ContinuationIndicator: marks of sequences that all begin with the first step.
LSTM: long short-term memory, without peepholes.
RNN: a state through tanh, and an output through tanh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..blob import Array, Shape, count, show
from ..graph import Layer
from ..graph.params import Filler, MessageFields, nested, within
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.log import logger
from .softmax import sigmoid

log = logger("chai.layers")
State = tuple[Array, ...]


class ContinuationIndicator(Layer):
    """Top: the marks (T, N) of an LSTM or RNN, 0 in the first step and 1 in all others."""

    fork = "yalecyu/crnn.caffe"
    bottoms_allowed = (0, 1)
    constant = True

    class Params(MessageFields):
        """time_step is T. N is batch_size without a bottom, else (jolibrain) the size of the bottom's ``axis``."""

        time_step: int | None = within(1, 2**31 - 1)
        batch_size: int | None = within(1, 2**31 - 1)
        axis: int = 0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        sequences = bottoms[0][self.axis(p.axis, bottoms[0])] if bottoms else p.batch_size
        if not p.time_step or not sequences:
            raise self.wrong("time_step, or batch_size without a bottom, is missing")
        return ((p.time_step, sequences),)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return bool(bottoms) and self.axis(self.params.axis, bottoms[0]) == 0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        marks = np.ones(self.shapes(*(b.shape for b in bottoms))[0], np.float32)
        marks[0] = 0
        return (marks,)


class RecurrentLayer(Layer):
    """Bottoms: x (T, N, ...), cont (T, N), optionally an input for all steps (N, ...), and with expose_hidden the state.

    cont is 0 at the start of a sequence, else 1: it multiplies the previous step's state. The state, blobs of
    (1, N, num_output), starts at 0. Caffe carries it over to the next forward pass; here a pass depends only on its inputs.
    ``resumed`` and expose_hidden let the caller carry the state.
    """

    message = "recurrent_param"
    bottoms_allowed = (2, 5)
    tops_allowed = (1, 3)

    class Params(MessageFields):
        """With expose_hidden the last bottoms are the initial state and the last tops the final state."""

        num_output: int = within(0, 2**31 - 1, 0)
        weight_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)
        expose_hidden: bool = False

    carries_state = True
    whole_batch = True  # the first axis is time
    gates: ClassVar[int]  # rows of the weights per output
    states: ClassVar[int]  # number of state blobs

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p, (x, cont) = self.params, bottoms[:2]
        hidden = self.states if p.expose_hidden else 0
        if p.num_output < 1:
            raise self.wrong("num_output is missing")
        if not 0 <= len(bottoms) - 2 - hidden <= 1 or len(self.tops) != 1 + hidden:
            raise self.wrong(
                f"{number_of(len(bottoms), 'bottom')} and {number_of(len(self.tops), 'top')}; expected x, cont, perhaps "
                f"one input for all steps, and {number_of(hidden, 'blob')} of state"
            )
        if len(x) < 3 or cont != x[:2]:
            raise self.wrong(f"expected steps (T, N, ...) and marks (T, N), found {show(x)} and {show(cont)}")
        if self._constant(bottoms) and bottoms[2][:1] != x[1:2]:
            raise self.wrong(f"the input for all steps {show(bottoms[2])} is not of {x[1]} sequences")
        state = (1, x[1], p.num_output)
        for shape in bottoms[len(bottoms) - hidden :]:
            if shape != state:
                raise self.wrong(f"a state of {show(shape)}, expected {show(state)}")
        return ((*x[:2], p.num_output), *(state,) * hidden)

    def _constant(self, bottoms: Sequence[object]) -> bool:
        """Return whether there is an input for all steps."""
        return len(bottoms) - 2 > (self.states if self.params.expose_hidden else 0)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        rows = self.gates * self.params.num_output
        constant = ((rows, count(bottoms[2][1:])),) if self._constant(bottoms) else ()
        return ((rows, count(bottoms[0][2:])), (rows,), *constant, (rows, self.params.num_output))

    def fillers(self) -> tuple[Filler | None, ...]:
        p = self.params
        return p.weight_filler, p.bias_filler, *(p.weight_filler,) * 3, p.bias_filler

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        weights = self.weight_shapes(*bottoms)
        constant = count(weights[2]) * bottoms[0][1] if self._constant(bottoms) else 0
        rest = [w for i, w in enumerate(weights) if len(w) == 2 and not (i == 2 and constant)]
        return constant + count(bottoms[1]) * sum(map(count, rest))

    _warned = False

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        if not (self._warned or self.params.expose_hidden) and bottoms[1][:1].any():
            self._warned = True
            text = "layer %r (%s): cont is 1 in the first step, but every pass begins with a state of 0; in Caffe it goes on"
            log.warning(
                text + " from the last pass (chai.pycaffe.Net does that, or use expose_hidden)", self.name, self.type
            )
        return self.resumed(bottoms)[0]

    def resumed(self, bottoms: Sequence[Array], state: State | None = None) -> tuple[tuple[Array, ...], State]:
        """Return the tops, and the state after the last step, to pass with the next bottoms.

        ``state`` is one array (N, num_output) per state blob. None starts at 0, as does a state for another number of
        sequences. With expose_hidden the bottoms hold the state.
        """
        x, cont = bottoms[:2]
        steps, n = cont.shape
        if state is not None and len(state[0]) != n:
            state = None
        size = self.params.num_output
        weights = list(self.blobs)
        driven = x.reshape(steps, n, count(x.shape[2:])) @ weights.pop(0).T + weights.pop(0)
        if self._constant(bottoms):
            driven += bottoms[2].reshape(n, -1) @ weights.pop(0).T
        recurrent = weights.pop(0).T
        hidden = bottoms[len(bottoms) - self.states :] if self.params.expose_hidden else ()
        state = tuple(h[0] for h in hidden) or state or (np.zeros((n, size), np.float32),) * self.states
        outputs = np.empty((steps, n, size), np.float32)
        for t in range(steps):
            mark = cont[t].reshape(n, 1)
            outputs[t], state = self.step(driven[t] + (mark * state[0]) @ recurrent, mark, state, weights)
        return ((outputs, *(s[None] for s in state)) if self.params.expose_hidden else (outputs,)), state

    def step(self, gates: Array, mark: Array, state: State, weights: list[Array]) -> tuple[Array, State]:
        """Return a step's output and state from the sum of its inputs (N, gates * num_output)."""
        raise NotImplementedError(self.type)


class LSTM(RecurrentLayer):
    """c = cont * f * c_before + i * g, h = o * tanh(c), with gates i, f, o by sigmoid and g by tanh, in this order.

    Blobs: weights of x (4 * D, I) and their bias (4 * D,), weights of the input for all steps if there is one,
    weights of h (4 * D, D). State: h, c.
    """

    gates = 4
    states = 2

    def step(self, gates: Array, mark: Array, state: State, weights: list[Array]) -> tuple[Array, State]:
        *doors, g = np.split(gates, 4, 1)
        i, f, o = map(sigmoid, doors)
        c = mark * f * state[1] + i * np.tanh(g)
        h = o * np.tanh(c)
        return h, (h, c)


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

    def step(self, gates: Array, mark: Array, state: State, weights: list[Array]) -> tuple[Array, State]:
        h = np.tanh(gates)
        return np.tanh(h @ weights[0].T + weights[1]), (h,)
