"""Tasks as operations of the library in C (``native``), which give the codes of their definitions bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from ..tasks import Task
from ..tasks.fields import only_shifts
from ..tasks.window import POINT
from ..util.lazy_numpy import np
from .native.table import Form, Kind, fits

if TYPE_CHECKING:
    from ..tasks.copy import Copy
    from ..tasks.eltwise import Eltwise
    from ..tasks.filter import FilterTask
    from ..tasks.interleave import Interleave
    from ..tasks.lrn import LRNTask
    from ..tasks.pool import Pool
    from ..tasks.upsample import UpsampleTask

MAX_TAPS = 1024  # pixels of a kernel, at most, in C
AVERAGED = 1 << 22  # pixels of an average, at most, in C: their sum has 32 bits


def form(task: Task) -> Form | None:
    """Return a Task as an operation, after which codes go through its ``lookup``; None if C cannot compute it."""
    of = FORMS.get(type(task).__module__)
    operation = None if of is None else of(task)
    return None if operation is None else operation._replace(lookup=task.lookup)


def _filter(task: FilterTask) -> Form | None:
    """Return None if a sum could leave 32 bits, or maxima follow."""
    if getattr(task, "pooling", None) is not None:
        return None
    _, *one = task.weights.shape
    r, bias = task.requantization, int(np.abs(task.bias).max(initial=0))
    if not fits(r) or prod(one) * 128 * 255 + bias >= 1 << 31 or prod(task.window.kernel) > MAX_TAPS:
        return None
    kind = Kind.DEPTHWISE if task.is_depthwise else Kind.CONVOLUTION
    return Form(kind, r, task.window, task.group, task.weights, task.bias, zeros=(task.zero,))


def _copy(task: Copy) -> Form | None:
    """Return None for a folded one."""
    r = task.requantization
    if task.fold is not None:
        return None
    if r is None:
        return Form(Kind.COPY if task.lookup is None else Kind.LOOKUP)
    if not fits(r) or r.multiplier.size != 1 or (r.negative is not None and r.negative.size != 1):
        return None
    negative = None if r.negative is None else (int(r.negative.flat[0]),)
    return Form(Kind.SUM, r, factors=(int(r.multiplier.flat[0]),), negative=negative, zeros=(task.zero,))


def _eltwise(task: Eltwise) -> Form | None:
    """Return None for more than two inputs."""
    r, every = task.requantization, (*task.factors, *(task.negative or ()))
    if len(task.factors) > 2 or max(map(abs, every)) >= 1 << 17 or not (fits(r) and only_shifts(r)):
        return None
    factors = task.factors if len(task.factors) == 2 else (*task.factors, 0)
    kind = {"SUM": Kind.SUM, "PROD": Kind.TIMES_CODES, "MAX": Kind.GREATER_CODES}[task.operation]
    return Form(kind, r, factors=factors, zeros=task.zeros, negative=task.negative, vector=task.vector)


def _pool(task: Pool) -> Form | None:
    """Return None if the sum of a window could leave 32 bits."""
    r = task.requantization
    if not fits(r) or (r is not None and prod(task.window.kernel) > AVERAGED):
        return None
    return Form(Kind.MAXIMUM if r is None else Kind.AVERAGE, r, task.window, zeros=(task.zero,))


def _lrn(task: LRNTask) -> Form | None:
    if not fits(task.requantization) or np.abs(task.slopes).max(initial=0) >= 1 << 17:
        return None
    window = POINT._replace(kernel=(task.local_size, 1))
    table = np.stack([task.bases, task.slopes], 1).reshape(-1)
    return Form(Kind.LRN_CODES, task.requantization, window, bias=table, zeros=(task.zero,))


def _upsample(task: UpsampleTask) -> Form | None:
    """Return None if codes are rescaled."""
    if task.requantization is not None:
        return None
    return Form(Kind.UPSAMPLE, None, POINT._replace(stride=task.factors), zeros=(task.zero,), spread=task.spread)


def _interleave(task: Interleave) -> Form:
    from ..tasks.interleave import COLUMNS  # which only its Tasks have loaded

    return Form(Kind.INTERLEAVE, None, POINT._replace(stride=(task.factor, COLUMNS)), apart=task.apart)


# by the file of a kind of Task: one of another arithmetic has no form
FORMS: Mapping[str, Callable[[Any], Form | None]] = {
    "chai.tasks.affine": _filter,
    "chai.tasks.conv": _filter,
    "chai.tasks.copy": _copy,
    "chai.tasks.depthwise": _filter,
    "chai.tasks.eltwise": _eltwise,
    "chai.tasks.interleave": _interleave,
    "chai.tasks.lrn": _lrn,
    "chai.tasks.pool": _pool,
    "chai.tasks.upsample": _upsample,
}
