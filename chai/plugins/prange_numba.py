"""Count the errors that numba loses: those raised inside a ``prange``.

The body of such a loop becomes a kernel that numba's threads call. An exception stays in the thread that raised it: it is
lost, or becomes a SystemError without a reason in the caller's thread. Kernels compiled under ``counting()`` instead call a
function that adds 1 to a counter. It is linked by symbol name, so cached machine code finds it too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.np.ufunc import wrappers

COUNTER, FUNCTION = "chai_errors_in_prange", "chai_count_error_in_prange"
_FUNCTION_TYPE = ir.FunctionType(ir.VoidType(), ())
_counting: ContextVar[bool] = ContextVar("_counting", default=False)
_Wrapper: Any = getattr(wrappers, "_GufuncWrapper", None)
# numba has no public API for this; without it, loops with bounds checks run serially
available = hasattr(_Wrapper, "gen_loop_body")


@contextmanager
def counting() -> Iterator[None]:
    """Compile the kernels of this block, in this thread, so that they count their errors."""
    token = _counting.set(True)
    try:
        yield
    finally:
        _counting.reset(token)


def _counter_engine() -> Any:
    """Compile the counter and the function that increments it."""
    assert cpu_target.target_context is not None  # numba initialises LLVM for it
    word = ir.IntType(64)
    module = ir.Module("chai")
    module.triple = llvm.get_process_triple()
    counter = ir.GlobalVariable(module, word, COUNTER)
    counter.initializer = word(0)
    builder = ir.IRBuilder(ir.Function(module, _FUNCTION_TYPE, FUNCTION).append_basic_block())
    builder.atomic_rmw("add", counter, word(1), "monotonic")
    builder.ret_void()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    return engine


def _gen_loop_body(self: Any, builder: Any, pyapi: Any, func: Any, args: Any) -> Any:
    """Generate the call of a kernel, as numba's method does, except after an error."""
    if not (_counting.get() and self.is_parfors):
        return _numbas_loop_body(self, builder, pyapi, func, args)
    status, _ = self.call_conv.call_function(builder, func, self.signature.return_type, self.signature.args, args)
    with builder.if_then(status.is_error, likely=False):
        builder.call(cgutils.get_or_insert_function(builder.module, _FUNCTION_TYPE, FUNCTION), ())
    return status.code, status.is_error


_engine = _counter_engine()  # a reference is kept since it owns the code
errors = ctypes.c_int64.from_address(_engine.get_global_value_address(COUNTER))  # kernels that failed in this process
llvm.add_symbol(FUNCTION, _engine.get_function_address(FUNCTION))
if available:
    _numbas_loop_body = _Wrapper.gen_loop_body
    _Wrapper.gen_loop_body = _gen_loop_body
