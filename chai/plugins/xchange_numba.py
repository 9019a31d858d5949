"""Make xChangeLayer a numba type.

Compiled functions get a struct whose only member is a tuple of fields; an attribute is an item of the tuple. Unlike a
namedtuple with strings this costs only microseconds per call: the type is computed once and the compiled code is called
directly. Only fields that a function can name are passed, since unwrapping each takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
from numba import extending
from numba.core import cgutils, imputils, types
from numba.core.typing.templates import AttributeTemplate

from .xchange import COMPILED, xChangeLayer


class XChangeType(types.Type):
    """Numba's type of an xChangeLayer: the names of its fields and their types."""

    def __init__(self, names: tuple[str, ...], fields: Any) -> None:
        self.names = names
        self.fields = fields
        super().__init__(name=f"xChangeLayer({', '.join(names)}: {fields})")

    @property
    def key(self) -> Any:
        return self.names, self.fields


def type_of(x: xChangeLayer, names: Sequence[str]) -> XChangeType:
    """Return the numba type of an object that is passed with these fields."""
    return XChangeType(tuple(names), numba.typeof(tuple(x.__dict__[n] for n in names)))


@extending.typeof_impl.register(xChangeLayer)
def _typeof(x: xChangeLayer, _context: Any) -> XChangeType:
    """Return the type with all fields, for plain Python that passes x to a compiled helper: it may use any field."""
    x.__dict__["_fields"] = tuple(x.__dict__[name] for name in COMPILED)
    return type_of(x, COMPILED)


@extending.register_model(XChangeType)
class _XChangeModel(extending.models.StructModel):
    def __init__(self, manager: Any, type: XChangeType) -> None:
        super().__init__(manager, type, [("fields", type.fields)])


@extending.infer_getattr
class _Attributes(AttributeTemplate):
    key = XChangeType

    def generic_resolve(self, type: XChangeType, name: str) -> Any:
        return type.fields[type.names.index(name)] if name in type.names else None


@extending.lower_getattr_generic(XChangeType)
def _getattr(context: Any, builder: Any, type: XChangeType, value: Any, name: str) -> Any:
    struct = cgutils.create_struct_proxy(type)(context, builder, value=value)
    slot = type.names.index(name)
    return imputils.impl_ret_borrowed(context, builder, type.fields[slot], builder.extract_value(struct.fields, slot))


@extending.unbox(XChangeType)
def _unbox(type: XChangeType, value: Any, c: Any) -> extending.NativeValue:
    packed = c.pyapi.object_getattr_string(value, "_fields")  # a tuple in the order of type.names
    native = c.unbox(type.fields, packed)
    struct = cgutils.create_struct_proxy(type)(c.context, c.builder)
    struct.fields = native.value
    c.pyapi.decref(packed)  # x still owns the arrays
    return extending.NativeValue(struct._getvalue(), is_error=native.is_error, cleanup=native.cleanup)
