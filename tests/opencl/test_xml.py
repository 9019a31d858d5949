"""The XML of OpenCL layers: what is read, and where and why a file is refused. Needs no OpenCL."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import chai
from chai.cli import main
from chai.errors import ParseError
from chai.plugins.opencl.description import Buffer, Given, Port, Size, Tensor, Trained
from chai.plugins.opencl.reading import read
from tests.conftest import ROOT

from .common import KERNEL, MVCL, SHIFT, XML, write


def test_every_part_is_read(tmp_path: Path) -> None:
    (layer,) = read(write(tmp_path))
    (stage,) = layer.stages
    assert (layer.type, stage.entry, stage.options, stage.threads) == ("Twice", "twice", "-cl-mad-enable", None)
    assert stage.texts == (("twice.cl", KERNEL),)
    assert [(d.name, d.kind, d.param, d.default) for d in stage.defines] == [("FACTOR", "float", "factor", "2.0")]
    assert stage.bindings == (Tensor(Port("input", 0), "BFYX"), Tensor(Port("output", 0), "BFYX"))
    assert [f.text for f in stage.sizes] == ["X", "Y", "B*F"] and stage.local == ()
    assert stage.port == Port("output", 0)
    assert layer.place == f"{tmp_path / 'layers.xml'}:1"


def test_mvcl_binds_by_name(tmp_path: Path) -> None:
    (layer,) = read(write(tmp_path, MVCL))
    (stage,) = layer.stages
    assert stage.bindings == (
        Tensor(Port("input", 0), "BFYX"),
        Tensor(Port("output", 0), "BFYX"),
        Size(Port("input", 0), "X"),
        Given("by", "float"),
    )
    assert stage.threads == 1 and stage.port == Port("input", 0)


def test_less_usual_parts(tmp_path: Path) -> None:
    """Formats in either case, a second port, trained parameters, several sources, several layers, an XML declaration."""
    text = XML.replace('format="BFYX"', 'format="byxf"', 1).replace(
        "  </Buffers>", '<Data name="blob2" arg-index="2"/><Data name="biases" arg-index="3"/></Buffers>'
    )
    text = text.replace("/>\n    <Define", '/><Source filename="more/b.cl"/>\n    <Define').replace(
        '<WorkSizes global="X,Y,B*F"/>', "<!-- none -->"
    )
    text = text.replace('options="-cl-mad-enable"/>', 'options="-DA"/><CompilerOptions options="-DB=1"/>')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.cl").write_text("// b\n")
    kernel = KERNEL.replace("target)", "target, __global const float *a, __constant float b[3])")
    head = "<?xml version='1.0' encoding='utf-8'?>\n"
    first, second = read(write(tmp_path, head + text + MVCL, twice=kernel, shift=SHIFT))
    assert (first.type, second.type) == ("Twice", "Shift")
    (stage,) = first.stages
    assert [name for name, _ in stage.texts] == ["twice.cl", "more/b.cl"]
    assert stage.bindings[0] == Tensor(Port("input", 0), "BYXF")
    assert stage.bindings[2:] == (Trained(2, "blob2"), Trained(1, "biases"))
    assert stage.options == "-DA -DB=1"
    assert [f.text for f in stage.sizes] == ["B*F*Y*X"]
    assert first.files == (tmp_path / "layers.xml", tmp_path / "twice.cl", tmp_path / "more" / "b.cl")


def test_a_root_element_of_any_name(tmp_path: Path) -> None:
    assert [d.type for d in read(write(tmp_path, f"<Layers>{XML}{MVCL}</Layers>"))] == ["Twice", "Shift"]


def test_stages_and_buffers(tmp_path: Path) -> None:
    buffer = '<Tensor arg-name="sums" type="{}_buffer" port-index="1" dim="output,0" size="Y*F*4"/>'
    stages = [
        MVCL.replace('version="1"', f'version="1" stage="{n}"')
        .replace("<Scalar", buffer.format(kind) + "<Scalar", 1)
        .replace("shift.cl", f"s{n}.cl")
        for n, kind in ((1, "input"), (0, "output"))
    ]
    kernel = SHIFT.replace("float by", "float by, __global float* sums")
    (layer,) = read(write(tmp_path, "".join(stages), s0=kernel, s1=kernel))
    assert [stage.texts[0][0] for stage in layer.stages] == ["s0.cl", "s1.cl"]
    first, second = (stage.bindings[4] for stage in layer.stages)
    assert isinstance(first, Buffer) and isinstance(second, Buffer)
    assert (first.number, first.size.text, first.port) == (1, "Y*F*4", Port("output", 0))
    assert first.number == second.number


@pytest.mark.parametrize("numbers", [(0, 1), (1, 2), (2, 5)])
def test_outputs_are_taken_by_rank(tmp_path: Path, numbers: tuple[int, int]) -> None:
    """Some files number them after the inputs; what has no number is of the first."""
    first, second = numbers
    text = MVCL.replace('type="output" port-index="0"', f'type="output" port-index="{second}"')
    more = f"""<Tensor arg-name="also" type="output" port-index="{first}"/>
        <Tensor arg-name="sums" type="output_buffer" port-index="0" dim="output,{second}" size="Y*4"/>
        <Scalar arg-name="a" type="int" source="O.X"/><Scalar arg-name="b" type="int" source="O{second}.Y"/><Scalar"""
    text = text.replace("<Scalar", more, 1).replace('dim="input,0"', 'dim="output"')
    kernel = SHIFT.replace("float by", "float by, __global float* also, __global float* sums, int a, int b")
    (layer,) = read(write(tmp_path, text, shift=kernel))
    (stage,) = layer.stages
    ports = {p.port for p in stage.bindings if isinstance(p, Tensor)}
    assert ports == {Port("input", 0), Port("output", 0), Port("output", 1)} and layer.tops == 2
    assert stage.bindings[1] == Tensor(Port("output", 1), "BFYX") and stage.bindings[4] == Tensor(
        Port("output", 0), "BFYX"
    )
    assert isinstance(stage.bindings[5], Buffer) and stage.bindings[5].port == Port("output", 1)
    assert stage.bindings[6:] == (Size(Port("output", 0), "X"), Size(Port("output", 1), "Y"))
    assert stage.port == Port("output", 0)


def test_trained_parameters_by_name(tmp_path: Path) -> None:
    text = MVCL.replace("<Scalar", '<Tensor arg-name="w" type="data" source="weights" format="BFYX"/><Scalar', 1)
    kernel = SHIFT.replace("float by", "float by, __global const half* w")
    (layer,) = read(write(tmp_path, text, shift=kernel))
    assert layer.stages[0].bindings[-1] == Trained(0, "weights")


def test_the_binary_of_another_processor(tmp_path: Path) -> None:
    """A .bin stands for the .cl of the same name."""
    (layer,) = read(write(tmp_path, MVCL.replace("shift.cl", "shift.bin")))
    assert layer.stages[0].texts == (("shift.cl", SHIFT),)


# What is changed in XML or MVCL, and the line, column and reason of the error.
MALFORMED = {
    "not closed": (XML, "  </Buffers>\n", "", "6:3", "<Buffers> is not closed"),
    "cut off": (XML, XML[XML.index("  <CompilerOptions") :], "", "1:1", "<CustomLayer> is not closed"),
    "no quotes": (XML, 'version="1"', "version=1", "1:52", "no XML: not well-formed"),
    "twice": (XML, 'entry="twice"', 'entry="twice" entry="b"', "2:25", "no XML: duplicate attribute"),
    "a DTD": (XML, "<CustomLayer", '<!DOCTYPE a [<!ENTITY b "c">]><CustomLayer', "1:3", "a DTD"),
    "an entity": (XML, "twice.cl", "&b;", "3:5", "undefined entity"),
    "text": (XML, "<Buffers>", "<Buffers> 12", "6:13", "text '12' between the elements"),
    "another root": (XML, XML, "<net><layer/></net>", "1:1", "<net> is not expected here"),
    "nothing": (XML, XML, "<!-- empty -->", "1:1", "no CustomLayer in this file"),
    "kind": (XML, "SimpleGPU", "SimpleGpu", "1:33", "type='SimpleGpu': expected SimpleGPU or MVCL"),
    "version": (XML, 'version="1"', 'version="2"', "1:53", "version='2': expected 1"),
    "no name": (XML, 'name="Twice" ', "", "1:1", "<CustomLayer> without name"),
    "unknown element": (XML, "WorkSizes", "WorkSize", "11:3", "<WorkSize> is not expected in <CustomLayer>"),
    "two kernels": (XML, "  <Buffers>", '<Kernel entry="twice"><Source filename="twice.cl"/></Kernel><Buffers>',
                    "6:1", "a second <Kernel>"),
    "attribute": (XML, "default=", "defaults=", "4:65", "<Define> has no attribute 'defaults'"),
    "no source": (XML, '<Source filename="twice.cl"/>', "", "2:3", "<Kernel> without <Source>"),
    "outside": (XML, "twice.cl", "../twice.cl", "3:23", "'../twice.cl' is not in the folder"),
    "absolute": (XML, "twice.cl", "/etc/passwd", "3:23", "'/etc/passwd' is not in the folder"),
    "headers": (XML, "-cl-mad-enable", "-w -I/etc", "10:29", "options: the folder of headers '/etc' is not in the folder"),
    "headers apart": (XML, "-cl-mad-enable", "-I ..", "10:29", "headers '..' is not in the folder"),
    "headers in quotes": (XML, "-cl-mad-enable", "-DA='b -I/etc'", "10:29", "is not in the folder of this file"),
    "headers in words": (XML, "-cl-mad-enable", "-I 'b -I/etc'", "10:29", "is not in the folder of this file"),
    "headers of nothing": (XML, "-cl-mad-enable", "-I", "10:29", "headers '' is not in the folder"),
    "quotes": (XML, "-cl-mad-enable", "-DA='b", "10:29", "options: No closing quotation"),
    "missing": (XML, "twice.cl", "thrice.cl", "3:23", "'thrice.cl' is not there"),
    "binary": (MVCL, "shift.cl", "other.bin", "2:43", "'other.cl' is not there"),
    "no such kernel": (XML, 'entry="twice"', 'entry="twize"', "2:18",
                       "there is no kernel 'twize' in the source; did you mean 'twice'? kernels: twice"),
    "another kernel": (XML, 'entry="twice"', 'entry="f"', "2:18", "there is no kernel 'f' in the source; kernels: twice"),
    "define": (XML, 'name="FACTOR"', 'name="2F"', "4:19", "name='2F': expected the name of a macro"),
    "kind of define": (XML, 'type="float"', 'type="double"', "4:33", "type='double': expected int, float"),
    "default": (XML, 'default="2.0"', 'default="two px"', "4:64", "default='two px' of type float"),
    "list": (XML, 'type="float"', 'type="int[]"', "4:64", "default='2.0x' of type int[]: expected whole"),
    "an index twice": (XML, 'arg-index="1"', 'arg-index="0"', "8:24", "arg-index 0 is bound twice"),
    "too many": (XML, 'arg-index="1"', 'arg-index="2"', "8:24", "arg-index 2: the kernel has 2 parameters"),
    "an index missing": (XML, '    <Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>\n', "",
                         "6:3", "parameter 'source' of the kernel, arg-index 0, is not bound"),
    "no number": (XML, 'arg-index="1"', 'arg-index="-1"', "8:24", "arg-index='-1': expected a whole number"),
    "side": (XML, 'type="output"', 'type="outputs"', "8:33", "type='outputs': expected input or output"),
    "format": (XML, 'format="BFYX"', 'format="NCHW"', "7:63", "format='NCHW': expected one of BFYX"),
    "no output": (XML, 'type="output"', 'type="input"', "1:1", 'no Tensor of type="output"'),
    "no such output": (MVCL, "I.X", "O2.X", "1:1", 'no Tensor of type="output" has port-index 2'),
    "formula": (XML, "X,Y,B*F", "X,Y,B*(F", "11:28", "global: the bracket is not closed"),
    "four sizes": (XML, "X,Y,B*F", "X,Y,B,F", "11:22", "global: 4 sizes, expected at most 3"),
    "local": (XML, 'global="X,Y,B*F"', 'global="X,Y,B*F" local="8"', "11:38", "1 local sizes for 3 global ones"),
    "dim": (XML, 'global="X,Y,B*F"', 'global="X,Y,B*F" dim="top"', "11:36", "dim='top': expected output"),
    "argument name": (MVCL, 'arg-name="by"', 'arg-name="bye"', "7:23", "arg-name='bye': the kernel has no such"),
    "unbound": (MVCL, '    <Scalar arg-name="by" type="float" source="by"/>\n', "", "3:3", "'by' of the kernel is not"),
    "a number for memory": (MVCL, '<Scalar arg-name="by"', '<Scalar arg-name="to"', "7:23", "'to' is bound twice"),
    "memory for a number": (MVCL, '<Tensor arg-name="to"', '<Tensor arg-name="n"', "5:23", "'n' of the kernel is no"),
    "source of a number": (MVCL, 'source="I.X"', 'source="I.W"', "6:60", "source='I.W': expected a size"),
    "blob": (MVCL, 'type="input" port-index="0"', 'type="data" source="slope"', "4:49", "expected weights, biases"),
    "shaves": (MVCL, 'max-shaves="1"', 'max-shaves="all"', "1:63", "max-shaves='all': expected a whole number"),
    "a second description": (XML, XML, XML + XML, "13:20", "'Twice' is described twice, before in line 1"),
    "stage": (MVCL, 'version="1"', 'version="1" stage="1"', "1:58", "stage 1: there is no stage 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str, tmp_path: Path) -> None:
    text, old, new, place, reason = MALFORMED[name]
    assert old in text
    text = text.replace(old, new, 1)
    if name == "list":
        text = text.replace('default="2.0"', 'default="2.0x"')
    with pytest.raises(ParseError) as caught:
        chai.load_custom(write(tmp_path, text))
    error = caught.value
    assert reason in error.message
    assert (error.line is None and place == "1:1") or f"{error.line}:{error.column}" == place
    assert "layers.xml" in str(error)


def test_the_error_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "from_openvino.md").read_text()
    (shown,) = re.findall(r"```\n(error: .*?)```", page, re.DOTALL)
    write(tmp_path, XML.replace("X,Y,B*F", "X,Y,B*(F"))
    monkeypatch.chdir(tmp_path)
    assert main(["layers", "--custom", "layers.xml"]) == 65
    assert capsys.readouterr().err.replace(f"{tmp_path}/", "").strip() == shown.strip()


def test_a_file_of_another_encoding(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(XML.replace("Twice", "Zw\xf6lf").encode("latin-1"))
    with pytest.raises(ParseError, match=r"layers.xml:1:22: byte 0xf6 is not UTF-8"):
        read(path)
    for mark in (b"", b"\xef\xbb\xbf"):  # columns are of characters, the first after a byte order mark
        path.write_bytes(mark + "\xe9 \xe9 <a ".encode() + b"\xff")
        with pytest.raises(ParseError, match=r"layers.xml:1:8: byte 0xff is not UTF-8 .*UTF-8"):
            read(path)


def test_a_source_of_another_encoding(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "twice.cl").write_bytes(b"\n// \xf6\n" + KERNEL.encode())
    with pytest.raises(ParseError, match=r"twice.cl:2:4: byte 0xf6 is not UTF-8"):
        read(path)
    with pytest.raises(ParseError, match=r"twice.cl:2:4: byte 0xf6 is not UTF-8"):
        chai.custom.opencl("Twice", tmp_path / "twice.cl")


def test_characters_of_several_bytes_keep_places_right(tmp_path: Path) -> None:
    text = XML.replace("Twice", "zw\xf6lf\N{GRINNING FACE}").replace('version="1"', 'version="3"')
    with pytest.raises(ParseError, match=r":1:54: version"):
        read(write(tmp_path, text))


def test_files_from_strangers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "<a>" * 50_000
    with pytest.raises(ParseError, match="more than 8 nested elements"):
        read(write(tmp_path, deep))
    with pytest.raises(ParseError, match="more than 10000 elements"):
        read(write(tmp_path, "<a>" + "<b/>" * 20_000 + "</a>"))
    with pytest.raises(ParseError, match="xml_bytes"):
        read(write(tmp_path, XML + " " * (1 << 20)))
    (tmp_path / "twice.cl").write_bytes(b" " * (5 << 20))
    with pytest.raises(ParseError, match="kernel_bytes"):
        read(write(tmp_path, XML, other=""))


def test_a_source_without_kernels(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="there is no kernel 'twice' in the source; it has none"):
        read(write(tmp_path, XML, twice="float twice();"))


@pytest.mark.parametrize("name", ["/etc/hostname", "../secret.h", "sub/../../secret.h"])
def test_a_header_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    """Named by a source; in a comment it is none."""
    with pytest.raises(ParseError, match=rf"layers.xml:3:23: source 'twice.cl', line 2: '{name}' is not in the folder"):
        read(write(tmp_path, XML, twice=f"//\n# include <{name}>\n{KERNEL}"))
    assert read(write(tmp_path, XML, twice=f'/*\n#include "{name}"\n*/\n#include "sub/a.h"\n{KERNEL}'))


def test_options_with_folders_of_headers(tmp_path: Path) -> None:
    """They are absolute, wherever chai is started; other options stay as they are."""
    for options, expected in (
        ("-I. -cl-mad-enable", f"-I{tmp_path} -cl-mad-enable"),
        ("-I 'a' -DN=2", f"-I{tmp_path}/a -DN=2"),
        (f"-I{tmp_path}/sub", f"-I{tmp_path}/sub"),
        ("-D 'N=2'  -w", "-D 'N=2'  -w"),
    ):
        (layer,) = read(write(tmp_path, XML.replace("-cl-mad-enable", options)))
        assert layer.stages[0].options == expected


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links")
def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "a", XML, other="")
    (tmp_path / "twice.cl").write_text(KERNEL)
    (tmp_path / "a" / "twice.cl").symlink_to(tmp_path / "twice.cl")
    with pytest.raises(ParseError, match="is not in the folder"):
        read(path)
    with pytest.raises(ParseError, match="is not in the folder"):  # a .bin stands for the .cl
        read(write(tmp_path / "a", XML.replace("twice.cl", "twice.bin"), other=""))


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links")
def test_a_source_by_another_path_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "a")
    (layer,) = read(write(tmp_path / "a", XML.replace("twice.cl", f"{tmp_path}/alias/twice.cl")))
    assert layer.stages[0].texts == (("twice.cl", KERNEL),)


def test_a_source_whose_name_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="is not there"):
        read(write(tmp_path, XML.replace("twice.cl", "a" * 300 + ".cl")))
