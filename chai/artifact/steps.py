"""Read the steps of an artifact, and check that they can be run in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from ..blob import Array, Shape, View, outermost
from ..codegen.chain import Chain, Piece, arranged, head_bytes, sharing, uncut
from ..codegen.dependencies import Budget, check_listed, dependencies
from ..codegen.encoding import check_fields, constants_at, decode, shared_weights, waiting
from ..codegen.join_pooling import apart
from ..codegen.memory_map import FIXED, REGION, Regions, Usage, regions
from ..fixed import Format
from ..graph import Layer
from ..limits import limits
from ..offload.schedule import DeviceStep, HostStep, Pack, Schedule, Side, Step, Unpack, unfolded_name
from ..overlay import Overlay
from ..overlay.layout import Span
from ..overlay.records import unpack
from ..overlay.weights import WEIGHT, Packed
from ..tasks import CompiledTask, Task
from ..tasks.conv import Conv
from ..tasks.fields import Operands, TaskConstants
from ..tasks.filter import FilterTask
from ..tasks.pool import Pool
from ..tasks.unfold import Unfold
from ..tasks.window import Window
from ..util.lazy_numpy import np
from .container import Artifact
from .layers import OnDevice


def views(file: Artifact, shapes: Mapping[str, Shape]) -> dict[str, View]:
    """Return the blobs that are channels of larger blobs."""
    places: dict[str, View] = {}
    for blob, place in file.get("places", {str: list}).items():
        pair = len(place) == 2 and isinstance(place[0], str) and type(place[1]) is int
        if not pair or any(len(shapes.get(name, ())) != 4 for name in (blob, place[0])):
            raise file.error(f"header: place of blob {blob!r}")
        whole, first = place
        inner, outer = shapes[blob], shapes[whole]
        if first < 0 or first + inner[1] > outer[1] or (inner[0], *inner[2:]) != (outer[0], *outer[2:]):
            raise file.error(f"header: blob {blob!r} does not fit its place in {whole!r}")
        places[blob] = View(whole, first)
    depths: dict[str, int] = {}  # number of blobs around each one, as parts may have parts
    for blob in places:
        path, inside = dict.fromkeys([blob]), blob
        while inside in places and inside not in depths:
            inside = places[inside].base
            if inside in path:
                raise file.error(f"header: blob {blob!r} is a part of itself")
            path[inside] = None
        for part in reversed(path):
            depths.setdefault(part, 1 + depths[places[part].base] if part in places else 0)
        if depths[blob] > limits().views:
            raise file.error(f"header: blob {blob!r} lies too deep: " + limits().exceeded("views", depths[blob]))
    return places


def unfolds(
    file: Artifact, overlay: Overlay, shapes: Mapping[str, Shape], inputs: Collection[str]
) -> dict[str, Unfold]:
    """Return how inputs are unfolded when they are packed."""
    unfolds_of: dict[str, Unfold] = {}
    for step in file.get("steps", [dict]):
        if "unfold" not in step:
            continue
        blob, name = str(step.get("blob")), unfolded_name(str(step.get("blob")))
        about = file.of(step["unfold"], {"window": [[int]], "rows": int}, f"unfolding of blob {blob!r}")
        if blob not in inputs or blob in unfolds_of or not {blob, name} <= shapes.keys() or len(shapes[blob]) != 4:
            raise file.error(f"header: there is no blob {blob!r} to unfold")
        if [len(values) for values in about["window"]] != [2] * len(Window._fields):
            raise file.error(f"header: blob {blob!r} is unfolded by a window of {len(about['window'])} pairs")
        window = Window(*((h, w) for h, w in about["window"]))
        sizes = {key: max(values) for key, values in window._asdict().items()}
        reason = Layer.beyond(overlay, Conv.kind, **sizes)
        valid = min(*window.kernel, *window.stride, *window.dilation) > 0 <= min(window.pad)
        if reason or not valid or window.dilation != (1, 1) or about["rows"] not in Unfold.choices(window):
            raise file.error(f"header: blob {blob!r} cannot be unfolded like this")
        unfolds_of[blob] = Unfold(window, about["rows"])
        if min(window.sizes(shapes[blob][2:])) < 1 or unfolds_of[blob].shape(shapes[blob]) != shapes[name]:
            raise file.error(f"header: blob {blob!r} has another shape when it is unfolded")
    return unfolds_of


@dataclass(eq=False, repr=False)
class StepReader:
    """Reads the steps of a header; they refer to layers by name and to blobs by id.

    ``shapes`` are those on a device, ``inputs`` the network's, ``packing`` and ``on_host`` are those of the
    overlay's arithmetic.
    """

    file: Artifact
    overlay: Overlay
    layers: Mapping[str, Layer]
    shapes: Mapping[str, Shape]
    formats: Mapping[str, Format]
    views: Mapping[str, View]
    unfolds: Mapping[str, Unfold]
    inputs: Collection[str]
    packing: Callable[[Format, bool], Format]
    on_host: Mapping[str, Callable[..., Array]]
    budget: Budget = field(default_factory=Budget)

    def all(self) -> Iterator[Step]:
        index = 0
        for step in self.file.get("steps", [dict]):
            if "convert" in step:
                kind, blob = step["convert"], step.get("blob")
                if kind not in ("Pack", "Unpack") or not isinstance(blob, str) or blob not in self.formats:
                    raise self.file.error(f"header: a conversion {kind!r} of blob {blob!r}")
                format = self.formats[blob]
                if kind == "Pack":
                    yield Pack(blob, self.packing(format, blob in self.inputs), self.unfolds.get(blob))
                else:
                    yield Unpack(blob, format)
            elif "host" in step:
                layer = self.layers.get(str(step["host"]))
                if layer is None or isinstance(layer, OnDevice):
                    raise self.file.error(f"header: the host shall run {step['host']!r}")
                codes = step.get("codes") is True
                layer = layer.beside(self.on_host)
                may = layer.engine == "custom" or layer.takes_codes(tuple(self.shapes[b] for b in layer.bottoms))
                if codes and not (may and {*layer.bottoms, *layer.tops} <= set(self.formats)):
                    raise self.file.error(f"header: layer {layer.name!r} cannot work on codes")
                yield HostStep(layer, str(self.file.header["layers"][layer.name]["reason"]), codes)
            else:
                kinds = {"tasks": [dict], "layers": [str], "reads": [str], "writes": [str], "at": {str: int}}
                about = self.file.of(step, kinds, "steps")
                names = about["layers"]
                if not names or any(n not in self.layers for n in names):
                    raise self.file.error("header: a segment of layers that are not there")
                tasks, program = (self._chain if self.overlay.own is None else self._program)(index, about)
                index += 1
                edges = tuple(about["reads"]), tuple(about["writes"])
                yield DeviceStep(tasks, tuple(self.layers[n] for n in names), *edges, program)

    def _chain(self, index: int, about: Mapping[str, Any]) -> tuple[tuple[Task, ...], Chain]:
        """Return a segment's Tasks, decoded from its descriptors and constants, and its Chain."""
        shapes, overlay = self.shapes, self.overlay
        entries, moves, laid = self._laid(about)
        listed_pieces = self.file.of(about, {"pieces": [[int]]}, "steps")["pieces"]
        pieces = self._pieces(listed_pieces, [shapes[out] for _, out in moves])
        size, head = overlay.descriptor.bytes, head_bytes(overlay, len(pieces))
        listed = self.file.section(f"descriptors.{index}").content
        if len(listed) != len(pieces) * size:
            raise self.file.error(f"section 'descriptors.{index}' has another number of Tasks than the header")
        descriptors = [listed[i * size : (i + 1) * size] for i in range(len(pieces))]
        stored = [unpack(overlay.descriptor, descriptor) for descriptor in descriptors]
        flags = shared_weights(overlay, stored)
        pieces = [piece._replace(shared=shared, shares=shares) for piece, (shared, shares) in zip(pieces, flags)]
        section = self.file.section(f"constants.{index}")
        constants = TaskConstants(section, (FIXED << REGION) + head)
        memory = Operands(overlay, laid.blobs, shapes, constants)
        tasks: dict[int, Task] = {}
        starts: dict[int, int] = {}  # addresses of their constants
        first = [tag for tag, piece in enumerate(pieces) if piece.begins]
        decoded = decode([(stored[tag], _common(entries[pieces[tag].task], pieces[tag])) for tag in first], memory)
        for tag, task in zip(first, decoded):
            self._check_notes(tag, task, constants.largest_bias)
            tasks[pieces[tag].task] = uncut(task)
            starts[pieces[tag].task] = constants_at(stored[tag])
        whole = [self._with_blob(entries[i], task) for i, task in sorted(tasks.items())]
        # devices without a chain run the Tasks as they are listed: that order must give every reader its bytes, too
        every = self._apart(whole, constants.largest_bias)
        usage = Usage([(task.inputs, task.output) for task in every], about["reads"], about["writes"])
        check_listed(overlay.layout, every, shapes, regions(overlay.layout, shapes, self.views, usage), self.budget)
        work = arranged(whole, pieces)
        after = dependencies(overlay, work, shapes, laid, self.budget)
        self._check_pieces(whole, pieces)
        for tag, (task, piece, values, finished) in enumerate(zip(work, pieces, stored, after)):
            for name, number in {"tag": tag, **waiting(finished)}.items():
                if values[name] != number:
                    what = f"its descriptor has {name} = {values[name]}, here it is {number}"
                    raise self.file.error(f"task {tag}: {what}")
            if not piece.begins:  # for other images, rows or columns than those that it was decoded from
                check_fields(values, task, memory.of(piece.images), starts[piece.task])
        content = descriptors, [(head, section)]
        return tuple(every), Chain(overlay, tuple(work), tuple(pieces), shapes, laid, after, *content)

    def _check_pieces(self, tasks: Sequence[Task], pieces: Sequence[Piece]) -> None:
        """Check that the overlay can have these columns and rows, and that weights are shared as in a chain compiled here.

        That a piece with all columns fits the overlay, its fields show.
        """
        overlay, shapes = self.overlay, self.shapes
        cut = {piece.task for piece in pieces if piece.rows}
        in_bands = {i for i in cut if overlay.window.bands and tasks[i].in_bands(overlay, shapes)}
        for tag, (piece, here) in enumerate(zip(pieces, sharing(overlay, tasks, pieces))):
            if piece.columns and piece.columns not in tasks[piece.task].strips(overlay, shapes):
                raise self.file.error(f"task {tag}: it is not cut into columns {piece.columns}")
            if piece.rows and piece.task not in in_bands:
                raise self.file.error(f"task {tag}: it cannot have some rows")
            if piece.shares != here.shares:
                message = f"its descriptor has shares = {piece.shares:d}, here it is {here.shares:d}"
                raise self.file.error(f"task {tag}: {message}")

    def _with_blob(self, entry: Mapping[str, Any], task: Task) -> Task:
        """Return a Task with the blob that its pooling reads and the pooling's layers, of the header."""
        pooling = task.pooling if isinstance(task, Conv) else None
        if pooling is None or not isinstance(task, Conv):
            if "pooled" in entry:
                raise self.file.error(f"header: the task of {entry['origin'][0]!r} has no pooling")
            return task
        about = self.file.of(entry.get("pooled"), {"blob": str, "origin": [str], "at": int}, "task: pooled")
        blob, source = about["blob"], self.shapes[task.inputs[0]]
        if not about["origin"]:
            raise self.file.error("header: a pooling's origin names no layer")
        if self.shapes.get(blob) != (source[0], task.weights.shape[0], *task.window.sizes(source[2:])):
            raise self.file.error(f"header: blob {blob!r} is not what the task of {entry['origin'][0]!r} pools")
        return replace(task, pooling=replace(pooling, blob=blob, origin=tuple(about["origin"]), at=about["at"]))

    def _apart(self, tasks: Sequence[Task], largest_bias: int) -> list[Task]:
        """Return the Tasks with poolings of their own, which are checked."""
        every = apart(tasks, self.views)
        for tag, task in enumerate(every):
            if isinstance(task, Pool) and task not in tasks:
                self._check_notes(tag, task, largest_bias)
        return every

    def _program(self, index: int, about: Mapping[str, Any]) -> tuple[tuple[Task, ...], Any]:
        """Return a segment's Tasks, of which only blobs and sizes are known, and its instructions."""
        entries, moves, laid = self._laid(about)
        tasks = []
        for tag, (entry, (ins, out)) in enumerate(zip(entries, moves)):
            sizes = self.file.of(entry, {"channels": [int], "macs": int, "cycles": int, "instructions": int}, "task")
            part = sizes["channels"]
            numbers = [sizes[name] for name in ("zero_weights", "macs", "cycles", "instructions")]
            if len(part) != 2 or part[0] < 0 or part[1] < 1 or sum(part) > self.shapes[out][1]:
                raise self.file.error(f"task {tag}: blob {out!r} has no channels {part}")
            if min(numbers) < 0 or max(numbers) >= 1 << 48:
                raise self.file.error(f"task {tag}: expected sizes from 0 to 2^48, found {numbers}")
            zeros, macs, cycles, count = numbers
            origin, channels, work = tuple(entry["origin"]), (part[0], part[1]), (macs, cycles, count)
            tasks.append(CompiledTask(ins, out, origin, channels, work, self.overlay.simulator, zero_weights=zeros))
        sections = {name: self.file.section(f"{name}.{index}").mapped for name in ("instructions", "constants")}
        assert self.overlay.own is not None
        counts = [task.work[2] for task in tasks]
        return tuple(tasks), self.overlay.own.restored(self.overlay, tasks, self.shapes, laid, counts, sections)

    def _laid(
        self, about: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], list[tuple[tuple[str, ...], str]], Regions]:
        """Return a segment's Tasks as they are in the header, the blobs that each one reads and writes, and its regions."""
        kind = {"inputs": [str], "output": str, "origin": [str], "zero_weights": int}
        entries = [self.file.of(task, kind, "task") for task in about["tasks"]]
        if not all(entry["origin"] for entry in entries):
            raise self.file.error("header: a task's origin names no layer")
        moves = [(tuple(t["inputs"]), t["output"]) for t in entries]
        for blob in (*about["reads"], *about["writes"], *(b for ins, out in moves for b in (*ins, out))):
            if len(self.shapes.get(blob, ())) != 4:
                raise self.file.error(f"header: blob {blob!r} of a segment has not four axes")
        usage = Usage(moves, about["reads"], about["writes"])
        return entries, moves, regions(self.overlay.layout, self.shapes, self.views, usage, about["at"])

    def _pieces(self, listed: Sequence[Sequence[int]], outputs: Sequence[Shape]) -> list[Piece]:
        """Return which images, rows and columns of which Task each descriptor is for: of each Task all.

        What is there twice, ``dependencies`` finds.
        """
        left = [n * h * w for n, _, h, w in outputs]  # pixels of each Task
        pieces = []
        for numbers in listed:
            if len(numbers) not in (3, 7) or not 0 <= numbers[0] < len(outputs):
                raise self.file.error(f"header: pieces: expected a Task, its first image and images, found {numbers}")
            i, *pairs = numbers
            batch, _, height, width = outputs[i]
            first, counts = pairs[::2] + [0, 0], pairs[1::2] + [height, width]
            some: list[Span | None] = []
            for name, size, at, count in zip(("images", "rows", "columns"), (batch, height, width), first, counts):
                if not (at >= 0 and 0 < count <= size - at):
                    raise self.file.error(f"header: pieces: task {i} has {size} {name}, found {count} from {at}")
                some.append(None if count == size else (at, count))
            images, rows, columns = some
            left[i] -= prod(counts[:3])
            pieces.append(Piece(i, images, rows, columns))
        if any(left) or {piece.task for piece in pieces if piece.begins} != {*range(len(outputs))}:
            raise self.file.error("header: pieces: some images, rows or columns of a task are missing, or twice there")
        return pieces

    def _check_notes(self, tag: int, task: Task, largest_bias: int) -> None:
        """Check what a Task's descriptor does not say; ``largest_bias`` is the largest magnitude in its segment."""
        if not 0 <= task.zero_weights <= (task.weights.size if isinstance(task, FilterTask) else 0):
            raise self.file.error(f"task {tag}: {task.zero_weights} of its weights are zeros of a rewrite")
        if isinstance(task, FilterTask) and isinstance(task.weights, Packed):
            most, overlay = self._format(task.inputs[0]).magnitude, self.overlay
            bound = overlay.array_bound if task.wide else overlay.accumulator_bound
            reached = WEIGHT * prod(task.weights.shape[1:]) * most
            if reached + largest_bias >= bound:  # that bias may be another Task's
                reached += int(np.abs(task.bias).max(initial=0))
            if reached >= bound:  # so far as if all weights were the largest: look at them
                reached = int((task.weights.magnitudes() * most + np.abs(task.bias)).max(initial=0))
            if reached >= bound:
                raise self.file.error(f"task {tag}: a sum could reach {reached:,}, beyond the overlay's accumulator")
        for blob, unfold in self.unfolds.items():
            if unfolded_name(blob) in task.inputs and not (isinstance(task, Conv) and task.window == unfold.kernel):
                raise self.file.error(f"task {tag}: it does not read blob {blob!r} as it is unfolded")
        blobs = (*task.inputs, task.output) if task.lookup is None else task.inputs  # a table gives any code
        zeros, own = [self._format(blob).zero for blob in blobs], task.zero_points()
        own = own and own[: len(zeros)]
        if len(set(zeros)) > 1 if own is None else zeros != list(own):
            raise self.file.error(f"task {tag}: its zero points are not those of its blobs' formats")

    def _format(self, blob: str) -> Format:
        """Return the format of a blob on the device; a joint or unfolded blob has that of the blobs it is made of."""
        format = self.formats.get(self._format_of.get(blob, blob))
        if format is None:
            raise self.file.error(f"header: the format of blob {blob!r} is missing")
        return format

    @cached_property
    def _format_of(self) -> dict[str, str]:
        parts = {view.base: part for part, view in self.views.items() if view.base not in self.formats}
        return {**parts, **{unfolded_name(blob): blob for blob in self.unfolds}}


def _common(entry: Mapping[str, Any], piece: Piece) -> dict[str, Any]:
    """Return the fields that every kind of Task has, for some images of a Task of the header."""
    names = {"inputs": tuple(entry["inputs"]), "output": entry["output"], "origin": tuple(entry["origin"])}
    part = piece._asdict()
    del part["task"]
    return {**names, "zero_weights": entry["zero_weights"], **part}


def check_order(
    file: Artifact, schedule: Schedule, known: Mapping[str, Layer], inputs: list[str], outputs: list[str]
) -> None:
    """Check that steps read only blobs on their side, that every layer runs once, and that outputs reach the host."""
    present: dict[Side, set[str]] = {"host": set(inputs), "device": set()}
    ran: set[str] = set()
    families = _families(schedule)
    for step in schedule.steps:
        for layer in step.layers:
            if layer.name in ran:
                raise file.error(f"header: layer {layer.name!r} runs twice")
            ran.add(layer.name)
        for side, blob in step.reads:
            _there(file, [blob], present[side])
        if isinstance(step, DeviceStep):
            _check_segment(file, step, schedule, families)
        for side, blob in step.writes:
            present[side].add(blob)
    _there(file, outputs, present["host"])
    for name in known:
        if name not in ran:
            raise file.error(f"header: layer {name!r} never runs")


def _check_segment(
    file: Artifact, step: DeviceStep, schedule: Schedule, families: Mapping[str, Collection[str]]
) -> None:
    """Check that a segment's Tasks write its layers' tops and read no blob before it is written."""
    tops = {top for layer in step.layers for top in layer.tops}
    if not tops.issuperset(blob for output in {task.output for task in step.tasks} for blob in _tops(output, schedule)):
        raise file.error("header: a segment has a Task of a layer that is not in it")

    def with_it(blob: str) -> Collection[str]:
        return families.get(outermost(blob, schedule.views).base, (blob,))

    written = {part for blob in step.inputs for part in with_it(blob)}
    for task in step.tasks:
        _there(file, task.inputs, written)
        if task.output not in written:
            written.update(with_it(task.output))
    _there(file, [*tops, *step.outputs], written)


def _there(file: Artifact, blobs: Iterable[str], known: Collection[str]) -> None:
    for blob in blobs:
        if blob not in known:
            raise file.error(f"header: a step needs blob {blob!r} where it is not")


def _tops(blob: str, schedule: Schedule) -> list[str]:
    """Return the tops in a Task's output: the output itself or the parts of a joint blob, without those between Tasks."""
    joint = blob in schedule.shapes and blob not in schedule.between
    parts = [part for part, view in schedule.views.items() if view.base == blob] if joint else [blob]
    return [part for part in parts if part not in schedule.between]


def _families(schedule: Schedule) -> dict[str, list[str]]:
    """Return, for each blob with parts, the blob and all its parts, recursively."""
    families: dict[str, list[str]] = {}
    for part in schedule.views:
        whole = outermost(part, schedule.views).base
        families.setdefault(whole, [whole]).append(part)
    return families
