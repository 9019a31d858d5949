"""The micro-ops that a GEMM or ALU instruction runs, one after the other, as arrays of indices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Union

from ..blob import Array
from ..errors import DeviceError
from ..util.lazy_numpy import np
from .isa import MICRO_OP, Alu, Gemm, Memory

Entries = Union[slice, Array]
MOST = 1 << 20  # steps of one instruction's loops: more than any layer needs of memories this size
FORGET = 16  # micro-ops after which a written accumulator is surely seen: the pipeline forwards nothing


class Nest(NamedTuple):
    """The loops of an instruction, with the steps of dst, src and wgt for each, and the memory of src; None: it is not read."""

    outer: int
    inner: int
    dst: tuple[int, int]
    src: tuple[int, int]
    wgt: tuple[int, int]
    source: Memory | None


def nest(instruction: Gemm | Alu) -> Nest:
    i = instruction
    if isinstance(i, Gemm):
        steps = (i.acc_outer, i.acc_inner), (i.inp_outer, i.inp_inner), (i.wgt_outer, i.wgt_inner)
        return Nest(i.outer, i.inner, *steps, Memory.INP)
    source = Memory.ACC if i.immediate is None else None
    return Nest(i.outer, i.inner, (i.dst_outer, i.dst_inner), (i.src_outer, i.src_inner), (0, 0), source)


@dataclass(frozen=True, eq=False)
class Indices:
    """``dst``, ``src`` and ``wgt`` of each micro-op in order, int64 (n,).

    ``reads_src``  whether src is an accumulator, too: that of an ALU instruction without immediate
    """

    dst: Array
    src: Array
    wgt: Array
    reads_src: bool

    @cached_property
    def before(self) -> Array:
        """Return, for each micro-op, the last one before it that wrote an accumulator that it reads; -1 if none."""
        count = len(self.dst)
        times = np.arange(count)
        writes = np.sort(self.dst * count + times)

        def last(reads: Array) -> Array:
            keys = np.concatenate([[-1], writes])
            latest = keys[np.searchsorted(writes, reads * count + times)]
            return np.where(latest // count == reads, latest % count, -1)

        return np.maximum(last(self.dst), last(self.src)) if self.reads_src else last(self.dst)

    @cached_property
    def distance(self) -> int:
        """Return the least number of micro-ops from a write of an accumulator to a read of it; MOST if there is none."""
        before = self.before
        late = np.flatnonzero(before >= 0)
        return int((late - before[late]).min(initial=MOST))

    @cached_property
    def runs(self) -> list[slice]:
        """Return runs of micro-ops, none of which reads or writes an accumulator that another of its run wrote before."""
        before, begin, slices = self.before, 0, []
        while begin < len(before):
            end = begin + 1
            while end < len(before):  # in pieces: runs are often short
                piece = before[end : end + 4096]
                late = np.flatnonzero(piece >= begin)
                end += int(late[0]) if len(late) else len(piece)
                if len(late):
                    break
            slices.append(slice(begin, end))
            begin = end
        return slices

    @cached_property
    def used(self) -> tuple[Entries, Entries, Entries]:
        """Return the distinct dst, src and wgt: a slice, if there are no gaps, or indices."""
        return _distinct(self.dst), _distinct(self.src), _distinct(self.wgt)


def _distinct(indices: Array) -> Entries:
    distinct = np.unique(indices)
    if len(distinct) and distinct[-1] - distinct[0] + 1 == len(distinct):
        return slice(int(distinct[0]), int(distinct[-1]) + 1)
    return distinct


def indices(micro_ops: Array, nest: Nest, limits: tuple[int, int, int]) -> Indices:
    """Return the micro-ops (uint32) that the loops run; each index must be below its limit (dst, src, wgt).

    Raises DeviceError for an index beyond its memory, or more than MOST steps: loops around no micro-op take time, too.
    """
    reads_src = nest.source == Memory.ACC
    count = nest.outer * nest.inner * max(1, len(micro_ops))
    if count > MOST:
        raise DeviceError(f"{count:,} micro-ops in one instruction, expected at most {MOST:,}")
    if not nest.outer * nest.inner * len(micro_ops):
        nothing = np.zeros(0, np.int64)
        return Indices(nothing, nothing, nothing, reads_src)
    indices = []
    for field, steps, limit in zip(MICRO_OP, (nest.dst, nest.src, nest.wgt), limits):
        first = (micro_ops >> np.uint32(field.position) & np.uint32((1 << field.width) - 1)).astype(np.int64)
        largest = int(first.max()) + (nest.outer - 1) * steps[0] + (nest.inner - 1) * steps[1]
        if largest >= limit:
            raise DeviceError(f"index {largest} of {field.name} is beyond a memory of {limit} entries")
        loops = np.add.outer(np.arange(nest.outer) * steps[0], np.arange(nest.inner) * steps[1])
        indices.append(np.add.outer(loops, first).reshape(-1))
    return Indices(indices[0], indices[1], indices[2], reads_src)
