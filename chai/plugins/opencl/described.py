"""The layer types of an XML file, and the plan of their kernels for one layer and its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import PluginError
from ...limits import limits
from ...text import number_of
from ...util.lazy_numpy import np
from ..definition import CustomOptions, CustomType
from ..fields import Called
from ..registry import Registry
from ..xchange import xChangeLayer
from . import rendering
from .description import Buffer, Description, Given, Size, Stage, Tensor, Trained
from .formula import DIMS, Formula, FormulaError
from .kernel import BoundKernels, Kernels, Launch, LaunchPlan
from .reading import read


def register(path: Path, into: Registry) -> None:
    """Register every layer type of an XML file. Raises ParseError with line and column.

    As the user named the file, its types also compute the layers of built-in types.
    """
    descriptions = read(path)
    into.named[path] = tuple(file for description in descriptions for file in description.files)
    for description in descriptions:
        options = CustomOptions(args=arguments(description), override=True, per_image=description.per_image)
        texts = [text for stage in description.stages for _, text in stage.texts]
        function = Kernels(description.type, description.place, partial(DescribedKernels, description), texts)
        custom = CustomType(description.type, function, False, options)
        custom.first_shape = True
        into.register(custom)


def arguments(description: Description) -> dict[str, Any]:
    """Return the named arguments of a layer, with their defaults: of its Defines and Scalars, in their order."""
    arguments_of: dict[str, Any] = {}
    for stage in description.stages:
        for define in stage.defines:
            if define.param:
                arguments_of.setdefault(define.param, _default(define.kind, define.default))
        for binding in stage.bindings:
            if isinstance(binding, Given):
                arguments_of.setdefault(binding.name, {"int": int, "float": float}[binding.kind])
    return arguments_of


def _default(kind: str, text: str | None) -> Any:
    """Return the default of an argument; its type if there is none and it has to be given."""
    if not kind:
        return text or ""
    if text is None:
        return {"int": int, "float": float}.get(kind, tuple)
    try:
        numbers = tuple(float(item.strip().removesuffix("f")) for item in text.split(","))
        return numbers if kind.endswith("[]") else int(numbers[0]) if kind == "int" else numbers[0]
    except (ValueError, OverflowError):  # OverflowError: infinity, which no int is
        return text  # the name of a constant


class DescribedKernels(BoundKernels):
    """The stages of a description."""

    def __init__(self, description: Description, layer: Called, x: xChangeLayer) -> None:
        super().__init__(description.place, layer, x)
        has, writes = len(self.shapes["output"]), description.tops
        if has != writes:
            raise self.wrong(f"its kernels write {number_of(writes, 'top')}, the layer has {has}")
        self.parts = [(stage, *self._part(stage)) for stage in description.stages]
        self.opencl_source = "\n".join(source for *_, source in self.parts)

    def planned(self) -> LaunchPlan:
        plan = LaunchPlan()
        buffers: dict[Any, int] = {}
        for stage, sizes, local, source in self.parts:
            arguments = tuple(self._argument(binding, stage, plan, buffers) for binding in stage.bindings)
            plan.launches.append(
                Launch(stage.entry, source, stage.options, arguments, sizes, local, stage.threads, stage.place)
            )
        return plan

    # -- sources and work sizes

    def _part(self, stage: Stage) -> tuple[tuple[int, ...], tuple[int, ...], str]:
        """Return the global and local work sizes of a stage, and its source."""
        for port in (stage.port, *(b.port for b in stage.bindings if isinstance(b, (Tensor, Size, Buffer)))):
            if port not in self.dims:
                blob, count = "bottom" if port.side == "input" else "top", len(self.shapes[port.side])
                what = f"{port.side} {port.number} of its kernel: the layer has {number_of(count, blob)}"
                raise self.wrong(what, place=stage.place)
        dims = self.dims[stage.port]
        sizes = tuple(self._positive("global", formula, dims, stage) for formula in stage.sizes)
        local = tuple(self._positive("local", formula, dims, stage) for formula in stage.local)
        self.check(stage.texts, sizes, local, stage.place)
        try:
            return sizes, local, rendering.text(stage, self.dims, self.values, sizes, local)
        except PluginError as error:
            raise self.wrong(error.message, place=stage.place) from None

    def _positive(self, what: str, formula: Formula, dims: rendering.Sizes, stage: Stage) -> int:
        size = self._value(formula, dims, stage)
        if size < 1:
            shown = ", ".join(f"{dim} {value}" for dim, value in dims.items())
            expected = f"{what} work size {formula.text.strip()!r} is {size} for {shown}; expected at least 1"
            raise self.wrong(expected, place=stage.place)
        return size

    def _value(self, formula: Formula, dims: rendering.Sizes, stage: Stage) -> int:
        try:
            return formula.value(dims)
        except FormulaError as error:
            raise self.wrong(f"{formula.text.strip()!r}: {error}", place=stage.place) from None

    # -- arguments

    def _argument(self, binding: Any, stage: Stage, plan: LaunchPlan, buffers: dict[Any, int]) -> Mapping[str, Any]:
        if isinstance(binding, Size):
            return {"type": "int32", "value": self.dims[binding.port][binding.dim]}
        if isinstance(binding, Given):
            value = self.values[binding.name]
            return {
                "type": f"{binding.kind}32",
                "value": int(value) if binding.kind == "int" else float(np.float32(value)),
            }
        key = binding.number if isinstance(binding, Buffer) else binding
        if key not in buffers:
            buffers[key] = self._added(binding, stage, plan)
        elif isinstance(binding, Buffer):
            sizes = plan.sizes[buffers[key]], self._bytes(binding, stage)
            if sizes[0] != sizes[1]:
                what = f"buffer {key} has {sizes[1]} bytes here and {sizes[0]} before"
                raise self.wrong(what, place=stage.place)
        return {"region": buffers[key]}

    def _bytes(self, buffer: Buffer, stage: Stage) -> int:
        """Return the size of a buffer."""
        size = self._value(buffer.size, self.dims[buffer.port], stage)
        if not 0 < size <= limits().activation_bytes:
            raise self.wrong(f"a buffer of {size} bytes ({buffer.size.text})", place=stage.place)
        return size

    def _added(self, binding: Tensor | Trained | Buffer, stage: Stage, plan: LaunchPlan) -> int:
        """Add the memory of an argument; return its index."""
        if isinstance(binding, Buffer):
            return plan.buffer(self._bytes(binding, stage))
        if isinstance(binding, Tensor):
            return self.blob(plan, binding.port, DIMS if binding.format == "ANY" else binding.format)
        blobs = self.x.custom_float_params
        if binding.blob >= len(blobs):
            what = f"{binding.name}: the layer has {number_of(len(blobs), 'trained parameter')}"
            raise self.wrong(what, "was its caffemodel loaded?", stage.place)
        return plan.constant(blobs[binding.blob])
