"""What does not fit a descriptor is not written, and what leads elsewhere is not read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chai import overlay as overlays
from chai.codegen.encoding import encode
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.overlay.layout import Placed
from chai.overlay.records import pack, pack_rows, unpack
from chai.tasks.fields import Operands, TaskConstants
from chai.tasks.lrn import FACTOR_BITS, SEGMENT
from chai.tasks.window import Window
from tests.codegen.cases import WHERE, Z2, Case, average, conv, copy, eltwise, encoded, filters, lrn
from tests.codegen.equality import equal
from tests.tasks.common import narrow


def test_a_shift_beyond_the_overlays_is_not_decoded() -> None:
    """Its field would hold one of 255 bits, which no arithmetic here is meant for."""
    case = conv(requantization=Requantization(np.array(1), 40, 0, 1))
    descriptor, constants = case.encode()
    values = unpack(Z2.descriptor, descriptor)
    assert case.decode(descriptor, constants).requantization.shift == 40
    with pytest.raises(DeviceError, match="shift: 41, expected at most 40"):
        case.decode(pack(Z2.descriptor, {**values, "shift": 41}), constants)


# -- refusals


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (conv(bias=np.array([0, 1 << 24])), "record 1 of the table: bias = 16777216 is outside"),
        (conv(bias=np.array([-(1 << 24) - 1, 0])), "record 0 of the table: bias = -16777217 is outside"),
        (conv(bias=np.array([0, 1 << 31]), wide=True), "record 1 of the table: bias = 2147483648 is outside"),
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


@pytest.mark.parametrize("name", ["kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w"])
@pytest.mark.parametrize("case", [conv(), filters(), average()], ids=["conv", "depthwise", "pool"])
def test_windows_without_a_size_are_not_decoded(case: Case, name: str) -> None:
    descriptor, constants = case.encode()
    changed = pack(Z2.descriptor, {**unpack(Z2.descriptor, descriptor), name: 0})
    with pytest.raises(DeviceError, match=f"descriptor: {name} = 0 is less than 1"):
        case.decode(changed, constants)


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
    with pytest.raises(DeviceError, match="a conv reads 1 blob, found in, in"):
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


def test_a_bias_of_wide_sums_in_a_narrow_task() -> None:
    case = conv(bias=np.array([0, 1 << 24]), wide=True)
    descriptor, constants = case.encode()
    narrow = pack(Z2.descriptor, {**unpack(Z2.descriptor, descriptor), "wide": 0})
    assert equal(case.decode(descriptor, constants), case.task)
    with pytest.raises(DeviceError, match="record 1 of the table: bias = 16777216 is outside"):
        case.decode(narrow, constants)


def test_windows_and_factors_that_no_lrn_has() -> None:
    """Neither written nor read."""
    case = lrn()
    descriptor, constants = case.encode()
    even = pack(Z2.descriptor, {**unpack(Z2.descriptor, descriptor), "kernel_h": 4})
    steep = np.full_like(case.task.bases, (1 << FACTOR_BITS) - 1), np.ones_like(case.task.slopes)
    beyond = pack_rows(SEGMENT, dict(zip(("base", "slope"), steep)))
    window, factor = "kernel_h: 4 channels, expected an odd number", "a factor beyond 18 bits at the end of a segment"
    for refused, message in (
        (lambda: lrn(local_size=4).encode(), window),
        (lambda: case.decode(even, constants), window),
        (lambda: lrn(bases=steep[0], slopes=steep[1]).encode(), factor),
        (lambda: case.decode(descriptor, beyond), factor),
    ):
        with pytest.raises(DeviceError, match=r"task .*\(lrn\): ") as error:
            refused()
        assert message in error.value.message


def test_an_overlay_without_wide_sums(tmp_path: Path) -> None:
    case = conv(wide=True)
    with pytest.raises(DeviceError, match="overlay kv260 has no sums of more than 25 bits"):
        encode(case.task, Operands(overlays.load(narrow(tmp_path)), case.address, case.shapes), 0)
