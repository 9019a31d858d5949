"""When two Tasks are the same to an accelerator."""

from __future__ import annotations

from dataclasses import fields

from chai.codegen.encoding import NOTES
from chai.tasks import Task
from chai.tasks.fields import same


def equal(a: Task, b: Task) -> bool:
    """Whether two Tasks are equal in all fields that a descriptor has, arrays by value.

    A Copy whose requantisation changes no code equals one without requantisation.
    """
    a, b = a.plain(), b.plain()
    if type(a) is not type(b):
        return False
    return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name not in NOTES)
