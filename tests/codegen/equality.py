"""When two Tasks are the same to an accelerator."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from chai.codegen.encoding import NOTES
from chai.fixed import Requantization
from chai.tasks import Task
from chai.tasks.copy import Copy
from chai.tasks.fields import as_it_is
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask


def same_multipliers(a: Any, b: Any) -> bool:
    """Whether multipliers are equal; a single number equals an array filled with it."""
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape == b.shape or 1 in (a.size, b.size)) and bool((a == b).all())


def same(a: Any, b: Any) -> bool:
    """Whether two values of a Task's fields are equal, arrays and multipliers by value."""
    if isinstance(a, Requantization) and isinstance(b, Requantization):
        numbers = (a.shift, a.low, a.high, a.zero) == (b.shift, b.low, b.high, b.zero)
        return numbers and same_multipliers(a.multiplier, b.multiplier) and same_multipliers(a.negative, b.negative)
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def plain(task: Task) -> Task:
    """A Task in its canonical form: with None for a requantisation that changes no code."""
    if isinstance(task, Pool) and task.requantization is None:
        return replace(task, zero=0)
    if isinstance(task, Copy) and (task.requantization is None or not task.zero):
        return (
            replace(task, requantization=None, zero=0) if same(task.requantization or as_it_is(), as_it_is()) else task
        )
    if isinstance(task, UpsampleTask):
        whole = as_it_is()._replace(zero=task.zero)
        if same(task.requantization or whole, whole):
            return replace(task, requantization=None, zero=task.zero if task.spread else 0)
    return task


def equal(a: Task, b: Task) -> bool:
    """Whether two Tasks are equal in all fields that a descriptor has, arrays by value.

    A Copy whose requantisation changes no code equals one without requantisation.
    """
    a, b = plain(a), plain(b)
    if type(a) is not type(b):
        return False
    return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name not in NOTES)
