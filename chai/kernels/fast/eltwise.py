"""Eltwise: one or two blobs in one pass over memory."""

from __future__ import annotations

from ...tasks.eltwise import Eltwise
from ...tasks.fields import same_multipliers
from ...util.lazy_numpy import np
from .. import codes
from ..native.table import Form, Kind, fits
from . import Kernel


def kernel(task: Eltwise) -> Kernel | None:
    """Return the kernel of the sum of two maps without a leaky ReLU; others run by their definition."""
    if len(task.factors) != 2 or task.negative is not None or task.operation != "SUM" or task.vector:
        return None
    factors = (task.factors[0], task.factors[1])
    addend = -sum(zero * m for zero, m in zip(task.zeros, factors))
    return lambda a, b, out, _: codes.add(a, b, factors, addend, task.requantization, out)


def form(task: Eltwise) -> Form | None:
    """Return an Eltwise of one or two inputs as an operation."""
    r, every = task.requantization, (*task.factors, *(task.negative or ()))
    if len(task.factors) > 2 or max(map(abs, every)) >= 1 << 17 or not fits(r):
        return None
    if r.negative is not None or not same_multipliers(r.multiplier, np.array(1)):
        return None
    factors = task.factors if len(task.factors) == 2 else (*task.factors, 0)
    kind = {"SUM": Kind.SUM, "PROD": Kind.TIMES_CODES, "MAX": Kind.GREATER_CODES}[task.operation]
    return Form(kind, r, factors=factors, zeros=task.zeros, negative=task.negative, vector=task.vector)
