"""chai estimate: CHaiDNN's layer list against arithmetic done here, and lists that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from chai import overlay as overlays
from chai.chaidnn.estimate import COLUMNS, FREE, HOST, estimate, write
from chai.errors import ParseError
from chai.limits import limits
from chai.overlay import Overlay, names
from chai.overlay.manifest import ARRAY
from tests.conftest import examples


def load(name: str = "pynq-z2") -> Overlay:
    """An overlay whose memory ports have room for any number of bursts; test_cycles.py has their rates."""
    return replace(overlays.load(name), memory_port=None)


LIST = """CONV,224,224,3,7,7,2,2,3,3,112,112,64,1,1
MAXPOOL,112,112,64,3,3,2,2,0,0,56,56,64
AVEPOOL,7,7,1024,7,7,1,1,0,0,1,1,1024
CONV3D,14,14,512,3,3,1,1,1,1,14,14,512,512,1
BN,14,13,64
ELTWISE,14,13,64
INNERPROD,1,1,1024,1000
RELU
"""


@pytest.fixture
def layers(tmp_path: Path) -> Any:
    """The estimates of a text."""

    def run(text: str | bytes, overlay: str = "pynq-z2") -> Any:
        path = tmp_path / "layers.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return estimate(path, load(overlay))

    return run


# -- the cycle model once more, from the numbers of a line and of the manifest


ROUNDING = 1  # the model divides in floats: bytes that take whole cycles may come out a hair above, and round up


def words(h: int, w: int, c: int) -> int:
    """Bytes of a blob: whole words of 8 channels."""
    return h * w * 8 * ceil(c / 8)


def streamed(overlay: Overlay, *blobs: tuple[int, int, int]) -> int:
    """What the window engine computes, its port reads and writes, or the memory can move, whichever takes longest; the last
    blob is written, a word a cycle."""
    *read, written = (words(*blob) for blob in blobs)
    planes = overlay.window.read_bytes // 8  # side by side; a sum of two takes two cycles
    engine = len(read) * max(ceil(c / (8 * planes)) * h * w for h, w, c in blobs)
    # words a cycle, of runs of a plane each
    areas = (h * w for h, w, _ in (blobs[0], blobs[-1]))
    runs = ((min(area, 64) if area % overlay.ports.words else area, area) for area in areas)
    (reads, _), (_, writes) = (map(Fraction, overlay.rates(*run)) for run in runs)
    port = overlay.memory_port
    refreshed = 1 - Fraction(port.refresh_cycles, port.refresh_period) if port else 1
    engine = max(engine, sum(read) / 8 / reads, Fraction(written, 8) / min(refreshed, writes))
    moved = (sum(read) + written) * Fraction(overlay.clock_mhz) / Fraction(overlay.memory_mb_per_s)
    return ceil(max(engine, moved)) + overlay.overhead.task_cycles


def convolved(overlay: Overlay, n: list[int]) -> int:
    """A cycle for each pixel, kernel tap, block of inputs and block of outputs; draining; loading of weights; memory ports.

    Tile by tile: whole rows of one image, as many as the accumulators and the ring of input rows hold.
    """
    h, w, c, kh, kw, sh, _, _, _, oh, ow, m, group, _ = n
    depthwise = group == c == m
    if not depthwise:
        group = joined(overlay, c, m, group)
    if group == 1 and c < overlay.array.inputs:
        height = h
        h, w, c, kh, kw = unfolded(overlay, h, w, c, kh, kw, sh, oh, ow)
        sh = sh if h == height and kw == n[4] else 1
    if kh == 1 and n[7] == 0:  # rows that no window sees are not read
        h, sh = ceil(h / sh), 1
    array = overlay.array
    ins, outs, inside = array.inputs, array.outputs, c // group
    if depthwise:  # one output an input
        passes, each, row = kh * kw, [min(ins, outs)] * (m // min(ins, outs)) + [m % min(ins, outs)], w * ceil(c / ins)
        blocks = ceil(m / min(ins, outs))
        weights = blocks * ins * kh * kw
    else:
        passes, blocks = kh * kw * ceil(inside / ins), group * ceil(m // group / outs)
        each = group * ([outs] * (m // group // outs) + [m // group % outs])
        row, weights = w * group * ceil(inside / ins), blocks * outs * ceil(inside / ins) * ins * kh * kw
    ring, room = overlay.buffers.input.depth, overlay.buffers.accumulators.depth * array.lanes
    loaded = overlay.buffers.weights.word_bits // 8  # bytes of weights a cycle
    loads = ins * outs // loaded
    assert ow <= room

    def most(words: int) -> int:
        rows = [r for r in range(1, oh + 1) if r * ow <= room and min(h, (2 * r - 1) * sh + kh) * row <= words]
        return max(rows, default=1)

    # where weights stay, half of the ring is for the Task after it, unless tiles would be too small
    half = (
        weights <= overlay.buffers.weights.bytes and h * row > ring // 2 and most(ring // 2) * ow >= loads * array.lanes
    )
    turns = min(h, sh + kh) * row > ring  # one window fits, and fetching waits for computing
    tiles = ceil(oh / most(ring // 2 if half else ring))
    tall = ceil(oh / tiles)
    computed: Fraction | int = 0
    for first in range(0, oh, tall):
        pixels = min(tall, oh - first) * ow
        for channels in filter(None, each):  # of a block: all, but the last one of a group
            busy = max(passes * max(ceil(pixels / array.lanes), loads), pixels * ceil(channels / overlay.requant.lanes))
            computed += busy + overlay.overhead.tile_cycles
    again = 1 if h * row <= ring or weights <= overlay.buffers.weights.bytes else ceil(oh / tall)
    constants = weights * again + 16 * m
    at_once = overlay.ports.words
    stored = loaded if at_once > 1 else 8  # bytes of constants a cycle
    computed = max(computed, Fraction(words(h, w, c), ins * at_once), Fraction(constants, stored))
    bytes_moved = words(h, w, c) + words(oh, ow, m) + constants
    moved = bytes_moved * Fraction(overlay.clock_mhz) / Fraction(overlay.memory_mb_per_s)
    return ceil(computed + moved if turns else max(computed, moved)) + overlay.overhead.task_cycles


def joined(overlay: Overlay, c: int, m: int, group: int) -> int:
    """Groups that are left when neighbours are joined until they are whole words: those of the fewest passes."""
    word, ins, outs = overlay.layout.channels_per_word, overlay.array.inputs, overlay.array.outputs
    whole = [g for g in range(1, group + 1) if group % g == 0 and (g == 1 or c // g % word == m // g % word == 0)]
    return min(whole, key=lambda g: (g * ceil(c // g / ins) * ceil(m // g / outs), -g))


def unfolded(overlay: Overlay, h: int, w: int, c: int, kh: int, kw: int, sh: int, oh: int, ow: int) -> list[int]:
    """Height, width, channels and kernel over the blob that the host packs: the fewest passes, then the fewest bytes."""
    ins, word = overlay.array.inputs, overlay.layout.channels_per_word
    forms = [[h, w, c, kh, kw]]
    for rows in (min(sh, kh), kh):
        taps = ceil(kh / rows)
        forms.append([oh + taps - 1, ow, rows * kw * c, taps, 1])

    def cost(form: list[int]) -> tuple[int, int]:
        height, width, channels, *kernel = form
        return kernel[0] * kernel[1] * ceil(channels / ins), height * width * ceil(channels / word) * word

    return min((f for f in forms if f is forms[0] or cost(f)[1] <= 1.1 * h * w * ins), key=cost)


def test_three_layers_by_hand(layers: Any) -> None:
    """16 x 24 array, 8 results a cycle, 512 accumulators; 64 cycles a Task, 8 a tile; 100 MHz.
    The window engine reads a word of 8 channels a cycle."""
    conv, pool, average, depthwise, bn, add, fc, relu = layers(LIST)
    # 7x7 over 3 channels unfolds to 4x1 over 42, 12 passes; 3 blocks of outputs; 28 tiles of 4 rows of 112 pixels
    assert conv.cycles == 28 * 3 * (12 * 448 + 8) + 64
    assert conv.macs == 112 * 112 * 64 * 147
    assert pool.cycles == 112 * 112 * 64 // 8 + 64
    assert average.cycles == 49 * 1024 // 8 + 64
    # 32 blocks of 16 channels, 9 passes over 196 pixels, in five tiles
    assert depthwise.cycles == 32 * (9 * 196 + 5 * 8) + 64
    # both blobs, a weight and a record for each channel take longer than draining 2 planes of 4 blocks
    assert bn.cycles == ceil((2 * 182 * 64 + 64 * (1 + 16)) / 15) + 64 > 4 * (2 * 182 + 8) + 64
    assert add.cycles == 2 * 14 * 13 * 64 // 8 + 64
    assert conv.ms == pytest.approx(conv.cycles / 100_000)
    assert (fc.engine, fc.ms, fc.cycles, relu.engine, relu.ms) == ("host", 0, 0, "free", 0)
    assert (pool.input, pool.output) == ((1, 64, 112, 112), (1, 64, 56, 56))


PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    st.sampled_from(names(ARRAY)),
    st.tuples(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 1, 2, 3])),
    st.tuples(st.integers(9, 60), st.integers(9, 60)),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    PAIR,
    PAIR,
)
@settings(max_examples=examples(100))
def test_convolutions_of_all_sizes(
    tmp_path_factory: Any, overlay: str, channels: Any, size: Any, kernel: Any, stride: Any, pad: Any
) -> None:
    """Against the arithmetic above, which shares no code with the model."""
    c, m, group = channels
    out = [(s + 2 * p - k) // t + 1 for s, p, k, t in zip(size, pad, kernel, stride)]
    numbers = [*size, c * group, *kernel, *stride, *pad, *out, m * group, group, 1]
    path = tmp_path_factory.getbasetemp() / "one.csv"
    path.write_text("CONV," + ",".join(map(str, numbers)) + "\n")
    (row,) = estimate(path, load(overlay))
    assert row.engine == "fpga"
    assert 0 <= row.cycles - convolved(load(overlay), numbers) <= ROUNDING
    assert row.macs == out[0] * out[1] * m * group * c * kernel[0] * kernel[1]


@given(
    st.sampled_from(names(ARRAY)),
    st.sampled_from(["MAXPOOL", "AVEPOOL"]),
    st.tuples(st.integers(3, 70), st.integers(3, 70), st.integers(1, 300)),
    st.integers(1, 3),
)
@settings(max_examples=examples(100))
def test_layers_that_stream(tmp_path_factory: Any, overlay: str, kind: str, size: Any, k: int) -> None:
    h, w, c = size
    oh, ow = h - k + 1, w - k + 1
    path = tmp_path_factory.getbasetemp() / "two.csv"
    path.write_text(f"{kind},{h},{w},{c},{k},{k},1,1,0,0,{oh},{ow},{c}\nELTWISE,{h},{w},{c}\n")
    pool, add = estimate(path, load(overlay))
    assert 0 <= pool.cycles - streamed(load(overlay), (h, w, c), (oh, ow, c)) <= ROUNDING
    assert 0 <= add.cycles - streamed(load(overlay), (h, w, c), (h, w, c), (h, w, c)) <= ROUNDING


def test_the_list_of_a_network_takes_what_the_network_takes(layers: Any) -> None:
    """Every convolution and pooling of GoogLeNet, as a list, against the model's cycles of the compiled network."""
    import chai
    from chai.layers.convolution import Convolution
    from chai.offload.schedule import DeviceStep
    from chai.offload.scheduling import lower
    from chai.tasks.arithmetic import Arithmetic

    net = chai.Net("googlenet", device="null")
    net.plan()
    assert net.overlay is not None
    shapes, lines = net.offload.shapes, []
    for step in net.schedule.steps:
        for layer in step.layers if isinstance(step, DeviceStep) else ():
            if layer.type not in ("Convolution", "Pooling"):
                continue
            (_, c, h, w), (_, m, oh, ow) = shapes[layer.bottoms[0]], shapes[layer.tops[0]]
            window = layer.window if isinstance(layer, Convolution) else layer.window(shapes[layer.bottoms[0]])  # type: ignore[attr-defined]
            kind = "CONV" if isinstance(layer, Convolution) else layer.params.pool + "POOL"
            last = [1, 1] if kind == "CONV" else []
            lines.append(
                ",".join(map(str, [kind, h, w, c, *window.kernel, *window.stride, *window.pad, oh, ow, m, *last]))
            )
    lowered = lower(
        net.offload.partition, Arithmetic(net.overlay, net.offload.formats, shapes)
    )  # before some are merged
    assert isinstance(lowered, dict)
    plain = [t for parts in lowered.values() for t in parts if t.kind in ("conv", "pool")]
    (first,) = (
        t for step in net.schedule.steps if isinstance(step, DeviceStep) for t in step.tasks if "conv1" in t.origin[0]
    )
    tasks = [(first if t.inputs == ("data",) else t).cycles(load(), shapes) for t in plain]
    assert len(lines) == len(tasks) > 60
    assert sum(e.cycles for e in layers("\n".join(lines))) == sum(tasks)


# -- what a list may look like


CHAIDNN = """NMS PERMUTE SOFTMAX L2NORM INNERPROD PRIORBOX CROP
    DECONV DROPOUT CRELU RELU RESHAPE POWER ARGMAX SCALE CONCAT FLATTEN"""


def test_every_type_of_chaidnn_is_known(layers: Any) -> None:
    engines = {e.type: e.engine for e in layers("\n".join([*FREE, *HOST]))}
    assert {*engines.values()} == {"free", "host"}
    assert set(engines) == set(CHAIDNN.split())
    assert set(COLUMNS) == {"CONV", "CONV3D", "MAXPOOL", "AVEPOOL", "BN", "ELTWISE"}


@pytest.mark.parametrize(
    "text",
    [
        "BN,14,13,64",  # no end of line: CHaiDNN drops such a line
        "\ufeffBN,14,13,64\r\n",  # a spreadsheet's mark and line end
        'BN, 14 ,\t13,"64"\n',
        "\n\n  \n,,,\nBN,14,13,64,,,,\n",
        "BN,14,13,64,1,1,what,ever\n",  # CHaiDNN leaves these unread
        "BN,14,13,64" + ",9" * 100_000,
    ],
)
def test_forms_of_a_line(layers: Any, text: str) -> None:
    (row,) = layers(text)
    assert (row.type, row.numbers, row.line) == ("BN", (14, 13, 64), 5 if text.startswith("\n") else 1)


@pytest.mark.parametrize("oh", [3, 4])
def test_poolings_may_round_either_way(layers: Any, oh: int) -> None:
    (row,) = layers(f"MAXPOOL,8,8,16,3,3,2,2,0,0,{oh},{oh},16")
    assert row.output == (1, 16, oh, oh)


def test_what_the_overlay_cannot_run_counts_as_nothing(layers: Any) -> None:
    (row,) = layers("CONV,40,40,16,13,13,1,1,6,6,40,40,24,1,1")
    assert (row.engine, row.reason, row.ms) == ("host", "kernel 13 is more than the overlay's 11", 0)
    assert row.macs == 40 * 40 * 24 * 16 * 169


def test_an_unknown_type_has_a_neighbour(layers: Any) -> None:
    rows = layers("LRN,1\nCONVV,2\n")
    assert [e.engine for e in rows] == ["unknown", "unknown"]
    assert rows[0].reason == "no type 'LRN' is known"
    assert rows[1].reason == "no type 'CONVV' is known, did you mean CONV?"


# -- lists that are none

CONV = "CONV,20,20,32,3,3,1,1,1,1,20,20,48,1,1"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("CONV,20,20,32,3,3,1,1,1,1,20,20,48", "1:1", "CONV has 12 numbers, expected 14 (hint: missing: group, dilation)"),
        (f"{CONV}\nBN,14,13", "2:1", "BN has 2 numbers, expected 3 (hint: missing: input channels)"),
        (f"{CONV}\n\nBN,14,x13,64", "3:7", "BN: input width: expected a whole number from 1 to 65535, found 'x13'"),
        ("BN,14,,64", "1:7", "input width: expected a whole number from 1 to 65535, found ''"),
        ("BN,14,-3,64", "1:7", "found '-3'"),
        ("BN,14,3.5,64", "1:7", "found '3.5'"),
        ("BN,14,0,64", "1:7", "found '0'"),
        ("BN,14,65536,64", "1:7", "found '65536'"),
        ("BN,14," + "9" * 5000, "1:7", "found '9999999999999999999999999999999999999999'"),
        ("BN,14,\u0663,64", "1:7", "input width: expected"),
        ("CONV;20;20;32", "1:1", "expected a layer type, found 'CONV;20;20;32' (hint: columns are separated by commas"),
        ("=cmd(),1", "1:1", "expected a layer type, found '=cmd()'"),
        (" ,3", "1:1", "expected a layer type, found ''"),
        ("A" * 65, "1:1", "expected a layer type"),
        (CONV.replace("20,20,48", "20,19,48"), "1:1", "its output is listed as 1x48x20x19; this window gives 1x48x20x20"),
        (CONV.replace("48,1,1", "48,5,1"), "1:1", "channels 32 cannot be divided into 5 groups"),
        ("CONV,2,2,32,5,5,1,1,1,1,1,1,48,1,1", "1:1", "kernel 5x5 (dilation 1x1) is larger than the padded input 2x2"),
        ("MAXPOOL,8,8,16,3,3,2,2,0,0,5,5,16", "1:1", "its output is listed as 1x16x5x5; this window gives 1x16x4x4"),
        ("MAXPOOL,8,8,16,3,3,2,2,0,0,4,4,17", "1:1", "its output is listed as 1x17x4x4"),
        ("MAXPOOL,8,8,16,3,3,2,2,3,3,6,6,16", "1:1", "pad 3x3 is not smaller than the kernel 3x3"),
        ("BN,65535,65535,65535", "1:1", "top of shape 1x65535x65535x65535: "),
        ("CONV,1,1,65535,1,1,1,1,0,0,1,1,65535,1,1", "1:1", "its weights are larger than any blob can be"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(layers: Any, text: str, place: str, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        layers(text)
    assert f"layers.csv:{place}: " in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.excerpt


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "there is no layer in it"),
        (b"\n\n , ,\r\n", "there is no layer in it"),
        (b"\xff\xfeC\x00O\x00", "layers.csv:1:1: byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfBN,1\n\xe4", "layers.csv:2:1: byte 0xe4 is not UTF-8"),
        (b"BN,1,2,3\n\x00,\x00", "expected a layer type"),
    ],
)
def test_no_list_at_all(layers: Any, data: bytes, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        layers(data)


@pytest.mark.parametrize(
    ("limit", "text"), [("layers=3", "BN,1,2,3\n\n\nBN,1,2,3\n"), ("text_bytes=20", "BN,1,2,3\n" * 3)]
)
def test_lists_are_bounded(layers: Any, monkeypatch: pytest.MonkeyPatch, limit: str, text: str) -> None:
    from chai.env import env

    monkeypatch.setenv("CHAI_LIMITS", limit)
    env.cache_clear()
    limits.cache_clear()
    try:
        with pytest.raises(ParseError, match=f"exceeds the limit {limit}"):
            layers(text)
    finally:
        monkeypatch.undo()
        env.cache_clear()
        limits.cache_clear()


@given(st.text(alphabet='CONVBMAXPL,0123456789-.\n\r"; \t\0\u0663', max_size=80))
@settings(max_examples=examples(100))
def test_any_text_is_a_list_or_an_error(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.encode())
    try:
        assert estimate(path, load())
    except ParseError as error:
        assert str(path) in str(error)


# -- the command


def test_the_command(chai_command: Any, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LIST + "LRN,5\n")
    done = chai_command("estimate", "layers.csv")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["line", "type", "input", "output", "MACs", "cycles", "ms", "engine"]
    assert lines[1].split() == ["1", "CONV", "3x224x224", "64x112x112", "118", "M", "452", "k", "4.523", "fpga"]
    assert lines[7].split() == ["7", "INNERPROD", "-", "-", "-", "-", "-", "host"]
    assert lines[10] == "host     no INNERPROD unit"
    assert "images/second on the overlay alone, modelled at an assumed 100 MHz (pynq-z2)" in lines[-1]
    assert max(map(len, lines[:-1])) <= 80
    assert done.stderr.splitlines() == [
        "wrote neteval.csv",
        "warning: layers.csv:9: no type 'LRN' is known: counted as 0 ms",
    ]
    written = [line.split(", ") for line in (tmp_path / "neteval.csv").read_text().splitlines()]
    assert [kind for kind, _ in written] == [line.split(",")[0] for line in (LIST + "LRN,5").splitlines()]
    # the pooling's port reads 8 bursts of 16 beats in 150 cycles and those of one; in 30 of 780 cycles nothing is read
    cycles = ceil(112 * 112 * 8 * (150 + 16) / (8 * 16) / (1 - 30 / 780)) + 64
    assert [ms for _, ms in written][:2] == ["4.523200", f"{cycles / 1e5:.6f}"]
    assert not list(tmp_path.glob("*.part"))


def test_the_command_as_json_for_another_overlay(chai_command: Any, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LIST)
    done = chai_command("estimate", "layers.csv", "--overlay", "ultra96", "-o", "times.csv", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["schema"] == "chai.estimate/1"
    assert (content["overlay"], "clock_mhz" in content["assumed"]) == ("ultra96", True)
    first = content["layers"][0]
    assert first["cycles"] == convolved(load("ultra96"), [int(n) for n in LIST.splitlines()[0].split(",")[1:]])
    assert first["ms"] == pytest.approx(first["cycles"] / content["clock_mhz"] / 1000)
    assert content["ms"] == pytest.approx(sum(layer["ms"] for layer in content["layers"]))
    assert (tmp_path / "times.csv").exists()
    assert not (tmp_path / "neteval.csv").exists()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["bad.csv"], 65, "error: bad.csv:2:7: BN: input width: expected a whole number from 1 to 65535, found 'x'"),
        (["none.csv"], 2, "error: there is no file 'none.csv'"),
        ([], 2, "required: LAYERS.csv"),
        (["bad.csv", "--overlay", "zu9"], 69, "there is no overlay 'zu9'"),
        (["good.csv", "-o", "nowhere/x.csv"], 2, "nowhere/x.csv"),
    ],
)
def test_the_command_s_errors(chai_command: Any, tmp_path: Path, args: list[str], code: int, words: str) -> None:
    (tmp_path / "bad.csv").write_text("BN,1,2,3\nBN,14,x,64\n")
    (tmp_path / "good.csv").write_text("BN,1,2,3\n")
    done = chai_command("estimate", *args)
    assert done.returncode == code
    assert words in done.stderr
    assert not done.stdout
    assert not (tmp_path / "neteval.csv").exists()
    if code == 65:
        assert done.stderr.splitlines()[1:] == ["    2 | BN,14,x,64", "      |       ^"]


def test_nothing_but_times_is_written(layers: Any, tmp_path: Path) -> None:
    write(layers("SOFTMAX,1\nBN,14,13,64"), tmp_path / "out.csv")
    assert (
        tmp_path / "out.csv"
    ).read_text() == f"SOFTMAX, 0.000000\nBN, {(ceil((2 * 182 * 64 + 64 * 17) / 15) + 64) / 1e5:f}\n"
