"""Encode Tasks as an accelerator fetches them from DDR, and decode them: ``decode(encode(task))`` equals the Task.

A Task becomes one record of ``overlay.descriptor`` and its constants: weights, then the table of requantisation, each
aligned by the layout's alignment. The fields of a kind are in its file of ``chai/tasks``, those of blobs, windows and
tables in ``tasks/fields.py``. Fields that a kind does not use are zero. ``NOTES`` are not encoded. Descriptors of an
overlay without unsigned codes have no fields for zero points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from .. import tasks as kinds
from ..errors import DeviceError
from ..overlay.records import Rows, pack, unpack
from ..overlay.weights import Packed, joined, size_of
from ..tasks.fields import Constants, Memory, same
from .dependencies import NONE, Finished

if TYPE_CHECKING:
    from ..blob import Shape
    from ..overlay import Overlay
    from ..overlay.weights import Buffer, Piece, Source
    from ..tasks import Task
    from ..tasks.fields import Encoded, Place

NOTES = ("origin", "zero_weights")  # fields of Tasks that only reports need
_ZEROS = ("input_zero", "second_zero", "output_zero")


def encode(
    task: Task,
    overlay: Overlay,
    address: Mapping[str, Place],
    shapes: Mapping[str, Shape],
    where: int,
    *,
    tag: int = 0,
    after: Finished = NONE,
) -> tuple[bytes, Sequence[Piece]]:
    """Return the descriptor of a Task and the pieces of its constants, to be stored contiguously from address ``where``.

    Weights that are already packed are returned unchanged and read when they are stored. ``address`` and ``shapes`` hold
    every blob of the Task and the parents of views. ``tag`` is the descriptor's position in a chain, ``after`` what it waits for.
    Raises DeviceError, with the Task, for one that the manifest excludes or a value that a field cannot hold.
    """
    try:
        values, constants = _fields(task, Memory(overlay, address, shapes, images=task.images), where, tag, after)
        return pack(overlay.descriptor, values), [p.packed() if isinstance(p, Rows) else p for p in constants]
    except DeviceError as error:
        raise _of(task, error) from error


def decode(
    descriptor: Buffer,
    constants: Buffer | Source,
    overlay: Overlay,
    address: Mapping[str, Place],
    shapes: Mapping[str, Shape],
    where: int,
    images: tuple[int, int] | None = None,
) -> Task:
    """Return the Task of a descriptor, for ``images`` (first, count) of its blobs.

    Its weights stay in ``constants``, the memory from ``where`` of one or more Tasks. Blobs are named by location and size
    in ``address``, so no two blobs in it may share both (such blobs are never in use at once). The Task has no ``NOTES``.
    Raises DeviceError for anything that ``encode`` does not write.
    """
    stored = unpack(overlay.descriptor, descriptor)
    values = {**dict.fromkeys(_ZEROS, 0), **stored}
    area = Constants(constants, where)
    memory = Memory(overlay, address, shapes, area, images)
    task = _kind(overlay, values["opcode"]).from_fields(values, memory)
    task = task if images is None else replace(task, images=images)
    # encoding completes the check: it must give the same values and constants
    begin = where if area.begin is None else area.begin
    after = Finished(**{name: values[f"after_{name}"] for name in Finished._fields})
    try:
        again, parts = _fields(task, memory, begin, values["tag"], after)
    except DeviceError as error:
        raise _of(task, error) from error
    for name, value in again.items() if again != stored else ():
        if stored[name] != value:
            raise DeviceError(f"descriptor: {name} = {stored[name]}, a {task.kind} like this has {value}")
    for part in parts:
        size = size_of(part)
        if isinstance(part, Rows):
            if not part.equal(area.rows("table", part.record, begin, size)):
                raise DeviceError(f"descriptor: the table of a {task.kind} like this has other values")
        elif not isinstance(part, Packed) and joined([part]) != area.read("constants", begin, size):
            # packed weights are these same bytes, which have been checked
            raise DeviceError(f"descriptor: the padding of the constants of a {task.kind} is not zero")
        begin += size
    return task


def equal(a: Task, b: Task) -> bool:
    """Return whether two Tasks are equal in all fields that a descriptor has, arrays by value.

    A Copy whose requantisation changes no code equals one without requantisation.
    """
    a, b = a.plain(), b.plain()
    if type(a) is not type(b):
        return False
    return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name not in NOTES)


def _fields(task: Task, memory: Memory, where: int, tag: int, after: Finished) -> Encoded:
    """Return the values of all fields of a Task's descriptor, and its constants."""
    overlay = memory.overlay
    values = dict.fromkeys(overlay.descriptor.values, 0)
    values |= {"opcode": _opcode(overlay, task), "tag": tag, **waiting(after)}
    own, constants = task.fields(memory, where)
    limits, reason = task.limits(overlay), task.excluded(overlay, memory.shapes)
    if reason:
        raise DeviceError(reason)
    for blob in (*task.inputs, task.output):
        first = memory.address[blob].first_channel
        if limits is not None and first % limits.channel_step:
            raise DeviceError(f"blob {blob!r} begins at channel {first}, not at a multiple of {limits.channel_step}")
    if own["shift"] > overlay.requant.shift_max:
        raise DeviceError(f"shift: {own['shift']}, expected at most {overlay.requant.shift_max}")
    return values | _known(own, overlay), constants


def _of(task: Task, error: DeviceError) -> DeviceError:
    """Return an error with the name of its Task."""
    name = "+".join(task.origin) or task.output
    return DeviceError(f"task {name} ({task.kind}): {error.message}", layer=name, hint=error.hint)


def _known(own: Mapping[str, int], overlay: Overlay) -> dict[str, int]:
    """Return the fields that the overlay's descriptors have."""
    if overlay.unsigned:
        return {**own}
    beyond = [name for name in _ZEROS if own.get(name)]
    if beyond:
        raise DeviceError(f"{beyond[0]}: overlay {overlay.name} has no unsigned codes")
    return {name: value for name, value in own.items() if name not in _ZEROS}


def waiting(after: Finished) -> dict[str, int]:
    """Return the fields of what a descriptor waits for."""
    return {f"after_{engine}": count for engine, count in after._asdict().items()}


def _opcode(overlay: Overlay, task: Task) -> int:
    limits = task.limits(overlay)
    if limits is None:
        raise DeviceError(f"opcode: overlay {overlay.name} has no {task.kind} unit")
    return limits.opcode


def _kind(overlay: Overlay, opcode: int) -> type[Task]:
    for kind in map(kinds.find, overlay.kinds):
        limits = kind.limits(overlay)
        if limits is not None and limits.opcode == opcode:
            return kind
    raise DeviceError(f"descriptor: opcode = {opcode} is that of no Task of overlay {overlay.name}")
