"""Plan the kernels of a layer for its sizes: sources, values of parameters, memory, and what is copied in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import PluginError
from ...limits import limits
from ...util.lazy_numpy import np
from . import half, rendering
from .description import Buffer, Given, Port, Size, Stage, Tensor, Trained, WorkSizes
from .formula import DIMS, Formula, FormulaError
from .worker.memory import Region, regions

if TYPE_CHECKING:
    from ...blob import Array, Shape
    from ..fields import Called

Dims = Mapping[Port, rendering.Sizes]


@dataclass(frozen=True)
class Launch:
    """One kernel with its arguments and work sizes; ``place`` is path:line of its description."""

    entry: str
    source: str
    options: str
    arguments: tuple[Mapping[str, Any], ...]
    sizes: tuple[int, ...]
    local: tuple[int, ...]
    threads: int | None
    place: str

    @property
    def spec(self) -> dict[str, Any]:
        """Return what the worker needs, for JSON."""
        return {
            "entry": self.entry,
            "source": self.source,
            "options": self.options,
            "arguments": self.arguments,
            "global": self.sizes,
            "local": self.local,
            "threads": self.threads,
        }


@dataclass(frozen=True)
class Copy:
    """Bottom or top ``blob`` in buffer ``buffer``, with its four axes in the order ``axes``."""

    blob: int
    buffer: int
    axes: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass
class Plan:
    """The kernels of a layer for its sizes. ``constants`` are copied into their buffers once."""

    launches: list[Launch] = field(default_factory=list)
    inputs: list[Copy] = field(default_factory=list)
    outputs: list[Copy] = field(default_factory=list)
    constants: list[tuple[int, Array]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # bytes of each buffer
    dtype: str = "float32"

    def buffer(self, size: int) -> int:
        """Add a buffer of ``size`` bytes, and return its index."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def layout(self) -> tuple[list[Region], int]:
        """Return the buffers' places in memory, and the memory's size."""
        return regions(self.sizes)

    def spec(self) -> dict[str, Any]:
        """Return what the worker needs, for JSON."""
        buffers, size = self.layout()
        return {
            "stages": [launch.spec for launch in self.launches],
            "regions": [(b.offset, b.size) for b in buffers],
            "bytes": size,
        }


class Planner:
    """Plans the stages of a description for one layer and its sizes. Raises PluginError for what does not fit."""

    def __init__(self, layer: Called, bottoms: Sequence[Shape], tops: Sequence[Shape], place: str) -> None:
        self.layer, self.place = layer, place
        self.shapes = {"input": bottoms, "output": tops}
        self.values = layer.named(bottoms, tops)
        self.plan = Plan()
        self._buffers: dict[Any, int] = {}
        try:
            self.dims = {
                Port(side, i): rendering.dims(shape)
                for side, shapes in self.shapes.items()
                for i, shape in enumerate(shapes)
            }
        except ValueError as error:
            raise self.wrong(str(error), place) from None

    def add(self, stage: Stage) -> None:
        """Plan one kernel more."""
        source, sizes, local = self.source(stage)
        arguments = tuple(self._argument(binding, stage) for binding in stage.bindings)
        launch = Launch(stage.entry, source, stage.options, arguments, sizes, local, stage.threads, stage.place)
        self.plan.launches.append(launch)

    def source(self, stage: Stage) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Return the whole text of a kernel, and its global and local work sizes."""
        for binding in stage.bindings:
            if isinstance(binding, (Tensor, Size, Buffer)):
                self._check_port(binding.port, stage.place)
        self._check_port(stage.work.port, stage.place)
        for name, text in stage.texts:
            found = half.bits(text)
            if found is not None:
                line, what, hint = found
                raise self.wrong(f"{name}:{line}: {what}; half is computed as float here", stage.place, hint)
        sizes, local = work(stage.work, self.dims[stage.work.port], lambda m: self.wrong(m, stage.place))
        try:
            return rendering.text(stage, self.dims, self.values, sizes, local), sizes, local
        except PluginError as error:
            raise self.wrong(error.message, stage.place) from None

    def finish(self, tops: int) -> Plan:
        """Return the plan, once all stages are there that write this number of tops."""
        has = len(self.shapes["output"])
        if tops != has:
            raise self.wrong(f"its kernels write {tops} tops, the layer has {has}", self.place)
        return self.plan

    def wrong(self, reason: str, place: str, hint: str | None = None) -> PluginError:
        """Return an error that names the layer and the place of the description."""
        from ..failure import report

        return report(self.layer.where, place, reason, hint)

    def _check_port(self, port: Port, place: str) -> None:
        if port not in self.dims:
            blobs = "bottom" if port.side == "input" else "top"
            count = len(self.shapes[port.side])
            what = f"{port.side} {port.number} of its kernel: the layer has {count} {blobs}{'s' * (count != 1)}"
            raise self.wrong(what, place)

    def _argument(self, binding: Any, stage: Stage) -> Mapping[str, Any]:
        if isinstance(binding, Size):
            return {"type": "int32", "value": self.dims[binding.port][binding.dim]}
        if isinstance(binding, Given):
            return scalar(binding.kind, self.values[binding.name])
        key = binding.number if isinstance(binding, Buffer) else binding
        if key not in self._buffers:
            self._buffers[key] = self._added(binding, stage)
        elif isinstance(binding, Buffer):
            sizes = self.plan.sizes[self._buffers[key]], self._bytes(binding, stage)
            if sizes[0] != sizes[1]:
                raise self.wrong(f"buffer {key} has {sizes[1]} bytes here and {sizes[0]} before", stage.place)
        return {"region": self._buffers[key]}

    def _bytes(self, buffer: Buffer, stage: Stage) -> int:
        """Return the size of a buffer."""
        size = _evaluated(buffer.size, self.dims[buffer.port], lambda m: self.wrong(m, stage.place))
        if not 0 < size <= limits().activation_bytes:
            raise self.wrong(f"a buffer of {size} bytes ({buffer.size.text})", stage.place)
        return size

    def _added(self, binding: Tensor | Trained | Buffer, stage: Stage) -> int:
        plan = self.plan
        if isinstance(binding, Buffer):
            return plan.buffer(self._bytes(binding, stage))
        if isinstance(binding, Trained):
            blobs = self.layer.constants()["custom_float_params"]
            if binding.blob >= len(blobs):
                trained = f"the layer has {len(blobs)} trained parameters"
                raise self.wrong(f"{binding.name}: {trained}", stage.place, "was its caffemodel loaded?")
            plan.constants.append((plan.buffer(blobs[binding.blob].nbytes), blobs[binding.blob]))
            return plan.constants[-1][0]
        shape = tuple(self.dims[binding.port].values())
        order = DIMS if binding.format == "ANY" else binding.format
        axes = tuple(DIMS.index(dim) for dim in order)
        copies = plan.inputs if binding.port.side == "input" else plan.outputs
        buffer = plan.buffer(4 * prod(shape))
        copies.append(Copy(binding.port.number, buffer, axes, tuple(shape[a] for a in axes)))
        return buffer


def scalar(kind: str, value: Any) -> Mapping[str, Any]:
    """Return the argument for a scalar parameter, ``kind`` int or float."""
    return {"type": f"{kind}32", "value": int(value) if kind == "int" else float(np.float32(value))}


def work(sizes: WorkSizes, dims: rendering.Sizes, wrong: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return global and local work sizes; ``wrong`` makes an error of a text."""
    items = [_positive("global", formula, dims, wrong) for formula in sizes.sizes]
    local = [_positive("local", formula, dims, wrong) for formula in sizes.local]
    return check_work(items, local, wrong)


def check_work(items: Sequence[int], local: Sequence[int], wrong: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return work sizes that OpenCL can take; raise ``wrong(text)`` for others."""
    if prod(items) > limits().kernel_items:
        shown = "x".join(map(str, items))
        raise wrong(f"global work size {shown}: " + limits().exceeded("kernel_items", prod(items)))
    for size, part in zip(items, local):
        if size % part:
            raise wrong(f"global work size {size} is no multiple of the local one, {part}")
    return tuple(items), tuple(local)


def _positive(what: str, formula: Formula, dims: rendering.Sizes, wrong: Any) -> int:
    size = _evaluated(formula, dims, wrong)
    if size < 1:
        shown = ", ".join(f"{dim} {value}" for dim, value in dims.items())
        raise wrong(f"{what} work size {formula.text.strip()!r} is {size} for {shown}; expected at least 1")
    return size


def _evaluated(formula: Formula, dims: rendering.Sizes, wrong: Any) -> int:
    try:
        return formula.value(dims)
    except FormulaError as error:
        raise wrong(f"{formula.text.strip()!r}: {error}") from None
