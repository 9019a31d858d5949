"""Lower a segment's Tasks to one program for VTA."""

from __future__ import annotations

from collections.abc import Iterator

from ..codegen.memory_map import FIXED, REGION, Usage, regions
from ..errors import DeviceError
from ..fixed import Requantization
from ..tasks import Task
from ..tasks.conv import Conv
from ..tasks.copy import Copy
from ..tasks.eltwise import Eltwise
from ..tasks.fields import Operands as Blobs
from ..tasks.pool import Pool
from ..tasks.work import Work
from ..util.lazy_numpy import np
from .checks import Machine
from .conv import ConvolutionLowering, Plane
from .emit import ConstantPool, Group, MicroOps, finished, task
from .isa import BLOCK, Instruction, Memory
from .pool import Maximum
from .program import VtaSegment
from .requantize import Shift, shift_of
from .sums import Sum


def refusal(task: Task) -> str | None:
    """Return why VTA cannot run a Task; None if it can."""
    shift = _shift(task)
    if isinstance(shift, str):
        return shift
    if isinstance(task, (Conv, Pool)) and any(pad >= size for pad, size in zip(task.window.pad, task.window.kernel)):
        return "its padding is not smaller than its window"
    if isinstance(task, (Conv, Pool)) and task.window.dilation != (1, 1):
        return "its window is dilated: the loops of a GEMM step by single pixels"
    return None


def _shift(task: Task) -> Shift | str | None:
    if isinstance(task, Conv):
        weights = np.asarray(task.weights)
        silent = ~weights.reshape(len(weights), -1).any(1) & (task.bias == 0)
        return shift_of(task.requantization, len(weights), silent)
    if isinstance(task, Pool):
        return None if task.requantization is None else "an average: VTA has no multiplier after its accumulators"
    if isinstance(task, Eltwise) and task.negative is not None:
        return "a leaky ReLU: VTA has no multiplier after its accumulators"
    return _scaled(task)[1] if isinstance(task, (Copy, Eltwise)) else f"no {task.kind} unit"


def _scaled(task: Copy | Eltwise) -> tuple[list[int], Shift | str | None]:
    """Return a sum's factors without their common power of two, and the Shift without it; None for codes as they are."""
    r = task.requantization
    if r is None:
        return [1], None
    factors = [int(r.multiplier)] if isinstance(task, Copy) else [*task.factors]
    common = min((factor & -factor for factor in factors if factor), default=1 << r.shift)
    right = Requantization(np.array(common), r.shift, r.low, r.high, r.negative, r.zero)
    return [factor // common for factor in factors], shift_of(right, BLOCK)


def segment(work: Work) -> VtaSegment:
    """Return the program of a segment. Raises DeviceError, with the Task."""
    overlay, tasks, shapes = work.overlay, work.tasks, work.shapes
    machine: Machine = overlay.machine.machine
    usage = Usage([(each.inputs, each.output) for each in tasks], work.reads, work.writes)
    laid = regions(overlay.layout, shapes, work.views, usage)
    blobs, constants = Blobs(overlay, laid.blobs, shapes), ConstantPool(FIXED << REGION)
    program: list[Instruction] = []
    ends = []
    for number, each in enumerate(tasks):
        micro_ops = MicroOps(machine.depths[Memory.UOP], constants)
        try:
            program += task(number, [*_groups(each, blobs, micro_ops)], micro_ops)
        except DeviceError as error:
            name = "+".join(each.origin) or each.output
            raise DeviceError(f"task {name} ({each.kind}): {error.message}", layer=name) from error
        ends.append(len(program))
    whole = finished(program)
    return VtaSegment(overlay, machine, tuple(tasks), shapes, laid, whole, ends, constants.parts)


def _groups(each: Task, blobs: Blobs, micro_ops: MicroOps) -> Iterator[Group]:
    reason, shift = refusal(each), _shift(each)
    if reason is not None:
        raise DeviceError(reason)
    assert not isinstance(shift, str)
    sources = [Plane(*blobs.view(blob)) for blob in each.inputs]
    target = Plane(*blobs.view(each.output))
    if isinstance(each, Pool):
        return Maximum(sources[0], target, each.window, micro_ops).groups()
    if isinstance(each, Conv):
        assert shift is not None
        parts = np.asarray(each.weights), each.bias, each.window, each.group, shift
        return ConvolutionLowering(sources[0], target, *parts, micro_ops).groups()
    assert isinstance(each, (Copy, Eltwise))
    if isinstance(each, Copy):
        target = target._replace(address=target.address + each.first // BLOCK * target.pitch)
    return Sum(sources, target, _scaled(each)[0], shift, micro_ops).groups()
