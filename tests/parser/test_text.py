"""The scanner: every form of text format, the places of values, the words of refusals, the limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_encoding, text_format
from hypothesis import assume, given, settings, strategies as st

from chai.errors import ParseError
from chai.limits import limits
from chai.parser.schema import FieldType, fields
from chai.parser.text import Block, Scalar, SourceText, parse, read_source
from tests.conftest import examples

from .common import differences, message, protobuf_reads


def tree(text: str) -> list[Any]:
    """The fields of a text as (name, value as written) and (name, fields)."""

    def plain(block: Block) -> list[Any]:
        return [(f.name, f.value.text if isinstance(f.value, Scalar) else plain(f.value)) for f in block.fields]

    return plain(parse(SourceText(text, "n")))


def refused(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(SourceText(text, "n.prototxt"))
    return caught.value


# -- accepted forms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# only a comment", []),
        ("a: 1 # one\n# two\nb: 2", [("a", "1"), ("b", "2")]),
        ('a: "#" b: 1', [("a", "#"), ("b", "1")]),
        ("a: 'x'", [("a", "x")]),
        ("a: 'say \"x\"' b: \"it's\"", [("a", 'say "x"'), ("b", "it's")]),
        ("a: 'one' \"two\"  # and\n 'three'", [("a", "onetwothree")]),
        ("a: ''", [("a", "")]),
        ("m { a: 1 }", [("m", [("a", "1")])]),
        ("m < a: 1 >", [("m", [("a", "1")])]),
        ("m: { a: 1 } n: < b: 2 >", [("m", [("a", "1")]), ("n", [("b", "2")])]),
        ("m { n < o { a: 1 } > }", [("m", [("n", [("o", [("a", "1")])])])]),
        ("m {} n <>", [("m", []), ("n", [])]),
        ("m{a:1}n{b:2}", [("m", [("a", "1")]), ("n", [("b", "2")])]),
        ("a: 1, b: 2; c: 3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("m { a: 1, }, n { b: 2; };", [("m", [("a", "1")]), ("n", [("b", "2")])]),
        ("a: [1, 2,3]", [("a", "1"), ("a", "2"), ("a", "3")]),
        ("a: [] b: 1", [("b", "1")]),
        ("a: ['x' 'y', \"z\"]", [("a", "xy"), ("a", "z")]),
        ("m [{ a: 1 }, < a: 2 >]", [("m", [("a", "1")]), ("m", [("a", "2")])]),
        ("m: [{ a: 1 }]", [("m", [("a", "1")])]),
        ("a: -1 b: - 1 c: -\n1", [("a", "-1"), ("b", "-1"), ("c", "-1")]),
        ("a: -inf", [("a", "-inf")]),
        ("a: 2.0f b: .5 c: 1. d: 1e-3 e: 1E+3F", [("a", "2.0f"), ("b", ".5"), ("c", "1."), ("d", "1e-3"), ("e", "1E+3F")]),
        ("a: 0x1C b: 034", [("a", "0x1C"), ("b", "034")]),
        ("a\n:\n1", [("a", "1")]),
        ("a: 1\r\nb: 2\r\n# c\r\n", [("a", "1"), ("b", "2")]),
        ("\ta:\t1\v\f", [("a", "1")]),
        ("_a1: true", [("_a1", "true")]),
    ],
)  # fmt: skip
def test_accepted_forms(text: str, expected: list[Any]) -> None:
    assert tree(text) == expected


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (r"\n\t\r\a\b\f\v", "\n\t\r\a\b\f\v"),
        (r"\\ \' \" \?", "\\ ' \" ?"),
        (r"\101\60\0071", "A0\a1"),
        (r"\x41\X42", "AB"),
        (r"\303\251", "é"),
        (r"caf\303\251 \346\227\245", "café 日"),
        (r"\xc3\xa9", "é"),
        (r"\u65e5\U0001F600", "日😀"),
        ("日本", "日本"),
    ],
)
def test_escapes(escaped: str, expected: str) -> None:
    assert tree(f'a: "{escaped}"') == [("a", expected)]


@pytest.mark.parametrize("text", [r'name: "é\303\251"', r'name: "日\303\251"', r'name: "\303" "\251"', 'name: "Ã©\\n"'])
def test_escapes_beside_plain_text_mean_what_they_mean_to_protobuf(text: str) -> None:
    assert message(text).get("name") == protobuf_reads(text).name


def test_names_can_always_be_printed() -> None:
    """A lone surrogate would break whoever writes the name to a file or a terminal."""
    try:
        name = message(r'name: "\ud800"').get("name")
    except ParseError:
        return
    assert name.encode()


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfa: 1", b"# caf\xe9\na: 1", b"# \xc0\xe1\xff\r\na: 1", b"# caf\xc3\xa9\na: 1"]
)
def test_bytes_before_the_first_field_do_no_harm(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "n.prototxt"
    path.write_bytes(data)
    fields = parse(read_source(path)).fields
    assert [(f.name, f.value.text) for f in fields if isinstance(f.value, Scalar)] == [("a", "1")]


def test_a_string_in_another_encoding_keeps_its_characters(tmp_path: Path) -> None:
    path = tmp_path / "n.prototxt"
    path.write_bytes(b'a: "caf\xe9"')
    assert parse(read_source(path)).fields[0].value.text == "café"


def test_lines_are_counted_the_same_with_crlf(tmp_path: Path) -> None:
    path = tmp_path / "n.prototxt"
    path.write_bytes(b"a: 1\r\n\r\nb: ?\r\n")
    with pytest.raises(ParseError) as caught:
        parse(read_source(path))
    assert (caught.value.line, caught.value.column) == (3, 4)
    assert "\r" not in caught.value.excerpt


# -- places


SPANS = """name: 'a' "b"  # x
m < n: [1, - 2] , o: 0x1f; p { q: .5f } >
r: -inf s: true"""


def test_the_span_of_a_value_is_its_text() -> None:
    source = SourceText(SPANS, "n")
    spans: list[tuple[str, str]] = []

    def visit(block: Block) -> None:
        for f in block.fields:
            assert source.text[f.start :].startswith(f.name)
            spans.append((f.name, source.text[f.value.start : f.value.end]))
            if isinstance(f.value, Block):
                visit(f.value)

    block = parse(source)
    visit(block)
    assert (block.start, block.end) == (0, len(SPANS))
    assert spans == [
        ("name", "'a' \"b\""),
        ("m", "< n: [1, - 2] , o: 0x1f; p { q: .5f } >"),
        ("n", "1"),
        ("n", "- 2"),
        ("o", "0x1f"),
        ("p", "{ q: .5f }"),
        ("q", ".5f"),
        ("r", "-inf"),
        ("s", "true"),
    ]


def test_every_value_of_real_networks_can_be_cut_out_and_read_again(models: Path) -> None:
    paths = sorted(models.glob("*/*.prototxt"))
    assert len(paths) >= 20
    for path in paths:
        source = read_source(path)
        stack = [parse(source)]
        while stack:
            for f in stack.pop().fields:
                text = source.text[f.value.start : f.value.end]
                again = parse(SourceText(f"x: {text}", "n")).fields[0].value
                if isinstance(f.value, Block):
                    assert isinstance(again, Block)
                    assert [g.name for g in again.fields] == [g.name for g in f.value.fields]
                    stack.append(f.value)
                else:
                    assert isinstance(again, Scalar)
                    assert (again.kind, again.text) == (f.value.kind, f.value.text)


def test_where_counts_from_one() -> None:
    source = SourceText("ab\n\ncd", "n")
    assert [source.where(i) for i in range(7)] == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 3)]


# -- refusals


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb ?", (2, 3), "unexpected character '?'"),
        ('a: "x\ny"', (1, 4), "no closing quote"),
        ("a: 'x\\", (1, 4), "no closing quote"),
        ("m {\n a: 1\n", (3, 1), "the file ends inside a message: '}' is missing"),
        ("m < a: 1 }", (1, 10), "expected a field name or '>', found '}'"),
        ("a: 1 }", (1, 6), "expected a field name, found '}'"),
        ("a 1", (1, 3), "expected ':' or '{' after 'a', found '1'"),
        ("a: 1 2: 3", (1, 6), "expected a field name, found '2'"),
        ("a: }", (1, 4), "expected a value for 'a', found '}'"),
        ("a:", (1, 3), "expected a value for 'a', found 'end of file'"),
        ("a", (1, 2), "expected ':' or '{' after 'a', found 'end of file'"),
        ('a: - "x"', (1, 4), "expected a number after '-'"),
        ("a: -", (1, 4), "expected a number after '-', found 'end of file'"),
        ("a: [1 2]", (1, 7), "expected ',' or ']' in the list of 'a', found '2'"),
        ("a: [1, 2", (1, 9), "expected ',' or ']' in the list of 'a', found 'end of file'"),
        ("a: [1,]", (1, 7), "expected a value for 'a', found ']'"),
        ("a: 12x", (1, 4), "a number runs into other characters"),
        ("a: 1.2.3", (1, 4), "a number runs into other characters"),
        ("a: 0x", (1, 4), "a number runs into other characters"),
        (r'a: "\q"', (1, 5), r"unknown escape '\q'"),
        (r'a: "ok" "\U00110000"', (1, 10), "is no character"),
        (": 1", (1, 1), "expected a field name, found ':'"),
        ("; a: 1", (1, 1), "expected a field name, found ';'"),
        ("a: \xa01", (1, 4), "unexpected character"),
    ],
)
def test_refusals_name_the_place_and_the_reason(text: str, place: tuple[int, int], words: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == place
    assert words in error.message
    assert str(error).startswith(f"n.prototxt:{place[0]}:{place[1]}: ")


def test_the_excerpt_marks_the_place() -> None:
    error = refused("m {\n  count: 12x\n}")
    assert error.excerpt.splitlines() == ["    2 |   count: 12x", "      |          ^^^"]


def test_the_excerpt_of_a_long_line_keeps_the_place_in_view() -> None:
    error = refused("a: 1 " * 100 + "?" + " b: 2" * 100)
    shown, marked = error.excerpt.splitlines()
    assert error.column == 501
    assert shown[marked.index("^")] == "?"
    assert len(shown) <= 90


def test_the_excerpt_is_plain_text() -> None:
    error = refused("\x1b[2J\tm { a: ? } # é")
    assert all(" " <= c <= "~" for c in error.excerpt.replace("\n", ""))


@pytest.mark.parametrize("text", ["a: 1\n?", "?", "\n\n\n   ?", "m { a: [\n?"])
def test_the_caret_stands_under_the_offending_character(text: str) -> None:
    shown, marked = refused(text).excerpt.splitlines()
    assert shown[marked.index("^")] == "?"
    assert shown.index("|") == marked.index("|")


def test_a_text_called_pt_is_a_text(tmp_path: Path) -> None:
    """As the networks of Faster R-CNN's alternating training are called."""
    path = tmp_path / "rpn_test.pt"
    path.write_text('name: "rpn"')
    assert read_source(path).text == 'name: "rpn"'


def test_binary_files_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "weights.caffemodel"
    path.write_bytes(b"\x0a\x05LeNet\xa2\x06\x00")
    with pytest.raises(ParseError, match=r"binary file \(byte 9 is zero\)") as caught:
        read_source(path)
    assert caught.value.hint == "the first file is the .prototxt, the second the .caffemodel"


def test_a_missing_file_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_source(tmp_path / "none.prototxt")


# -- limits


def limit(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    from chai.env import env

    monkeypatch.setenv("CHAI_LIMITS", f"{name}={value}")
    env.cache_clear()
    limits.cache_clear()


def test_depth_limit() -> None:
    most = limits().text_depth
    parse(SourceText("m {" * most + "}" * most, "n"))
    error = refused("m {" * (most + 1) + "}" * (most + 1))
    assert f"text_depth={most}" in error.message
    assert error.column == 3 * (most + 1)


def test_depth_counts_lists_of_messages_too() -> None:
    most = limits().text_depth + 1
    assert "text_depth" in refused("m [{" * most + "}]" * most).message


def test_five_thousand_braces() -> None:
    for opening in ("m {", "m <", "m: [{", "m {\n"):
        assert "text_depth" in refused(opening * 5000).message


def test_value_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "text_values", 10)
    parse(SourceText("a: 1 " * 10, "n"))
    parse(SourceText("m { a: [1, 2, 3, 4] n { b: [6, 7, 8, 9] } }", "n"))
    for text in ("a: 1 " * 11, "a: [" + "1," * 10 + "1]", "m {} " * 11):
        assert "11 exceeds the limit text_values=10 (raise it with CHAI_LIMITS=text_values=N)" in refused(text).message


def test_size_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit(monkeypatch, "text_bytes", 100)
    path = tmp_path / "n.prototxt"
    path.write_text("a: 1" + " " * 96)
    read_source(path)
    path.write_text("a: 1" + " " * 97)
    with pytest.raises(ParseError, match=r"101 exceeds the limit text_bytes=100 .*bytes$") as caught:
        read_source(path)
    assert caught.value.path == str(path)


# -- against protobuf: random messages in random spellings


def spelt(kind: FieldType) -> st.SearchStrategy[str]:
    """One value of a field in one of its spellings (but no sign apart: protobuf's C++ knows it, its Python does not)."""
    if kind.kind == "int":
        value = st.integers(0, kind.high)
        sign = st.sampled_from(["", "-"] if kind.low < 0 else [""])
        return st.one_of(
            st.integers(kind.low, kind.high).map(str),
            st.builds(str.__add__, sign, value.map(lambda v: f"{v:#x}")),
            st.builds(str.__add__, sign, value.map(lambda v: f"0{v:o}")),
        )
    if kind.kind == "float":
        short = ["2.0f", "1f", ".5", "1.", "-.5", "-3", "1e3", "1E-3", "inf", "-inf", "nan", "0", "1e60", "-1e-60"]
        return st.one_of(st.sampled_from(short), st.floats(-1e30, 1e30).map(repr), st.integers(-100, 100).map(str))
    if kind.kind == "bool":
        return st.sampled_from(["true", "True", "t", "1", "false", "False", "f", "0"])
    if kind.kind == "enum":
        return st.sampled_from([*kind.enum, *map(str, kind.enum.values())])
    return st.lists(quoted(), min_size=1, max_size=3).map(" ".join)


def quoted() -> st.SearchStrategy[str]:
    """A string in quotes. Each piece is whole characters, written out, or bytes of UTF-8 as octal or hex escapes."""

    def written(text: str, way: str, quote: str) -> str:
        if way == "octal":
            return quote + "".join(f"\\{b:03o}" for b in text.encode()) + quote
        if way == "protobuf":
            return '"' + text_encoding.CEscape(text.encode(), False) + '"'
        return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote).replace("\n", "\\n") + quote

    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    text = st.one_of(st.sampled_from(["", "conv1", "a # b", "{", "1x"]), st.text(characters, max_size=5))
    return st.builds(written, text, st.sampled_from(["plain", "octal", "protobuf"]), st.sampled_from("\"'"))


@st.composite
def texts(draw: st.DrawFn, type: str = "NetParameter", depth: int = 0) -> str:
    """A message of the schema as text."""
    known = {n: f for n, f in fields(type).items() if depth < 3 or f.kind != "message"}
    usual = [n for n in ("layer", "layers", "name", "bottom", "convolution_param", "include") if n in known]
    out = [draw(st.sampled_from(["", " ", "# start\n"]))]
    written = set()
    for name in draw(st.lists(st.sampled_from(usual + [*known]), max_size=6)):
        if name in written and not known[name].repeated:
            continue
        written.add(name)
        out.append(draw(one(known[name], depth)))
        out.append(draw(st.sampled_from([" ", "\n", "\r\n", "  # note\n", "\t", ", ", "; ", " ;\n"])))
    return "".join(out)


@st.composite
def one(draw: st.DrawFn, kind: FieldType, depth: int) -> str:
    """A field with one value, or a list of them."""

    def value() -> str:
        if kind.kind != "message":
            return draw(spelt(kind))
        opening, closing = draw(st.sampled_from(["{}", "<>"]))
        return opening + draw(texts(kind.message, depth + 1)) + closing

    colon = draw(st.sampled_from([":", " :", ": "] if kind.kind != "message" else [":", " "]))
    if not kind.repeated or draw(st.booleans()):
        return kind.name + colon + value()
    return f"{kind.name}: [{', '.join(value() for _ in range(draw(st.integers(1, 3))))}]"


def protobuf_or_another_example(text: str) -> Any:
    """What protobuf reads; where it refuses (which hypothesis bears now and then), another text is drawn."""
    try:
        return protobuf_reads(text)
    except text_format.ParseError:
        assume(False)


@settings(max_examples=examples(60))
@given(texts())
def test_random_texts_mean_the_same_to_protobuf(text: str) -> None:
    theirs = protobuf_or_another_example(text)
    assert not list(differences(message(text), theirs))


@settings(max_examples=examples(80))
@given(st.lists(quoted(), min_size=1, max_size=4).map(" ".join))
def test_random_strings_mean_the_same_to_protobuf(text: str) -> None:
    theirs = protobuf_or_another_example(f"name: {text}")
    assert message(f"name: {text}").get("name") == theirs.name


@settings(max_examples=examples(120))
@given(st.one_of(st.floats(), st.floats(width=32)).map(repr))
def test_random_numbers_are_read_exactly(text: str) -> None:
    value = message(f"value: {text}", "FillerParameter").get("value")
    assert value == float(text) or math.isnan(value)


@settings(max_examples=examples(120))
@given(st.text(alphabet=st.sampled_from(list("ab{}<>[]:,;-#.0x19ef'\"\\ \n\r\xe9")), max_size=40))
def test_random_characters_give_a_tree_or_a_place(text: str) -> None:
    try:
        parse(SourceText(text, "n"))
    except ParseError as error:
        assert error.line is not None
        assert error.excerpt
        assert 1 <= error.line <= text.count("\n") + 1
