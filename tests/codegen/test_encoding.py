"""What an accelerator is given: decoding gives back the Task, and nothing that does not fit is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai import overlay as overlays
from chai.blob import Shape
from chai.codegen.dependencies import Finished
from chai.codegen.encoding import decode, encode, equal
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.offload.schedule import DeviceStep
from chai.overlay import Overlay, weights as packing
from chai.overlay.layout import Placed
from chai.overlay.records import pack, unpack
from chai.overlay.weights import HeldBytes, Packed, pack_weights, weight_bytes
from chai.runtime.execution import Execution
from chai.tasks import Task
from chai.tasks.conv import Affine, Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import OPERATIONS, Eltwise
from chai.tasks.fields import Operands, TaskConstants
from chai.tasks.interleave import Interleave
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from tests.codegen.test_memory_map import Segment, network, segments
from tests.conftest import examples, report
from tests.passes.common import CONV, MAX, network as small_network
from tests.tasks.common import joined
from tests.tasks.lrns import random_table

Z2 = overlays.load("pynq-z2")
OVERLAYS = [Z2, overlays.load("ultra96")]
WHERE = 0x1_2345_6780 & ~63
RANDOM = settings(max_examples=examples(100))


def decoded(
    descriptor: bytes,
    constants: bytes,
    overlay: Overlay,
    address: Mapping[str, Placed],
    shapes: Mapping[str, Shape],
    where: int,
    of: Task,
) -> Task:
    """The Task of a descriptor, of which a file tells the blobs and images ``of`` it."""
    memory = Operands(overlay, address, shapes, TaskConstants(constants, where), of.images)
    values = unpack(overlay.descriptor, descriptor)
    common = {"inputs": of.inputs, "output": of.output, "origin": (), "images": of.images}
    return decode([(values, common)], memory)[0]


def encoded(*given: Any, **chain: Any) -> tuple[bytes, bytes]:
    """Descriptor, and constants in one piece."""
    descriptor, pieces = encode(*given, **chain)
    return descriptor, joined(pieces)


@dataclass
class Case:
    """A Task, where its blobs lie, and codes for its inputs."""

    task: Task
    address: dict[str, Placed]
    shapes: dict[str, Shape]
    codes: list[np.ndarray]

    def encode(self, overlay: Overlay = Z2, where: int = WHERE, **chain: Any) -> tuple[bytes, bytes]:
        return encoded(self.task, Operands(overlay, self.address, self.shapes), where, **chain)

    def decode(self, descriptor: bytes, constants: bytes, overlay: Overlay = Z2, where: int = WHERE) -> Task:
        return decoded(descriptor, constants, overlay, self.address, self.shapes, where, self.task)

    def values(self, **chain: Any) -> dict[str, int]:
        return unpack(Z2.descriptor, self.encode(**chain)[0])


# -- random Tasks

SHIFTS = st.integers(0, 40) | st.sampled_from([0, 40])
ZEROS = st.sampled_from([0, -128])
FACTORS = st.integers(-(1 << 17) + 1, (1 << 17) - 1) | st.sampled_from([0, 1, -(1 << 17) + 1, (1 << 17) - 1])


COUNTS = st.integers(0, 65535)


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def requantizations(draw: st.DrawFn, shape: Shape) -> Requantization:
    """8 or 6 bits, plain, with a ReLU, leaky, or unsigned; the largest multipliers among the rest."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    above = random.integers(0, 1 << 17, shape, endpoint=False)
    above.flat[:1] = (1 << 17) - 1
    largest = draw(st.sampled_from([127, 31]))
    low = draw(st.sampled_from([0, -largest - 1]))
    below = random.integers(0, 1 << 17, shape) if low and draw(st.booleans()) else None
    return Requantization(above, draw(SHIFTS), low, largest, below, draw(ZEROS))


@st.composite
def cases(draw: st.DrawFn, kind: str | None = None) -> Case:
    kind = kind or draw(
        st.sampled_from(
            [
                *(
                    "conv",
                    "depthwise",
                    "affine",
                    "max",
                    "average",
                    "eltwise",
                    "pair",
                    "upsample",
                    "interleave",
                    "copy",
                    "lrn",
                )
            ]
        )
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, (h, w) = draw(st.integers(1, 3)), draw(pairs(1, 9))
    address: dict[str, Placed] = {}
    shapes: dict[str, Shape] = {}

    def place(blob: str, *shape: int) -> None:
        """A blob of its own, or a part of a larger one."""
        shapes[blob] = shape
        offset = 64 * (8 * draw(st.integers(0, (1 << 54) - 1)) + len(shapes))  # no two at one place
        if draw(st.booleans()):
            first = 8 * draw(st.integers(0, 5))
            whole = f"around {blob}"
            address[whole] = Placed(offset, 64)
            shapes[whole] = (shape[0], first + shape[1] + draw(st.integers(1, 40)), *shape[2:])
            address[blob] = Placed(offset, 64, whole, first)
        else:
            address[blob] = Placed(offset, 64)

    task: Task
    if kind in ("conv", "depthwise", "affine"):
        window = Window(draw(pairs(1, 4)), draw(pairs(1, 3)), draw(pairs(0, 3)), draw(pairs(1, 3)))
        group, per_in, per_out = draw(st.integers(1, 4)), draw(st.integers(1, 40)), draw(st.integers(1, 60))
        if group > 1:  # whole words
            per_in, per_out = (-(-channels // 8) * 8 for channels in (per_in, per_out))
        if kind != "conv":
            group, per_in, per_out = draw(st.integers(1, 70)), 1, 1
        if kind == "affine":
            window = Window((1, 1), (1, 1), (0, 0))
        c, m = group * per_in, group * per_out
        h, w = (max(size, window.extent(i) - 2 * window.pad[i]) for i, size in enumerate((h, w)))
        weights = random.integers(-127, 128, (m, per_in, *window.kernel)).astype(np.int8)
        weights.flat[:2] = -127, 127
        bias = random.integers(-(1 << 24), 1 << 24, m)
        bias[:1] = draw(st.sampled_from([-(1 << 24), (1 << 24) - 1, 0]))
        place("in", n, c, h, w)
        place("out", n, m, *window.sizes((h, w)))
        r = draw(requantizations((m, 1, 1)))
        kind_of_conv = Affine if kind == "affine" else Conv
        task = kind_of_conv(("in",), "out", ("o",), weights, bias, window, group, r, draw(ZEROS))
    elif kind in ("max", "average"):
        window = Window(draw(pairs(1, 5)), draw(pairs(1, 4)), (0, 0))
        window = window._replace(pad=tuple(draw(st.integers(0, k - 1)) for k in window.kernel))
        h, w = (max(size, window.kernel[i] - window.pad[i]) for i, size in enumerate((h, w)))
        out = window.sizes((h, w))
        c = draw(st.integers(1, 40))
        place("in", n, c, h, w)
        place("out", n, c, *out)
        task = Pool(("in",), "out", ("o",), window, out, None)
        if kind == "average":
            task = replace(task, requantization=draw(requantizations(out)), zero=draw(ZEROS))
    elif kind == "eltwise":
        c = draw(st.integers(1, 40))
        inputs = draw(st.sampled_from([("in", "other"), ("other", "in"), ("in", "in")]))
        for blob in {*inputs, "out"}:
            place(blob, n, c, h, w)
        two = st.tuples(FACTORS, FACTORS)
        r = draw(requantizations(()))._replace(multiplier=np.array(1), negative=None)
        zeros = draw(st.just(()) | st.tuples(ZEROS, ZEROS))
        task = Eltwise(inputs, "out", ("o",), draw(two), draw(st.none() | two), r, zeros)
    elif kind == "pair":
        c, vector, operation = draw(st.integers(1, 40)), draw(st.booleans()), draw(st.sampled_from(OPERATIONS))
        for blob in ("in", "out"):
            place(blob, n, c, h, w)
        place("other", n, c, *((1, 1) if vector else (h, w)))
        r = draw(requantizations(()))._replace(multiplier=np.array(1), negative=None)
        multipliers = draw(st.tuples(FACTORS, FACTORS))[: 1 if operation == "PROD" else 2]
        zeros = draw(ZEROS), draw(ZEROS)
        task = Eltwise(("in", "other"), "out", ("o",), multipliers, None, r, zeros, operation, vector)
    elif kind == "upsample":
        c, (rows, columns) = draw(st.integers(1, 40)), draw(pairs(1, 8))
        place("in", n, c, h, w)
        place("out", n, c, h * rows, w * columns)
        r = draw(st.none() | requantizations(()))
        r = r and r._replace(multiplier=np.array(draw(FACTORS)), negative=None)
        task = UpsampleTask(("in",), "out", ("o",), (rows, columns), draw(st.booleans()), r, draw(ZEROS))
    elif kind == "interleave":
        c, rows, apart = draw(st.integers(1, 8)), draw(st.integers(1, 8)), 8 * draw(st.integers(1, 3))
        place("in", n, (2 * rows - 1) * apart + c, h, w)
        place("out", n, c, h * rows, w * 2)
        task = Interleave(("in",), "out", ("o",), rows, apart)
    elif kind == "lrn":
        task = random_table(random, 9)
        shape = n, draw(st.integers(1, 40)), h, w
        place("in", *shape)
        place("out", *shape)
        task = replace(task, inputs=("in",), output="out")
    else:
        c, first = draw(st.integers(1, 40)), 8 * draw(st.integers(0, 3))
        place("in", n, c, h, w)
        place("out", n, first + c + draw(st.sampled_from([0, 0, 1, 40])), h, w)
        r = draw(st.none() | requantizations(()))
        task = Copy(("in",), "out", ("o",), first, r, draw(ZEROS) if r is not None else 0)
    codes = [random.integers(-128, 128, shapes[b]).astype(np.int8) for b in task.inputs]
    return Case(task, address, shapes, codes)


@pytest.mark.parametrize("kind", ["conv", "depthwise", "affine", "max", "average", "eltwise", "copy", "lrn"])
@RANDOM
@given(data=st.data())
def test_decoding_gives_back_the_task(kind: str, data: st.DataObject) -> None:
    case, overlay = data.draw(cases(kind)), data.draw(st.sampled_from(OVERLAYS))
    descriptor, constants = case.encode(overlay)
    assert len(descriptor) == overlay.descriptor.bytes
    again = case.decode(descriptor, constants, overlay)
    assert equal(again, case.task)
    assert type(again) is type(case.task)
    assert again.origin == ()
    assert np.array_equal(again.define(*case.codes), case.task.define(*case.codes))


@RANDOM
@given(case=cases(), tag=COUNTS, after=st.builds(Finished, COUNTS, COUNTS))
def test_a_descriptors_place_in_a_chain_does_not_change_the_task(case: Case, tag: int, after: Finished) -> None:
    descriptor, constants = case.encode(tag=tag, after=after)
    values = unpack(Z2.descriptor, descriptor)
    assert (values["tag"], values["after_array"], values["after_window"]) == (tag, *after)
    assert equal(case.decode(descriptor, constants), case.task)


@RANDOM
@given(case=cases(), before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_constants_are_found_within_those_of_many_tasks(case: Case, before: bytes, after: bytes) -> None:
    before += bytes(-len(before) % 64)
    descriptor, constants = case.encode(where=WHERE + len(before))
    assert equal(case.decode(descriptor, before + constants + after), case.task)


@RANDOM
@given(case=cases(), data=st.data())
def test_whatever_is_accepted_is_what_encoding_writes(case: Case, data: st.DataObject) -> None:
    descriptor, constants = case.encode()
    damaged = bytearray(descriptor + constants)
    for _ in range(data.draw(st.integers(1, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1) | st.integers(0, 99))] ^= 1 << data.draw(st.integers(0, 7))
    descriptor, constants = bytes(damaged[: len(descriptor)]), bytes(damaged[len(descriptor) :])
    try:
        task = case.decode(descriptor, constants)
    except DeviceError:
        return
    values = unpack(Z2.descriptor, descriptor)
    changed = Case(task, case.address, case.shapes, case.codes)
    begin = values["weights"] or values["table"] or WHERE
    after = Finished(values["after_array"], values["after_window"])
    again = changed.encode(where=begin, tag=values["tag"], after=after)
    assert again[0] == descriptor
    assert again[1] == constants[begin - WHERE :][: len(again[1])]


@RANDOM
@given(case=cases(), data=st.data())
def test_any_values_in_the_fields_are_refused_or_understood(case: Case, data: st.DataObject) -> None:
    descriptor, constants = case.encode()
    values = unpack(Z2.descriptor, descriptor)
    field = data.draw(st.sampled_from([f for f in Z2.descriptor.fields if f.name != "version"]))
    low, high = field.range
    wild = data.draw(st.sampled_from([low, high, 0, 1, 2]) | st.integers(low, high))
    values[field.name] = wild // field.multiple * field.multiple
    try:
        case.decode(pack(Z2.descriptor, values), constants)
    except DeviceError:
        return


def test_a_shift_beyond_the_overlays_is_not_decoded() -> None:
    """Its field would hold one of 255 bits, which no arithmetic here is meant for."""
    case = conv(requantization=Requantization(np.array(1), 40, 0, 1))
    descriptor, constants = case.encode()
    values = unpack(Z2.descriptor, descriptor)
    assert case.decode(descriptor, constants).requantization.shift == 40
    with pytest.raises(DeviceError, match="shift: 41, expected at most 40"):
        case.decode(pack(Z2.descriptor, {**values, "shift": 41}), constants)


# -- the Tasks of real networks


def apart(offload: Execution) -> Mapping[str, Placed]:
    """Every blob of a network in bytes of its own, so that its name can be told by its address."""
    parts = list(segments(offload))
    moves = [move for part in parts for move in part.moves]
    blobs = {b: None for sources, target in moves for b in (*sources, target)}
    return Segment(parts[0].shapes, parts[0].views, moves, [], list(blobs)).lay().blobs


@pytest.mark.parametrize("name", ["digits", "googlenet", "cifar_resnet20", "synth_alexnet_group_lrn", "wechat_qr_sr"])
def test_every_task_of_a_network(name: str) -> None:
    offload = network(name)
    tasks = [t for step in offload.schedule.steps if isinstance(step, DeviceStep) for t in step.tasks]
    address = apart(offload)
    where, size = 0x3000_0000, 0
    for i, task in enumerate(tasks):
        descriptor, constants = encoded(task, Operands(Z2, address, offload.shapes), where + size, tag=i)
        again = decoded(descriptor, constants, Z2, address, offload.shapes, where + size, task)
        assert equal(again, task), task.origin
        if name == "digits":
            random = np.random.default_rng(i)
            codes = [random.integers(-128, 128, offload.shapes[b]).astype(np.int8) for b in task.inputs]
            assert np.array_equal(again.define(*codes), task.define(*codes))
        size += len(constants) + -len(constants) % Z2.layout.alignment
    weights = sum(t.weights.size for t in tasks if isinstance(t, Conv))
    report(f"{name}: {len(tasks)} Tasks, constants {size / 1e6:.2f} MB for {weights / 1e6:.2f} MB of weights")


@pytest.mark.parametrize("name", ["digits", "googlenet", "wechat_qr_sr"])
def test_tasks_whose_blobs_share_bytes(name: str) -> None:
    offload = network(name)
    steps = [step for step in offload.schedule.steps if isinstance(step, DeviceStep)]
    for step, segment in zip(steps, segments(offload)):
        address = segment.lay().blobs
        for task in step.tasks:
            descriptor, constants = encoded(task, Operands(Z2, address, offload.shapes), 64)
            assert equal(decoded(descriptor, constants, Z2, address, offload.shapes, 64, task), task)


def test_tasks_that_read_the_pieces_of_a_slice(tmp_path: Path) -> None:
    wide = "convolution_param { num_output: 70 kernel_size: 1 }"
    lines = f"""
        wide Convolution data -> w : {wide}
        cut Slice w -> a b c : slice_param {{ slice_point: 16 slice_point: 48 }}
        pool Pooling a -> p : {MAX}
        conv Convolution b -> y : {CONV}
        more Slice b -> d e
        sum Eltwise d a -> s
        both Concat e d -> z
        """
    net = small_network(tmp_path, lines, device="emulator", calibrate=np.ones((2, 3, 5, 7)))
    offload = net.offload
    address = apart(offload)
    tasks = {t.origin[0]: t for s in offload.schedule.steps if isinstance(s, DeviceStep) for t in s.tasks}
    read = {}
    for name, task in tasks.items():
        descriptor, constants = encoded(task, Operands(Z2, address, offload.shapes), 64)
        assert equal(decoded(descriptor, constants, Z2, address, offload.shapes, 64, task), task)
        read[name] = unpack(Z2.descriptor, descriptor)
    whole, plane = read["wide"]["output"], 35 * 8
    places = {name: (v["input"] - whole, v["input_pitch"], v["input_channels"]) for name, v in read.items()}
    assert places["pool"] == (0, plane, 16)
    assert places["conv"] == (2 * plane, plane, 32)
    assert (places["sum"], read["sum"]["second"]) == ((2 * plane, plane, 16), whole)
    assert {read[name]["input_image"] for name in ("pool", "conv", "sum")} == {-(-9 * plane // 64) * 64}


# -- by hand


def conv(**changes: Any) -> Case:
    weights = np.arange(-6, 6, dtype=np.int8).reshape(2, 3, 2, 1)
    r = Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31)
    bias, window = np.array([100, -100]), Window((2, 1), (1, 2), (1, 0), (3, 1))
    task = replace(Conv(("in",), "out", ("conv1", "relu1"), weights, bias, window, 1, r), **changes)
    address = {"in": Placed(0x1000, 64), "out": Placed(0x2000, 64, "concat", 32), "concat": Placed(0x2000, 64)}
    shapes = {"in": (2, 3, 5, 7), "out": (2, 2, 4, 4), "concat": (2, 40, 4, 4)}
    return Case(task, address, shapes, [])


@pytest.mark.parametrize("below", [0, 3])
def test_several_tasks_at_once(below: int) -> None:
    """One of them is leaky, maybe with multipliers of 0 for negative sums; the other one has none."""
    leaky = Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31, np.array([below, 0]).reshape(2, 1, 1))
    cases, constants, stored = [conv(), conv(requantization=leaky)], b"", []
    for case in cases:
        descriptor, own = case.encode(where=WHERE + len(constants))
        common = {"inputs": case.task.inputs, "output": case.task.output, "origin": ()}
        stored.append((unpack(Z2.descriptor, descriptor), common))
        constants += own + bytes(-len(own) % Z2.layout.alignment)
    memory = Operands(Z2, cases[0].address, cases[0].shapes, TaskConstants(constants, WHERE))
    first, second = decode(stored, memory)
    assert equal(first, cases[0].task) and equal(second, cases[1].task) and not equal(first, second)
    stored[1][0]["leaky"] = 0
    if below:
        with pytest.raises(DeviceError, match="multipliers of negative sums, but leaky = 0"):
            decode(stored, memory)
    else:
        assert equal(decode(stored, memory)[1], cases[0].task)


def eltwise(**changes: Any) -> Case:
    r = Requantization(np.array(1), 16, 0, 127)
    task = replace(Eltwise(("a", "b"), "c", ("sum",), (1 << 16, -3), None, r), **changes)
    address = {"a": Placed(0x1000, 64), "b": Placed(0x2000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, dict.fromkeys("abc", (1, 20, 2, 3)), [])


def copy(**changes: Any) -> Case:
    task = replace(Copy(("a",), "c", ("concat",), 16, None), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 20, 2, 3), "c": (1, 40, 2, 3)}, [])


def upsample(**changes: Any) -> Case:
    task = replace(UpsampleTask(("a",), "c", ("up",), (2, 3), True, None, -128), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 20, 2, 3), "c": (1, 20, 4, 9)}, [])


def interleave(**changes: Any) -> Case:
    task = replace(Interleave(("a",), "c", ("squares",), 3, 16), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 92, 2, 3), "c": (1, 12, 6, 6)}, [])


def lrn(**changes: Any) -> Case:
    task = replace(random_table(np.random.default_rng(1), 9), inputs=("a",), output="c", local_size=5)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(replace(task, **changes), address, {"a": (1, 20, 4, 6), "c": (1, 20, 4, 6)}, [])


def average(**changes: Any) -> Case:
    r = Requantization(np.arange(6).reshape(2, 3), 9, -128, 127)
    task = replace(Pool(("a",), "c", ("pool",), Window((2, 2), (2, 2), (0, 0)), (2, 3), r), **changes)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    return Case(task, address, {"a": (1, 20, 4, 6), "c": (1, 20, 2, 3)}, [])


def test_the_fields_of_a_convolution() -> None:
    found = conv().values(tag=3, after=Finished(2, 1))
    wanted = {"opcode": 1, "tag": 3, "shift": 7, "low": -32, "high": 31, "batch": 2, "group": 1}
    wanted |= {"after_array": 2, "after_window": 1}
    wanted |= {"input": 0x1000, "input_pitch": 35 * 8, "input_image": 320, "input_channels": 3}
    wanted |= {"input_height": 5, "input_width": 7, "output_height": 4, "output_width": 4}
    wanted |= {"output": 0x2000 + 4 * 16 * 8, "output_pitch": 16 * 8, "output_image": 5 * 16 * 8, "output_channels": 2}
    wanted |= {"tile_rows": 4, "tile_columns": 4, "tiles": 1, "stays": 2, "weights_block": 2 * 16 * 24}
    wanted |= {"kernel_h": 2, "kernel_w": 1, "stride_h": 1, "stride_w": 2}
    wanted |= {"pad_h": 1, "pad_w": 0, "dilation_h": 3, "dilation_w": 1}
    wanted |= {"weights": WHERE, "table": WHERE + 2 * 16 * 24}
    assert {name: value for name, value in found.items() if value or name in wanted} == wanted


def test_the_fields_of_the_other_kinds() -> None:
    found = eltwise(negative=(4, -5)).values()
    assert (found["second"], found["factor"], found["second_factor"]) == (0x2000, 1 << 16, -3)
    assert (found["leaky"], found["negative"], found["second_negative"]) == (1, 4, -5)
    found = copy().values()
    assert (found["input_channels"], found["output_channels"], found["output"]) == (20, 20, 0x3000 + 2 * 48)
    assert (found["factor"], found["shift"], found["low"], found["high"]) == (1, 0, -128, 127)
    found = average().values()
    assert (found["average"], found["table"], found["weights"]) == (1, WHERE, 0)
    found = average(requantization=None).values()
    assert (found["average"], found["table"], found["low"], found["high"]) == (0, 0, -128, 127)


def test_the_fields_of_zero_points() -> None:
    """1 stands for -128; codes that are only compared or copied need none."""

    def flags(case: Case) -> tuple[int, int, int]:
        found = case.values()
        return found["input_zero"], found["second_zero"], found["output_zero"]

    r = Requantization(np.array(3), 7, -128, 127, zero=-128)
    assert flags(conv()) == flags(eltwise()) == flags(copy()) == flags(average()) == (0, 0, 0)
    assert flags(conv(zero=-128)) == (1, 0, 0)
    assert flags(conv(requantization=r)) == (0, 0, 1)
    assert flags(eltwise(zeros=(0, -128))) == (0, 1, 0)
    assert flags(eltwise(zeros=(-128, 0), requantization=r._replace(multiplier=np.array(1)))) == (1, 0, 1)
    assert flags(copy(requantization=r, zero=-128)) == (1, 0, 1)
    assert flags(copy(zero=-128)) == (0, 0, 0)
    assert flags(average(zero=-128)) == (1, 0, 0)
    assert flags(average(zero=-128, requantization=None)) == (0, 0, 0)


def test_an_average_takes_its_zero_point_off_for_each_pixel_inside_the_image() -> None:
    """3 x 5 pixels, windows of 3 x 4 at stride 2 x 3, padding 1 x 2: the divisor counts padding, the bias does not."""
    out = (2, 3)
    r = Requantization(np.arange(1, 7).reshape(out), 9, -128, 127)
    task = Pool(("a",), "c", ("pool",), Window((3, 4), (2, 3), (1, 2)), out, r, -128)
    address = {"a": Placed(0x1000, 64), "c": Placed(0x3000, 64)}
    case = Case(task, address, {"a": (1, 2, 3, 5), "c": (1, 2, *out)}, [])
    descriptor, table = case.encode()
    size = Z2.table.bytes
    rows = [unpack(Z2.table, table[i : i + size])["bias"] for i in range(0, len(table), size)]
    assert rows == [128 * n for n in (2 * 2, 2 * 4, 2 * 1, 2 * 2, 2 * 4, 2 * 1)]
    other = bytearray(table)
    other[0] ^= 1
    with pytest.raises(DeviceError, match="table: the bias of an average"):
        case.decode(descriptor, bytes(other))


def test_an_overlay_without_unsigned_codes_has_the_descriptors_of_before() -> None:
    zeros = {"input_zero", "second_zero", "output_zero"}
    record = replace(Z2.descriptor, version=1, fields=tuple(f for f in Z2.descriptor.fields if f.name not in zeros))
    old = replace(Z2, unsigned=False, descriptor=record)
    for case in (conv(), eltwise(), copy(), average(), average(requantization=None)):
        descriptor, constants = case.encode(old)
        assert descriptor[1:] == case.encode()[0][1:]
        assert equal(case.decode(descriptor, constants, old), case.task)
    with pytest.raises(DeviceError, match="input_zero: overlay pynq-z2 has no unsigned codes"):
        conv(zero=-128).encode(old)


def test_the_table_has_a_record_per_channel_or_window() -> None:
    size = Z2.table.bytes
    table = conv().encode()[1][2 * 16 * 24 :]
    rows = [unpack(Z2.table, table[i : i + size]) for i in range(0, len(table), size)]
    assert rows == [{"bias": b, "multiplier": m, "negative": 0} for b, m in ((100, 5), (-100, 6))]
    table = average().encode()[1]
    rows = [unpack(Z2.table, table[i : i + size]) for i in range(0, len(table), size)]
    assert rows == [{"bias": 0, "multiplier": m, "negative": 0} for m in range(6)]


WEIGHTS = pytest.mark.parametrize(
    ("shape", "group"),
    [
        ((50, 37, 3, 2), 1),
        ((52, 20, 2, 3), 2),
        ((40, 1, 3, 2), 40),
        ((40, 1, 3, 2), 20),
        ((1, 1, 1, 1), 1),
        ((5, 130, 4, 2), 1),
    ],
)


@WEIGHTS
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda o: o.name)
def test_the_order_of_weights(overlay: Overlay, shape: Shape, group: int) -> None:
    """Every byte by the words of the docstring, with plain loops."""
    array = overlay.array
    weights = np.random.default_rng(5).integers(-127, 128, shape).astype(np.int8)
    found = np.frombuffer(pack_weights(weights, group, array), np.int8)
    m, c, kh, kw = shape
    wanted: list[int] = []

    def weight(o: int, i: int, y: int, x: int, g: int = 0) -> int:
        return int(weights[g * (m // group) + o, i, y, x]) if o < m // group and i < c else 0

    if m == group and c == 1:
        for block in range(0, m, array.inputs):
            for y in range(kh):
                for x in range(kw):
                    channels = range(block, block + array.inputs)
                    wanted += [int(weights[k, 0, y, x]) if k < m else 0 for k in channels]
    else:
        for g in range(group):
            for outputs in range(0, m // group, array.outputs):
                for inputs in range(0, c, array.inputs):
                    for y in range(kh):
                        for x in range(kw):
                            for i in range(inputs, inputs + array.inputs):
                                wanted += [weight(o, i, y, x, g) for o in range(outputs, outputs + array.outputs)]
    assert found.tolist() == wanted
    assert len(found) == weight_bytes(shape, group, array)
    packed = Packed(HeldBytes(found.tobytes()), 0, shape, group, array)
    assert np.array_equal(packed, weights)
    assert np.array_equal(packed.magnitudes(), np.abs(weights.astype(int)).reshape(len(weights), -1).sum(1))


@WEIGHTS
@pytest.mark.parametrize("part", [1, 3000, packing.PART])
def test_each_byte_of_packed_weights_is_checked(
    shape: Shape, group: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are not written for any weight are padding."""
    monkeypatch.setattr(packing, "PART", part)
    array, random = Z2.array, np.random.default_rng(part)
    ones = np.frombuffer(pack_weights(np.ones(shape, np.int8), group, array), np.int8)
    assert ones.sum() == prod(shape)
    for padding in (False, True):
        places = np.flatnonzero(ones == (0 if padding else 1))
        for at in random.permutation(places)[:30]:
            for code in (-128, 5):
                changed = ones.copy()
                changed[at] = code
                if code == -128 or padding:
                    words = "is outside -127..127" if code == -128 else "padding of the constants"
                    with pytest.raises(DeviceError, match=words):
                        Packed(HeldBytes(changed.tobytes()), 0, shape, group, array)
                else:
                    sums = Packed(HeldBytes(changed.tobytes()), 0, shape, group, array).magnitudes()
                    assert sums.sum() == prod(shape) + 4 and sums.max() == prod(shape[1:]) + 4


def test_a_word_of_weights_is_a_word_of_the_buffer() -> None:
    for name in overlays.names("array"):
        overlay = overlays.load(name)
        assert 8 * overlay.array.outputs == overlay.buffers.weights.word_bits


# -- equality


@pytest.mark.parametrize(
    ("case", "change"),
    [
        (conv, {"weights": np.zeros((2, 3, 2, 1), np.int8)}),
        (conv, {"bias": np.array([100, -101])}),
        (conv, {"window": Window((2, 1), (1, 2), (1, 0), (2, 1))}),
        (conv, {"group": 3}),
        (conv, {"output": "concat"}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 8, -32, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, 0, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 127)}),
        (conv, {"requantization": Requantization(np.array([5, 7]).reshape(2, 1, 1), 7, -32, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31, np.array(0))}),
        (conv, {"requantization": Requantization(np.array([5, 6]), 7, -32, 31)}),
        (conv, {"requantization": Requantization(np.array([5, 6]).reshape(2, 1, 1), 7, -32, 31, zero=-128)}),
        (conv, {"zero": -128}),
        (eltwise, {"inputs": ("b", "a")}),
        (eltwise, {"factors": (1 << 16, 3)}),
        (eltwise, {"negative": (1 << 16, -3)}),
        (eltwise, {"zeros": (0, -128)}),
        (copy, {"first": 0}),
        (copy, {"requantization": Requantization(np.array(1), 0, -128, 31)}),
        (copy, {"requantization": Requantization(np.array(1), 0, -128, 127), "zero": -128}),
        (average, {"requantization": None}),
        (average, {"zero": -128}),
        (average, {"out": (3, 2)}),
    ],
)
def test_tasks_that_differ(case: Callable[..., Case], change: dict[str, Any]) -> None:
    assert not equal(case().task, case(**change).task)
    assert not equal(case(**change).task, case().task)


def test_tasks_that_do_not_differ() -> None:
    assert equal(conv().task, conv(origin=("other",)).task)
    same = Requantization(np.array([[[5]], [[6]]], np.int32), 7, -32, 31)
    assert equal(conv().task, conv(requantization=same).task)
    assert equal(copy().task, copy(requantization=Requantization(np.array(1), 0, -128, 127)).task)
    assert equal(copy().task, copy(zero=-128).task)
    assert equal(eltwise().task, eltwise(zeros=(0, 0)).task)
    assert equal(average(requantization=None).task, average(requantization=None, zero=-128).task)
    task = conv().task
    assert isinstance(task, Conv)
    affine = Affine(**{field.name: getattr(task, field.name) for field in fields(task)})
    assert not equal(task, affine)


def test_multipliers_of_another_shape_differ() -> None:
    five = np.array([5, 5])
    channels, columns = (Requantization(m, 7, -32, 31) for m in (five.reshape(2, 1, 1), five))
    assert not equal(conv(requantization=channels).task, conv(requantization=columns).task)


def test_one_multiplier_stands_for_all_channels() -> None:
    case = conv(requantization=Requantization(np.array(9), 3, -128, 127))
    assert equal(case.decode(*case.encode()), case.task)


# -- refusals


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (conv(bias=np.array([0, 1 << 24])), "record 1 of the table: bias = 16777216 is outside"),
        (conv(bias=np.array([0])), "bias: expected (2,), found (1,)"),
        (
            conv(requantization=Requantization(np.array(1 << 17), 0, 0, 1)),
            "table: multiplier = 131072: expected 17 bits",
        ),
        (conv(requantization=Requantization(np.array(-1), 0, 0, 1)), "record 0 of the table: multiplier = -1"),
        (conv(requantization=Requantization(np.array(1), 0, 0, 1, np.array(-1 << 17))), "table: negative = 131072"),
        (conv(requantization=Requantization(np.array([1, 2]), 0, 0, 1)), "multiplier: expected (2, 1, 1), found (2,)"),
        (conv(requantization=Requantization(np.array(1), 41, 0, 1)), "shift: 41, expected at most 40"),
        (conv(requantization=Requantization(np.array(1), 0, -129, 1)), "low = -129 is outside -128..127"),
        (conv(requantization=Requantization(np.array(1), 0, 0, 128)), "high = 128 is outside -128..127"),
        (conv(weights=np.full((2, 3, 2, 1), -128, np.int8)), "weights: -128 is outside -127..127"),
        (conv(weights=np.zeros((2, 2, 2, 1), np.int8)), "weights: (2, 2, 2, 1) with 1 groups do not fit 3 channels"),
        (conv(group=3), "weights: (2, 3, 2, 1) with 3 groups do not fit"),
        (conv(zero=-127), "input_zero: zero point -127, expected 0 or -128"),
        (conv(requantization=Requantization(np.array(1), 0, 0, 1, zero=1)), "output_zero: zero point 1, expected 0 or"),
        (conv(window=Window((2, 1), (1, 0), (1, 0), (3, 1))), "stride_w = 0 is less than 1"),
        (
            conv(window=Window((2, 1), (1, 2), (2, 0), (3, 1))),
            "output: expected (2, 2, 6, 4), blob 'out' is (2, 2, 4, 4)",
        ),
        (conv(inputs=("nowhere",)), "blob 'nowhere' has no address"),
        (eltwise(factors=(1 << 17, 0)), "factor = 131072: expected 17 bits"),
        (eltwise(negative=(0, -(1 << 17))), "second_negative = 131072: expected 17 bits"),
        (eltwise(inputs=("a", "b", "a"), factors=(1, 2, 3)), "second: expected 2 inputs"),
        (eltwise(requantization=Requantization(np.array(2), 0, 0, 1)), "factor: an eltwise has no multiplier"),
        (
            copy(requantization=Requantization(np.array(-(1 << 17)), 0, 0, 1)),
            "factor = 131072: expected 17 bits",
        ),
        (copy(first=12), "output: channel 12 is not the first of a plane of 8"),
        (copy(first=32), "output: 20 channels from 32 on, blob 'c' has 40"),
        (copy(first=-8), "output: 20 channels from -8 on, blob 'c' has 40"),
        (average(window=Window((256, 2), (2, 2), (0, 0))), "kernel 256 is more than the overlay's 15"),
        (average(window=Window((2, 2), (2, 2), (0, -1))), "pad_w = -1 is outside 0..255"),
        (average(out=(3, 3)), "output: expected (1, 20, 3, 3), blob 'c' is (1, 20, 2, 3)"),
    ],
)
def test_values_that_do_not_fit_name_the_task_and_the_field(case: Case, message: str) -> None:
    with pytest.raises(DeviceError) as error:
        case.encode()
    assert f"task {'+'.join(case.task.origin)} ({case.task.kind}): " in str(error.value)
    assert message in str(error.value)


def test_places_that_do_not_fit() -> None:
    case = conv()
    for address, message in [
        ({**case.address, "out": Placed(0x2000, 64, "concat", 12)}, "blob 'out' begins at channel 12"),
        ({**case.address, "in": Placed(0x1001, 64)}, "input = 0x1001 is not a multiple of 8"),
        ({**case.address, "in": Placed(1 << 64, 64)}, "input = 18446744073709551616 is outside"),
    ]:
        with pytest.raises(DeviceError, match=r"task conv1\+relu1 \(conv\): ") as error:
            encoded(case.task, Operands(Z2, address, case.shapes), WHERE)
        assert message in str(error.value)
    with pytest.raises(DeviceError, match="expected 4 axes"):
        encoded(case.task, Operands(Z2, case.address, {**case.shapes, "in": (2, 3)}), WHERE)
    with pytest.raises(DeviceError, match="weights = 0x20 is not a multiple of 64"):
        case.encode(where=32)
    with pytest.raises(DeviceError, match=r"65536 images are more than the overlay's 256"):
        replace(case, shapes={b: (65536, *s[1:]) for b, s in case.shapes.items()}).encode()
    with pytest.raises(DeviceError, match=r"tag = 65536 is outside"):
        case.encode(tag=65536)


def test_an_overlay_without_the_unit() -> None:
    lacking = replace(Z2, tasks=tuple(section for section in Z2.tasks if section.kind != "copy"))
    with pytest.raises(DeviceError, match=r"task concat \(copy\): opcode: overlay pynq-z2 has no copy unit"):
        copy().encode(lacking)
    with pytest.raises(DeviceError, match="opcode = 5 is that of no Task of overlay pynq-z2"):
        copy().decode(*copy().encode(), lacking)


def test_descriptors_that_lead_elsewhere() -> None:
    case = conv()
    descriptor, constants = case.encode()
    with pytest.raises(DeviceError, match=r"descriptor: table: 32 bytes at 0x\w+ are outside the constants"):
        case.decode(descriptor, constants[:-1])
    with pytest.raises(DeviceError, match=r"descriptor: weights: 768 bytes at .* are outside the constants"):
        case.decode(descriptor, constants, where=WHERE + 64)
    elsewhere = {**case.address, "in": Placed(0x1040, 64)}
    with pytest.raises(DeviceError, match="its descriptor has input = 4096, expected 4160"):
        replace(case, address=elsewhere).decode(descriptor, constants)
    with pytest.raises(DeviceError, match="blob 'in' has no address"):
        replace(case, address={"out": case.address["out"]}).decode(descriptor, constants)
    with pytest.raises(DeviceError, match="a conv reads 1 blobs, found in, in"):
        replace(case, task=replace(case.task, inputs=("in", "in"))).decode(descriptor, constants)
    damaged = bytearray(constants)
    damaged[23] = 1  # the 24th output channel of the first word: there are two
    with pytest.raises(DeviceError, match="padding of the constants of a conv is not zero"):
        case.decode(descriptor, bytes(damaged))
    values = unpack(Z2.descriptor, descriptor)
    plane = 8 * 2 * 3
    for start, message in (
        (0x3000 - plane, "from -8 on"),
        (0x3008, "has output = 12296, expected 12288"),
        (0, "from -2048 on"),
    ):
        changed = pack(Z2.descriptor, copy().values() | {"output": start})
        with pytest.raises(DeviceError, match=message):
            copy().decode(changed, b"")
    with pytest.raises(DeviceError, match="its descriptor has factor = 1, expected 0"):
        case.decode(pack(Z2.descriptor, {**values, "factor": 1}), constants)


def test_tables_that_overlap_take_no_more_memory_than_the_constants() -> None:
    """Each of thousands of descriptors could name all of a file."""
    constants = average().encode()[1]
    memory, size = TaskConstants(constants, WHERE), Z2.table.bytes
    assert len(constants) == 6 * size
    with pytest.raises(DeviceError, match="outside the constants"):
        memory.read_tables(Z2, [(WHERE, 1), (WHERE, 7)])
    with pytest.raises(DeviceError, match="the tables take more than all constants"):
        memory.read_tables(Z2, [(WHERE, 6), (WHERE + size, 1)])
    memory.read_tables(Z2, [(WHERE + 4 * size, 2), (WHERE, 4)])
    for _ in range(2):
        assert memory.table(Z2, WHERE, 4)["multiplier"].tolist() == [0, 1, 2, 3]
    assert memory.table(Z2, WHERE + 4 * size, 2)["multiplier"].tolist() == [4, 5]
    with pytest.raises(DeviceError, match="the tables take more than all constants"):
        memory.table(Z2, WHERE, 6)


GEOMETRY = [f"{blob}_{step}" for blob in ("input", "output") for step in ("pitch", "image")]
GEOMETRY += ["tile_rows", "tile_columns", "tiles", "stays", "weights_block"]


@pytest.mark.parametrize("name", GEOMETRY)
def test_geometry_is_recomputed(name: str) -> None:
    """The host computes it, so an accelerator would believe whatever a file says."""
    case = conv()
    descriptor, constants = case.encode()
    values = unpack(Z2.descriptor, descriptor)
    assert values[name]
    for other in (values[name] - 1, values[name] + 1, 0):
        with pytest.raises(DeviceError, match=rf"its descriptor has {name} = \d+, expected"):
            case.decode(pack(Z2.descriptor, {**values, name: other}), constants)


def test_every_field_has_a_use() -> None:
    """A field that no Task ever fills would be one that the encoding forgot."""
    filled: set[str] = set()
    unsigned = Requantization(np.array(1), 16, 0, 127, zero=-128)
    summed = eltwise(negative=(1, 2), zeros=(-128, -128), requantization=unsigned)
    table = copy(lookup=np.zeros(256, np.int8))
    product = eltwise(operation="PROD", factors=(5,), vector=True)
    product.shapes["b"] = (1, 20, 1, 1)
    for case in (conv(group=1), summed, copy(), average(), table, product, upsample()):
        filled |= {name for name, value in case.values(tag=1, after=Finished(1, 1)).items() if value}
    never = {f.name for f in Z2.descriptor.fields} - filled - {"version"}
    assert never == {"pad_w"}  # these cases have no such padding


def test_the_largest_weight_is_what_the_array_can_hold() -> None:
    for overlay in map(overlays.load, overlays.names("array")):
        assert overlay.array.chain * packing.WEIGHT * 128 < 1 << (overlay.array.pack_shift - 1)
