"""Plan the kernels of a description for one layer and its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import PluginError
from ...limits import limits
from ..failure import report
from . import half, rendering
from .description import Buffer, Description, Given, Port, Size, Stage, Tensor, Trained
from .formula import DIMS, Formula, FormulaError
from .plan import BufferCopy, Launch, LaunchPlan, check_work, scalar

if TYPE_CHECKING:
    from ...blob import Shape
    from ..fields import Called


class DescriptionPlanner:
    """Planner of the stages of a description. Raises PluginError for what does not fit."""

    def __init__(
        self, description: Description, layer: Called, bottoms: Sequence[Shape], tops: Sequence[Shape]
    ) -> None:
        self.description, self.layer = description, layer
        self.shapes = {"input": bottoms, "output": tops}
        self.values = layer.named(bottoms, tops)
        has, writes = len(tops), description.ports["output"]
        if has != writes:
            raise self._wrong(f"its kernels write {writes} tops, the layer has {has}", description.stages[0])
        try:
            self.dims = {
                Port(side, i): rendering.dims(shape)
                for side, shapes in self.shapes.items()
                for i, shape in enumerate(shapes)
            }
        except ValueError as error:
            raise self._wrong(str(error), description.stages[0]) from None
        self.works = [self._work(stage) for stage in description.stages]
        self.sources = [self._source(*pair) for pair in zip(description.stages, self.works)]

    def source(self) -> str:
        return "\n".join(self.sources)

    def plan(self) -> LaunchPlan:
        plan = LaunchPlan()
        buffers: dict[Any, int] = {}
        for stage, (sizes, local), source in zip(self.description.stages, self.works, self.sources):
            arguments = tuple(self._argument(binding, stage, plan, buffers) for binding in stage.bindings)
            plan.launches.append(
                Launch(stage.entry, source, stage.options, arguments, sizes, local, stage.threads, stage.place)
            )
        return plan

    def _wrong(self, reason: str, stage: Stage, hint: str | None = None) -> PluginError:
        return report(self.layer.where, stage.place, reason, hint)

    # -- sources and work sizes

    def _work(self, stage: Stage) -> tuple[tuple[int, ...], tuple[int, ...]]:
        for port in (stage.work.port, *(b.port for b in stage.bindings if isinstance(b, (Tensor, Size, Buffer)))):
            if port not in self.dims:
                blobs, count = "bottom" if port.side == "input" else "top", len(self.shapes[port.side])
                what = f"{port.side} {port.number} of its kernel: the layer has {count} {blobs}{'s' * (count != 1)}"
                raise self._wrong(what, stage)
        dims = self.dims[stage.work.port]
        sizes = [self._positive("global", formula, dims, stage) for formula in stage.work.sizes]
        local = [self._positive("local", formula, dims, stage) for formula in stage.work.local]
        return check_work(sizes, local, lambda reason: self._wrong(reason, stage))

    def _positive(self, what: str, formula: Formula, dims: rendering.Sizes, stage: Stage) -> int:
        size = self._value(formula, dims, stage)
        if size < 1:
            shown = ", ".join(f"{dim} {value}" for dim, value in dims.items())
            expected = f"{what} work size {formula.text.strip()!r} is {size} for {shown}; expected at least 1"
            raise self._wrong(expected, stage)
        return size

    def _value(self, formula: Formula, dims: rendering.Sizes, stage: Stage) -> int:
        try:
            return formula.value(dims)
        except FormulaError as error:
            raise self._wrong(f"{formula.text.strip()!r}: {error}", stage) from None

    def _source(self, stage: Stage, work: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
        half.check(stage.texts, lambda reason, hint: self._wrong(reason, stage, hint))
        try:
            return rendering.text(stage, self.dims, self.values, *work)
        except PluginError as error:
            raise self._wrong(error.message, stage) from None

    # -- arguments

    def _argument(self, binding: Any, stage: Stage, plan: LaunchPlan, buffers: dict[Any, int]) -> Mapping[str, Any]:
        if isinstance(binding, Size):
            return scalar("int", self.dims[binding.port][binding.dim])
        if isinstance(binding, Given):
            return scalar(binding.kind, self.values[binding.name])
        key = binding.number if isinstance(binding, Buffer) else binding
        if key not in buffers:
            buffers[key] = self._added(binding, stage, plan)
        elif isinstance(binding, Buffer):
            sizes = plan.sizes[buffers[key]], self._bytes(binding, stage)
            if sizes[0] != sizes[1]:
                raise self._wrong(f"buffer {key} has {sizes[1]} bytes here and {sizes[0]} before", stage)
        return {"region": buffers[key]}

    def _bytes(self, buffer: Buffer, stage: Stage) -> int:
        """Return the size of a buffer."""
        size = self._value(buffer.size, self.dims[buffer.port], stage)
        if not 0 < size <= limits().activation_bytes:
            raise self._wrong(f"a buffer of {size} bytes ({buffer.size.text})", stage)
        return size

    def _added(self, binding: Tensor | Trained | Buffer, stage: Stage, plan: LaunchPlan) -> int:
        """Add the memory of an argument, and what is copied there; return its index."""
        if isinstance(binding, Buffer):
            return plan.buffer(self._bytes(binding, stage))
        if isinstance(binding, Trained):
            blobs = self.layer.constants()["custom_float_params"]
            if binding.blob >= len(blobs):
                trained = f"the layer has {len(blobs)} trained parameters"
                raise self._wrong(f"{binding.name}: {trained}", stage, "was its caffemodel loaded?")
            return plan.constant(blobs[binding.blob])
        shape = tuple(self.dims[binding.port].values())
        order = DIMS if binding.format == "ANY" else binding.format
        axes = tuple(DIMS.index(dim) for dim in order)
        buffer = plan.buffer(4 * prod(shape))
        copies = plan.inputs if binding.port.side == "input" else plan.outputs
        copies.append(BufferCopy(binding.port.number, buffer, axes, tuple(shape[a] for a in axes)))
        return buffer
