"""The fields of descriptors: of each kind of Task, of zero points, and those that follow from others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chai.codegen.dependencies import Finished
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.overlay.layout import Placed
from chai.overlay.records import pack, unpack
from chai.tasks.pool import Pool
from chai.tasks.pooling import PooledCodes
from chai.tasks.window import Window
from tests.codegen.cases import WHERE, Z2, Case, average, conv, copy, eltwise, upsample
from tests.codegen.equality import equal


def test_the_fields_of_a_convolution() -> None:
    fields = conv().values(tag=3, after=Finished(2, 1))
    wanted = {"opcode": 1, "tag": 3, "shift": 7, "low": -32, "high": 31, "batch": 2, "group": 1}
    wanted |= {"after_array": 2, "after_window": 1}
    wanted |= {"input": 0x1000, "input_pitch": 35 * 8, "input_image": 320, "input_channels": 3}
    wanted |= {"input_height": 5, "input_width": 7, "output_height": 4, "output_width": 4}
    wanted |= {"output": 0x2000 + 4 * 16 * 8, "output_pitch": 16 * 8, "output_image": 5 * 16 * 8, "output_channels": 2}
    wanted |= {"tile_rows": 4, "tile_columns": 4, "tiles": 1, "stays": 2, "weights_block": 2 * 16 * 24}
    wanted |= {"kernel_h": 2, "kernel_w": 1, "stride_h": 1, "stride_w": 2}
    wanted |= {"pad_h": 1, "pad_w": 0, "dilation_h": 3, "dilation_w": 1}
    wanted |= {"weights": WHERE, "table": WHERE + 2 * 16 * 24}
    assert {name: value for name, value in fields.items() if value or name in wanted} == wanted


def test_the_fields_of_the_other_kinds() -> None:
    fields = eltwise(negative=(4, -5)).values()
    assert (fields["second"], fields["factor"], fields["second_factor"]) == (0x2000, 1 << 16, -3)
    assert (fields["leaky"], fields["negative"], fields["second_negative"]) == (1, 4, -5)
    fields = copy().values()
    assert (fields["input_channels"], fields["output_channels"], fields["output"]) == (20, 20, 0x3000 + 2 * 48)
    assert (fields["factor"], fields["shift"], fields["low"], fields["high"]) == (1, 0, -128, 127)
    fields = average().values()
    assert (fields["average"], fields["table"], fields["weights"]) == (1, WHERE, 0)
    fields = average(requantization=None).values()
    assert (fields["average"], fields["table"], fields["low"], fields["high"]) == (0, 0, -128, 127)


def test_the_fields_of_zero_points() -> None:
    """1 stands for -128; codes that are only compared or copied need none."""

    def flags(case: Case) -> tuple[int, int, int]:
        fields = case.values()
        return fields["input_zero"], fields["second_zero"], fields["output_zero"]

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
    pooled = conv(pooling=PooledCodes(Window((3, 3), (2, 2), (1, 1)), (3, 3)))  # of 4 x 4 codes
    pooled.shapes |= {"out": (2, 2, 3, 3), "concat": (2, 40, 3, 3)}
    for case in (
        conv(group=1, wide=True, shares=True),
        conv(columns=(1, 2)),
        pooled,
        summed,
        copy(),
        average(),
        table,
        product,
        upsample(),
    ):
        filled |= {name for name, value in case.values(tag=1, after=Finished(1, 1)).items() if value}
    never = {f.name for f in Z2.descriptor.fields} - filled - {"version"}
    assert never == {"pad_w"}  # these cases have no such padding
