"""``chai.custom.opencl``: a layer type whose kernels are given in Python, as TIM-VX's customised operators are."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import PluginError
from ...graph import OutputKind
from ...limits import limits
from ...util.files import content, decoded
from ...util.keywords import function_of
from ...util.lazy_numpy import np
from ..arguments import is_size
from ..definition import CustomOptions, CustomType
from ..failure import run
from ..fields import Called
from ..registry import enter
from ..xchange import xChangeLayer
from . import rendering
from .description import Port
from .formula import DIMS, Formula, FormulaError
from .kernel import BoundKernels, Kernels, Launch, LaunchPlan
from .parameters import KernelParameter, kernels

Sizes = str | Sequence[int] | Callable[..., Sequence[int]]
Select = Callable[..., str | tuple[str, str]]
INTEGERS = {"char": 8, "short": 16, "int": 32, "long": 64}  # bits
SCALARS = {  # numpy's names of OpenCL's types
    **{f"{sign}{kind}": f"{sign}int{bits}" for kind, bits in INTEGERS.items() for sign in ("", "u")},
    "float": "float32",
    "half": "float32",
    "double": "float64",
}


@dataclass(frozen=True)
class KernelDeclaration:
    """The arguments of ``opencl``, which describes them."""

    type: str
    source: str | Path
    _: KW_ONLY
    args: Mapping[str, Any] | None = None
    select: Select | None = None
    global_size: Sizes = "B*F*Y*X"
    local_size: Sizes = ""
    scalars: Callable[..., Mapping[str, float]] | None = None
    dtypes: Sequence[str] = ("float32",)
    override: bool | None = None
    version: str = ""
    output: OutputKind | None = None
    replace: bool = False

    @property
    def per_image(self) -> bool:
        """Return whether a kernel computes one image: formulas give its sizes, and neither they nor an argument the batch."""
        sizes = self.global_size, self.local_size
        formulas = [size for size in sizes if isinstance(size, str)]
        named = filter(is_size, self.args.values() if isinstance(self.args, Mapping) else ())
        return len(formulas) == len(sizes) and not any("B" in text for text in (*formulas, *named))


@function_of(KernelDeclaration)
def opencl(declaration: KernelDeclaration) -> CustomType:
    """Register kernels in OpenCL as the custom layer of a prototxt ``type``; return it, for ``@f.shape``.

    A kernel's pointers and images are the bottoms, the trained parameters and the tops, in this order; its other
    parameters are taken by their names from ``args`` and ``scalars``. An image is an ``image2d_array_t`` with a row of
    X, Y rows, and a layer per channel and image; a pointer is to dense NCHW. The tops have the first bottom's shape,
    unless ``top_dim`` or ``@f.shape`` says otherwise.

    ``source``       OpenCL C text, or a Path of a file; it may have several kernels
    ``args``         named arguments {name: default}, as in ``@chai.custom``
    ``select``       function of x and named arguments that returns the kernel's name, or name and compiler options. It sees
                     sizes and ``x.in_ptrs[0].dtype``. Not needed if there is one kernel
    ``global_size``, ``local_size``   formulas over B, F, Y, X of the first top ("X,Y,B*F"), numbers, or a function of x and
                     named arguments that returns numbers; without local sizes OpenCL chooses. Formulas without B: the
                     kernel runs once per image, unless an argument is the batch
    ``scalars``      function of x and named arguments that returns further scalars by name
    ``dtypes``       numbers that the kernels take, each an implementation: "float32", and "int8" for the overlay's codes
    ``override``, ``version``, ``output``, ``replace``   as in ``@chai.custom``

    Raises PluginError with the place of the call.
    """
    frame = sys._getframe(2)  # of the caller: one is between, which takes the keywords
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    source = _source(declaration, place)
    parts = source[1], declaration.select, declaration.global_size, declaration.local_size, declaration.scalars
    function = Kernels(declaration.type, place, partial(FunctionKernels, declaration, source, place), parts)
    function.__module__ = frame.f_globals.get("__name__", "")
    dtypes = declaration.dtypes
    if tuple(dtypes)[:1] != ("float32",) or not {*dtypes} <= {"float32", "int8"}:
        raise PluginError(f'{place}: dtypes {dtypes!r}: expected ("float32",) or ("float32", "int8")')
    options = CustomOptions(
        args=declaration.args,
        override=declaration.override,
        per_image=declaration.per_image,
        version=declaration.version,
        output=declaration.output,
    )
    custom = CustomType(declaration.type, function, False, options)
    custom.first_shape = True
    if "int8" in dtypes:
        custom.impl("codes", dtype="int8", jit=False)(function)
    for name in ("select", "global_size", "local_size", "scalars"):
        if callable(called := getattr(declaration, name)):
            custom.check(called, name)
    enter(custom, declaration.replace)
    return custom


def _source(declaration: KernelDeclaration, place: str) -> tuple[str, str]:
    """Return the name and text of the source."""
    source = declaration.source
    text = decoded(content(source, "kernel_bytes"), source) if isinstance(source, Path) else source
    if len(text) > limits().kernel_bytes:
        raise PluginError(f"{place}: source: " + limits().exceeded("kernel_bytes", len(text)))
    entries = kernels(text)
    if not entries or (declaration.select is None and len(entries) > 1):
        names = ", ".join(entries) or "none"
        raise PluginError(
            f"{place}: kernels of {declaration.type!r}: {names}; expected one, or select=", hint="__kernel void ..."
        )
    return str(source) if isinstance(source, Path) else rendering.TEXT, text


class FunctionKernels(BoundKernels):
    """The kernel that is selected for these sizes and numbers."""

    def __init__(
        self, declaration: KernelDeclaration, source: tuple[str, str], place: str, layer: Called, x: xChangeLayer
    ) -> None:
        super().__init__(place, layer, x)
        self.kernels, self.opencl_source = kernels(source[1]), rendering.plain([source])
        self.entry, self.options = self._selected(declaration.select)
        scalars = self._called(declaration.scalars) if declaration.scalars is not None else {}
        if not isinstance(scalars, Mapping):
            raise self.wrong(f"scalars returned {scalars!r}, expected numbers by name", 'scalars=lambda x: {"n": 4}')
        self.values = {**self.values, **scalars}
        sizes, local = (self._sizes(each) for each in (declaration.global_size, declaration.local_size))
        if not sizes or len(sizes) > 3 or (local and len(local) != len(sizes)) or min((*sizes, *local)) < 1:
            raise self.wrong(f"global_size {sizes}, local_size {local}: expected one to three sizes, each at least 1")
        self.check([source], sizes, local)
        self.work = sizes, local

    def planned(self) -> LaunchPlan:
        plan = LaunchPlan(dtype=self.x.in_ptrs[0].dtype.name)
        parameters = self.kernels[self.entry]
        memory = iter(self._regions(plan, [p for p in parameters if p.pointer or p.image]))
        arguments = tuple(next(memory) if p.pointer or p.image else self._scalar(p) for p in parameters)
        launch = Launch(self.entry, self.opencl_source, self.options, arguments, *self.work, None, self.place)
        plan.launches.append(launch)
        return plan

    def _called(self, function: Callable[..., Any]) -> Any:
        arguments = self.layer.custom.call(function, self.x, self.values)
        return run(self.layer.where, lambda: function(*arguments), function)

    def _selected(self, select: Select | None) -> tuple[str, str]:
        if select is None:
            return next(iter(self.kernels)), ""
        choice = self._called(select)
        name, options = choice if isinstance(choice, tuple) and len(choice) == 2 else (choice, "")
        if not (isinstance(name, str) and name in self.kernels and isinstance(options, str)):
            known = ", ".join(self.kernels)
            raise self.wrong(f"select returned {choice!r}, expected a kernel, or it and options", f"kernels: {known}")
        return name, options

    def _sizes(self, declared: Sizes) -> tuple[int, ...]:
        if isinstance(declared, str):
            try:
                formulas = [Formula(part) for part in declared.split(",") if declared.strip()]
                return tuple(formula.value(self.dims[Port("output", 0)]) for formula in formulas)
            except FormulaError as error:
                raise self.wrong(f"{declared!r}: {error}") from None
        sizes = self._called(declared) if callable(declared) else declared
        try:
            return tuple(int(size) for size in sizes)
        except (TypeError, ValueError, OverflowError):
            raise self.wrong(f"work sizes {sizes!r}: expected whole numbers") from None

    def _scalar(self, parameter: KernelParameter) -> Mapping[str, Any]:
        words = parameter.type.replace("unsigned ", "u").replace("size_t", "ulong").split()
        kind = next((SCALARS[word] for word in words if word in SCALARS), None)
        if kind is None:
            raise self.wrong(f"parameter {parameter.name!r} of kernel {self.entry!r} is of type {parameter.type!r}")
        if parameter.name not in self.values:
            known = ", ".join(self.values) or "none"
            reason = f"parameter {parameter.name!r} of kernel {self.entry!r} is no argument"
            raise self.wrong(reason, f"args={{{parameter.name!r}: default}}; arguments: {known}")
        value = self.values[parameter.name]
        try:
            number = float(value) if kind.startswith("float") else int(value)
            np.dtype(kind).type(number)
        except (TypeError, ValueError, OverflowError):
            raise self.wrong(f"parameter {parameter.name!r}: expected {kind}, found {value!r}") from None
        return {"type": kind, "value": number}

    def _regions(self, plan: LaunchPlan, parameters: list[KernelParameter]) -> list[Mapping[str, Any]]:
        """Return the arguments for pointers and images: bottoms, trained parameters, tops."""
        inputs, outputs = len(self.shapes["input"]), len(self.shapes["output"])
        trained = self.x.custom_float_params
        wanted = len(parameters) - inputs - outputs
        if wanted not in (0, len(trained)):
            has = f"bottoms {inputs}, trained parameters {len(trained)}, tops {outputs}"
            raise self.wrong(f"kernel {self.entry!r} has {len(parameters)} pointers and images; its layer has: {has}")
        regions: list[Mapping[str, Any]] = []
        for index, parameter in enumerate(parameters):
            top = index - (len(parameters) - outputs)
            if re.search(r"\b(__)?local\b", parameter.type):
                raise self.wrong(f"parameter {parameter.name!r} is local memory: declare it inside of the kernel")
            if inputs <= index and top < 0:
                regions.append({"region": plan.constant(trained[index - inputs])})
                continue
            if (top >= 0) != parameter.written and (parameter.image or top >= 0):
                role = f"top {top}" if top >= 0 else f"bottom {index}"
                raise self.wrong(f"parameter {parameter.name!r} of type {parameter.type!r} is to be {role}")
            regions.append(self._argument(plan, Port("output", top) if top >= 0 else Port("input", index), parameter))
        return regions

    def _argument(self, plan: LaunchPlan, port: Port, parameter: KernelParameter) -> Mapping[str, Any]:
        buffer = self.blob(plan, port, DIMS)
        if not parameter.image:
            return {"region": buffer}
        if "image2d_array_t" not in parameter.type:
            raise self.wrong(
                f"parameter {parameter.name!r} is {parameter.type}: expected an image2d_array_t or a pointer"
            )
        b, f, y, x = self.dims[port].values()
        return {"region": buffer, "shape": (x, y, b * f), "type": plan.dtype, "written": parameter.written}
