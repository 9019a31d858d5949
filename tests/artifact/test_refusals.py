"""Invalid or damaged artifacts: each is refused with a clear error before anything in it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.artifact import container, load as formats, steps
from chai.artifact.container import VERSION
from chai.artifact.save import save
from chai.codegen.memory_map import split
from chai.errors import ChaiError, DeviceError, ParseError, PluginError
from chai.fixed import Format
from chai.limits import limits
from chai.offload.schedule import DeviceStep
from chai.overlay.layout import spaced
from chai.overlay.records import pack, unpack
from chai.tasks.conv import Conv
from tests.passes.common import DEEP, network

from .common import PREFIX, assembled, compiled, data, load, parts

Change = Callable[[dict[str, Any], dict[str, bytes]], Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("file"), "host layers")[1]


@pytest.fixture
def refused(file: Path, tmp_path: Path) -> Callable[..., ChaiError]:
    """``refused(bytes)``, or ``refused(change)`` of a good file's header and sections: the error, which names the file."""

    def refuse(content: bytes | Change, kind: type[ChaiError] = ParseError, name: str = "host layers") -> ChaiError:
        if callable(content):
            header, sections = parts(file if name == "host layers" else compiled(tmp_path, name)[1])
            content(header, sections)
            content = assembled(header, sections)
        path = tmp_path / "bad.chai"
        path.write_bytes(content)
        with pytest.raises(kind) as caught:
            load(path)
        assert "bad.chai" in str(caught.value) and caught.value.hint
        return caught.value

    return refuse


def test_the_tests_own_writer_makes_good_files(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.chai"
    path.write_bytes(assembled(*parts(file)))
    wanted, outputs = load(file).forward(data()), load(path).forward(data())
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


# -- the file


@pytest.mark.parametrize("content", [b"", b"\x89chai", b"PK\x03\x04" + bytes(60), b"name: 'net'\n" * 9])
def test_no_artifact(refused: Callable[..., ChaiError], content: bytes) -> None:
    error = refused(content)
    assert "this is no chai artifact" in str(error) and "chai compile" in str(error.hint)


def test_another_version_of_the_format(refused: Callable[..., ChaiError], file: Path) -> None:
    error = refused(assembled(*parts(file), version=VERSION + 1))
    assert f"format version {VERSION + 1}, this chai reads {VERSION}" in str(error) and error.hint == "update chai"
    assert refused(assembled(*parts(file), version=VERSION - 1)).hint == "compile it again: chai compile"


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "net.chai").mkdir()
    for path in (tmp_path / "net.chai", tmp_path / "none.chai"):
        with pytest.raises(OSError):
            load(path)


def test_truncated_anywhere(refused: Callable[..., ChaiError], file: Path) -> None:
    """At every boundary, beside it, and at seeded places in between."""
    content = file.read_bytes()
    length = PREFIX.unpack_from(content)[3]
    begin = -(-(PREFIX.size + length) // 64) * 64
    table = json.loads(content[PREFIX.size : PREFIX.size + length])["sections"]
    edges = {0, 8, 12, PREFIX.size, PREFIX.size + length, begin, len(content)}
    edges |= {begin + e["offset"] + n for e in table.values() for n in (0, e["bytes"])}
    places = {e + d for e in edges for d in (-1, 0, 1)} | set(
        np.random.default_rng(0).integers(0, len(content), 60).tolist()
    )
    places = {p for p in places if 0 <= p < len(content)}
    words = {
        str(refused(content[:place])).split("bad.chai: ")[1].split(" (")[0].split(" '")[0] for place in sorted(places)
    }
    assert words == {"this is no chai artifact", "the file ends inside its header", "the file ends inside section"}


def test_more_than_it_says(refused: Callable[..., ChaiError], file: Path) -> None:
    assert "1 bytes after the last section" in str(refused(file.read_bytes() + b"\0"))
    assert "64 bytes after the last section" in str(refused(file.read_bytes() + bytes(64)))


def test_any_flipped_bit(refused: Callable[..., ChaiError], file: Path) -> None:
    content = file.read_bytes()
    length = PREFIX.unpack_from(content)[3]
    begin = -(-(PREFIX.size + length) // 64) * 64
    random = np.random.default_rng(1)
    covered = [*range(PREFIX.size + length)]
    for entry in json.loads(content[PREFIX.size : PREFIX.size + length])["sections"].values():
        covered += range(begin + entry["offset"], begin + entry["offset"] + entry["bytes"])
    for place in [*range(PREFIX.size), *random.choice(covered, 60, replace=False)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        refused(bytes(damaged))


def test_bytes_between_sections_are_zero(refused: Callable[..., ChaiError], file: Path) -> None:
    content = bytearray(file.read_bytes())
    length = PREFIX.unpack_from(content)[3]
    assert (PREFIX.size + length) % 64  # there is padding behind the header
    content[PREFIX.size + length] = 1
    assert "the bytes before section 'descriptors.0' are not zero" in str(refused(bytes(content)))


@pytest.mark.parametrize("length", [(2 << 20) + 1, 1 << 40, (1 << 64) - 1])
def test_a_huge_header(refused: Callable[..., ChaiError], length: int) -> None:
    error = refused(PREFIX.pack(b"\x89chai\r\n\x1a", VERSION, 0, length) + b"{}")
    assert f"exceeds the limit header_bytes={limits().header_bytes:,}" in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "header: Expecting"),
        (b"\xff\xfe{}", "header: "),
        (b"[]", "expected an object"),
        (b"1", "expected an object"),
        (b'{"a": 1, "a": 1}', "a key occurs twice"),
        (b'{"a": {"b": 1, "b": 2}}', "a key occurs twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "1e999 is no number"),
        (b"[" * 1_000_000 + b"]" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 300_000 + b"1" + b"}" * 300_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "header: "),
        (b'{"a": -1' + b"0" * 400 + b"}", "header: the number '-10{38}' is too large"),
        (b"{}", "sections are missing"),
        (b'{"sections": []}', "sections are missing"),
        (b'{"sections": {}}', "'shapes' is missing|'overlay' is missing"),
        (b'{"sections": {"a": 1}}', "section 'a': expected offset, bytes and crc"),
        (b'{"sections": {"a": {"offset": 0, "bytes": -1, "crc": 0}}}', "section 'a': expected offset"),
        (b'{"sections": {"a": {"offset": 0, "bytes": true, "crc": 0}}}', "section 'a': expected offset"),
        (b'{"sections": {"a": {"offset": 0, "bytes": 1e3, "crc": 0}}}', "section 'a': expected offset"),
    ],
)
def test_headers_that_nobody_wrote(refused: Callable[..., ChaiError], text: bytes, words: str) -> None:
    assert re.search(words, str(refused(assembled({}, {}, text=text))))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"offset": 0}, {"offset": 0}, "begins at 0, expected"),  # overlap
        ({"offset": 0}, {"offset": 64}, "begins at 64, expected 128"),
        ({"offset": 0}, {"offset": 192}, "begins at 192, expected 128"),  # gap
        ({"offset": 64}, {"offset": 128}, "begins at 64, expected 0"),
        ({"offset": 0}, {"offset": 100}, "begins at 100, expected 128"),
        ({"offset": 0, "bytes": 5}, {"offset": 64}, "bytes after the last section"),
        ({"offset": 0, "bytes": 1 << 47}, {"offset": 128}, "the file ends inside section 'one'"),
    ],
)
def test_sections_that_overlap_or_leave_gaps(
    refused: Callable[..., ChaiError], first: dict[str, int], second: dict[str, int], words: str
) -> None:
    sections = {"one": bytes(100), "two": b"12"}
    import zlib

    table = {n: {"bytes": len(c), "crc": zlib.crc32(c), "offset": 0} for n, c in sections.items()}
    table["one"] |= first
    table["two"] |= second
    assert words in str(refused(assembled({"a": 1}, sections, table=table)))


# -- what stands in it


def deep(header: dict[str, Any], *path: Any) -> Any:
    for key in path:
        header = header[key]
    return header


def change(*path: Any, to: Any = ..., drop: bool = False) -> Change:
    """A change of one value of the header."""

    def apply(header: dict[str, Any], _: dict[str, bytes]) -> None:
        inside = deep(header, *path[:-1])
        if drop:
            del inside[path[-1]]
        else:
            inside[path[-1]] = to

    return apply


def segment(header: dict[str, Any], index: int = -1) -> dict[str, Any]:
    return [step for step in header["steps"] if "tasks" in step][index]


def task(header: dict[str, Any]) -> dict[str, Any]:
    return segment(header, 0)["tasks"][0]


def descriptor(changed: Callable[[bytes], bytes]) -> Change:
    """A change of the first segment's descriptors."""
    return lambda h, s: s.update({"descriptors.0": changed(s["descriptors.0"])})


def field(name: str, number: int) -> Change:
    """Another value of an unsigned field of the first descriptor."""
    record = chai.overlay.load().descriptor
    bits = next(f for f in record.fields if f.name == name)

    def changed(listed: bytes) -> bytes:
        word = int.from_bytes(listed[: record.bytes], "little") & ~(bits.mask << bits.position)
        return (word | number << bits.position).to_bytes(record.bytes, "little") + listed[record.bytes :]

    return descriptor(changed)


CHANGES: dict[str, tuple[Change, str]] = {
    "no overlay": (change("overlay", drop=True), "'overlay' is missing"),
    "overlay is text": (change("overlay", to="pynq-z2"), "overlay: expected an object with name, build"),
    "no steps": (change("steps", drop=True), "'steps' is missing"),
    "name is a number": (change("name", to=3), "name: expected str, found 3"),
    "version is a number": (change("chai", to=2), "chai: expected str, found 2"),
    "layers is a list": (change("layers", to=[]), "layers: expected an object"),
    "reads what nobody wrote": (
        change("layers", "c2", "bottoms", to=["out"]),
        "reads a blob that no layer has written",
    ),
    "writes what is there": (
        change("layers", "c2", "tops", to=["data"]),
        "reads a blob that no layer has written, or writes one twice",
    ),
    "order without a layer": (lambda h, s: h["order"].pop(), "order and layers do not name the same layers"),
    "order with one twice": (lambda h, s: h["order"].append("c2"), "order and layers do not name the same layers"),
    "a shape is missing": (change("shapes", "c2", drop=True), "the shape of blob 'c2' is missing"),
    "a size is negative": (change("shapes", "c1", to=[2, -4, 5, 7]), "a size is negative"),
    "sizes beyond any memory": (change("shapes", "c1", to=[2**20, 2**20]), "exceeds the limit blob_elements"),
    "sizes beyond any number, and none": (change("shapes", "c1", to=[0, 2**63]), "exceeds the limit blob_elements"),
    "an empty array beyond any number": (
        change("layers", "pr", "blobs", 0, "shape", to=[0, *[2**40] * 2]),
        "an array of 0x1099511627776x1099511627776: ",
    ),
    "an array of many axes": (change("layers", "pr", "blobs", 0, "shape", to=[1] * 99), "an array of 1x1x"),
    "axes without end": (change("shapes", "c1", to=[1] * 99), "exceeds the limit axes"),
    "a blob of nobody": (change("shapes", "more", to=[1]), "no layer writes blob 'more'"),
    "an output of nobody": (change("outputs", to=["more"]), "'outputs' and 'latest' do not name the same blobs"),
    "an output twice": (change("outputs", to=["out", "out"]), "'outputs' and 'latest' do not name the same blobs"),
    "an input without a name": (
        change("latest", "data", drop=True),
        "'inputs' and 'latest' do not name the same blobs",
    ),
    "an output that is folded away": (
        lambda h, s: (
            h["latest"].update(x="x"),
            h["folded"].update(x="c2"),
            h["shapes"].update(x=[2]),
            h["outputs"].append("x"),
        ),
        "'outputs' and 'latest' do not name the same blobs",
    ),
    "a blob folded into no layer": (
        lambda h, s: (h["folded"].update(x="c9"), h["shapes"].update(x=[2])),
        "blob 'x' cannot be folded into layer 'c9'",
    ),
    "a folded blob without a shape": (
        lambda h, s: h["folded"].update(x="c2"),
        "blob 'x' cannot be folded into layer 'c2'",
    ),
    "a folded blob that is written": (
        lambda h, s: h["folded"].update(c2="c2"),
        "blob 'c2' cannot be folded into layer 'c2'",
    ),
    "an output that stays on the device": (
        lambda h, s: (h["steps"].remove({"convert": "Unpack", "blob": "c2"}), h.update(outputs=["c2"])),
        "needs blob 'c2' where it is not",
    ),
    "a threshold below 0": (change("formats", "c2", "value", to=-1.0), "does not exist"),
    "a format with 7 bits": (change("formats", "c2", "bits", to=7), "does not exist"),
    "a format of another scheme": (change("formats", "c2", "scheme", to="Float"), "does not exist"),
    "a format with another zero point": (
        change("formats", "c2", "unsigned", to=True),
        "its zero points are not those of its blobs' formats",
    ),
    "a blob of a Task without a format": (change("formats", "c2", drop=True), "c2"),
    "a format with an infinite step": (change("formats", "c2", "value", to=1e300), "does not exist"),
    "a format with an unknown key": (change("formats", "c2", "more", to=1), "'c2'.more: unknown key"),
    "a type that is not there": (
        change("layers", "pr", "type", to="Magic"),
        "'pr' (Magic): this chai does not know the type",
    ),
    "a type that has no forward": (change("layers", "pr", "type", to="Data"), "layer 'pr' (Data)"),
    "a parameter that is not there": (change("layers", "out", "params", to={"axes": 1}), "axes: unknown key"),
    "a parameter out of range": (change("layers", "out", "params", to={"axis": 77}), "77 is outside"),
    "a parameter of another type": (change("layers", "out", "params", to={"axis": "x"}), "expected int, found 'x'"),
    "weights of another shape": (
        change("layers", "pr", "blobs", 0, "shape", to=[3]),
        "its weights have other shapes than it needs",
    ),
    "weights outside their section": (
        change("layers", "pr", "blobs", 0, "offset", to=1 << 20),
        "outside the section 'weights'",
    ),
    "weights at an odd place": (change("layers", "pr", "blobs", 0, "offset", to=2), "outside the section 'weights'"),
    "no weights": (change("layers", "pr", "blobs", to=[]), "its weights have other shapes than it needs"),
    "tops of another size": (change("shapes", "out", to=[2, 4, 2, 4]), "its tops would be"),
    "too many bottoms": (change("layers", "pr", "bottoms", to=["p1", "p1"]), "takes 1 bottom, found 2"),
    "no custom version": (change("layers", "m1", "custom", to={}), "expected an object with type, version, values"),
    "the host runs what it cannot": (
        lambda h, s: h["steps"].append({"host": "c1", "codes": False}),
        "the host shall run 'c1'",
    ),
    "the host runs it twice": (
        lambda h, s: h["steps"].append(deepcopy(next(x for x in h["steps"] if x.get("host") == "out"))),
        "twice",
    ),
    "a layer that nobody runs": (
        lambda h, s: h["steps"].remove(next(x for x in h["steps"] if x.get("host") == "pr")),
        "where it is not",
    ),
    "a host layer on codes": (
        lambda h, s: next(x for x in h["steps"] if x.get("host") == "pr").update(codes=True),
        "cannot work on codes",
    ),
    "a conversion of another kind": (
        lambda h, s: h["steps"].append({"convert": "Melt", "blob": "c1"}),
        "a conversion 'Melt'",
    ),
    "a conversion that is no name": (
        lambda h, s: h["steps"].append({"convert": [], "blob": "c1"}),
        r"a conversion \[\]",
    ),
    "a conversion of nothing": (
        lambda h, s: h["steps"].insert(0, {"convert": "Unpack", "blob": "c2"}),
        "where it is not",
    ),
    "steps in another order": (lambda h, s: h["steps"].reverse(), "where it is not|its descriptor has"),
    "a blob without a place": (lambda h, s: segment(h)["at"].pop("c2"), "blob 'c2' has no place"),
    "a place without a blob": (lambda h, s: segment(h)["at"].update(out=0), "blob 'out' has a place and no use"),
    "a place before the beginning": (lambda h, s: segment(h)["at"].update(c2=-64), "at -64 do not lie in"),
    "a place far away": (lambda h, s: segment(h)["at"].update(c2=1 << 41), "do not lie in"),
    "a place in the middle of a word": (lambda h, s: segment(h)["at"].update(c2=8), "at 8 do not lie in"),
    "a place that is text": (lambda h, s: segment(h)["at"].update(c2="0"), "expected int, found '0'"),
    "a segment without places": (lambda h, s: segment(h).pop("at"), "expected an object with"),
    "a segment that is given nothing": (lambda h, s: segment(h).update(reads=[]), "its descriptor has input = "),
    "a segment of a flat blob": (lambda h, s: h["shapes"].update(c2=[2, 140]), "has not four axes|its tops would be"),
    "a part of itself": (change("places", "c2", to=["c2", 0]), "is a part of itself"),
    "a place in a blob that is too small": (change("places", "p1", to=["c2", 1]), "does not fit its place"),
    "a Task of nobody": (lambda h, s: task(h).update(output="none"), "blob 'none' of a segment has not four axes"),
    "no images": (lambda h, s: segment(h).pop("pieces"), "expected an object with"),
    "images that are numbers": (lambda h, s: segment(h).update(pieces=[0, 0, 2]), "steps: expected a list"),
    "images of no Task": (lambda h, s: segment(h)["pieces"][0].__setitem__(0, 99), "expected a Task, its first image"),
    "images without an end": (lambda h, s: segment(h)["pieces"][0].pop(), "expected a Task, its first image"),
    "images twice": (lambda h, s: segment(h)["pieces"].append([0, 0, 2]), "are missing, or twice there"),
    "more images than there are": (lambda h, s: segment(h)["pieces"][0].__setitem__(2, 3), "found 3 from 0"),
    "no image": (lambda h, s: segment(h)["pieces"][0].__setitem__(2, 0), "found 0 from 0"),
    "fewer images than there are": (
        lambda h, s: segment(h)["pieces"].pop(),
        "some images, rows or columns of a task are missing",
    ),
    "fewer descriptors": (descriptor(lambda d: d[:-128]), "another number of Tasks"),
    "more descriptors": (descriptor(lambda d: d + bytes(128)), "another number of Tasks"),
    "no descriptors": (lambda h, s: s.pop("descriptors.0"), "section 'descriptors.0' is missing"),
    "a descriptor of another version": (descriptor(lambda d: b"\x07" + d[1:]), "expected version 8, found 7"),
    "a descriptor of no kind": (descriptor(lambda d: b"\x08\x0a" + d[2:]), "opcode = 10 is that of no Task"),
    "a table of codes that is not there": (field("lookup", 1), "lookup: 256 bytes at"),
    "weights that no other Task has": (field("shares", 1), "stays"),
    "a descriptor with another's tag": (field("tag", 5), "task 0: its descriptor has tag = 5, here it is 0"),
    "a descriptor that waits for others": (field("after_array", 1), "task 0: its descriptor has after_array = 1"),
    "a descriptor that waits for itself": (field("after_window", 1), "task 0: its descriptor has after_window = 1"),
    "weights among the descriptors": (field("weights", 1 << 40), "are outside the constants"),
    "no constants": (lambda h, s: s.update({"constants.0": b""}), "are outside the constants, 0 bytes"),
    "no section of weights": (lambda h, s: s.pop("weights"), "section 'weights' is missing"),
    "a weight of -128": (
        lambda h, s: s.update({"constants.0": b"\x80" + s["constants.0"][1:]}),
        "is outside -127..127",
    ),
    "a composed layer of a number": (
        lambda h, s: h.update(composed={"x": 3}),
        "composed: expected an object with type",
    ),
    "a composed layer of no list": (
        lambda h, s: h.update(composed={"x": {"type": "T", "parts": 3}}),
        "composed: expected a list",
    ),
    "labels are numbers": (change("card", "labels", to=[1]), "expected str, found 1"),
    "a mean of text": (change("card", "preprocess", to={"mean": "x"}), "mean: expected float"),
    "a mean of nothing": (change("card", "preprocess", to={"mean": [None]}), "mean[0]: expected float"),
    "a mean of 400 digits": (change("card", "preprocess", to={"mean": 10**400}), "is too large"),
    "preprocessing of another kind": (change("card", "preprocess", to={"zoom": 1}), "zoom: unknown key"),
    "channels of another kind": (change("card", "preprocess", to={"channels": "CMYK"}), "CMYK"),
    "a crop of nothing": (change("card", "preprocess", to={"crop": [0, 5]}), "crop"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_contents_that_do_not_fit(refused: Callable[..., ChaiError], what: str) -> None:
    edit, words = CHANGES[what]
    error = refused(edit, ChaiError)
    assert re.search(words, str(error)) or words in str(error), str(error)


@pytest.mark.parametrize(("value", "word"), [({}, "{}"), ([[]], "[]")])
def test_a_custom_layers_value_that_is_no_number(file: Path, tmp_path: Path, value: Any, word: str) -> None:
    header, sections = parts(file)
    header["layers"]["m1"]["custom"]["values"]["factor"] = value
    path = tmp_path / "bad.chai"
    path.write_bytes(assembled(header, sections))
    with pytest.raises(PluginError) as caught:
        load(path)
    assert caught.value.layer == "m1"
    assert f"argument 'factor': expected a number, found {word}" in str(caught.value)


def test_a_format_that_the_overlay_does_not_have(file: Path) -> None:
    value = {"scheme": "Xilinx", "bits": 8, "value": 2.0, "unsigned": True}
    artifact, z2 = container.read(file), overlays.load("pynq-z2")
    assert formats._format(artifact, value, "a", z2) == Format("Xilinx", 8, 2.0, True)
    with pytest.raises(
        chai.ModelError, match=r"format of blob 'a': Xilinx\(u8, th 2\), but overlay pynq-z2 has no uns"
    ):
        formats._format(artifact, value, "a", replace(z2, unsigned=False))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("batch", 2, "its descriptor has batch = 2, expected 1"),
        ("low", -3, "its descriptor has low = -3, expected -"),
        ("input", (2 << 40) + 64, "its descriptor has input = "),
        ("tile_rows", 1, "its descriptor has tile_rows = 1, expected"),
        ("factor", 1, "its descriptor has factor = 1, expected 0"),
    ],
)
def test_further_images_of_a_task(refused: Callable[..., ChaiError], name: str, value: int, words: str) -> None:
    """The second descriptor of a network whose Tasks are cut: its constants are those of the first."""

    def change(header: dict[str, Any], sections: dict[str, bytes]) -> None:
        assert [piece[:2] for piece in segment(header)["pieces"][:2]] == [[0, 0], [0, 1]]
        record = chai.overlay.load().descriptor
        values = unpack(record, sections["descriptors.0"][128:256])
        assert values[name] != value
        changed = pack(record, values | {name: value})
        sections["descriptors.0"] = sections["descriptors.0"][:128] + changed + sections["descriptors.0"][256:]

    assert words in str(refused(change, name="pieces"))


def test_pieces_of_a_task_without_its_first_image(refused: Callable[..., ChaiError]) -> None:
    def change(header: dict[str, Any], _: dict[str, bytes]) -> None:
        pieces = segment(header)["pieces"]
        assert [piece[:3] for piece in pieces[:2]] == [[0, 0, 1], [0, 1, 1]]
        pieces[0] = pieces[1]  # as many pixels as before

    assert "some images, rows or columns of a task are missing, or twice there" in str(refused(change, name="pieces"))


def test_blobs_in_one_another_without_end(file: Path) -> None:
    """They are refused at once: each of them is looked up through all that it lies in."""
    most = limits().views
    artifact = container.read(file)
    for count in (most, 30_000):
        artifact.header["places"] = {f"b{i}": [f"b{i + 1}", 0] for i in range(count)}
        shapes = {f"b{i}": (1, 8, 1, 1) for i in range(count + 1)}
        if count == most:
            assert len(steps.views(artifact, shapes)) == most
            artifact.header["places"][f"b{most}"] = ["b7", 0]
            with pytest.raises(ParseError, match="is a part of itself"):
                steps.views(artifact, shapes)
        else:
            with pytest.raises(ParseError, match=f"lies too deep: 30,000 exceeds the limit views={most}"):
                steps.views(artifact, shapes)


def test_two_blobs_at_one_place(tmp_path: Path, refused: Callable[..., ChaiError]) -> None:
    """A Task that would write over what it reads."""

    def together(header: dict[str, Any], sections: dict[str, bytes]) -> None:
        at = segment(header)["at"]
        blobs = [
            name for name in at if name in {b for t in segment(header)["tasks"] for b in (*t["inputs"], t["output"])}
        ]
        at.update(dict.fromkeys(blobs, 0))

    assert "its descriptor has output = " in str(refused(together, name="parts"))


def test_blobs_elsewhere_than_the_descriptors_say(tmp_path: Path, refused: Callable[..., ChaiError]) -> None:
    """A layout that is as good as the real one."""

    def swapped(header: dict[str, Any], _: Any) -> None:
        at = segment(header)["at"]
        assert at["p1"] != at["el@re"]
        at["p1"], at["el@re"] = at["el@re"], at["p1"]

    assert "its descriptor has output = " in str(refused(swapped, name="parts"))


def test_a_task_on_other_blobs_than_the_header_says(refused: Callable[..., ChaiError]) -> None:
    def swapped(header: dict[str, Any], _: Any) -> None:
        (eltwise,) = (t for t in segment(header)["tasks"] if len(t["inputs"]) == 2)
        eltwise["inputs"].reverse()

    assert "task el+re (eltwise): its descriptor has input = " in str(refused(swapped, name="parts"))


def test_tasks_listed_before_those_that_write_what_they_read(tmp_path: Path) -> None:
    """The chain is right; the emulator would run the Tasks as listed, and read half of a Concat before its pooling."""
    lines = f"""c1 Convolution data -> c1 : {DEEP}
        p1 Pooling c1 -> p1 : pooling_param {{ pool: MAX kernel_size: 3 stride: 1 pad: 1 }}
        cc Concat c1 p1 -> cc
        c2 Convolution cc -> c2 : {DEEP}"""
    net = network(tmp_path, lines, device="emulator")
    net.calibrate(data())
    path = tmp_path / "net.chai"
    save(net, path)
    header, sections = parts(path)
    (segment,) = (step for step in header["steps"] if "tasks" in step)
    assert [task["output"] for task in segment["tasks"]] == ["c1", "p1", "c2"]
    for order, words in (((0, 1, 2), None), ((0, 2, 1), "blob 'cc' is read before anything has written it")):
        changed = deepcopy(header)
        step = changed["steps"][header["steps"].index(segment)]
        step["tasks"] = [segment["tasks"][i] for i in order]
        step["pieces"] = [[order.index(i), *images] for i, *images in segment["pieces"]]
        path.write_bytes(assembled(changed, sections))
        if words is None:
            load(path)
        else:
            with pytest.raises(ParseError, match=words):
                load(path)


def test_another_overlay_or_build(file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DeviceError, match=r"was compiled for overlay pynq-z2, build \w{8}; this is ultra96, build"
    ) as caught:
        load(file, overlay="ultra96")
    assert "--overlay ultra96" in str(caught.value.hint)
    header, sections = parts(file)
    header["overlay"]["build"] ^= 1
    path = tmp_path / "other.chai"
    path.write_bytes(assembled(header, sections))
    with pytest.raises(DeviceError, match="was compiled for overlay pynq-z2, build"):
        load(path)
    header["overlay"]["name"] = "mars"
    path.write_bytes(assembled(header, sections))
    with pytest.raises(DeviceError, match="was compiled for overlay 'mars', which chai does not ship"):
        load(path)


def test_an_overlay_is_a_name_and_never_a_path(file: Path, tmp_path: Path) -> None:
    """A file from a stranger does not choose what else is read."""
    header, sections = parts(file)
    header["overlay"]["name"] = "../../etc/overlay.json"
    path = tmp_path / "other.chai"
    path.write_bytes(assembled(header, sections))
    with pytest.raises(ChaiError, match="which chai does not ship"):
        load(path)


def test_a_network_that_reads_nothing_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "net.chai"
    path.write_bytes(assembled({"overlay": {"name": "pynq-z2", "build": chai.overlay.load().build}}, {}))
    with pytest.raises(ParseError, match="'shapes' is missing"):
        load(path)


def test_sums_beyond_the_accumulator(file: Path, tmp_path: Path, refused: Callable[..., ChaiError]) -> None:
    """The largest bias that the weights leave room for is accepted, one more is not."""
    overlay = overlays.load()
    net = load(file)
    net.plan()
    task = next(s for s in net.schedule.steps if isinstance(s, DeviceStep)).tasks[0]
    assert isinstance(task, Conv)
    channel = int(np.abs(np.asarray(task.weights).astype(int)).sum((1, 2, 3)).argmax())
    most = net.offload.plan.formats["data"].magnitude * np.abs(np.asarray(task.weights)[channel].astype(int)).sum()
    room = overlay.accumulator_bound - int(most)

    def biased(bias: int) -> Change:
        def change(_: Any, sections: dict[str, bytes]) -> None:
            descriptors, record = sections["descriptors.0"], overlay.table
            head = spaced(len(descriptors))
            values = unpack(overlay.descriptor, descriptors[: overlay.descriptor.bytes])
            at = split(values["table"])[1] - head + channel * record.bytes
            constants = sections["constants.0"]
            changed = pack(record, unpack(record, constants[at : at + record.bytes]) | {"bias": bias})
            sections["constants.0"] = constants[:at] + changed + constants[at + record.bytes :]

        return change

    for sign in (1, -1):
        words = f"task 0: a sum could reach {overlay.accumulator_bound:,}, beyond the overlay's accumulator"
        assert words in str(refused(biased(sign * room)))
        header, sections = parts(file)
        biased(sign * (room - 1))(header, sections)
        (tmp_path / "full.chai").write_bytes(assembled(header, sections))
        assert load(tmp_path / "full.chai").forward(data())
