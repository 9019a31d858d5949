"""What an accelerator is given: decoding gives back the Task, and nothing that does not fit is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from chai.blob import Shape
from chai.codegen.dependencies import Finished
from chai.codegen.encoding import decode
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.offload.schedule import DeviceStep
from chai.overlay.layout import Placed
from chai.overlay.records import pack, unpack
from chai.runtime.execution import Execution
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands, TaskConstants
from tests.codegen.cases import (
    COUNTS,
    OVERLAYS,
    RANDOM,
    WHERE,
    Z2,
    Case,
    cases,
    conv,
    decoded,
    encoded,
)
from tests.codegen.equality import equal
from tests.codegen.test_memory_map import Segment, network, segments
from tests.conftest import report
from tests.passes.common import CONV, MAX, network as small_network

KINDS = "conv", "pooled", "depthwise", "filters", "affine", "max", "average", "eltwise", "copy", "lrn"


@pytest.mark.parametrize("kind", KINDS)
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


# -- the Tasks of real networks


def apart(offload: Execution) -> Mapping[str, Placed]:
    """Every blob of a network in bytes of its own, so that its name can be told by its address."""
    parts = list(segments(offload))
    moves = [move for part in parts for move in part.moves]
    blobs = {b: None for sources, target in moves for b in (*sources, target)}
    return Segment(parts[0].shapes, parts[0].views, moves, [], list(blobs)).lay().blobs


def every_shape(offload: Execution) -> dict[str, Shape]:
    """The shapes of all blobs, those of pooled branches too."""
    return {blob: shape for segment in segments(offload) for blob, shape in segment.shapes.items()}


@pytest.mark.parametrize("name", ["digits", "googlenet", "cifar_resnet20", "synth_alexnet_group_lrn", "wechat_qr_sr"])
def test_every_task_of_a_network(name: str) -> None:
    offload = network(name)
    tasks = [task for segment in segments(offload) for task in segment.tasks]
    address, shapes = apart(offload), every_shape(offload)
    where, size = 0x3000_0000, 0
    for i, task in enumerate(tasks):
        descriptor, constants = encoded(task, Operands(Z2, address, shapes), where + size, tag=i)
        again = decoded(descriptor, constants, Z2, address, shapes, where + size, task)
        assert equal(again, task), task.origin
        if name == "digits":
            random = np.random.default_rng(i)
            codes = [random.integers(-128, 128, shapes[b]).astype(np.int8) for b in task.inputs]
            assert np.array_equal(again.define(*codes), task.define(*codes))
        size += len(constants) + -len(constants) % Z2.layout.alignment
    weights = sum(t.weights.size for t in tasks if isinstance(t, Conv))
    report(f"{name}: {len(tasks)} Tasks, constants {size / 1e6:.2f} MB for {weights / 1e6:.2f} MB of weights")


@pytest.mark.parametrize("name", ["digits", "googlenet", "wechat_qr_sr"])
def test_tasks_whose_blobs_share_bytes(name: str) -> None:
    offload = network(name)
    shapes = every_shape(offload)
    for segment in segments(offload):
        address = segment.lay().blobs
        for task in segment.tasks:
            descriptor, constants = encoded(task, Operands(Z2, address, shapes), 64)
            assert equal(decoded(descriptor, constants, Z2, address, shapes, 64, task), task)


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
