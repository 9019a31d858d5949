"""Schedule: the steps of a pass, with a conversion wherever a blob is wanted on the other side, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.fixed import Format
from chai.layers.norms import MVN
from chai.offload.schedule import DeviceStep, HostStep, Pack, Unpack
from chai.offload.scheduling import insert_pack_unpack
from tests.passes.common import AVE, CONV, DEEP, dims, network

SHAPE = (2, 3, 5, 7)
POOL = "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }"
TWIST = "user_defined_layer: true xcustom_param { top_dim: [2, 16, 5, 7] }"
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)


def twist(x: chai.xChangeLayer) -> None:
    """Turns an image by half a turn."""
    x.top[0][...] = x.bottom[0][..., ::-1, ::-1]


def run(folder: Path, lines: str, *data: Any, **options: Any) -> chai.Net:
    """The network after one pass."""
    net = network(folder, lines, SHAPE, device="emulator", custom={"twist": twist}, **options)
    net.forward(*(data or (DATA,)))
    return net


def converts(net: chai.Net) -> list[str]:
    """Kind and blob id."""
    return [str(step) for step in net.schedule.conversions]


def test_words(tmp_path: Path) -> None:
    """One per conversion and host layer, one per layer of a segment; a fused layer has its first one's type."""
    net = run(
        tmp_path,
        f"""
        conv Convolution data -> c : {DEEP}
        relu ReLU c -> c
        pool Pooling c -> p : {POOL}
        mine twist p -> t : {TWIST}
        fc InnerProduct t -> y : inner_product_param {{ num_output: 4 }}
        """,
    )
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "fpga:Pooling", "host:Unpack", "host:twist", "host:InnerProduct"),
    ]
    assert [type(step) for step in net.schedule.steps] == [Pack, DeviceStep, Unpack, HostStep, HostStep]


def test_nothing_is_packed_for_a_host_network(tmp_path: Path) -> None:
    net = run(tmp_path, "abs MVN data -> a\ntanh Normalize a -> y")
    assert net.schedule.engines() == ["host:MVN", "host:Normalize"]


def test_custom_to_custom_needs_no_conversion(tmp_path: Path) -> None:
    net = run(
        tmp_path,
        f"""
        conv Convolution data -> c : {DEEP}
        one twist c -> a : {TWIST}
        two twist a -> b : {TWIST}
        last Convolution b -> y : {DEEP}
        """,
    )
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "host:Unpack", "host:twist", "host:twist"),
        *("host:Pack", "fpga:Convolution", "host:Unpack"),
    ]
    assert converts(net) == ["Pack data", "Unpack c", "Pack b", "Unpack y"]


def test_one_conversion_however_many_readers(tmp_path: Path) -> None:
    net = run(
        tmp_path,
        f"""
        conv Convolution data -> c : {DEEP}
        also Convolution data -> d : {DEEP}
        one twist c -> a : {TWIST}
        two MVN c -> b
        three Eltwise a b b -> h : eltwise_param {{ operation: PROD }}
        sum Eltwise c h -> s
        more Convolution h -> m : {DEEP}
        late Eltwise h c c -> l : eltwise_param {{ operation: PROD }}
        """,
    )
    assert converts(net) == ["Pack data", "Unpack c", "Pack h", "Unpack d", "Unpack s", "Unpack m"]


def test_a_blob_read_on_both_sides_is_packed_once_and_never_back(tmp_path: Path) -> None:
    net = run(
        tmp_path,
        f"""
        conv Convolution data -> c : {DEEP}
        abs MVN data -> a
        one Convolution a -> b : {DEEP}
        sum Eltwise c b -> s
        fc InnerProduct a -> f : inner_product_param {{ num_output: 2 }}
        """,
    )
    assert sorted(converts(net)) == ["Pack a", "Pack data", "Unpack s"]


def test_a_blob_that_comes_back_later_is_not_packed_again(tmp_path: Path) -> None:
    """Two segments read what the first wrote."""
    net = run(
        tmp_path,
        f"""
        conv Convolution data -> c : {DEEP}
        abs MVN c -> a
        sum Eltwise c a -> s
        tanh Normalize s -> t
        again Eltwise c t -> y
        """,
    )
    assert converts(net) == ["Pack data", "Unpack c", "Pack a", "Unpack s", "Pack t", "Unpack y"]


def test_an_unpack_has_the_producers_format(tmp_path: Path) -> None:
    first = (
        "precision_param { bw_layer_in: 8 bw_layer_out: 8 fl_layer_in: 6 fl_layer_out: 5 bw_params: 8 fl_params: 7 }"
    )
    other = (
        "precision_param { bw_layer_in: 6 bw_layer_out: 6 fl_layer_in: 1 fl_layer_out: 2 bw_params: 6 fl_params: 4 }"
    )
    net = run(
        tmp_path,
        f"""
        conv Convolution data -> c : {DEEP} {first}
        pool Pooling c -> p : {POOL} {other}
        mine twist p -> t : {TWIST} {other}
        last Convolution t -> y : {DEEP} {other}
        """,
    )
    formats = {str(step): step.format for step in net.schedule.conversions}
    assert formats["Pack data"] == Format("DynamicFixed", 8, 6)
    assert formats["Unpack p"] == Format("DynamicFixed", 8, 5)  # a max pool passes the convolution's on
    assert formats["Unpack y"] == Format("DynamicFixed", 6, 2)
    assert formats["Pack t"] == net.formats["t"]


def test_a_segment_names_what_crosses_its_edge(tmp_path: Path) -> None:
    net = run(
        tmp_path,
        f"""
        a Convolution data -> a : {DEEP}
        b Convolution a -> b : {DEEP}
        c Convolution b -> c : {DEEP}
        abs MVN b -> d
        sum Eltwise a d -> s
        """,
    )
    first, second = (s for s in net.schedule.steps if isinstance(s, DeviceStep))
    assert (first.inputs, first.outputs) == (("data",), ("a", "b", "c"))
    assert (second.inputs, second.outputs) == (("a", "d"), ("s",))
    assert [layer.name for layer in first.layers] == ["a", "b", "c"]
    assert [task.output for task in first.tasks] == ["a", "b", "c"]


LAST = {
    "conv": f"last Convolution c -> y : {DEEP}",
    "relu": f"last Convolution c -> y : {DEEP}\nrelu ReLU y -> y",
    "leaky": f"last Convolution c -> l : {DEEP}\nrelu ReLU l -> y : relu_param {{ negative_slope: 0.1 }}",
    "max pool": f"last Pooling c -> y : {POOL}",
    "average": f"last Pooling c -> y : {AVE}",
    "sum": "last Eltwise c c -> y",
    "concat": f"left Convolution c -> a : {DEEP}\nlast Concat c a -> y",
    "affine": "last Scale c -> y",
    "behind a dropout": f"last Convolution c -> l : {DEEP}\ndrop Dropout l -> y",
    "host": "last Normalize c -> y",
    "custom": f"last twist c -> y : {TWIST}",
}


@pytest.mark.parametrize("last", LAST)
def test_outputs_of_any_type_come_out(tmp_path: Path, last: str) -> None:
    lines = f"conv Convolution data -> c : {DEEP}\n{LAST[last]}"
    net = run(tmp_path, lines)
    float_net = network(tmp_path, lines, SHAPE, custom={"twist": twist})
    wanted = float_net.forward(DATA)["y"]
    outputs = net.forward(DATA)
    assert list(outputs) == ["y"]
    assert (outputs["y"].dtype, outputs["y"].shape) == (np.float32, wanted.shape)
    assert np.abs(outputs["y"] - wanted).max() < 0.03 * np.abs(wanted).max()
    on_host = last in ("host", "custom")
    assert net.schedule.engines()[-1] == ("host:Unpack" if not on_host else f"host:{net.graph.layers[-1].type}")


def test_a_branch_of_a_concat_may_be_an_output_of_the_host_too(tmp_path: Path) -> None:
    """What lies inside the concat is still a blob of its own to everyone else."""
    net = run(
        tmp_path,
        f"""
        left Convolution data -> a : {DEEP}
        right Convolution data -> b : {DEEP}
        both Concat a b -> c
        abs AbsVal b -> d
        sum Eltwise a b -> s
        """,
        keep="all",
        engine={"abs": "host"},
    )
    assert np.array_equal(net.blobs["c"], np.concatenate([net.blobs["a"], net.blobs["b"]], 1))
    assert np.array_equal(net.blobs["d"], np.abs(net.blobs["b"]))
    assert {"Unpack b", "Unpack c", "Unpack s"} <= set(converts(net))


CONCATS = {
    "twice the same": "both Concat a a -> y",
    "a, b and a again": "both Concat a b a -> y",
    "a concat of concats": "ab Concat a b -> ab\nboth Concat ab a -> y",
    "a concat twice": "ab Concat a b -> ab\nboth Concat ab ab -> y",
    "two concats": "ab Concat a b -> ab\nboth Concat b a -> y",
    "the input": "wide Convolution a -> w : {0}\nboth Concat w data -> y",
    "one alone": "both Concat a -> y",
    "written long before": "abs MVN b -> h\nlate Convolution h -> l : {0}\nboth Concat a l b -> y",
    "packed": "abs MVN b -> h\nboth Concat h a -> y",
}


@pytest.mark.parametrize("case", CONCATS)
def test_concats_of_every_kind(tmp_path: Path, case: str) -> None:
    lines = f"a Convolution data -> a : {DEEP}\nb Convolution data -> b : {DEEP}\n{CONCATS[case].format(DEEP)}"
    net = run(tmp_path, lines, keep="all")
    layer = net.graph.layer("both")
    step = net.formats["y"].step
    wanted = np.concatenate(
        [net.formats["y"].dequantize(net.formats["y"].quantize(net.blobs[b])) for b in layer.bottoms], 1
    )
    assert "fpga:Concat" in net.schedule.engines()
    assert np.abs(net.blobs["y"] - wanted).max() < step / 2


SLICES = {
    "read on the device": "cut Slice w -> a b : {0}\nl Convolution a -> l : {1}\nr Pooling b -> r : {2}",
    "outputs themselves": "cut Slice w -> a b : {0}",
    "read on the host": "cut Slice w -> a b : {0}\nabs MVN b -> h",
    "of a slice": "cut Slice w -> a b : {0}\nmore Slice b -> c d : {0}\nl Convolution d -> l : {1}",
    "of a concat": "both Concat w v -> u\ncut Slice u -> a b : slice_param {{ slice_point: 64 }}\nl Convolution b -> l : {1}",
    "of a branch of a concat": "cut Slice w -> a b : {0}\nboth Concat w v -> u\nl Convolution b -> l : {1}",
    "into a concat": "cut Slice w -> a b : {0}\nboth Concat a v b -> u",
    "into a sum": "cut Slice w -> a c b : slice_param {{ slice_point: 16 slice_point: 32 }}\nsum Eltwise a c -> s",
    "of what is packed": "abs MVN w -> h\ncut Slice h -> a b : {0}\nl Convolution b -> l : {1}",
    "read long after": "cut Slice w -> a b : {0}\nabs MVN v -> h\nc Convolution h -> c : {1}\nsum Eltwise a c -> s",
    "one piece": "cut Slice w -> a\nl Convolution a -> l : {1}",
}


@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize("case", SLICES)
def test_slices_of_every_kind(tmp_path: Path, case: str, keep: str) -> None:
    """No Task and no conversion for them: a piece is read where it lies. Their codes are those of the whole."""
    wide = "convolution_param { num_output: 35 kernel_size: 1 }"
    lines = f"v Convolution data -> v : {DEEP.replace('16', '32')}\nw Convolution data -> w : {wide}\n"
    if case in ("of a concat", "of a branch of a concat"):
        lines = lines.replace("35", "48")
    net = run(tmp_path, lines + SLICES[case].format("slice_param { slice_point: 16 }", DEEP, POOL), keep=keep)
    assert "fpga:Slice" in net.schedule.engines()
    assert not any("cut" in task.origin for s in net.schedule.steps if isinstance(s, DeviceStep) for task in s.tasks)
    if keep == "outputs":
        kept = run(tmp_path, lines + SLICES[case].format("slice_param { slice_point: 16 }", DEEP, POOL), keep="all")
        assert all(np.array_equal(net.blobs[b], kept.blobs[b]) for b in net.outputs)
        assert any(net.blobs[b].any() for b in net.outputs)
        return
    for layer in (layer for layer in net.graph.layers if layer.type == "Slice"):
        whole = net.blobs[layer.bottoms[0]]
        step = net.formats[layer.tops[0]].step
        pieces = np.concatenate([net.blobs[top] for top in layer.tops], 1)
        assert np.abs(pieces - whole).max() <= (0 if layer.bottoms[0] != "h" else step / 2 * 1.0001)
    checked = network(tmp_path, lines + SLICES[case].format("slice_param { slice_point: 16 }", DEEP, POOL), SHAPE)
    wanted = checked.forward(DATA)
    for blob in net.outputs:
        assert np.abs(net.blobs[blob] - wanted[blob]).max() < 0.05 * np.abs(wanted[blob]).max(), blob


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    lines = f"""
        a Input -> a : {dims(SHAPE)}
        b Input -> b : {dims((2, 3, 4, 4))}
        ca Convolution a -> ca : {CONV}
        cb Convolution b -> cb : {DEEP}
        tanh TanH b -> t
        """
    other = np.random.default_rng(1).uniform(-4, 4, (2, 3, 4, 4)).astype(np.float32)
    net = run(tmp_path, lines, DATA, other)
    assert sorted(net.schedule.engines()) == [
        *("fpga:Convolution", "fpga:Convolution", "host:Pack", "host:Pack", "host:TanH", "host:Unpack", "host:Unpack"),
    ]
    outputs = net.forward(b=other, a=DATA)
    wanted = network(tmp_path, lines, SHAPE).forward(DATA, other)
    assert list(outputs) == net.outputs == ["ca", "cb", "t"]
    assert np.array_equal(outputs["t"], np.tanh(other))
    for blob in ("ca", "cb"):
        assert np.abs(outputs[blob] - wanted[blob]).max() < 0.03 * np.abs(wanted[blob]).max()


def test_an_output_of_the_first_segment_is_unpacked_once(tmp_path: Path) -> None:
    net = run(
        tmp_path,
        f"""
        one Convolution data -> a : {DEEP}
        split Split a -> b c
        abs MVN b -> h
        two Convolution h -> y : {DEEP}
        """,
    )
    assert converts(net) == ["Pack data", "Unpack a", "Pack h", "Unpack y"]
    assert net.outputs == ["c", "y"]
    assert set(net.blobs) >= {"c", "y"}


def test_steps_of_a_pass_are_those_of_the_schedule(tmp_path: Path) -> None:
    net = run(tmp_path, f"conv Convolution data -> c : {DEEP}\npool Pooling c -> p : {POOL}\nabs MVN p -> y")
    assert [s.name for s in net.perf.steps] == ["Pack data", "conv", "pool", "Unpack p", "abs"]
    assert [s.engine for s in net.perf.steps] == ["host", "fpga", "fpga", "host", "host"]


def test_another_size_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    """A kernel may fit one size and not the other; formats stay."""
    net = run(tmp_path, "pool Pooling data -> p : pooling_param { pool: AVE global_pooling: true }")
    assert net.schedule.engines() == ["host:Pack", "fpga:Pooling", "host:Unpack"]
    formats = net.formats
    net.forward(np.ones((1, 3, 2, 256)))
    assert net.schedule.engines() == ["host:Pooling"]
    assert net.formats is formats
    net.forward(DATA)
    assert net.schedule.engines() == ["host:Pack", "fpga:Pooling", "host:Unpack"]


# -- inserting conversions


def host(reads: str, writes: str, codes: bool = False) -> HostStep:
    return HostStep(MVN("h", tuple(reads.split()), tuple(writes.split()), type="MVN"), "asked for", codes)


def segment(reads: str, writes: str) -> DeviceStep:
    return DeviceStep((), (), tuple(reads.split()), tuple(writes.split()))


@pytest.mark.parametrize(
    ("steps", "outputs", "wanted"),
    [
        ([host("x", "y")], "y", "run"),
        ([segment("x", "y")], "y", "Pack x, run, Unpack y"),
        ([segment("x", "y"), segment("x y", "z")], "z y", "Pack x, run, run, Unpack z, Unpack y"),
        ([segment("x", "y"), host("y x", "z"), segment("z", "w")], "w", "Pack x, run, Unpack y, run, Pack z, run, Unpack w"),
        ([segment("x", "y"), host("y", "z", codes=True), host("z y", "w")], "w", "Pack x, run, run, Unpack z, Unpack y, run"),
        ([host("x", "y"), segment("y", "z"), host("y", "w")], "x w", "run, Pack y, run, run"),
    ],
)  # fmt: skip
def test_a_conversion_is_inserted_once_before_the_first_step_that_needs_it(
    steps: list[HostStep | DeviceStep], outputs: str, wanted: str
) -> None:
    formats = {blob: Format("DynamicFixed", 8, i) for i, blob in enumerate("xyzw")}
    result = insert_pack_unpack(steps, ["x"], outputs.split(), formats)
    assert ", ".join(str(s) if isinstance(s, (Pack, Unpack)) else "run" for s in result) == wanted
    assert [step for step in result if not isinstance(step, (Pack, Unpack))] == steps
    assert all(s.format == formats[s.blob] for s in result if isinstance(s, (Pack, Unpack)))
    present = {("host", "x")}
    for step in result:
        assert present.issuperset(step.reads)
        present.update(step.writes)
    assert present.issuperset(("host", blob) for blob in outputs.split())


def test_a_step_says_what_it_reads_and_writes_and_where() -> None:
    f = Format("DynamicFixed", 8, 4)
    assert (Pack("a", f).reads, Pack("a", f).writes) == ((("host", "a"),), (("device", "a"),))
    assert (Unpack("a", f).reads, Unpack("a", f).writes) == ((("device", "a"),), (("host", "a"),))
    assert host("a b a", "c d").reads == (("host", "a"), ("host", "b"))
    assert host("a", "c", codes=True).writes == (("device", "c"),)
    assert (segment("a", "b c").reads, segment("a", "b c").writes) == (
        (("device", "a"),),
        (("device", "b"), ("device", "c")),
    )


def test_a_newcomer_finds_where_pack_is_inserted() -> None:
    """By ``grep -rn "def .*pack" chai/offload``, and the kinds of Tasks are not known there."""
    folder = Path(chai.__file__).parent / "offload"
    text = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert re.findall(r"def \w*pack\w*\(", "".join(text.values())) == ["def insert_pack_unpack("]
    assert "Copy" not in text["schedule.py"]
