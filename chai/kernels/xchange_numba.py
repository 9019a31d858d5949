"""xChangeLayer inside numba.

A compiled function sees one struct whose only member is the tuple of all fields; an attribute is a slot of it. Unlike a
namedtuple with strings in it this costs microseconds per call: the type is computed once and kept by the caller
instead of being guessed from the value on each call.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import cgutils, imputils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from ..xchange import FIELDS, xChangeLayer


class XChangeType(types.Type):
    """Numba's type of an xChangeLayer: determined by the types of its fields."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields
        super().__init__(name=f"xChangeLayer({fields})")

    @property
    def key(self) -> Any:
        return self.fields


def type_of(x: xChangeLayer) -> XChangeType:
    """The numba type of this object. Slow: keep the result for objects of like fields."""
    return XChangeType(numba.typeof(x.values()))


@typeof_impl.register(xChangeLayer)
def _typeof(x: xChangeLayer, _context: Any) -> XChangeType:
    kept: XChangeType | None = x.__dict__.get("_numba_type")
    return type_of(x) if kept is None else kept


@register_model(XChangeType)
class _Model(models.StructModel):
    def __init__(self, manager: Any, type: XChangeType) -> None:
        super().__init__(manager, type, [("fields", type.fields)])


@infer_getattr
class _Attributes(AttributeTemplate):
    key = XChangeType

    def generic_resolve(self, type: XChangeType, name: str) -> Any:
        return type.fields[FIELDS.index(name)] if name in FIELDS else None


@lower_getattr_generic(XChangeType)
def _getattr(context: Any, builder: Any, type: XChangeType, value: Any, name: str) -> Any:
    struct = cgutils.create_struct_proxy(type)(context, builder, value=value)
    slot = FIELDS.index(name)
    return imputils.impl_ret_borrowed(context, builder, type.fields[slot], builder.extract_value(struct.fields, slot))


@unbox(XChangeType)
def _unbox(type: XChangeType, value: Any, c: Any) -> NativeValue:
    method = c.pyapi.object_getattr_string(value, "values")
    packed = c.pyapi.call_function_objargs(method, ())
    native = c.unbox(type.fields, packed)
    struct = cgutils.create_struct_proxy(type)(c.context, c.builder)
    struct.fields = native.value
    c.pyapi.decref(method)
    c.pyapi.decref(packed)  # the arrays themselves live on in x
    return NativeValue(struct._getvalue(), is_error=native.is_error, cleanup=native.cleanup)
