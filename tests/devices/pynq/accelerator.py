"""The accelerator of the simulated board.

It knows nothing of chai's plans: it fetches descriptors from its memory, decodes them, and does what the Tasks' definitions say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from chai import devices
from chai.codegen.encoding import decode, shared_weights, task_of
from chai.errors import DeviceError
from chai.overlay import Overlay
from chai.overlay.layout import Placed, blob_bytes, image_bytes
from chai.overlay.records import unpack
from chai.tasks import Task, find
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands, TaskConstants
from chai.tasks.filter import FilterTask
from chai.tasks.work import Work
from tests.reference import engines

from .clock import Clock
from .ddr import BusError, Ddr

STEPS = 5  # in which a Task reads a blob or writes it


class Accelerator:
    """The register map and the chain, which ``takes`` so many seconds of ``clock``."""

    def __init__(self, overlay: Overlay, memory: Ddr, exact: bool, clock: Clock) -> None:
        self.overlay, self.memory, self.exact, self.clock = overlay, memory, exact, clock
        self.offsets = {r.offset: r.name for r in overlay.registers.list}
        self.constants = {"ID": overlay.registers["ID"].value or 0, "BUILD": overlay.build}  # of the bitstream
        self.takes = 50e-6
        self.power_on()
        self.deaf = False  # to a reset, until the next download
        self.mute = False  # raises no interrupt
        self.hangs_at: int | None = None  # a Task that never ends
        self.stop_at: tuple[int, int] | None = None  # (cause, Task) of an error
        self.corrupt: Callable[[Task, np.ndarray], None] | None = None
        self.random = Random(0)
        self.choose: engines.Choice = self.random.choice  # any order that the counts allow
        self.depth = 4  # descriptors in each engine's queue
        self.at = 0  # the Task that did something last
        self.on_look: Callable[[], None] = lambda: None

    def power_on(self) -> None:
        """As after a download."""
        self.values = dict.fromkeys((r.name for r in self.overlay.registers.list), 0)
        self.values |= self.constants
        self.ends: float = 0
        self.deaf = False

    def read(self, offset: int) -> int:
        name = self.offsets[offset]
        if name == "STATUS":
            self.on_look()
            self.tick()
        return self.values[name]

    def tick(self) -> None:
        """Be done if it is time."""
        if self._bit("busy") and self.clock.now >= self.ends:
            self._finish()
            if not self._bit("busy") and not self.mute:
                status, irq = self.overlay.registers["STATUS"], self.overlay.registers["IRQ"]
                for name in ("done", "error"):
                    self.values["IRQ"] |= irq.mask(name) if self.values["STATUS"] & status.mask(name) else 0

    @property
    def line(self) -> bool:
        """The interrupt, a level."""
        return bool(self.values["IRQ"] & self.values["IRQ_ENABLE"])

    def write(self, offset: int, value: int) -> None:
        name = self.offsets[offset]
        register = self.overlay.registers[name]
        if register.access == "r":
            raise BusError(f"{name} cannot be written")
        if name == "IRQ":
            self.values[name] &= ~value
        elif name != "CONTROL":
            self.values[name] = value
        elif value & register.mask("reset"):
            if self.deaf:
                return
            self.values |= {"STATUS": 0, "DONE": 0, "ERROR": 0, "CHAIN_LO": 0, "CHAIN_HI": 0, "COUNT": 0}
        elif value & register.mask("start"):
            assert not self._bit("busy"), "started while busy"
            self.values |= {"STATUS": self.overlay.registers["STATUS"].mask("busy"), "DONE": 0, "ERROR": 0}
            self.ends = self.clock.now + self.takes

    @property
    def due(self) -> float:
        """When something happens next without the host."""
        return self.ends if self._bit("busy") else np.inf

    def _bit(self, name: str) -> bool:
        return bool(self.values["STATUS"] & self.overlay.registers["STATUS"].mask(name))

    def _stop(self, words: str, tag: int) -> None:
        status, error = self.overlay.registers["STATUS"], self.overlay.registers["ERROR"]
        cause = self.overlay.registers.errors.index(words)
        self.values["STATUS"] = status.mask("error")
        self.values["ERROR"] = cause * (error.mask("cause") & -error.mask("cause")) | tag * (
            error.mask("tag") & -error.mask("tag")
        )

    def _finish(self) -> None:
        """Run the chain on both engines, as far ahead of each other as the counts let them."""
        address, count = self.values["CHAIN_LO"] | self.values["CHAIN_HI"] << 32, self.values["COUNT"]
        size = self.overlay.descriptor.bytes
        self.at = 0
        try:
            chain = [bytes(self.memory.at(address + i * size, size)) for i in range(count)]
            values = []
            for self.at, descriptor in enumerate(chain):
                values.append(unpack(self.overlay.descriptor, descriptor))
            kinds = [engines.engine(v, self.overlay) for v in values]
            shared = [*shared_weights(self.overlay, values)]
            held = 0  # the address of the weights in the array's buffer
            for v, kind, (here, _) in zip(values, kinds, shared):
                if kind == "array":
                    v["weights"] = held = held if here else v["weights"]

            def work(i: int) -> Iterator[None]:
                return self._run(i, values[i], *shared[i])

            done = self.overlay.registers["DONE"]
            for i in engines.run(kinds, [engines.after(v) for v in values], work, self._choose, self.depth):
                self.values["DONE"] += done.mask(kinds[i]) & -done.mask(kinds[i])
        except engines.Stuck:
            self.ends = np.inf  # busy for ever
            return
        except Stopped as stop:
            self._stop(self.overlay.registers.errors[stop.cause], self.at)
            return
        except BusError:
            self._stop("bus error while reading", self.at)
            return
        except DeviceError as error:
            version = "expected version" in error.message
            self._stop("descriptor of another version" if version else "a value beyond the limits of its kind", self.at)
            return
        self.values["STATUS"] = self.overlay.registers["STATUS"].mask("done")

    def _choose(self, moves: Sequence[engines.Move]) -> engines.Move:
        moves = [move for move in moves if move != ("step", self.hangs_at)]
        if not moves:
            raise engines.Stuck
        return self.choose(moves)

    def _run(self, i: int, values: dict[str, int], shared: bool, shares: bool) -> Iterator[None]:
        """Read and write blobs row by row, at any time between start and end; what is written depends on what was read.

        ``early`` and ``late`` are the extremes: reads at the start and at once, or just before the writes at the end.
        """
        self.at = i
        if self.stop_at and self.stop_at[1] == i:
            raise Stopped(self.stop_at[0])
        address, shapes = blobs_of(values, self.overlay)
        where = values["weights"] or values["table"]
        constants = self.memory.around(where) if where else None
        read = TaskConstants(memoryview(constants.device), constants.address) if constants else None
        memory = Operands(self.overlay, address, shapes, read)
        inputs = tuple(name for name in ("input", "second") if name in address)
        common = {"inputs": inputs, "output": "output", "origin": (), "shared": shared, "shares": shares}
        # of a strip or a band the blob is what it reads: its rows, without those between them
        part, whole = self._is_part(values), values | {"input_row": 0}
        (task,) = [task_of(whole, common, memory)] if part else decode([(values, common)], memory)
        late = self.random.random() < 0.5
        if late:
            yield
        codes_of = {}
        for blob in task.inputs:
            codes_of[blob] = np.zeros(shapes[blob], np.int8)
            for rows in self._rows(values, "second" if blob == "second" else "input"):
                rows.read(codes_of[blob])
                if late:
                    self.at = i
                    yield
        out = np.zeros(shapes[task.output], np.int8)
        if part and isinstance(task, FilterTask):
            out[...] = of_part(task, codes_of["input"], (values["output_height"], values["output_width"]))
        elif self.exact:
            out[...] = task.define(*(codes_of[b] for b in task.inputs))
        else:
            blobs = {**codes_of, task.output: out}
            devices.open("emulator").compile(Work(self.overlay, [task], shapes)).run(blobs)
        if self.corrupt:
            self.corrupt(task, out)
        for rows in self._rows(values, "output"):
            yield
            self.at = i
            rows.write(out)
        self.memory.written(values["output"])
        self.values["CYCLES"] += task.cycles(self.overlay, shapes)

    def _is_part(self, values: dict[str, int]) -> bool:
        """Whether a descriptor has some columns or rows of its blobs, whose planes are larger."""
        word = self.overlay.layout.channels_per_word
        sizes = (sizes_of(values, name, word) for name in ("input", "output"))
        return values.get("input_row", 0) > 0 or any(h * w * word != pitch for (_, _, h, w), pitch in sizes)

    def _rows(self, values: dict[str, int], name: str) -> Iterator[Rows]:
        """Some rows at a time, of all images and planes."""
        word = self.overlay.layout.channels_per_word
        (n, c, h, w), pitch = sizes_of(values, name, word)
        planes, image = -(-c // word), values[f"{name}_image"]
        apart = values.get(f"{name}_row") or w  # pixels from row to row
        step = -(-h // STEPS)
        for top in range(0, h, step):
            rows = slice(top, min(top + step, h))
            part = Rows(rows, word, {})
            for i, plane in np.ndindex(n, planes):
                begin = values[name] + i * image + plane * pitch + rows.start * apart * word
                count = rows.stop - rows.start
                words = self.memory.at(begin, ((count - 1) * apart + w) * word).view(np.int8)
                part.memory[i, plane] = as_strided(words, (count, w, word), (apart * word, word, 1))
            yield part


class Stopped(Exception):
    """An error of the accelerator, as a test asked for."""

    def __init__(self, cause: int) -> None:
        self.cause = cause


@dataclass
class Rows:
    """Rows of a blob in memory, for each image and plane: pixel by pixel, in words of channels."""

    rows: slice
    word: int
    memory: dict[tuple[int, int], np.ndarray]

    def read(self, codes: np.ndarray) -> None:
        for (i, plane), words in self.memory.items():
            out = codes[i, plane * self.word : (plane + 1) * self.word, self.rows]
            out[...] = words.transpose(2, 0, 1)[: len(out)]

    def write(self, codes: np.ndarray) -> None:
        for (i, plane), into in self.memory.items():
            piece = codes[i, plane * self.word : (plane + 1) * self.word, self.rows]
            into[...] = 0
            into[..., : len(piece)] = piece.transpose(1, 2, 0)


def of_part(task: FilterTask, codes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The codes of a strip or a band: with more padding on all sides, the whole has them after some of the padding alone."""
    window, (height, width) = task.window, size
    down, right = (window.extent(i) for i in range(2))
    pad = window.pad[0] + down * window.stride[0], window.pad[1] + right * window.stride[1]
    pooling = task.pooling if isinstance(task, Conv) else None
    padded = replace(task, window=window._replace(pad=pad), **({"pooling": None} if pooling else {}))
    result = padded.define(codes)[:, :, down : down + height, right : right + width]
    return result if pooling is None else pooling.define(result)


def blobs_of(values: dict[str, int], overlay: Overlay) -> tuple[dict[str, Placed], dict[str, Any]]:
    """The blobs that a descriptor speaks of, and larger ones that their images are apart like parts of.

    A second address may be one of the first blob: of kinds that read one.
    """
    layout = overlay.layout
    kind = next(s.kind for s in overlay.tasks if dict(s.limits)["opcode"] == values["opcode"])
    names = (*("input", "second")[: find(kind, overlay.arithmetic).operands], "output")
    address: dict[str, Placed] = {}
    shapes: dict[str, Any] = {}
    for name in names:
        if not values[name]:
            continue
        shape, pitch = sizes_of(values, name, layout.channels_per_word)
        image = values[f"{name}_image"]
        shapes[name] = shape
        parent = None if image == image_bytes(shape, layout) else f"around {name}"
        address[name] = Placed(values[name], blob_bytes(shape, layout), parent)
        if parent:
            planes = image // max(1, pitch)
            shapes[parent] = shape[0], planes * layout.channels_per_word, *shape[2:]
            address[parent] = Placed(values[name], blob_bytes(shapes[parent], layout))
    return address, shapes


def sizes_of(values: dict[str, int], name: str, word: int) -> tuple[tuple[int, int, int, int], int]:
    """The shape of a blob of a descriptor, and the bytes from plane to plane; a vector has one word for each plane.

    The output of a pooled convolution is smaller than the sizes of its codes, which the descriptor has.
    """
    side = "output" if name == "output" else "input"
    n, c, h, w, pitch = (
        values[key] for key in ("batch", *(f"{side}_{fact}" for fact in ("channels", "height", "width", "pitch")))
    )
    if name == "second" and values.get("vector"):
        return (n, c, 1, 1), word
    if name == "output" and (columns := values.get("pooled_width")):
        kernel, stride, pad, over = (values[f"pool_{fact}_h"] for fact in ("kernel", "stride", "pad", "over"))
        return (n, c, (h + pad + over - kernel) // stride + 1, columns), pitch
    return (n, c, h, w), pitch
