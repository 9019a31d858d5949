"""Compile the Tasks of a segment: order, layout and descriptors with the fewest cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import DeviceError
from ..overlay.layout import spaced
from ..overlay.weights import Piece as Constant
from ..tasks.fields import Operands
from ..tasks.work import Work
from .arrange import best_arrangement
from .chain import Chain, arranged, head_bytes
from .cycles import first_cycle, makespan
from .dependencies import dependencies
from .encoding import encode
from .join_pooling import joined
from .memory_map import FIXED, REGION, HostBlobs, Usage, regions

APART = 0, 1, 2, 4, 8  # Tasks between the last reader of a blob and the next use of its bytes, least memory first
ROOM = 32 << 20  # bytes of blobs that are kept apart at most: a quarter of what PYNQ's images set aside for devices


def chain(work: Work) -> Chain:
    """Return the Chain of a segment.

    Poolings are joined to the convolutions before them. Of layouts that share more or less memory it has that with the fewest
    cycles, in the order of ``best_arrangement``. Raises DeviceError for an overlay without descriptors, and for a Task that
    they cannot express.
    """
    check_descriptors(work)
    work = joined(work)
    overlay, shapes = work.overlay, work.shapes

    # orders are compared as if no bytes were shared, so no Task waits for them; then bytes are shared where it costs no cycles
    order = best_arrangement(work)
    tasks = tuple(arranged(work.tasks, order.pieces))
    usage = Usage([(task.inputs, task.output) for task in tasks], work.reads, work.writes)
    drafts = []
    for apart in APART:
        layout = regions(overlay.layout, shapes, work.views, usage, apart=apart)
        after = dependencies(overlay, tasks, shapes, layout)
        drafts.append(Chain(overlay, tasks, tuple(order.pieces), shapes, layout, after, [], []))
    small = [one for one in drafts if sum(one.regions.sizes.values()) <= ROOM]
    best = min(small, key=lambda one: makespan(order.efforts, one.after, first_cycle(overlay)), default=drafts[0])
    descriptors, constants = _encoded(best)
    return replace(best, descriptors=descriptors, constants=constants)


def check_descriptors(work: Work) -> None:
    """Raise DeviceError for an overlay that takes no descriptors: only its own architecture can compile for it."""
    overlay = work.overlay
    if overlay.own is not None:
        other = " or emulator" if work.chain is None else ""  # which runs Tasks, not a file's instructions
        what = f"overlay {overlay.name} takes no descriptors, since its architecture is {overlay.architecture}"
        raise DeviceError(what, hint=f"--device {overlay.simulator}{other}, or pynq on a board")


def executable(work: Work) -> HostBlobs:
    """Return what a segment becomes on any overlay: a Chain, or what its architecture makes of it."""
    own = work.overlay.own
    return chain(work) if own is None else own.segment(work)


def _encoded(draft: Chain) -> tuple[list[bytes], list[tuple[int, Constant]]]:
    """Return descriptors, and constants with their offsets; the pieces of a Task share its constants."""
    descriptors: list[bytes] = []
    constants: list[tuple[int, Constant]] = []
    end = head_bytes(draft.overlay, len(draft.tasks))
    starts: dict[int, int] = {}
    memory = Operands(draft.overlay, draft.regions.blobs, draft.shapes)
    for tag, (task, piece, after) in enumerate(zip(draft.tasks, draft.pieces, draft.after)):
        start = starts.get(piece.task, end)
        where = (FIXED << REGION) + start
        descriptor, parts = encode(task, memory, where, tag=tag, after=after)
        descriptors.append(descriptor)
        if piece.task in starts:
            continue
        starts[piece.task] = start
        for part in parts:
            constants.append((end, part))
            end += part.bytes
        end = spaced(end)
    return descriptors, constants


class Footprint(NamedTuple):
    """Bytes in a device's memory; ``apart`` is the size of the activations without sharing."""

    activations: int
    apart: int
    constants: int

    def __str__(self) -> str:
        shared = f"{self.activations / 1e6:.2f} MB of activations on the device ({self.apart / 1e6:.2f} without reuse)"
        return f"{shared}, {self.constants / 1e6:.2f} MB of weights and descriptors"


def footprint(chains: Sequence[HostBlobs]) -> Footprint:
    """Return the memory of all segments of a network, each in separate memory."""
    return Footprint(
        sum(sum(segment.regions.sizes.values()) for segment in chains),
        sum(segment.regions.total for segment in chains),
        sum(segment.sizes[FIXED] for segment in chains),
    )
