"""The emulator's kernels: a file named like one of ``chai/tasks`` has ``kernel(task)``, ``form(task)`` or both.

``kernel`` is numpy, faster than ``define``; ``form`` describes the Task as an operation of the library in C
(``chai/kernels/native``). Both give the codes of the Task's definition bit for bit; its ``lookup`` comes after them, for all
kinds alike. In numpy sums are exact in float32 up to 2^24, beyond that in float64. A kind without a file here runs by its
definition, as does a Task for which both return None. Tasks of another arithmetic have these functions in their own file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...blob import Array
from ...overlay import EXACT
from ...tasks import Task, package_of
from ...util.lazy_numpy import np

if TYPE_CHECKING:
    from ...tasks.conv import Conv
    from ..native.table import Form
    from ..scratch import Scratch

Kernel = Callable[..., None]  # inputs, output, scratch
CONVS = ("affine", "depthwise")  # kinds with the kernels of a Conv, which they are


def kernel(task: Task) -> Kernel:
    """Return a function that computes a Task into the output it is called with."""
    if getattr(task, "pooling", None) is not None:
        conv: Any = task
        return partial(_then_pooled, kernel(replace(conv, pooling=None)), conv)
    fast: Kernel | None = _called("kernel", task)
    if fast is None:
        return lambda *blobs: np.copyto(blobs[-2], task.define(*blobs[:-2]))
    return fast if task.lookup is None else partial(_then_looked_up, fast, task)


def _then_pooled(unpooled: Kernel, task: Conv, x: Array, out: Array, scratch: Scratch) -> None:
    """Compute a convolution, then the maxima of its codes; a network's segments have a Task for each here."""
    assert task.pooling is not None
    codes = np.empty((*out.shape[:2], *task.window.sizes(x.shape[2:])), np.int8)
    unpooled(x, codes, scratch)
    np.copyto(out, task.pooling.define(codes))


def _then_looked_up(fast: Kernel, task: Task, *blobs: Any) -> None:
    """Compute a Task, then look its codes up."""
    fast(*blobs)
    np.copyto(blobs[-2], task.looked_up(blobs[-2]))


def form(task: Task) -> Form | None:
    """Return a Task as an operation of the library in C; None if that cannot compute it."""
    operation: Form | None = _called("form", task)
    return None if operation is None else operation._replace(lookup=task.lookup)


def _called(name: str, task: Task) -> Any:
    """Return what the function ``name`` in the kind's file returns for a Task; None if there is no such function."""
    function = getattr(_file(type(task).__module__), name, None)
    return function and function(task)


def _file(defined: str) -> ModuleType | None:
    """Return the module with the kernels of Tasks that are ``defined`` in another one; None if there is no such file."""
    package, _, stem = defined.rpartition(".")
    if package != package_of(EXACT):
        return sys.modules[defined]
    stem = "conv" if stem in CONVS else stem
    known = sys.modules.get(f"{__name__}.{stem}")
    if known is None and any(os.path.exists(f"{folder}/{stem}.py") for folder in __path__):
        return import_module(f".{stem}", __name__)
    return known
