"""``chai.custom.opencl``: a layer type whose kernels are given in Python, as TIM-VX's customised operators are."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import PluginError
from ...limits import limits
from ...util.files import content
from ...util.keywords import function_of
from ...util.lazy_numpy import np
from ..arguments import is_size
from ..definition import Arity, CustomOptions, CustomType
from ..failure import report, run
from ..registry import enter
from . import half, rendering
from .formula import DIMS, Formula, FormulaError
from .kernel import Bound
from .parameters import KernelParameter, kernels
from .plan import BufferCopy, Launch, LaunchPlan, check_work

if TYPE_CHECKING:
    from ...blob import Shape
    from ...graph import OutputKind
    from ..fields import Called
    from ..xchange import xChangeLayer

Sizes = str | Sequence[int] | Callable[..., Sequence[int]]
Select = Callable[..., str | tuple[str, str]]
SCALARS = {
    "char": "int8",
    "uchar": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "float": "float32",
    "half": "float32",
    "double": "float64",
}  # numpy's names of OpenCL's types


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

    def check_functions(self, custom: CustomType) -> None:
        """Raise PluginError for a function whose arguments are not those of the type."""
        for name in ("select", "global_size", "local_size", "scalars"):
            if callable(function := getattr(self, name)):
                custom.check(function, name)


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
    function = Functions(declaration, place)
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
    custom.arity = Arity(first_shape=True)
    if "int8" in dtypes:
        custom.impl("codes", dtype="int8", jit=False)(function)
    declaration.check_functions(custom)
    enter(custom, declaration.replace)
    return custom


class Functions:
    """The function of a custom type that is computed by one kernel of a source, which ``select`` names."""

    way = "opencl"

    def __init__(self, declaration: KernelDeclaration, place: str) -> None:
        self.__name__, self.place = declaration.type, place
        self.select, self.scalars = declaration.select, declaration.scalars
        self.sizes = declaration.global_size, declaration.local_size
        source = declaration.source
        self.text = content(source, "kernel_bytes").decode() if isinstance(source, Path) else source
        self.file = str(source) if isinstance(source, Path) else rendering.TEXT
        if len(self.text) > limits().kernel_bytes:
            raise PluginError(f"{place}: source: " + limits().exceeded("kernel_bytes", len(self.text)))
        self.kernels = kernels(self.text)
        if not self.kernels or (self.select is None and len(self.kernels) > 1):
            names = ", ".join(self.kernels) or "none"
            raise PluginError(
                f"{place}: kernels of {declaration.type!r}: {names}; expected one, or select=",
                hint="__kernel void ...",
            )

    def __call__(self, x: xChangeLayer) -> None:
        raise PluginError(f"{self.place}: a kernel runs as part of a layer only", hint="chai.run_layer")

    def bind(self, layer: Called, bottoms: Sequence[Shape], tops: Sequence[Shape], x: xChangeLayer) -> Bound:
        """Return the function for a layer with inputs of these shapes. Raises PluginError for what does not fit."""
        return Bound(layer, self.place, FunctionPlanner(self, layer, bottoms, tops, x))


class FunctionPlanner:
    """Planner of the kernel that is selected for these sizes and numbers. Raises PluginError for what does not fit."""

    def __init__(
        self, functions: Functions, layer: Called, bottoms: Sequence[Shape], tops: Sequence[Shape], x: xChangeLayer
    ) -> None:
        self.functions, self.layer, self.x = functions, layer, x
        self.bottoms, self.tops = bottoms, tops
        self.values = layer.named(bottoms, tops)
        for shape in (*bottoms, *tops):
            if len(shape) > len(DIMS):
                raise self._wrong(f"a blob of {len(shape)} axes, OpenCL layers take at most {len(DIMS)}")
        self.entry, self.options = self._selected()
        scalars = self._called(functions.scalars) if functions.scalars is not None else {}
        self.values = {**self.values, **scalars}
        sizes, local = (self._sizes(scalars) for scalars in functions.sizes)
        if not sizes or len(sizes) > 3 or (local and len(local) != len(sizes)) or min((*sizes, *local)) < 1:
            raise self._wrong(f"global_size {sizes}, local_size {local}: expected one to three sizes, each at least 1")
        self.work = check_work(sizes, local, self._wrong)
        half.check([(functions.file, functions.text)], self._wrong)

    def source(self) -> str:
        return rendering.plain([(self.functions.file, self.functions.text)])

    def plan(self) -> LaunchPlan:
        plan = LaunchPlan(dtype=self.x.in_ptrs[0].dtype.name)
        parameters = self.functions.kernels[self.entry]
        memory = iter(self._memory(plan, [p for p in parameters if p.pointer or p.image]))
        arguments = tuple(next(memory) if p.pointer or p.image else self._scalar(p) for p in parameters)
        launch = Launch(self.entry, self.source(), self.options, arguments, *self.work, None, self.functions.place)
        plan.launches.append(launch)
        return plan

    def _wrong(self, reason: str, hint: str | None = None) -> PluginError:
        return report(self.layer.where, self.functions.place, reason, hint)

    def _called(self, function: Callable[..., Any]) -> Any:
        arguments = self.layer.custom.call(function, self.x, self.values)
        return run(self.layer.where, lambda: function(*arguments), function)

    def _selected(self) -> tuple[str, str]:
        functions = self.functions
        if functions.select is None:
            return next(iter(functions.kernels)), ""
        choice = self._called(functions.select)
        name, options = choice if isinstance(choice, tuple) and len(choice) == 2 else (choice, "")
        if name not in functions.kernels or not isinstance(options, str):
            known = ", ".join(functions.kernels)
            raise self._wrong(f"select returned {choice!r}, expected a kernel, or it and options", f"kernels: {known}")
        return name, options

    def _sizes(self, given: Sizes) -> tuple[int, ...]:
        if isinstance(given, str):
            try:
                formulas = [Formula(part) for part in given.split(",") if given.strip()]
                return tuple(formula.value(rendering.dims(self.tops[0])) for formula in formulas)
            except FormulaError as error:
                raise self._wrong(f"{given!r}: {error}") from None
        sizes = self._called(given) if callable(given) else given
        try:
            return tuple(int(size) for size in sizes)
        except (TypeError, ValueError):
            raise self._wrong(f"work sizes {sizes!r}: expected whole numbers") from None

    def _scalar(self, parameter: KernelParameter) -> Mapping[str, Any]:
        words = parameter.type.replace("unsigned ", "u").replace("size_t", "ulong").split()
        kind = next((SCALARS[word] for word in words if word in SCALARS), None)
        if kind is None:
            raise self._wrong(f"parameter {parameter.name!r} of kernel {self.entry!r} is of type {parameter.type!r}")
        if parameter.name not in self.values:
            known = ", ".join(self.values) or "none"
            reason = f"parameter {parameter.name!r} of kernel {self.entry!r} is no argument"
            raise self._wrong(reason, f"args={{{parameter.name!r}: default}}; arguments: {known}")
        value = self.values[parameter.name]
        try:
            number = float(value) if kind.startswith("float") else int(value)
            np.dtype(kind).type(number)
        except (TypeError, ValueError, OverflowError):
            raise self._wrong(f"parameter {parameter.name!r}: expected {kind}, found {value!r}") from None
        return {"type": kind, "value": number}

    def _memory(self, plan: LaunchPlan, parameters: list[KernelParameter]) -> list[Mapping[str, Any]]:
        """Return the arguments for pointers and images: bottoms, trained parameters, tops."""
        inputs, outputs = len(self.bottoms), len(self.tops)
        trained = self.layer.constants()["custom_float_params"]
        wanted = len(parameters) - inputs - outputs
        if wanted not in (0, len(trained)):
            has = f"bottoms {inputs}, trained parameters {len(trained)}, tops {outputs}"
            raise self._wrong(f"kernel {self.entry!r} has {len(parameters)} pointers and images; its layer has: {has}")
        found: list[Mapping[str, Any]] = []
        for index, parameter in enumerate(parameters):
            top = index - (len(parameters) - outputs)
            if re.search(r"\b(__)?local\b", parameter.type):
                raise self._wrong(f"parameter {parameter.name!r} is local memory: declare it inside of the kernel")
            if inputs <= index and top < 0:
                found.append({"region": plan.constant(trained[index - inputs])})
                continue
            if (top >= 0) != parameter.written and (parameter.image or top >= 0):
                role = f"top {top}" if top >= 0 else f"bottom {index}"
                raise self._wrong(f"parameter {parameter.name!r} of type {parameter.type!r} is to be {role}")
            blob, copies = (top, plan.outputs) if top >= 0 else (index, plan.inputs)
            found.append(self._blob(plan, copies, blob, parameter))
        return found

    def _blob(
        self, plan: LaunchPlan, copies: list[BufferCopy], blob: int, parameter: KernelParameter
    ) -> Mapping[str, Any]:
        shape = tuple(rendering.dims((self.tops if copies is plan.outputs else self.bottoms)[blob]).values())
        buffer = plan.buffer(np.dtype(plan.dtype).itemsize * prod(shape))
        copies.append(BufferCopy(blob, buffer, (0, 1, 2, 3), shape))
        if not parameter.image:
            return {"region": buffer}
        if "image2d_array_t" not in parameter.type:
            raise self._wrong(
                f"parameter {parameter.name!r} is {parameter.type}: expected an image2d_array_t or a pointer"
            )
        b, f, y, x = shape
        return {"region": buffer, "shape": (x, y, b * f), "type": plan.dtype, "written": parameter.written}
