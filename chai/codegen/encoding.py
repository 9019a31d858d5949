"""Encode Tasks as an accelerator fetches them from DDR, and decode them: ``decode(encode(task))`` equals the Task.

A Task becomes one record of ``overlay.descriptor`` and its constants: weights, then the table of requantisation, each
aligned by the layout's alignment, then the table of its ``lookup``. The fields of a kind are in its file of ``chai/tasks``,
those of blobs, windows and tables in ``tasks/fields.py``. Fields that a kind does not use are zero. ``NOTES`` are not
encoded. Descriptors of an overlay without unsigned codes have no fields for zero points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .. import tasks as kinds
from ..errors import DeviceError
from ..overlay import Overlay
from ..overlay.records import pack
from ..overlay.weights import ByteSource, Piece
from ..tasks import Task
from ..tasks.fields import Operands
from ..text import number_of
from ..util.lazy_numpy import np
from .dependencies import NONE, Finished

LOOKUP = 256  # bytes of a table of codes
NOTES = ("origin", "zero_weights")  # fields of Tasks that only reports need
_AFTER = tuple(f"after_{engine}" for engine in Finished._fields)
_CHAIN = ("tag", *_AFTER)  # depend on its place in a chain
_ZEROS = ("input_zero", "second_zero", "output_zero")


def encode(
    task: Task, memory: Operands, where: int, *, tag: int = 0, after: Finished = NONE
) -> tuple[bytes, Sequence[Piece]]:
    """Return the descriptor of a Task and the pieces of its constants, to be stored contiguously from address ``where``.

    Weights that are already packed are returned unchanged and read when they are stored. ``memory`` has
    every blob of the Task and the parents of views. ``tag`` is the descriptor's position in a chain, ``after`` what it waits for.
    Raises DeviceError, with the Task, for one that the manifest excludes or a value that a field cannot hold.
    """
    memory = memory.of(task.images)
    try:
        values = fields_of(task, memory, where, {"tag": tag, **waiting(after)})
        lookup = () if task.lookup is None else (ByteSource(task.lookup.tobytes()),)
        return pack(memory.overlay.descriptor, values), (*task.constants(memory), *lookup)
    except DeviceError as error:
        raise _of(task, error) from error


def decode(stored: Sequence[tuple[Mapping[str, int], Mapping[str, Any]]], memory: Operands) -> list[Task]:
    """Return the Tasks of descriptors: of each, its field values and the arguments that all kinds of Task have, blobs included.

    Their weights stay in the ``constants`` of ``memory``. Raises DeviceError for anything that ``encode`` does not write
    for a Task with these fields, at whatever place in a chain.
    """
    with suppress(DeviceError):  # all tables at once is faster; if one is wrong, its Task says so
        memory.constants.read_tables(memory.overlay, [table for each in stored if (table := _table(*each, memory))[1]])
    tasks = [task_of(*each, memory) for each in stored]
    # in a loop of its own: the weights that it reads evict all else from the cache
    for (values, _), task in zip(stored, tasks):
        check_fields(values, task, memory.of(task.images), constants_at(values))
    return tasks


def _table(values: Mapping[str, int], common: Mapping[str, Any], memory: Operands) -> tuple[int, int]:
    """Return the address and the number of records of a descriptor's table."""
    records = _kind(memory.overlay, values["opcode"]).records(values, memory.shape(common["output"]))
    return values["table"], records


def task_of(values: Mapping[str, int], common: Mapping[str, Any], memory: Operands) -> Task:
    """Return the Task of a descriptor; nothing but what it is made of is checked."""
    kind = _kind(memory.overlay, values["opcode"])
    if len(common["inputs"]) != kind.operands:
        raise DeviceError(
            f"descriptor: a {kind.kind} reads {number_of(kind.operands, 'blob')}, found {', '.join(common['inputs'])}"
        )
    if values.get("lookup"):
        address, records = _table(values, common, memory)
        codes = memory.constants.read("lookup", address + records * memory.overlay.table.bytes, LOOKUP)
        common = {**common, "lookup": codes.view(np.int8)}
    return kind.from_fields(values, memory.of(common.get("images")), **common)


def check_fields(values: Mapping[str, int], task: Task, memory: Operands, where: int) -> None:
    """Raise DeviceError unless the values are those of a Task's descriptor, whatever its place in a chain.

    Its constants are stored from address ``where``.
    """
    try:
        own = fields_of(task, memory, where, {name: values[name] for name in _CHAIN})
        for name, value in own.items() if own != values else ():
            if values[name] != value:
                raise DeviceError(f"its descriptor has {name} = {values[name]}, expected {value}")
    except DeviceError as error:
        raise _of(task, error) from error


def constants_at(values: Mapping[str, int]) -> int:
    """Return the address from which the constants of a Task are stored, or 0: no field has another use for it."""
    return values["weights"] or values["table"]


def fields_of(task: Task, memory: Operands, where: int, place: Mapping[str, int]) -> dict[str, int]:
    """Return the values of all fields of a Task's descriptor; ``place`` has those of its place in a chain."""
    overlay, limits = memory.overlay, task.limits(memory.overlay)
    if limits is None:
        raise DeviceError(f"opcode: overlay {overlay.name} has no {task.kind} unit")
    own = task.fields(memory, where)
    if task.rows is not None and task.engine == "window":
        read, written = (own[f"{side}_height"] * own[f"{side}_width"] for side in ("input", "output"))
        own |= {"tile_rows": read, "tile_columns": written}  # words of a plane
    if task.lookup is not None:  # after the records of requantisation, where it has some
        own = {**own, "lookup": 1, "table": own.get("table") or where}
    if reason := task.excluded(overlay, memory.shapes):
        raise DeviceError(reason)
    if own["shift"] > overlay.requant.shift_max:
        raise DeviceError(f"shift: {own['shift']}, expected at most {overlay.requant.shift_max}")
    return {**overlay.descriptor.zeros, **place, "opcode": limits.opcode, **_known(own, overlay)}


def _of(task: Task, error: DeviceError) -> DeviceError:
    name = "+".join(task.origin) or task.output
    return DeviceError(f"task {name} ({task.kind}): {error.message}", layer=name, hint=error.hint)


def _known(own: dict[str, int], overlay: Overlay) -> dict[str, int]:
    """Return the fields that the overlay's descriptors have; others have to be 0."""
    lacking = own.keys() - overlay.descriptor.zeros.keys()
    if not overlay.unsigned:
        lacking.update(_ZEROS)
    if not lacking:
        return own
    for name, value in own.items():
        if value and name in lacking:
            lacks = "unsigned codes" if name in _ZEROS else "field of this name"
            raise DeviceError(f"{name}: overlay {overlay.name} has no {lacks}")
    return {name: value for name, value in own.items() if name not in lacking}


def shared_weights(overlay: Overlay, stored: Sequence[Mapping[str, int]]) -> Iterator[tuple[bool, bool]]:
    """Yield ``shared`` and ``shares`` of each Task of a chain's descriptors."""
    shared = False
    for values in stored:
        on_array = _kind(overlay, values["opcode"]).engine == "array"
        shares = on_array and bool(values.get("shares"))
        yield on_array and shared, shares
        shared = shares if on_array else shared


def waiting(after: Finished) -> dict[str, int]:
    """Return the fields of what a descriptor waits for."""
    return dict(zip(_AFTER, after))


def _kind(overlay: Overlay, opcode: int) -> type[Task]:
    for section in overlay.tasks:
        if ("opcode", opcode) in section.limits:
            return kinds.find(section.kind, overlay.arithmetic)
    raise DeviceError(f"descriptor: opcode = {opcode} is that of no Task of overlay {overlay.name}")
