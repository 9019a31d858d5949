"""Programs that are refused: the hardware would do these silently."""

from __future__ import annotations

import numpy as np
import pytest

from chai.errors import DeviceError

from ..by_hand import (
    ACC,
    ADD,
    FINISH,
    INP,
    OUT,
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    TAKE,
    UOP,
    WGT,
    Image,
    Machine,
    uop,
)
from .common import IDENTITY, LANES, copied, rule


def refuses(m: Machine, image: Image, words: list[tuple[int, int]], why: str, distance: bool = False) -> None:
    before = image.bytes.copy()
    with pytest.raises(DeviceError, match=why):
        m.run(image, words, distance)
    assert (image.bytes[0x400:] == before[0x400:]).all()


def ready() -> Image:
    return copied(Image().put(WGT, 0, IDENTITY).put(INP, 0, [LANES] * 64), 128)


@rule
def tokens_that_never_come_or_stay(m: Machine) -> None:
    a = m.asm
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=POP_PREV), FINISH], "would hang.*waits for a token from LOAD")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=POP_NEXT), FINISH], "would hang.*waits for a token from STORE")
    refuses(m, ready(), [a.load(INP, 0, 0, 0, tokens=POP_NEXT), FINISH], "waits for a token from COMPUTE")
    refuses(m, ready(), [a.store(0, 0, 0, tokens=POP_PREV), FINISH], "waits for a token from COMPUTE")
    refuses(m, ready(), [a.load(INP, 0, 0, 0, tokens=PUSH_NEXT), FINISH], "leaves 1 tokens from LOAD to COMPUTE")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=PUSH_PREV), FINISH], "leaves 1 tokens from COMPUTE to LOAD")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT), FINISH], "leaves 1 tokens from COMPUTE to STORE")
    refuses(m, ready(), [a.store(0, 0, 0, tokens=PUSH_PREV), FINISH], "leaves 1 tokens from STORE to COMPUTE")


@rule
def tokens_of_units_that_are_not_there(m: Machine) -> None:
    a = m.asm
    for tokens in (POP_PREV, PUSH_PREV):
        refuses(m, ready(), [a.load(INP, 0, 0, 0, tokens=tokens), FINISH], "no unit before LOAD")
    for tokens in (POP_NEXT, PUSH_NEXT):
        refuses(m, ready(), [a.store(0, 0, 0, tokens=tokens), FINISH], "no unit after STORE")


@rule
def finish_is_last_and_bare(m: Machine) -> None:
    a = m.asm
    refuses(m, ready(), [a.load(UOP, 0, 0, 0)], "has no FINISH")
    refuses(m, ready(), [FINISH, a.load(UOP, 0, 0, 0)], "FINISH is not the last")
    refuses(m, ready(), [FINISH, FINISH], "FINISH is not the last")
    for tokens in (POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT):
        refuses(m, ready(), [(3 | tokens << 3, 0), FINISH], "FINISH is not the last")
        refuses(m, ready(), [(3 | tokens << 3, 0)], "no tokens")
    refuses(m, ready(), [a.load(INP, 0, 0, 1), FINISH], "FINISH does not wait for the last instructions of LOAD")
    words = [a.load(UOP, 0, 0, 1), a.alu(ADD, 0, 1, 0, tokens=PUSH_NEXT), a.store(0, 0, 1, tokens=POP_PREV), FINISH]
    refuses(m, ready(), words, "FINISH does not wait for the last instructions of STORE")


@rule
def addresses_are_those_of_the_program(m: Machine) -> None:
    a = m.asm
    ends = {UOP: 0x100, INP: 0x100, ACC: 0x80, WGT: 0x80}  # entries of each part of the image
    for memory, count in ends.items():
        tokens = PUSH_NEXT if memory in (INP, WGT) else 0
        take = [a.load(UOP, 0, 0, 0, tokens=POP_PREV)] if tokens else []
        m.run(ready(), [a.load(memory, 0, count - 2, 2, tokens=tokens), *take, FINISH])
        for dram, columns, rows, stride in ((count - 2, 3, 1, 0), (count, 1, 1, 0), (-1, 2, 1, 0), (0, 1, 2, count)):
            word = a.load(memory, 0, dram, columns, rows, stride, tokens=tokens)
            refuses(
                m, ready(), [word, *take, FINISH], "rows = 2" if memory == UOP and rows > 1 else "may be loaded into"
            )
    words = [a.load(UOP, 0, 0, 16), a.load(ACC, 0, 0, 16), a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT)]
    most = (0x10000 - 0xC000) // 16
    for dram, columns, rows, stride in ((most - 1, 2, 1, 0), (-1, 1, 1, 0), (most, 1, 1, 0), (0, 1, 2, most)):
        store = a.store(0, dram, columns, rows, stride)
        refuses(m, ready(), [*words, store, TAKE, FINISH], "may be stored to")
    m.run(ready(), [*words, a.store(0, most - 2, 2), TAKE, FINISH])
    refuses(m, ready(), [*words, a.store(0, 0, 3, 2, 2), TAKE, FINISH], "overlap")


@rule
def a_buffer_is_for_its_kind(m: Machine) -> None:
    a = m.asm
    for memory, place in ((UOP, 0x1000 // 4), (ACC, 0x4000 // 64), (INP, 0x2000 // 16), (WGT, 0x1000 // 256)):
        tokens = PUSH_NEXT if memory in (INP, WGT) else 0
        take = [a.load(UOP, 0, 0, 0, tokens=POP_PREV)] if tokens else []
        base = {UOP: 0xC00 // 4, INP: 0x100, ACC: 0x80, WGT: 0x40}[memory]
        refuses(m, ready(), [a.load(memory, 0, place - base, 1, tokens=tokens), *take, FINISH], "may be loaded into")


@rule
def on_chip_indices_end_with_their_memory(m: Machine) -> None:
    a = m.asm
    take = a.load(UOP, 0, 0, 0, tokens=POP_PREV)
    for memory, depth in ((UOP, 8192), (ACC, 2048)):
        m.run(ready(), [a.load(memory, depth - 2, 0, 2), FINISH])
        refuses(m, ready(), [a.load(memory, depth - 2, 0, 3), FINISH], f"beyond the {depth} of")
    for memory, depth in ((INP, 2048), (WGT, 1024)):
        m.run(ready(), [a.load(memory, depth - 2, 0, 2, tokens=PUSH_NEXT), take, FINISH])
        refuses(m, ready(), [a.load(memory, depth - 2, 0, 3, tokens=PUSH_NEXT), take, FINISH], f"beyond the {depth} of")
    m.run(ready(), [a.load(INP, 2048 - 12, 0, 2, 1, 0, (1, 1, 1, 1), PUSH_NEXT), take, FINISH])
    refuses(m, ready(), [a.load(INP, 2048 - 11, 0, 2, 1, 0, (1, 1, 1, 1), PUSH_NEXT), take, FINISH], "beyond the 2048")
    words = [a.load(UOP, 0, 0, 16), a.alu(ADD, 0, 1, 0, tokens=PUSH_NEXT)]
    refuses(m, ready(), [*words, a.store(2047, 0, 2), TAKE, FINISH], "beyond the 2048 of OUT")


@rule
def micro_ops_with_steps_end_with_their_memory(m: Machine) -> None:
    a = m.asm
    load = a.load(UOP, 0, 0, 128)
    for steps, what in (((1, 0, 0, 0, 0, 0), "dst"), ((0, 0, 1, 0, 0, 0), "src")):
        m.run(ready(), [load, a.gemm(0, 16, 2033, 1, steps), FINISH])
        refuses(m, ready(), [load, a.gemm(0, 16, 2034, 1, steps), FINISH], f"index 2048 of {what}")
    m.run(ready(), [load, a.gemm(0, 16, 1024, 1, (0, 0, 0, 0, 1, 0)), FINISH])
    refuses(m, ready(), [load, a.gemm(0, 16, 1025, 1, (0, 0, 0, 0, 1, 0)), FINISH], "index 1024 of wgt")
    m.run(ready(), [load, a.gemm(0, 1, 3, 2, (1000, 47, 0, 0, 0, 0)), FINISH])
    refuses(m, ready(), [load, a.gemm(0, 1, 3, 2, (1000, 48, 0, 0, 0, 0)), FINISH], "index 2048 of dst")
    m.run(ready(), [load, a.alu(ADD, 0, 1, 0, 3, 2, (0, 0, 2000, 2000)), FINISH])  # src is not read
    refuses(m, ready(), [load, a.alu(ADD, 0, 1, None, 3, 2, (0, 0, 1000, 48)), FINISH], "index 2048 of src")
    refuses(m, ready(), [load, a.alu(ADD, 0, 1, 0, 3, 2, (1000, 48, 0, 0)), FINISH], "index 2048 of dst")


@rule
def micro_ops_are_the_programs_own(m: Machine) -> None:
    a = m.asm
    refuses(m, ready(), [a.gemm(0, 1), FINISH], "not all loaded")
    refuses(m, ready(), [a.load(UOP, 4, 0, 4), a.gemm(4, 9), FINISH], "not all loaded")
    refuses(m, ready(), [a.load(UOP, 4, 0, 4), a.alu(ADD, 3, 8, 0), FINISH], "not all loaded")
    m.run(ready(), [a.load(UOP, 4, 0, 4), a.alu(ADD, 4, 8, 0), FINISH])


@rule
def only_computed_entries_are_stored(m: Machine) -> None:
    a = m.asm
    load = [a.load(UOP, 0, 0, 16), a.load(ACC, 0, 0, 64)]
    words = [*load, a.alu(ADD, 0, 4, 0, tokens=PUSH_NEXT)]
    m.run(ready(), [*words, a.store(0, 0, 4), TAKE, FINISH])
    refuses(m, ready(), [*words, a.store(0, 0, 5), TAKE, FINISH], "no GEMM or ALU has written")
    words = [*load, a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT)]
    refuses(m, ready(), [*words, a.store(0, 0, 1), TAKE, FINISH], "no GEMM or ALU has written")


@rule
def what_is_stored_is_the_programs_own(m: Machine) -> None:
    """Entries that it has not loaded hold what earlier programs left; what is computed from them is not stored."""
    a = m.asm
    image = copied(Image().put(WGT, 0, IDENTITY).put(INP, 0, [LANES] * 64))
    m.compute(image, [], 0)  # loads some of each memory, for the programs after it in vain
    uops, sums = a.load(UOP, 0, 0, 16), a.load(ACC, 0, 0, 16)
    inputs, weights = a.load(INP, 0, 0, 15, tokens=PUSH_NEXT), a.load(WGT, 0, 0, 1, tokens=PUSH_NEXT)
    wait, give = a.load(UOP, 0, 0, 0, tokens=POP_PREV), a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT)

    def stores(loads: list[tuple[int, int]], computes: list[tuple[int, int]], most: int) -> None:
        """Assert that the first ``most`` entries are stored, and no more."""
        waits = [wait for low, _ in loads if low >> 3 & PUSH_NEXT]
        begin = [uops, *loads, *waits, *computes, give]
        for entries in range(1, most + 1):
            m.run(image, [*begin, a.store(0, 0, entries), TAKE, FINISH])
        refuses(m, image, [*begin, a.store(0, 0, most + 1), TAKE, FINISH], "from entries that were loaded")

    gemm, reset, add = a.gemm(0, 16), a.gemm(0, 16, reset=1), a.alu(ADD, 0, 16, 0)
    stores([sums, inputs, weights], [gemm], 15)  # the last micro-op reads an input more
    stores([sums, a.load(INP, 0, 0, 16, tokens=PUSH_NEXT)], [gemm], 0)
    stores([sums, weights], [gemm], 0)
    stores([inputs, weights], [gemm], 0)
    stores([sums, inputs, weights], [gemm, add], 15)
    stores([inputs, weights], [gemm, sums], 0)  # it is OUT that is stored
    stores([inputs, weights], [gemm, sums, add], 16)
    stores([], [add], 0)
    stores([sums], [add], 16)
    stores([sums, inputs, weights], [reset], 15)
    stores([], [reset], 0)
    stores([], [reset, add], 16)
    image.put(
        UOP, 0, [uop(i, i + 1) for i in range(16)]
    )  # each accumulator gets the one after it, the last a strange one
    stores([sums], [a.alu(ADD, 0, 16)], 15)
    stores([sums], [a.alu(ADD, 0, 16, None, 3)], 13)  # three times
    image.put(UOP, 0, [uop(15 - i, 16 - i) for i in range(16)])  # it comes first, and reaches every other
    stores([sums], [a.alu(ADD, 0, 16)], 0)
    stores([sums], [a.alu(ADD, 1, 16)], 15)


@rule
def sixteen_micro_ops_lie_between_write_and_read(m: Machine) -> None:
    a = m.asm
    load = a.load(UOP, 0, 0, 128)
    for word in (a.gemm(0, 16, 2), a.alu(ADD, 0, 16, 1, 2), a.gemm(0, 16, 2, reset=1), a.alu(ADD, 0, 1, 1)):
        m.run(ready(), [load, word, FINISH], distance=True)
    for word in (a.gemm(0, 15, 2), a.alu(ADD, 0, 15, 1, 1, 2), a.gemm(0, 15, 1, 2, reset=1), a.alu(ADD, 0, 1, 1, 2)):
        refuses(m, ready(), [load, word, FINISH], "reads an accumulator (15|1) micro-ops after", distance=True)
        m.run(ready(), [load, word, FINISH])
    image = Image().put(UOP, 0, [uop(i, 40 + i) for i in range(15)]).put(UOP, 15, [uop(20, 0), uop(21, 0)])
    refuses(m, image, [load, a.alu(ADD, 0, 16), FINISH], "15 micro-ops after", distance=True)
    image.put(UOP, 15, [uop(20, 41), uop(21, 0)])
    m.run(image, [load, a.alu(ADD, 0, 17), FINISH], distance=True)
    m.run(ready(), [load, a.gemm(0, 1), a.gemm(0, 1), FINISH], distance=True)


@rule
def queues_of_instructions_hold_512(m: Machine) -> None:
    a = m.asm
    wait, give = a.store(0, 0, 0, tokens=POP_PREV), a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT)
    last = [a.store(0, 0, 0, tokens=PUSH_PREV), TAKE, FINISH]
    _long(m, [*[wait] * 512, *[give] * 512, *last])
    with pytest.raises(DeviceError, match="would hang"):
        _long(m, [*[wait] * 513, *[give] * 513, *last])


@rule
def queues_of_tokens_hold_1024(m: Machine) -> None:
    """Compute waits for a STORE that is fetched after the LOADs: 1,024 give their tokens, 512 more are queued."""
    a = m.asm
    give, take = a.load(INP, 0, 0, 0, tokens=PUSH_NEXT), a.load(UOP, 0, 0, 0, tokens=POP_PREV)
    _long(m, [TAKE, *[give] * 1536, a.store(0, 0, 0, tokens=PUSH_PREV), *[take] * 1536, FINISH])
    with pytest.raises(DeviceError, match=r"would hang.*no room for its token to COMPUTE"):
        _long(m, [TAKE, *[give] * 1537, a.store(0, 0, 0, tokens=PUSH_PREV), *[take] * 1537, FINISH])


def _long(m: Machine, words: list[tuple[int, int]]) -> None:
    """Run a program that is too long for the image."""
    data = np.array(words, np.uint64).view(np.uint8).reshape(-1)
    m.chip.run(m.m.checks.checked(0, len(words), m.machine, [m.m.checks.Area(0, data)]))


@rule
def units_wait_for_each_other(m: Machine) -> None:
    """Entries that two units use are ordered by tokens, or the program is refused."""
    a = m.asm
    uops, sums, inputs = a.load(UOP, 0, 0, 16), a.load(ACC, 0, 0, 16), a.load(INP, 0, 0, 16, tokens=PUSH_NEXT)
    wait = a.load(UOP, 0, 0, 0, tokens=POP_PREV)
    early = [uops, a.load(INP, 0, 0, 16, tokens=PUSH_NEXT), a.gemm(0, 16), wait, FINISH]
    refuses(m, ready(), early, "reads INP without waiting for LOAD")
    again = [uops, inputs, a.gemm(0, 16, tokens=POP_PREV), inputs, wait, FINISH]
    refuses(m, ready(), again, "INP without waiting for (LOAD|COMPUTE)")
    weights = [uops, a.load(WGT, 0, 0, 1, tokens=PUSH_NEXT), a.gemm(0, 16), wait, FINISH]
    refuses(m, ready(), weights, "reads WGT without waiting for LOAD")
    apart = [uops, inputs, a.gemm(0, 16, tokens=POP_PREV), a.load(INP, 16, 0, 16, tokens=PUSH_NEXT), wait, FINISH]
    m.run(ready(), apart)
    ordered = [
        uops,
        inputs,
        a.gemm(0, 16, tokens=POP_PREV | PUSH_PREV),
        a.load(INP, 0, 0, 16, tokens=POP_NEXT | PUSH_NEXT),
        wait,
        FINISH,
    ]
    m.run(ready(), ordered)
    out = [uops, sums, a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT), a.store(0, 0, 4), a.alu(ADD, 0, 16, 0), TAKE, FINISH]
    refuses(m, ready(), out, "OUT without waiting for (STORE|COMPUTE)")
    # a STORE and a LOAD of the same bytes: through compute, since they give each other no tokens
    stored = [uops, sums, a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT), a.store(0, 0, 4)]
    place = (0xC000 - 0x1000) // 16
    refuses(
        m,
        ready(),
        [*stored, a.load(INP, 0, place, 4, tokens=PUSH_NEXT), wait, TAKE, FINISH],
        "without waiting for (STORE|LOAD)",
    )
    through = a.load(UOP, 0, 0, 0, tokens=POP_NEXT | PUSH_PREV)
    m.run(ready(), [*stored, through, a.load(INP, 0, place, 4, tokens=POP_NEXT | PUSH_NEXT), wait, FINISH])


@rule
def what_the_hardware_lacks(m: Machine) -> None:
    a, k = m.asm, m.asm.k
    for opcode in (5, 6, 7):
        refuses(m, ready(), [(opcode, 0), FINISH], f"opcode {opcode} is unknown")
    for memory in (UOP, WGT, ACC):
        for pads in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
            refuses(m, ready(), [a.load(memory, 0, 0, 1, pads=pads), FINISH], "where the hardware has none")
    first, second = a.store(0, 0, 1)
    refuses(m, ready(), [(first, second | 1 << 48), FINISH], "top = 1")
    refuses(m, ready(), [(first ^ 1 << 7, second), FINISH], "memory is not OUT")
    first, second = a.alu(ADD, 0, 1, 0)
    refuses(m, ready(), [(first | 1 << 7, second), FINISH], "reset = 1")
    for high in range(61 + k, 64):
        refuses(m, ready(), [(first, second | 1 << high), FINISH], "belongs to no field")
    if k == 3:
        for operation in (4, 5, 6, 7):
            refuses(m, ready(), [a.alu(operation, 0, 1, 0), FINISH], "is not in the hardware")
        for memory in (OUT, 5, 6, 7):
            refuses(m, ready(), [(memory << 7, 1 | 1 << 16), FINISH], "cannot be loaded")
    for pads in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):  # the zeros would be written
        words = [a.load(INP, 0, 0, 0, pads=pads, tokens=PUSH_NEXT), a.load(UOP, 0, 0, 0, tokens=POP_PREV), FINISH]
        refuses(m, ready(), words, "columns = 0 with pads")
    refuses(m, ready(), [a.load(UOP, 0, 0, 4, 2, 4), FINISH], "rows = 2 of micro-ops")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, 3), FINISH], "rows = 3 of micro-ops")


@rule
def loops_end_soon(m: Machine) -> None:
    """Loops around no micro-op too: a machine would run them, and a check must not have an array of their steps."""
    a = m.asm
    load = a.load(UOP, 0, 0, 16)
    for first, end, outer, inner in (
        (0, 0, 1025, 1024),
        (4, 2, 1025, 1024),
        (0, 0, 16383, 16383),
        (0, 16, 16383, 16383),
    ):
        for word in (a.gemm(first, end, outer, inner), a.alu(ADD, first, end, 0, outer, inner)):
            refuses(m, ready(), [load, word, FINISH], "micro-ops in one instruction")
    for first, end, outer, inner in ((0, 0, 1024, 1024), (0, 16, 0, 16383), (0, 16, 16383, 0)):
        m.run(ready(), [load, a.gemm(first, end, outer, inner), FINISH])
