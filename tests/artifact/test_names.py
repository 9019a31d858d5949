"""Names in a compiled network: every output, every blob that is kept, and files that their own loader takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact import save as saving
from chai.artifact.save import save
from chai.errors import ModelError, UsageError
from tests.passes.common import AFFINE, CONV, DEEP, GLOBAL, MAX, dims, network

from .common import data

SAME = {
    "a split at the end": f"conv Convolution data -> c : {CONV}\nsplit Split c -> s0 s1",
    "a split of a host layer": f"conv Convolution data -> c : {CONV}\nabs MVN c -> a\nsplit Split a -> s0 s1",
    "a split of a split": f"conv Convolution data -> c : {CONV}\none Split c -> s0 s1\ntwo Split s0 -> t0 t1",
    "a split that is read, too": f"""conv Convolution data -> c : {CONV}
        split Split c -> s0 s1 s2
        relu ReLU s1 -> r""",
    "a dropout at the end": f"conv Convolution data -> c : {CONV}\ndrop Dropout c -> d",
    "the split of an input": f"split Split data -> s0 s1\nconv Convolution s0 -> c : {CONV}",
    "a blob in place": f"conv Convolution data -> c : {CONV}\nabs MVN c -> c\nsplit Split c -> s0 s1",
}
ONE = {  # parts that fill their whole
    "a concat of a convolution": f"conv Convolution data -> c : {CONV}\ncat Concat c -> y",
    "that is read": f"""conv Convolution data -> c : {CONV}
        cat Concat c -> y
        pool Pooling y -> p : {MAX}
        other Pooling c -> q : {MAX}""",
    "of a pool": f"pool Pooling data -> p : {MAX}\ncat Concat p -> y\nconv Convolution y -> z : {CONV}",
    "of a concat": f"""a Convolution data -> a : {DEEP}
        b Convolution data -> b : {DEEP}
        two Concat a b -> ab
        one Concat ab -> y
        again Concat y -> z
        conv Convolution z -> out : {CONV}""",
    "of a concat before one of two": f"""a Convolution data -> a : {DEEP}
        one Concat a -> y
        b Convolution data -> b : {DEEP}
        two Concat y b -> ab""",
    "of a sum": f"a Convolution data -> a : {CONV}\nsum Eltwise a a -> s\none Concat s -> y\nrelu ReLU y -> y",
    "a slice of one": f"conv Convolution data -> c : {DEEP}\nsl Slice c -> s\npool Pooling s -> p : {MAX}",
}


def compiled(folder: Path, lines: str, **options: object) -> tuple[chai.Net, chai.Net]:
    """A calibrated network on the emulator, and what its file loads as."""
    net = network(folder, lines, device="emulator", **options)
    net.calibrate(data())
    save(net, folder / "net.chai")
    return net, chai.Net(folder / "net.chai", **options)  # type: ignore[arg-type]


def equal(net: chai.Net, wanted: chai.Net, seed: int = 1) -> None:
    """Same outputs under the same names in the same order, to the bit."""
    first, second = net.forward(data(seed)), wanted.forward(data(seed))
    assert list(first) == list(second) == net.outputs == wanted.outputs
    for name, values in first.items():
        assert np.array_equal(values, second[name]) and values.std() > 0, name


@pytest.mark.parametrize("lines", SAME.values(), ids=SAME)
def test_two_names_of_one_blob_are_two_outputs(tmp_path: Path, lines: str) -> None:
    net, again = compiled(tmp_path, lines)
    assert net.outputs == network(tmp_path, lines).outputs
    equal(again, net)
    for streamed, wanted in zip(again.stream([data(2)]), net.stream([data(2)]), strict=True):
        assert list(streamed) == list(wanted) == net.outputs
        assert all(np.array_equal(streamed[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("lines", SAME.values(), ids=SAME)
def test_two_names_of_one_blob_are_two_blobs(tmp_path: Path, lines: str) -> None:
    net, again = compiled(tmp_path, lines, keep="all")
    equal(again, net)
    assert set(again.blobs) == set(net.blobs) == set(network(tmp_path, lines).graph.latest)
    assert again.shapes == net.shapes
    for name, values in again.blobs.readable.items():
        assert np.array_equal(values, net.blobs[name]), name
    some = network(tmp_path, lines, device="emulator", keep=[net.outputs[-1]])
    some.forward(data())
    assert set(some.blobs) == set(net.outputs)


@pytest.mark.parametrize("lines", ONE.values(), ids=ONE)
def test_a_part_that_fills_its_whole_can_be_compiled(tmp_path: Path, lines: str) -> None:
    net, again = compiled(tmp_path, lines)
    equal(again, net)
    kept = network(tmp_path, lines, device="emulator", keep="all")
    kept.calibrate(data())
    equal(kept, again)


def test_parts_of_a_part_can_be_compiled(tmp_path: Path) -> None:
    """An overlay layer, a Slice of it, and a Slice of the second part: seed 3119 of the random networks."""
    lines = """w Convolution data -> w : convolution_param { num_output: 48 kernel_size: 1 }
        a Slice w -> a0 a1 : slice_param { slice_point: 16 }
        c Convolution a0 -> c : convolution_param { num_output: 3 kernel_size: 1 }
        b Slice a1 -> b0 b1 : slice_param { slice_point: 16 }"""
    net, again = compiled(tmp_path, lines)
    assert set(net.outputs) == {"c", "b0", "b1"}
    assert net.schedule.views["b0"].base == "a1" and net.schedule.views["a1"].base == "w"
    equal(again, net)


def test_a_folded_blob_of_a_compiled_network_keeps_its_key_and_shape(tmp_path: Path) -> None:
    lines = f"""conv Convolution data -> c : {CONV}
        bn BatchNorm c -> b : {GLOBAL}
        sc Scale b -> s : {AFFINE}
        relu ReLU s -> r
        pool Pooling r -> p : {MAX}"""
    net, again = compiled(tmp_path, lines, keep="all")
    equal(again, net)
    assert list(again.blobs) == list(net.blobs) == ["data", "c", "b", "s", "r", "p"]
    assert again.shapes == net.shapes and len(again.blobs) == 6
    for name in "cbs":
        assert name in again.blobs
        with pytest.raises(UsageError, match=f"blob '{name}' was folded into layer 'conv'.*load the prototxt"):
            again.blobs[name]
    for name in "rp":
        assert np.array_equal(again.blobs[name], net.blobs[name])
    assert "c (folded into 'conv')" in repr(again.blobs) and "r 2x4x5x7" in repr(again.blobs)
    assert set(chai.Net(tmp_path / "net.chai").blobs) == set()
    plain = chai.Net(tmp_path / "net.chai")
    plain.forward(data())
    assert set(plain.blobs) == {"p"}
    with pytest.raises(KeyError):
        plain.blobs["c"]
    asked = chai.Net(tmp_path / "net.chai", keep=["b"])
    asked.forward(data())
    assert set(asked.blobs) == {"b", "p"}


def test_labels_that_no_layer_reads_are_no_part_of_the_file(tmp_path: Path) -> None:
    lines = f"""label Input -> label : {dims((2,))}
        data Input -> data : {dims((2, 3, 5, 7))}
        conv Convolution data -> c : {CONV}"""
    net, again = compiled(tmp_path, lines)
    assert again.inputs == net.inputs == ["data"]
    equal(again, net)


def test_a_file_that_would_be_refused_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile loads what it wrote before the old file goes."""
    compiled(tmp_path, SAME["a split at the end"])
    path = tmp_path / "net.chai"
    before = path.read_bytes()
    entry = saving._layer  # of a host layer without its parameters
    monkeypatch.setattr(saving, "_layer", lambda layer, _, weights: entry(layer, None, weights))
    with_host = network(tmp_path, SAME["a split of a host layer"], device="emulator")
    with_host.calibrate(data())
    with pytest.raises(ModelError, match=r"cannot be compiled: its file would be refused.*please report it"):
        save(with_host, path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.part"))
