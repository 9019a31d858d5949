"""Caffemodels: every way to store a blob, mistaken and broken files, and writing."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.errors import ChaiError, ParseError
from chai.limits import limits
from chai.parser.caffemodel import Weights, read_blob_file, walk_file, write_caffemodel
from chai.parser.schema import message_class
from chai.parser.wire import varint

from .common import field, floats, load, number, shape, v2

ONE_TO_SIX = np.arange(1, 7, dtype=np.float32)


def stored(tmp_path: Path, data: bytes) -> Weights:
    path = tmp_path / "w.caffemodel"
    path.write_bytes(data)
    return Weights(path)


def only_blob(tmp_path: Path, blob: bytes) -> np.ndarray:
    """The single blob of a single layer."""
    (array,) = load(stored(tmp_path, v2("a", blob)), "a")
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    return array


def refused(tmp_path: Path, data: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        stored(tmp_path, data)
    assert caught.value.headline.startswith(str(tmp_path / "w.caffemodel"))
    return caught.value


# -- against protobuf


def protobuf_blob(blob: Any) -> np.ndarray:
    """A BlobProto as Caffe would read it."""
    legacy = any(blob.HasField(n) for n in ("num", "channels", "height", "width"))
    dims = (blob.num, blob.channels, blob.height, blob.width) if legacy else tuple(blob.shape.dim)
    return np.array(blob.double_data or blob.data, np.float32).reshape(dims)


def protobuf_layers(path: Path) -> Iterator[tuple[str, str, list[np.ndarray]]]:
    net = message_class("NetParameter").FromString(path.read_bytes())
    for old in net.layers:
        if old.HasField("layer"):
            yield old.layer.name, old.layer.type, [protobuf_blob(b) for b in old.layer.blobs]
        else:
            yield old.name, str(old.type), [protobuf_blob(b) for b in old.blobs]
    for new in net.layer:
        yield new.name, new.type, [protobuf_blob(b) for b in new.blobs]


def test_every_caffemodel_reads_as_with_protobuf(models: Path) -> None:
    files = sorted(models.glob("*/*.caffemodel"))
    assert len(files) >= 20
    for path in files:
        theirs = list(protobuf_layers(path))
        ours = walk_file(path)
        assert [name for name, _ in ours] == [name for name, _, _ in theirs], path
        weights = Weights(path)
        for (_, entry), (name, _, blobs) in zip(ours, theirs):
            assert [b.shape for b in entry] == [b.shape for b in blobs], path
            if weights.layers[name] == entry:
                for a, b in zip(load(weights, name), blobs):
                    assert np.array_equal(a, b), (path, name)


# -- forms of a layer


def test_v2_v1_and_v0(tmp_path: Path) -> None:
    blob = shape(2, 3) + floats(*ONE_TO_SIX)
    forms = (
        v2("a", blob),
        field(2, field(4, b"a") + number(5, 4) + field(6, blob)),
        field(2, field(1, field(1, b"a") + field(2, b"conv") + field(50, blob)) + field(2, b"bottom")),
    )
    for data in forms:
        weights = stored(tmp_path, field(1, b"net") + data)
        assert [blob.shape for blob in weights.layers["a"]] == [(2, 3)]
        assert np.array_equal(load(weights, "a")[0], ONE_TO_SIX.reshape(2, 3))


def test_layers_without_blobs_and_several_blobs(tmp_path: Path) -> None:
    weights = stored(tmp_path, v2("data", type="Data") + v2("ip", floats(1, 2) + shape(2), shape() + floats(5)))
    assert "data" in weights.layers
    assert "none" not in weights.layers
    assert load(weights, "data") == []
    assert [blob.shape for blob in weights.layers["ip"]] == [(2,), ()]
    assert load(weights, "ip")[1] == np.float32(5)


def test_the_last_layer_of_a_name_with_blobs_wins(tmp_path: Path) -> None:
    one, two = shape(1) + floats(1), shape(1) + floats(2)
    assert load(stored(tmp_path, v2("a", one) + v2("b") + v2("a", two)), "a")[0] == 2
    assert load(stored(tmp_path, v2("a") + v2("a", one) + v2("a")), "a")[0] == 1
    assert stored(tmp_path, v2("a") + v2("a", type="Data")).layers["a"] == []


# -- forms of a blob


def unpacked(values: np.ndarray) -> bytes:
    return b"".join(bytes([5 << 3 | 5]) + struct.pack("<f", v) for v in values)


@pytest.mark.parametrize(
    "blob",
    [
        shape(2, 3) + floats(*ONE_TO_SIX),
        floats(*ONE_TO_SIX) + shape(2, 3),
        shape(2, 3) + unpacked(ONE_TO_SIX),
        unpacked(ONE_TO_SIX) + shape(2, 3),
        shape(2, 3) + unpacked(ONE_TO_SIX[:1]) + floats(*ONE_TO_SIX[1:]),
        shape(2, 3) + floats(1, 2) + floats(3, 4, 5) + floats() + floats(6),
        unpacked(ONE_TO_SIX[:2]) + shape(2, 3) + floats(3) + unpacked(ONE_TO_SIX[3:]),
        unpacked(ONE_TO_SIX[:3]) + number(99, 1) + unpacked(ONE_TO_SIX[3:]) + shape(2, 3),
        field(7, number(1, 2) + number(1, 3)) + floats(*ONE_TO_SIX),
        field(7, number(1, 2)) + floats(*ONE_TO_SIX) + field(7, number(1, 3)),
        shape(2, 3) + field(8, struct.pack("<6d", *ONE_TO_SIX)),
        shape(2, 3) + b"".join(bytes([8 << 3 | 1]) + struct.pack("<d", v) for v in ONE_TO_SIX),
        field(6, b"\0" * 24) + field(9, b"\0" * 48) + shape(2, 3) + floats(*ONE_TO_SIX),
        number(10, 2) + field(12, ONE_TO_SIX.astype("<f2").tobytes()) + shape(2, 3),
        field(12, ONE_TO_SIX.astype("<f2").tobytes()) + number(10, 2) + number(11, 2) + field(13, b"x") + shape(2, 3),
        number(10, 1) + field(12, ONE_TO_SIX.astype("<f4").tobytes()) + shape(2, 3),
        number(10, 0) + field(12, ONE_TO_SIX.astype("<f8").tobytes()) + shape(2, 3),
        number(1, 0) + number(2, 0) + number(3, 2) + number(4, 3) + number(1, 1) + number(2, 1)
        + floats(*ONE_TO_SIX),
        number(77, 5) + field(78, b"unknown") + varint(79 << 3 | 5) + b"1234" + shape(2, 3)
        + floats(*ONE_TO_SIX),
        varint(80 << 3 | 3) + field(5, b"inside") + number(1, 9) + varint(80 << 3 | 4) + shape(2, 3) + floats(*ONE_TO_SIX),
    ],
)  # fmt: skip
def test_forms_of_a_blob(tmp_path: Path, blob: bytes) -> None:
    array = only_blob(tmp_path, blob)
    assert array.reshape(2, 3).tolist() == ONE_TO_SIX.reshape(2, 3).tolist()
    assert array.shape in ((2, 3), (1, 1, 2, 3))


def test_legacy_shape(tmp_path: Path) -> None:
    array = only_blob(tmp_path, number(1, 1) + number(2, 1) + number(3, 2) + number(4, 3) + floats(*ONE_TO_SIX))
    assert array.shape == (1, 1, 2, 3)


def test_unpacked_runs_keep_values_that_look_like_tags(tmp_path: Path) -> None:
    values = np.frombuffer(bytes([5 << 3 | 5]) * 400, "<f4")
    assert np.array_equal(only_blob(tmp_path, shape(100) + unpacked(values)), values)


def test_half_precision_keeps_its_range(tmp_path: Path) -> None:
    values = np.array([65504, -(2.0**-24), 0.1, np.inf], "<f2")
    blob = shape(4) + number(10, 2) + field(12, values.tobytes())
    assert np.array_equal(only_blob(tmp_path, blob), values.astype("f4"))


def test_blobs_that_were_never_filled(tmp_path: Path) -> None:
    """Caffe writes such blobs for layers that were set up and not trained."""
    legacy = b"".join(number(n, 0) for n in (1, 2, 3, 4))
    weights = stored(tmp_path, v2("a", shape(0), shape(3, 0), legacy))
    assert [blob.shape for blob in weights.layers["a"]] == [(0,), (3, 0), (0, 0, 0, 0)]
    assert [b.size for b in load(weights, "a")] == [0, 0, 0]


def test_an_empty_blob_is_refused_or_empty(tmp_path: Path) -> None:
    with suppress(ChaiError):
        assert only_blob(tmp_path, b"").size == 0


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (shape(2, 3) + floats(1, 2), "a blob of shape 2x3 needs 6 numbers, the file has 2"),
        (shape(2) + floats(1, 2, 3), "a blob of shape 2 needs 2 numbers, the file has 3"),
        (shape(2, 3), "needs 6 numbers, the file has 0"),
        (floats(1, 2), "needs 1 number, the file has 2"),
        (shape(0) + floats(1), "needs 0 numbers, the file has 1"),
        (shape(-1) + floats(1), "a blob of shape -1"),
        (shape(-1, -1) + floats(1), "a blob of shape -1x-1"),
        (number(1, -1) + number(2, -1) + number(3, 1) + number(4, 1) + floats(1), "a blob of shape -1x-1x1x1"),
        (shape(2**62, 4) + floats(1), "the file has 1"),
        (shape(*[2**63 - 1] * 32) + floats(1), "the file has 1"),
        (shape(*[1] * 33) + floats(1), "too many axes: 33 exceeds the limit axes=32"),
        (field(7, b"".join(number(1, 1) for _ in range(40))) + floats(1), "too many axes: 40 exceeds"),
        (field(7, field(1, b"\1" * 400)) + floats(1), "axes"),
        (shape(1) + field(5, b"123"), "3 bytes is no run of 4-byte numbers"),
        (shape(1) + field(8, b"1234"), "4 bytes is no run of 8-byte numbers"),
        (shape(1) + number(10, 2) + field(12, b"1"), "raw blob data of type 2 and 1 bytes"),
        (shape(1) + number(10, 3) + field(12, b"1234"), "raw blob data of type 3"),
        (shape(1) + varint(5 << 3) + b"\1", "blob data"),
        (field(7, bytes([1 << 3 | 5]) + b"1234") + floats(1), "expected integers"),
        (field(7, field(1, b"\x80")) + floats(1), "cut short inside a number"),
    ],
)
def test_blobs_that_contradict_themselves(tmp_path: Path, blob: bytes, words: str) -> None:
    error = refused(tmp_path, v2("conv9", blob))
    assert words in error.message
    assert error.message.startswith("byte ")
    assert error.layer == "conv9"


# -- the wire


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x02\x00", "field number 0 does not exist"),
        (varint(2**29 << 3 | 2) + b"\0", f"field number {2**29} does not exist"),
        (b"\xff" * 11, "a number of more than 10 bytes"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number of more than 10 bytes"),
        (b"\x08\x80", "cut short inside a number"),
        (b"\x0d123", "cut short inside a number"),
        (b"\x09" + b"1234567", "cut short inside a number"),
        (b"\x0a\x05abc", "a field of 5 bytes, but only 3 are left"),
        (varint(100 << 3 | 2) + varint(1 << 30) + b"x" * 100, "a field of 1,073,741,824 bytes, but only 100 are left"),
        (varint(100 << 3 | 2) + varint(2**64 - 1) + b"x", "a field of 18,446,744,073,709,551,615 bytes"),
        (b"\x0e", "wire type 6 has no meaning"),
        (b"\x0f", "wire type 7 has no meaning"),
        (b"\x0c", "wire type 4 has no meaning"),
        (b"\x0b" + b"\x14", "wire type 4 has no meaning"),
        (b"\x0b", "cut short inside a group"),
        (b"\x0b" * 5000, "wire_depth=8"),
        (varint(100 << 3) + b"\1", "expected a layer"),
        (varint(2 << 3 | 5) + b"1234", "expected a layer"),
        (field(100, field(1, b"n" * 2000)), "a name too long: 2,000 exceeds the limit name_length"),
        (field(100, b"\x08\x80"), "cut short inside a number"),
        (field(1, b"a network without layers"), "there is no layer in this file"),
        (b"", "the file is empty"),
    ],
)
def test_broken_wires(tmp_path: Path, data: bytes, words: str) -> None:
    assert words in refused(tmp_path, data).message


def test_groups_within_reach_are_stepped_over(tmp_path: Path) -> None:
    deep = b"".join(varint(n << 3 | 3) for n in range(1, 9)) + b"".join(varint(n << 3 | 4) for n in range(8, 0, -1))
    assert load(stored(tmp_path, deep + v2("a", shape(1) + floats(1))), "a")[0] == 1


def test_a_group_hides_the_layers_inside_it(tmp_path: Path) -> None:
    hidden = varint(200 << 3 | 3) + v2("hidden") + varint(200 << 3 | 4)
    assert list(stored(tmp_path, hidden + v2("a")).layers) == ["a"]


def test_names_in_another_encoding(tmp_path: Path) -> None:
    assert list(stored(tmp_path, field(100, field(1, b"caf\xe9")) + v2("日")).layers) == ["café", "日"]


def test_too_many_layers_and_fields(tmp_path: Path) -> None:
    assert "layers=20,000" in refused(tmp_path, field(100, b"") * 20_001).message
    assert "wire_fields=200,000" in refused(tmp_path, number(3, 1) * 200_001).message
    assert "wire_fields" in refused(tmp_path, field(100, field(7, number(99, 1) * 300_000))).message


def test_a_file_over_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chai.env import env

    monkeypatch.setenv("CHAI_LIMITS", "weight_bytes=20")
    env.cache_clear()
    limits.cache_clear()
    assert "exceeds the limit weight_bytes=20" in refused(tmp_path, v2("a", shape(4) + floats(1, 2, 3, 4))).message


MEASURE = """
import sys, tracemalloc
from chai.errors import ChaiError
from chai.parser.caffemodel import Weights
tracemalloc.start()
try:
    Weights(sys.argv[1])
    words = "read"
except ChaiError as error:
    words = str(error)
print(tracemalloc.get_traced_memory()[1], words)
"""


@pytest.mark.parametrize(
    ("unit", "words"),
    [(field(100, b""), "layers=20,000"), (field(2, b""), "layers=20,000"), (number(3, 0), "wire_fields=200,000")],
)
def test_thirty_megabytes_of_nothing_cost_nothing(tmp_path: Path, unit: bytes, words: str) -> None:
    """protobuf takes 14 s and 5 GB for such a file. The walk stops at a limit, after work that does not grow with it."""
    path = tmp_path / "w.caffemodel"
    path.write_bytes(unit * (30_000_000 // len(unit)))
    run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    peak, _, said = run.stdout.partition(" ")
    assert words in said
    assert int(peak) < 20_000_000


# -- mistaken files


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n", "git-lfs pointer"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "HDF5 file"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "web page"),
        (b"<html>", "web page"),
        (b'name: "LeNet"\nlayer { name: "conv1" }\n', "this is text: the first file is the .prototxt"),
        (gzip.compress(b"weights" * 100, mtime=0), "gzip file"),
        (b"PK\x03\x04" + b"\0" * 100, "zip archive"),
        (bytes(range(1, 256)), "is this the whole file?"),
        (b"\0" * 1000, "is this the whole file?"),
        (b"\x0a\x05LeNet" + varint(100 << 3 | 2) + varint(500) + b"x" * 10, "is this the whole file?"),
    ],
)
def test_mistaken_files(tmp_path: Path, data: bytes, hint: str) -> None:
    error = refused(tmp_path, data)
    assert error.hint
    assert hint in str(error)


def test_prototxts_are_no_caffemodels(models: Path) -> None:
    paths = sorted(models.glob("*/*.prototxt"))
    assert len(paths) >= 20
    for path in paths:
        with pytest.raises(ParseError) as caught:
            Weights(path)
        assert caught.value.hint is not None
        assert "this is text" in caught.value.hint


def test_missing_files_and_folders_are_oserrors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.caffemodel", tmp_path):
        with pytest.raises(OSError):
            Weights(path)


def test_a_file_cut_short_anywhere_is_refused_or_equal(tmp_path: Path) -> None:
    legacy = number(1, 1) + number(2, 2) + floats(1, 2) + number(3, 1) + number(4, 1)
    whole = (
        field(1, b"net")
        + v2("conv", shape(2, 3) + floats(*ONE_TO_SIX), unpacked(ONE_TO_SIX[:2]) + shape(2))
        + field(2, field(4, b"old") + number(5, 14) + field(6, legacy))
        + v2("half", shape(4) + number(10, 2) + field(12, b"\0" * 8))
    )
    complete = stored(tmp_path, whole)
    lengths = []
    for length in range(len(whole)):
        try:
            weights = stored(tmp_path, whole[:length])
        except ParseError:
            continue
        lengths.append(length)
        for name in weights.layers:
            for a, b in zip(load(weights, name), load(complete, name), strict=True):
                assert np.array_equal(a, b)
    assert len(lengths) == 2  # where a layer ends


def test_a_file_cut_short_while_it_is_open(tmp_path: Path) -> None:
    data = v2("a", shape(2, 3) + floats(*ONE_TO_SIX), shape(2, 3) + unpacked(ONE_TO_SIX))
    weights = stored(tmp_path, data)
    (tmp_path / "w.caffemodel").write_bytes(data[:-9])
    with pytest.raises(ParseError, match="became shorter"):
        load(weights, "a")


# -- mean files


def test_mean_file(tmp_path: Path) -> None:
    path = tmp_path / "mean.binaryproto"
    mean = message_class("BlobProto")(num=1, channels=1, height=2, width=3, data=ONE_TO_SIX)
    path.write_bytes(mean.SerializeToString())
    assert read_blob_file(path).tolist() == [[[[1, 2, 3], [4, 5, 6]]]]
    path.write_bytes(shape(3) + floats(1, 2, 3))
    assert read_blob_file(path).tolist() == [1, 2, 3]


LAYER = v2("a", shape(1) + floats(1))


@pytest.mark.parametrize("data", [b"", b"text", shape(2) + floats(1), LAYER, b"\x0a", b"\x08\x01"])
def test_files_that_are_no_mean(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(data)
    with pytest.raises(ParseError) as caught:
        read_blob_file(path)
    assert str(path) in caught.value.headline


# -- writing


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.caffemodel"
    random = np.random.default_rng(0).standard_normal(48, np.float32)
    written = [
        ("conv", "Convolution", [random.reshape(4, 3, 2, 2), random[:4]]),
        ("shared", "PReLU", [np.float32(0.25).reshape(())]),
        ("café", "Scale", [np.array([[1, 2], [3, 4]], np.float64).T]),
        ("relu", "ReLU", []),
    ]
    write_caffemodel(path, "net", written)
    net = message_class("NetParameter").FromString(path.read_bytes())
    assert net.name == "net"
    assert [(v.name, v.type) for v in net.layer] == [(n, t) for n, t, _ in written]
    weights = Weights(path)
    for theirs, (name, _, blobs) in zip(net.layer, written):
        for a, b, c in zip(blobs, theirs.blobs, load(weights, name), strict=True):
            assert np.array_equal(np.array(b.data, "f4").reshape(tuple(b.shape.dim)), a)
            assert np.array_equal(c, a)
            assert c.shape == a.shape


def test_real_weights_survive_a_copy(models: Path, tmp_path: Path) -> None:
    weights = Weights(models / "mtcnn_det1" / "weights.caffemodel")
    copy = tmp_path / "copy.caffemodel"
    write_caffemodel(copy, "copy", ((n, "", load(weights, n)) for n in weights.layers))
    again = Weights(copy)
    assert list(again.layers) == list(weights.layers)
    for name in weights.layers:
        assert all(np.array_equal(a, b) for a, b in zip(load(weights, name), load(again, name), strict=True))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.caffemodel"

    def half() -> Iterator[tuple[str, str, list[np.ndarray]]]:
        yield "a", "ReLU", [ONE_TO_SIX]
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_caffemodel(path, "net", half())
    assert list(tmp_path.iterdir()) == []
    write_caffemodel(path, "net", [("a", "ReLU", [])])
    before = path.read_bytes()
    with pytest.raises(RuntimeError):
        write_caffemodel(path, "net", half())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_caffemodel(tmp_path / "nowhere" / "w.caffemodel", "net", [])


def test_blob_fields_are_what_the_walk_believes() -> None:
    """The walk knows field numbers by heart; the schema is where they come from."""
    legacy = {"num": 1, "channels": 2, "height": 3, "width": 4}
    for type, expected in (
        ("BlobProto", {**legacy, "data": 5, "shape": 7, "double_data": 8, "raw_data_type": 10, "raw_data": 12}),
        ("LayerParameter", {"name": 1, "type": 2, "blobs": 7}),
        ("V1LayerParameter", {"layer": 1, "name": 4, "type": 5, "blobs": 6}),
        ("V0LayerParameter", {"name": 1, "type": 2, "blobs": 50}),
        ("NetParameter", {"layer": 100, "layers": 2}),
    ):
        known = message_class(type).DESCRIPTOR.fields_by_name
        assert {n: known[n].number for n in expected} == expected
