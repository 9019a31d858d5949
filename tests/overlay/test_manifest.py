"""Manifests: the shipped ones are sound, and a wrong one is refused at its line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, is_dataclass
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from chai import overlay, tasks
from chai.errors import DeviceError, ParseError
from chai.fixed import ACCUMULATOR
from chai.overlay import Overlay, checks, manifest
from chai.overlay.sections import OnChipBuffer
from chai.tasks.eltwise import OPERATIONS, Eltwise
from chai.tasks.lrn import LARGEST_WINDOW
from chai.tasks.pool import Pool, PoolLimits
from chai.util.data.jsonfile import DEPTH, load
from chai.util.files import BYTES
from chai.util.paths import resource
from tests.tasks.common import kinds as all_kinds

SCHEMA = json.loads(resource("hw_overlays", "overlay.schema.json").read_text())
NAMES = ["kv260", "pynq-z2", "ultra96", "zcu102", "zcu104"]
EMULATED = ["chaidnn-diet", "chaidnn-zcu102"]
TEXT = resource("hw_overlays", "pynq-z2", "overlay.json").read_text()
SHAPES = {  # width in bits and depth of one memory block
    "block": [(72, 512), (36, 1024), (18, 2048), (9, 4096), (4, 8192), (2, 16384), (1, 32768)],
    "ultra": [(72, 4096)],
}


@pytest.fixture(params=NAMES)
def shipped(request: pytest.FixtureRequest) -> Overlay:
    return overlay.load(request.param)


def written(folder: Path, text: str) -> Path:
    path = folder / "overlay.json"
    path.write_text(text)
    return path


def edited(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


# -- the shipped manifests


def test_the_shipped_names() -> None:
    assert overlay.names("array") == NAMES
    assert overlay.names() == sorted([*NAMES, *EMULATED, "vta-z7020"])
    assert overlay.load().name == overlay.default == "pynq-z2"


def test_the_default_overlay_is_the_documented_one() -> None:
    z2 = overlay.load("pynq-z2")
    assert (z2.array.inputs, z2.array.outputs, z2.array.lanes, z2.macs) == (16, 24, 1, 384)
    assert (z2.dsp.array, z2.dsp.requant, z2.clock_mhz) == (192, 8, 100.0)
    assert (z2.requant.mult_bits, z2.requant.shift_max, z2.bits) == (17, 40, (8, 6))


def test_a_name_is_its_folder_and_each_figure_of_speed_is_marked(shipped: Overlay) -> None:
    assert shipped.path.parent.name == shipped.name
    assert set(shipped.assumed) == {"clock_mhz", "memory_mb_per_s"}


def test_the_arithmetic_is_that_of_the_tasks(shipped: Overlay) -> None:
    assert shipped.accumulator_bound == ACCUMULATOR
    table = {f.name: f.range for f in shipped.table.fields}
    assert shipped.wide_bits == (27 if shipped.name == "kv260" else 32)
    assert table["bias"] == (-1 << 31, (1 << 31) - 1)
    most = 1 << shipped.requant.mult_bits
    assert (table["multiplier"], table["negative"]) == ((0, most - 1), (-most, most - 1))
    fields = {f.name: f for f in shipped.descriptor.fields}
    assert fields["factor"].range[1] == (1 << shipped.requant.mult_bits) - 1
    assert shipped.unsigned and {fields[f"{blob}_zero"].range for blob in ("input", "second", "output")} == {(0, 1)}


def test_registers_and_records_are_the_same_everywhere(shipped: Overlay) -> None:
    z2 = overlay.load("pynq-z2")
    assert shipped.registers == z2.registers
    assert (shipped.descriptor, shipped.table) == (z2.descriptor, z2.table)
    assert (shipped.vlnv, shipped.layout, shipped.tasks) == (z2.vlnv, z2.layout, z2.tasks)


def test_every_limit_fits_its_field(shipped: Overlay) -> None:
    top = {f.name: f.range[1] for f in shipped.descriptor.fields}
    kinds = {"conv", "pool", "eltwise", "affine", "copy", "lrn", "upsample", "interleave", "depthwise"}
    assert {*shipped.kinds} == {*all_kinds()} == kinds
    for kind in shipped.kinds:
        limits = tasks.find(kind).limits(shipped)
        assert limits is not None
        for axis in "hw":
            for name in ("kernel", "stride", "dilation", "pad"):
                assert getattr(limits, f"{name}_max", 0) <= top[f"{name}_{axis}"]
            assert getattr(limits, "global_max", 0) <= top[f"kernel_{axis}"]
        assert limits.channels_max <= min(top["input_channels"], top["output_channels"])
        assert limits.size_max <= min(top["input_height"], top["output_width"])
        assert limits.opcode <= top["opcode"]
        assert limits.channel_step == shipped.layout.channels_per_word
        assert getattr(limits, "group_max", 0) <= top["group"]
        assert getattr(limits, "factor_max", 0) <= min(8, top["stride_h"], top["stride_w"])  # the RTL counts to 8
        assert {*getattr(limits, "operations", ())} <= {*OPERATIONS} and len(OPERATIONS) - 1 <= top["operation"]
        assert getattr(limits, "local_size_max", 0) <= LARGEST_WINDOW <= top["kernel_h"]
    assert shipped.batch_max <= top["batch"]
    assert shipped.requant.shift_max <= top["shift"]


def test_sums_of_a_pooling_fit(shipped: Overlay) -> None:
    pool = shipped.limits("pool", PoolLimits)
    assert pool is not None
    assert pool.global_max**2 * 255 < shipped.accumulator_bound
    width = shipped.buffers.pool.word_bits // shipped.layout.channels_per_word
    assert pool.kernel_max**2 * 128 < 1 << (width - 1)


def test_the_driver_finds_what_it_needs(shipped: Overlay) -> None:
    registers = shipped.registers
    assert registers["ID"].value == int.from_bytes(b"CHAI", "big")
    assert registers["CHAIN_HI"].offset == registers["CHAIN_LO"].offset + 4
    assert registers["CONTROL"].access == "w"  # a read-modify-write would start twice
    assert registers["CONTROL"].mask("start") == 1
    assert registers["ERROR"].mask("tag") == 0xFFFF0000
    assert registers.errors[0] == "none"
    assert {r.offset % 4 for r in registers.list} == {0}
    with pytest.raises(KeyError):
        registers["START"]
    with pytest.raises(KeyError):
        registers["STATUS"].mask("ready")


def blocks(buffer: OnChipBuffer) -> int:
    shapes = SHAPES[buffer.memory]
    one = min(ceil(buffer.word_bits / width) * ceil(buffer.depth / depth) for width, depth in shapes)
    return one * buffer.banks * buffer.copies


def test_the_memories_fit_the_part_and_the_readme_says_so(shipped: Overlay) -> None:
    used = {"block": 16, "ultra": 0}
    buffers = [getattr(shipped.buffers, name) for name in ("input", "weights", "accumulators", "pool")]
    for buffer in buffers:
        used[buffer.memory] += blocks(buffer)
    has = shipped.resources
    assert used["block"] <= 0.9 * has.block_ram
    assert used["ultra"] <= has.ultra_ram
    ultra = f"{used['ultra']} of {has.ultra_ram}" if used["ultra"] else "0"
    kib = " | ".join(str(b.bytes // 1024) for b in buffers)
    row = f"| {shipped.name} | {kib} | {used['block']} of {has.block_ram} | {ultra} |"
    assert row in resource("hw_overlays", "README.md").read_text()


def test_the_buffers_match_the_array(shipped: Overlay) -> None:
    array, buffers = shipped.array, shipped.buffers
    assert buffers.input.word_bits == 8 * array.inputs
    assert buffers.weights.word_bits == 8 * array.outputs * shipped.weight_rows
    assert buffers.accumulators.word_bits == shipped.array_bits * array.outputs
    assert buffers.weights.banks == buffers.accumulators.banks == 2
    assert buffers.input.copies == buffers.accumulators.copies == array.lanes
    assert shipped.dsp.requant == shipped.requant.lanes
    assert buffers.weights.copies == buffers.pool.copies == 1


def test_an_overlay_is_frozen_through_and_through(shipped: Overlay) -> None:
    def walk(value: Any) -> None:
        assert not isinstance(value, (list, dict))
        if is_dataclass(value):
            for field in fields(value):
                walk(getattr(value, field.name))
        elif isinstance(value, tuple):
            for item in value:
                walk(item)

    walk(shipped)
    hash(shipped)


def test_the_build_changes_with_the_hardware_only(tmp_path: Path) -> None:
    build = overlay.load("pynq-z2").build
    assert len({overlay.load(name).build for name in NAMES}) == len(NAMES)
    for old, new, same in [
        ('"clock_mhz": 100', '"clock_mhz": 150', True),
        ('"title": "16 x 24', '"title": "A 16 x 24', True),
        ('"about": "rows"', '"about": "lines"', True),
        ('"shift_max": 40', '"shift_max": 39', False),
        ('"offset": 48', '"offset": 80', False),
    ]:
        assert (overlay.load(written(tmp_path, edited(old, new))).build == build) is same, old


def test_a_manifest_that_changed_since_a_network_was_compiled_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the build that a network was compiled for is not: compiling has checked it."""
    known = overlay.load("pynq-z2")
    checked, check = [], checks.checked

    def recorded(text: str, path: str) -> dict[str, Any]:
        checked.append(path)
        return check(text, path)

    monkeypatch.setattr(checks, "checked", recorded)
    manifest._parsed.cache_clear()
    assert overlay.load("pynq-z2", build=known.build) == known
    assert checked == []
    assert overlay.load("pynq-z2", build=known.build ^ 1) == overlay.load("pynq-z2") == known
    assert checked == [known.file, known.file]
    manifest._parsed.cache_clear()
    monkeypatch.undo()

    (tmp_path / "hw_overlays/pynq-z2").mkdir(parents=True)
    for file in resource("hw_overlays").glob("*.schema.json"):
        (tmp_path / "hw_overlays" / file.name).write_text(file.read_text())
    written(tmp_path / "hw_overlays/pynq-z2", edited('"shift_max": 40', '"shift_max": "40"'))
    for module in (manifest, checks):
        monkeypatch.setattr(module, "shipped", lambda *parts: str(tmp_path.joinpath(*parts)))
    with pytest.raises(ParseError, match=r"overlay\.json:\d+:\d+: requant\.shift_max: expected a whole number"):
        overlay.load("pynq-z2", build=known.build)


def test_reading_an_overlay_needs_no_numpy() -> None:
    code = "import sys; from chai.overlay import load, records; load(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- names and paths


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DeviceError) as error:
        overlay.load("pynqz2")
    assert str(error.value) == (
        "there is no overlay 'pynqz2' "
        "(hint: did you mean 'pynq-z2'? "
        "overlays: chaidnn-diet, chaidnn-zcu102, kv260, pynq-z2, ultra96, vta-z7020, zcu102, zcu104)"
    )


def test_a_path_may_be_a_file_or_its_folder(tmp_path: Path) -> None:
    path = written(tmp_path, edited('"name": "pynq-z2"', '"name": "mine"'))
    assert overlay.load(path).name == overlay.load(str(path)).name == overlay.load(tmp_path).name == "mine"
    with pytest.raises(FileNotFoundError):
        overlay.load("nowhere/overlay.json")


def test_a_kind_may_be_left_out(tmp_path: Path) -> None:
    value = json.loads(TEXT)
    del value["tasks"]["eltwise"]
    loaded = overlay.load(written(tmp_path, json.dumps(value)))
    assert Eltwise.limits(loaded) is None
    assert isinstance(Pool.limits(loaded), PoolLimits)


# -- typos, by hand: "@" marks the place that has to be reported


def refusal_at(folder: Path, marked: str, message: str) -> None:
    """Load a manifest whose text has one "@", which is taken out, and expect the message at that place."""
    assert marked.count("@") == 1
    before = marked[: marked.index("@")]
    path = written(folder, marked.replace("@", ""))
    with pytest.raises(ParseError) as error:
        overlay.load(path)
    assert message in str(error.value)
    place = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    assert (error.value.line, error.value.column) == place
    assert str(error.value).startswith(f"{path}:{place[0]}:{place[1]}: ")
    assert error.value.excerpt.count("^") >= 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"clock_mhz": 100',
            '@"clok_mhz": 100',
            "the file: unknown key \"clok_mhz\" (hint: did you mean 'clock_mhz'?)",
        ),
        ('"clock_mhz": 100', '"clock_mhz": @"100"', 'clock_mhz: expected a number, found "100"'),
        ('"lanes": 1,', '"lanes": @0,', "array.lanes: expected 1 to 65535, found 0"),
        ('{ "inputs": 16, ', "@{ ", 'array: the key "inputs" is missing (hint: inputs: input channels per cycle)'),
        ('"family": "zynq7000"', '"family": @"zynq-7000"', 'expected one of "zynq7000", "zynqmp", found "zynq-7000"'),
        ('"MAX", "AVE"]', '"MAX", @"AVG"]', 'tasks.pool.methods[1]: expected one of "MAX", "AVE", found "AVG"'),
        ('"depthwise": true', '"depthwise": @1', "tasks.conv.depthwise: expected a boolean, found 1"),
        ('"bits": [8, 6]', '"bits": @[]', "bits: expected at least 1 items, found 0"),
        ('"part": "XC7Z020"', '"part": @"7z020"', 'part: expected a device such as XC7Z020, found "7z020"'),
        ('"schema": 1', '"schema": @2', "schema: expected 1, found 2"),
        ('"signed": false', '"signed": @flase', "expected a value, found 'flase' (hint: did you mean false?)"),
        ('"endian": "little",\n    "f', '"endian": "little"\n    @"f', "expected ',' or '}', found"),
        ('"width": 8,', '"width": 8, @"width": 9,', 'key "width" is here twice (first in line'),
        # what the schema cannot say
        ('"offset": 4,', '"offset": @6,', "register BUILD: offset 6 is not a multiple of 4"),
        ('"offset": 48,', '"offset": @4096,', "register CYCLES_HI: offset 4096 is outside the window of 4096 bytes"),
        ('"offset": 48,', '"offset": @44,', "registers: 'CYCLES_HI' overlaps 'CYCLES'"),
        ('"name": "CYCLES_HI"', '"name": @"CYCLES"', "registers: the name 'CYCLES' is here twice"),
        ('{ "name": "done", "bit": 1', '@{ "name": "done", "bit": 0', "register STATUS: 'done' overlaps 'busy'"),
        ('{ "name": "tag", "bit": 16', '@{ "name": "tag", "bit": 17', "register ERROR: 'tag' lies beyond 32 bits"),
        (
            '{ "name": "opcode", "word": 0, "bit": 8',
            '@{ "name": "opcode", "word": 0, "bit": 7',
            "descriptor: 'opcode' overlaps 'version'",
        ),
        (
            '{ "name": "second_negative", "word": 24',
            '@{ "name": "second_negative", "word": 32',
            "descriptor: field 'second_negative' lies beyond 128 bytes",
        ),
        (
            '{ "name": "second_negative", "word": 24, "bit": 0',
            '@{ "name": "second_negative", "word": 24, "bit": 20',
            "descriptor: field 'second_negative' runs over the end of its word",
        ),
        (
            '{ "name": "negative", "word": 2, "bit": 0, "width": 18',
            '@{ "name": "negative", "word": 1, "bit": 0, "width": 18',
            "table: 'negative' overlaps 'multiplier'",
        ),
        ('"bytes": 128', '"bytes": @126', "descriptor: a record is made of 32-bit words"),
        (
            '[\n      { "name": "version"',
            '@[\n      { "name": "edition"',
            "descriptor: there is no unsigned field 'version'",
        ),
        (
            '"read_bytes": 8, "write_bytes": 8',
            '"read_bytes": 16, "write_bytes": @8',
            "window: it writes 8 bytes a cycle, expected as many as it reads, 16",
        ),
        (
            '"refresh_cycles": 30',
            '"refresh_cycles": @780',
            "memory_port.refresh_cycles: 780, expected fewer than refresh_period, 780",
        ),
        (
            '"issued": 8, "fifo_bytes": 1024 },\n    "writes"',
            '"issued": 8, "fifo_bytes": @128 },\n    "writes"',
            "memory_port.reads.fifo_bytes: expected 256 to",
        ),
        (
            '"weights": { "word_bits": 192',
            '"weights": { "word_bits": @576',
            "buffers.weights.word_bits: expected 192, the weights of an input, or 384, of two chains' inputs",
        ),
        (
            '"pool": { "word_bits": 128',
            '"pool": { "word_bits": @256',
            "buffers.pool.word_bits: 256, expected 16 for each of 8 channels",
        ),
        ('"dsp": { "array": 192', '"dsp": { "array": @200', "dsp.array: 384 products a cycle take 192 DSPs, found 200"),
        (
            '"dsp": { "array": 192',
            '"dsp": { "logic": 16, "array": @192',
            "dsp.array: 384 products a cycle take 192 DSPs, of which 16 are look-up tables, found 192",
        ),
        (
            '"dsp": { "array": 192',
            '"dsp": { "logic": @6, "array": 186',
            "dsp.logic: 6 are not whole chains of 4",
        ),
        (
            '"memory_port": {',
            '"ports": { "bytes": @16 },\n  "memory_port": {',
            "ports.bytes: memory ports of a Zynq-7000 have 8",
        ),
        (
            '"memory_port": {',
            '"ports": { "bytes": 8, "outputs": @2 },\n  "memory_port": {',
            "ports.outputs: 2, but requant.lanes gives the codes of one plane at a time",
        ),
        ('{ "array": 192, "requant": 8 }', '@{ "array": 192, "requant": 80 }', "dsp: 192 + 80 DSPs, the part has 220"),
        ('"chain": 4', '"chain": @8', "array.chain: sums of 8 products do not fit 17 bits"),
        ('"chain": 4', '"chain": @3', "array.chain: 16 inputs are not whole chains of 3"),
        ('"opcode": 5', '"opcode": @2', "tasks.copy: opcode 2 is that of pool"),
        (
            '"channel_step": 8',
            '"channel_step": @16',
            "tasks.conv.channel_step: 16, expected the channels of a word, 8 (hint: as layout.channels_per_word)",
        ),
        (
            '"channels_per_word": 8',
            '"channels_per_word": @16',
            "layout.channels_per_word: 16, expected the bytes of a beat, 8",
        ),
        ('"images_per_word": 1', '"images_per_word": @2', "layout.images_per_word: expected 1, found 2"),
        (
            '"alignment": 64',
            '"alignment": @96',
            "layout.alignment: 96, expected a multiple of 64, as addresses in 'weights' are",
        ),
    ],
)
def test_a_typo_is_reported_at_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    refusal_at(tmp_path, edited(old, new), message)


def test_a_third_port_for_constants_is_that_of_odd_planes(tmp_path: Path) -> None:
    text = edited('"inputs": 16', '"inputs": 8')
    text = text.replace('"memory_port": {', '"ports": { "bytes": 8, "constants": @3 },\n  "memory_port": {')
    refusal_at(
        tmp_path, text, "ports.constants: the third one is that of odd planes, which an array of 8 inputs does not have"
    )


def test_a_wide_field_takes_the_next_word_too(tmp_path: Path) -> None:
    text = edited('{ "name": "input", "word": 2', '{ "name": "input", "word": 1')
    refusal_at(tmp_path, text.replace('{ "name": "input",', '@{ "name": "input",'), "'input' overlaps 'average'")
    text = edited('"name": "second", "word": 4', '"name": "second", "word": 3')
    refusal_at(tmp_path, text.replace('{ "name": "second",', '@{ "name": "second",'), "'second' overlaps 'input'")


@pytest.mark.parametrize("blob", ["input", "second", "output"])
def test_unsigned_codes_need_a_field_for_each_zero_point(tmp_path: Path, blob: str) -> None:
    lacking = edited(f'"name": "{blob}_zero"', f'"name": "{blob}_nought"')
    marked = lacking.replace('"unsigned": true', '"unsigned": @true')
    refusal_at(tmp_path, marked, f"unsigned: the descriptor has no field '{blob}_zero'")
    assert not overlay.load(written(tmp_path, lacking.replace('"unsigned": true,', ""))).unsigned


def test_places_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{\r\n  "a": [1,\r\n\t{"b": "x"}],\r\n "c":-2.50e1}\r\n')
    document = load(path)
    assert document.value == {"a": [1, {"b": "x"}], "c": -25}
    places = [(), ("a",), ("a", 0), ("a", 1), ("a", 1, "b"), ("c",)]
    expected = [(1, 1), (2, 8), (2, 9), (3, 2), (3, 8), (4, 6)]
    assert [document.source.where(document.values[place][0]) for place in places] == expected
    error = document.error("no", ("a", 1), key=False)
    assert error.excerpt == '    3 |  {"b": "x"}],\n      |  ^^^^^^^^^^'
    assert document.error("no", ("c",), key=True).excerpt.endswith('"c":-2.50e1}\n      |  ^^^')


@pytest.mark.parametrize(
    ("data", "line", "column", "message"),
    [
        (b"", 1, 1, "expected a value, found its end"),
        (b'{"a": 1', 1, 8, "expected ',' or '}', found its end"),
        (b'{"a": 1,\n}', 2, 1, "expected a value between the comma and '}' (hint: JSON takes no trailing comma)"),
        (b"[1,]", 1, 4, "expected a value between the comma and ']'"),
        (b"[,1]", 1, 2, "expected a value, found ','"),
        (b"{'a': 1}", 1, 2, "expected a key in double quotes, found \"'\" (hint: strings take double quotes)"),
        (b'{"a" 1}', 1, 6, "expected ':' after the key \"a\", found '1'"),
        (b'{"a": 1}\n{', 2, 1, "expected the end of the file, found '{'"),
        (b"[1] // done", 1, 5, "expected the end of the file, found '/'"),
        (b"[\n // no\n]", 2, 2, "expected a value, found '/' (hint: JSON has no comments)"),
        (b'{"a": 1,\n "b": {"c": 1, "c": 2}}', 2, 16, 'key "c" is here twice (first in line 2)'),
        (b'{"\\u0061": 1, "a": 2}', 1, 15, 'key "a" is here twice'),
        (b"[NaN]", 1, 2, "expected a value, found 'NaN' (hint: JSON has finite numbers only)"),
        (b"[Infinity]", 1, 2, "finite numbers only"),
        (b"[-Infinity]", 1, 2, "'-Infinity' is not a number of JSON"),
        (b"[1e999]", 1, 2, "the number '1e999' is too large"),
        (b"[-18446744073709551616]", 1, 2, "is too large"),
        (b"[" + b"9" * 100_000 + b"]", 1, 2, "is too large"),
        (b"[012]", 1, 2, "'012' is not a number of JSON"),
        (b"[0x10]", 1, 2, "'0x10' is not a number of JSON"),
        (b"[1.]", 1, 2, "'1.' is not a number of JSON"),
        (b"[+1]", 1, 2, "expected a value, found '+1'"),
        (b"[True]", 1, 2, "found 'True' (hint: did you mean true?)"),
        (b'["a\nb"]', 1, 4, "invalid control character"),
        (b'["ab', 1, 2, "unterminated string"),
        (b'["a\\q"]', 1, 4, "invalid \\escape"),
        (b'["\\ud800"]', 1, 2, "half a surrogate pair"),
        (b'{"a": "\xff"}', 1, 8, "byte 0xff is not UTF-8"),
        (b'\n "\xc3\xa4 \xe4"', 2, 5, "byte 0xe4 is not UTF-8"),
        (b"\xef\xbb\xbf{}", 1, 1, "a byte order mark before the text"),
        (b"\xd9\xa1", 1, 1, "expected a value"),
        (b"[" * 100_000, 1, DEPTH + 2, f"more than {DEPTH} objects and lists inside each other"),
        (b"[" + b"0," * 60_000 + b"0]", 1, 2 * 49_999 + 2, "more than 50,000 values"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(tmp_path: Path, data: bytes, line: int, column: int, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(ParseError) as error:
        load(path)
    assert message in str(error.value)
    assert (error.value.line, error.value.column) == (line, column)
    assert len(str(error.value)) < 400


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b" " * BYTES + b"1")
    with pytest.raises(ParseError, match="larger than 1,048,576 bytes"):
        load(path)
    path.write_bytes(b" " * (BYTES - 1) + b"1")
    assert load(path).value == 1


@pytest.mark.parametrize(
    ("text", "value"), [("1e3", 1000), ("100.0", 100), ("-0.0", 0), ("18446744073709551615", 2**64 - 1)]
)
def test_whole_numbers_are_ints_however_written(tmp_path: Path, text: str, value: int) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    content = load(path).value
    assert content == value
    assert type(content) is int


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(-1e18, 1e18) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(value=JSON, ascii=st.booleans(), indent=st.sampled_from([None, 2]))
def test_reads_what_python_writes(
    tmp_path_factory: pytest.TempPathFactory, value: Any, ascii: bool, indent: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.json"
    path.write_text(json.dumps(value, ensure_ascii=ascii, indent=indent), encoding="utf-8", newline="")
    assert load(path).value == value


@given(data=st.binary(max_size=40) | st.text(alphabet='{}[]",:0123456789.eE+-tfn\\u \n', max_size=40).map(str.encode))
def test_whatever_it_reads_python_reads_too(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    try:
        value = load(path).value
    except ParseError as error:
        assert error.line is not None
        return
    assert json.loads(data) == value
