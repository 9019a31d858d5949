"""When two Tasks are the same to an accelerator."""

from __future__ import annotations

from dataclasses import fields, replace

from chai.codegen.encoding import NOTES
from chai.tasks import Task
from chai.tasks.copy import Copy
from chai.tasks.fields import same
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask


def plain(task: Task) -> Task:
    """A Task in its canonical form."""
    if isinstance(task, Pool) and task.requantization is None:
        return replace(task, zero=0)
    return task.plain() if isinstance(task, (Copy, UpsampleTask)) else task


def equal(a: Task, b: Task) -> bool:
    """Whether two Tasks are equal in all fields that a descriptor has, arrays by value.

    A Copy whose requantisation changes no code equals one without requantisation.
    """
    a, b = plain(a), plain(b)
    if type(a) is not type(b):
        return False
    return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name not in NOTES)
