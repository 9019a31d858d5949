"""Tasks, the fixed-point operations of an overlay: each file of this folder defines one kind.

A Task's ``define`` is the executable specification in plain numpy: the emulator's kernels, the RTL and the board must
match its codes bit for bit. Activations are codes (int8) in NCHW; each device decides where to store them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from math import ceil, gcd, prod
from typing import TYPE_CHECKING, Any, ClassVar

from ..blob import Array, Shape, View
from ..errors import DeviceError
from ..overlay import EXACT, Overlay, TaskLimits
from ..overlay.layout import Span, planes, word_bytes
from ..overlay.sections import BEAT, RUN
from ..text import visible
from ..util.lazy_numpy import np
from ..util.paths import defined, modules
from ..util.rounding import ceil_div
from .waits import Waits, latency

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..overlay.weights import Piece
    from .fields import Operands, StridedBlob
    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """An operation that reads blobs and writes one. ``origin`` names the prototxt layers it runs.

    ``images`` (first, count) are those of its blobs that it works on; None for all. ``rows`` and ``columns`` (first, count) are
    those of its output that it computes; None for all. ``shared``: its weights are in the array's buffer, of the Task before it
    there; ``shares``: they stay for the next one. All these are for descriptors: the definition is that of all.
    ``zero_weights`` is the number of weights that are not a layer's but zeros added by a rewrite; ``macs`` leaves them out.
    ``lookup``, int8 (256,), is a table that its codes go through last: that of code c is at c + 128. None: they stay as they are.

    How to add a kind: add a file to this folder with a frozen dataclass derived from Task. It needs no registration.

    1. ``kind`` is its name in manifests, ``engine`` the half of the accelerator that runs it. ``define`` computes it in
       exact integers, slowly and obviously, and returns its codes ``looked_up``.
    2. A dataclass derived from ``overlay.TaskLimits`` declares its limits: ``limit_type``. Add the section of its name to
       each ``overlay.json`` that has the unit (with a new opcode) and to ``hw_overlays/overlay.schema.json``.
       ``demands`` returns what they are compared with, and ``excluded`` whatever else it cannot run.
    3. ``fields`` and ``from_fields`` write and read its descriptor, for ``operands`` inputs; ``constants`` returns what that
       refers to, ``table`` tells the size of a table there. Fields that kinds share are in ``tasks/fields.py``. Add new
       fields to the manifests, with a new version.
    4. ``working_cycles`` estimates its time if the window engine's rate does not; ``in_bands`` says whether a descriptor may
       have some rows; ``probes`` yields the Tasks that ``chai devices --test`` runs.
    5. A layer's ``lower`` returns it. A fast kernel for the emulator goes into ``chai/kernels/forms.py`` (in C) or
       ``chai/kernels/in_numpy.py``; without one the emulator runs ``define``.
    """

    kind: ClassVar[str]
    limit_type: ClassVar[type[TaskLimits]]
    engine: ClassVar[str] = "window"  # or "array"
    in_parts: ClassVar[bool] = False  # True if several Tasks of the kind may write one blob together
    operands: ClassVar[int] = 1  # blobs that a descriptor of the kind reads
    side_by_side: ClassVar[bool] = True  # False if the window engine takes one plane of a blob at a time
    banded: ClassVar[bool] = False  # whether a descriptor may have some rows of its output: see ``in_bands``
    table: ClassVar[slice | None] = None  # the axes of the output, of whose elements each has a record of the table
    inputs: tuple[str, ...]
    output: str
    origin: tuple[str, ...]
    images: Span | None = field(default=None, kw_only=True)
    rows: Span | None = field(default=None, kw_only=True)
    columns: Span | None = field(default=None, kw_only=True)
    shared: bool = field(default=False, kw_only=True)
    shares: bool = field(default=False, kw_only=True)
    zero_weights: int = field(default=0, kw_only=True)
    lookup: Array | None = field(default=None, kw_only=True)

    def define(self, *codes: Array) -> Array:
        """Return the output's codes (int8, NCHW) for the inputs' codes: the definition of this kind."""
        raise NotImplementedError

    @property
    def looks_up(self) -> bool:
        """Return whether its codes may go through a table, where its kind has them."""
        return True

    def looked_up(self, codes: Array) -> Array:
        """Return codes (int8) as they are after its table."""
        return codes if self.lookup is None else self.lookup[codes.astype(np.int64) + 128]

    def written(self, output: Array, shapes: Mapping[str, Shape]) -> Array:
        """Return the view of its output that the Task writes: all of its ``channels``."""
        first, count = self.channels(shapes)
        return output[:, first : first + count]

    def channels(self, shapes: Mapping[str, Shape]) -> tuple[int, int]:
        """Return the first channel of its output that it writes, and the number of channels."""
        return 0, shapes[self.output][1]

    def as_view(self) -> View | None:
        """Return the input's position in the output, for a Task that only copies codes; None if it changes codes."""
        return None

    def zero_points(self) -> tuple[int, ...] | None:
        """Return the zero points of its inputs and of its output; None if it works on codes whatever their zero point."""
        return None

    def __repr__(self) -> str:
        origin, inputs = "+".join(self.origin), ", ".join(self.inputs)
        return visible(f"<{self.kind} {origin!r}: {inputs} -> {self.output}>")

    # -- on an overlay

    @classmethod
    def limits(cls, overlay: Overlay) -> TaskLimits | None:
        """Return the limits of this kind in the overlay's manifest; None if it lacks the unit."""
        return overlay.limits(cls.kind, cls.limit_type)

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        """Return why the manifest excludes the Task on blobs of these shapes, with four axes; None if it does not."""
        limits, images = self.limits(overlay), self.batch(shapes)
        if limits is None:
            return f"overlay {overlay.name} has no {self.kind} unit"
        if images > overlay.batch_max:
            return f"{images} images are more than the overlay's {overlay.batch_max}"
        channels = size = 0
        for blob in (*self.inputs, self.output):
            _, c, h, w = shapes[blob]
            channels, size = max(channels, c), max(size, h, w)
        demands = {"channels": channels, "size": size, "lookup": self.lookup is not None, **self.demands(shapes)}
        return limits.excluded(self.kind, **demands)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        """Return what the limits of its kind are about, beside channels and sizes; see ``TaskLimits.excluded``."""
        return {}

    def macs(self, *shapes: Shape) -> int:
        """Return the multiply-accumulates for inputs of these shapes."""
        return 0

    def cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
        """Estimate clock cycles of its engine for blobs of these shapes: computing, and moving bytes meanwhile.

        No other Task uses the memory; ``codegen.cycles`` models two that do.
        """
        if overlay.own is not None:
            return overlay.own.cycles(overlay, self, shapes)
        moving = self.moving_cycles(overlay, shapes)
        computing = max(self.working_cycles(overlay, shapes), self.port_cycles(overlay, shapes))
        busy = computing + moving if self.takes_turns(overlay, shapes) else max(computing, moving)
        return ceil(busy) + overlay.overhead.task_cycles

    def working_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate cycles on the engine without memory traffic: by default of the window engine and its port.

        In a cycle the engine takes a word of each plane that goes side by side, each of its ports reads a beat, and one writes
        a word.
        """
        read, written = max(self.reads(overlay, shapes)), self.moved(overlay, shapes)[1]
        words = max(self.words_at_once(overlay, self.accessed(shapes, blob)) for blob in (*self.inputs, self.output))
        return max(read / overlay.ports.bytes, written / BEAT, words)

    def words_at_once(self, overlay: Overlay, shape: Shape) -> int:
        """Return the words of a blob of this shape, counting the words of planes that go side by side as one."""
        images, channels, *size = shape
        at_once = overlay.window.planes if self.side_by_side else 1
        return images * ceil_div(planes(channels, overlay.layout), at_once) * prod(size)

    def moving_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate cycles of the memory at its full rate."""
        return overlay.memory_cycles(sum(self.moved(overlay, shapes)) + self.constant_traffic(overlay, shapes))

    def port_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> float:
        """Estimate cycles of the busiest memory port, which has few bursts in flight; 0 if the manifest says nothing of it."""
        if overlay.memory_port is None:
            return 0.0
        _, writes = overlay.rates(*self.runs(overlay, shapes, self.output))
        outputs = overlay.ports.outputs
        if self.engine == "window":  # it writes a word a cycle
            writes, outputs = min(writes, overlay.moving), 1
        writing = self.moved(overlay, shapes)[1] / BEAT / outputs / writes
        return max(*self.reading_cycles(overlay, shapes), writing)

    def reading_cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[float, ...]:
        """Estimate the cycles in which each memory port, m0 to m3, reads what it does."""
        rate, _ = overlay.rates(*self.runs(overlay, shapes, self.inputs[0]))
        return tuple(read / BEAT / rate for read in self.reads(overlay, shapes))

    def runs(self, overlay: Overlay, shapes: Mapping[str, Shape], blob: str) -> tuple[int, int]:
        """Return the words of a run of a blob that it accesses, and of what each run begins at a multiple.

        The window engine has one for each plane, in pieces; the array's are longer.
        """
        if self.engine == "array":
            return RUN, 0
        height, width = shapes[blob][2:]
        rows = self.rows if blob == self.output else self.rows_read(shapes, blob)
        words, step = prod(self.accessed(shapes, blob)[2:]), gcd(height, rows[0] if rows else 0) * width
        # a piece that begins within a beat has a burst more; others are whole bursts
        return min(words, RUN) if step % overlay.ports.words else words, step

    def reads(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[float, float, float, float]:
        """Return the bytes that it reads through each memory port, m0 to m3; by default those of the window engine."""
        each = self.read_of_each(overlay, shapes)
        return (0, 0, 0, sum(each)) if overlay.ports.window == 1 else (sum(each[1:]), 0, 0, each[0])

    def waits(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Waits:
        """Estimate what its engine waits for: by default the window engine, for its first word and its last response."""
        cycles = self.cycles(overlay, shapes) - overlay.overhead.task_cycles
        return Waits(latency(overlay), cycles, latency(overlay))

    def strips(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Sequence[Span | None]:
        """Return the columns of its output that each of its descriptors has, in order: all, if its rows fit the overlay."""
        return (None,)

    def bands(self, overlay: Overlay, shapes: Mapping[str, Shape], most: int) -> Sequence[Span | None]:
        """Return the rows of its output that each of at most so many descriptors has, in order: all, if they cannot have some."""
        height = shapes[self.output][2]
        each = ceil_div(height, max(1, min(most, height // 2)))
        if each >= height or not overlay.window.bands or not self.in_bands(overlay, shapes):
            return (None,)
        bands = [(first, min(each, height - first)) for first in range(0, height, each)]
        pieces = [replace(self, rows=rows) for rows in bands]
        # windows of the last one may see padding alone, below the image
        inside = all(sum(pieces[-1].rows_read(shapes, blob)) <= shapes[blob][2] for blob in self.inputs)
        words = max(prod(one.accessed(shapes, blob)[2:]) for one in pieces[:2] for blob in (*self.inputs, self.output))
        fits = self.engine == "array" or words <= overlay.descriptor.values["tile_rows"].mask
        return bands if inside and fits else (None,)

    def in_bands(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> bool:
        """Return whether a descriptor may have some rows of its output."""
        return self.banded

    def may_share(self, overlay: Overlay) -> bool:
        """Return whether its weights may stay in the array's buffer for a Task that has the same; by default they may not."""
        return False

    def takes_turns(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> bool:
        """Return whether it cannot compute while it fetches."""
        return False

    def constant_traffic(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
        """Return the bytes of constants that are fetched while it runs: a table of codes, and what its kind has."""
        return 0 if self.lookup is None else len(self.lookup)

    def moved(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> tuple[int, int]:
        """Return the bytes of blobs that it reads and writes: whole words of channels."""
        written = word_bytes(self.accessed(shapes, self.output), overlay.layout)
        return sum(self.read_of_each(overlay, shapes)), written

    def read_of_each(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Sequence[int]:
        """Return the bytes that it reads of each input."""
        return [word_bytes(self.accessed(shapes, blob), overlay.layout) for blob in self.inputs]

    def accessed(self, shapes: Mapping[str, Shape], blob: str) -> Shape:
        """Return the shape of what it reads of an input, or of what it writes of its output."""
        _, channels, height, width = shapes[blob]
        if blob == self.output:
            return self.batch(shapes), self.channels(shapes)[1], self.rows[1] if self.rows else height, width
        return self.batch(shapes), channels, self.rows_read(shapes, blob)[1], width

    def rows_read(self, shapes: Mapping[str, Shape], blob: str) -> Span:
        """Return the rows of an input that it reads: by default its own, and all of a blob with another height."""
        height = shapes[blob][2]
        return self.rows if self.rows and height == shapes[self.output][2] else (0, height)

    def batch(self, shapes: Mapping[str, Shape]) -> int:
        """Return the number of images that it works on."""
        return self.images[1] if self.images else shapes[self.output][0]

    # -- as a descriptor

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        """Return the values of its descriptor's fields for constants that are stored from address ``where``.

        Raises DeviceError for what a descriptor cannot express.
        """
        raise NotImplementedError(self.kind)

    def views(self, memory: Operands) -> list[StridedBlob]:
        """Return what it reads of each input and what it writes, as ``fields`` describe it: with ``rows`` a part of each."""
        views = [memory.view(blob) for blob in (*self.inputs, self.output)]
        if self.rows is None:
            return views
        rows = [*(self.rows_read(memory.shapes, blob) for blob in self.inputs), self.rows]
        return [memory.part(view, (first, 0), (count, view.width)) for view, (first, count) in zip(views, rows)]

    def constants(self, memory: Operands) -> Sequence[Piece]:
        """Return the constants that its fields refer to, in order. Raises DeviceError for values that they cannot hold."""
        return ()

    @classmethod
    def records(cls, values: Mapping[str, int], output: Shape) -> int:
        """Return the number of records of requantisation of a Task with these field values and output."""
        return prod(output[cls.table]) if cls.table is not None and values["table"] else 0

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        """Return the Task with these field values and constants, and with the fields ``common`` to all kinds.

        It need not check what ``fields`` of the Task would write otherwise, nor read its ``lookup``. Raises DeviceError
        for constants that ``constants`` would not return, and for values of no Task.
        """
        raise NotImplementedError(cls.kind)

    # -- testing a device

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield Tasks within the overlay's limits that test whether a device computes this kind correctly."""
        raise NotImplementedError(cls.kind)


@dataclass(frozen=True, eq=False, repr=False)
class CompiledTask(Task):
    """A Task of a file that holds an architecture's instructions in its place: nothing else can compute it.

    ``part``    the first channel of its output that it writes, and the number of channels
    ``work``    its multiply-accumulates, cycles in the cycle model, and instructions
    ``device``  the name of the device that runs its instructions
    """

    kind = "compiled"
    part: tuple[int, int]
    work: tuple[int, int, int]
    device: str

    @property
    def unknown(self) -> DeviceError:
        """Return the error for uses of a Task that need more than the instructions of its segment."""
        what = f"layer {self.origin[0]!r} is compiled to instructions, together with the others of its segment"
        how = "for outputs only and without CHAI_CHECK and CHAI_DUMP; or load the prototxt"
        return DeviceError(what, layer=self.origin[0], hint=f"--device {self.device} runs them, {how}")

    def define(self, *_: Array) -> Array:
        raise self.unknown

    def channels(self, shapes: Mapping[str, Shape]) -> tuple[int, int]:
        return self.part

    def macs(self, *shapes: Shape) -> int:
        return self.work[0]

    def cycles(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
        return self.work[1]


@lru_cache(maxsize=64)
def find(kind: str, arithmetic: str = EXACT) -> type[Task]:
    """Return the class of a kind of Task in an arithmetic, which has the exact one's where it has none of its own.

    Raises KeyError if there is none.
    """
    package = package_of(arithmetic)
    # most are in the file of their name, or in one that is loaded
    for stem in sorted(_files(package), key=lambda stem: (stem != kind, f"{package}.{stem}" not in sys.modules)):
        for cls in defined(package, stem, Task).values():
            if getattr(cls, "kind", None) == kind:
                return cls
    if arithmetic != EXACT:
        return find(kind)
    raise KeyError(kind)


def package_of(arithmetic: str) -> str:
    """Return the package with an arithmetic and its Tasks: this one, or ``chai/NAME``."""
    return __name__ if arithmetic == EXACT else f"chai.{arithmetic}"


def _files(package: str) -> set[str]:
    return modules(import_module(package).__path__) - {"__init__"}
