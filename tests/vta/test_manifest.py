"""The manifest of a VTA: its facts, and mistakes with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from chai import overlay as overlays
from chai.errors import ParseError
from chai.overlay.manifest import ARRAY
from chai.util.paths import resource
from chai.vta.isa import ENCODINGS, Memory

TEXT = resource("hw_overlays", "vta-z7020", "overlay.json").read_text()


def test_its_facts() -> None:
    vta = overlays.load("vta-z7020")
    assert (vta.architecture, vta.schemes, vta.unsigned, vta.clock_mhz) == ("vta", ("DynamicFixed",), False, 100.0)
    assert (vta.layout.channels_per_word, vta.layout.alignment) == (16, 256)
    assert vta.kinds == ("conv", "pool", "eltwise", "copy")
    assert vta.coherent  # its masters are at the ACP
    machine = vta.machine.machine
    assert (machine.encoding, machine.instructions, machine.tokens) == ("old", 512, 1024)
    assert [machine.depths[memory] for memory in Memory] == [8192, 1024, 2048, 2048, 2048]
    (file,) = vta.machine.bitstreams
    assert (file.bytes, file.sha256[:8], file.encoding) == (4_045_671, "c8808d2f", "old")
    assert file.encoding in ENCODINGS
    repository = "https://github.com/uwsampl/vta-distro/raw/a685703cafed532a2247dfa572d3f6c428d78f6e/"
    assert file.url == repository + "bitstreams/pynq/0.0.1/1x16_i8w8a32_15_15_18_17.bit"
    blocks = vta.machine.registers["blocks"]
    assert [hex(blocks[name]) for name in ("fetch", "load", "compute", "store")] == [
        "0x43c00000",
        "0x43c01000",
        "0x43c02000",
        "0x43c03000",
    ]


def test_the_kind_of_its_ports_is_for_the_driver_alone(tmp_path: Path) -> None:
    """A network that was compiled before the manifest said so still runs, and no array has the key."""
    path = tmp_path / "overlay.json"
    path.write_text(TEXT.replace('"coherent": true', '"coherent": false'))
    other, vta = overlays.load(path), overlays.load("vta-z7020")
    assert (other.coherent, other.digest) == (False, vta.digest)
    assert vta.build == 0xAD3DB3E7  # as without the key
    assert [name for name in overlays.names(ARRAY) if overlays.load(name).coherent] == []


def test_overlays_are_listed_by_architecture() -> None:
    assert overlays.names("vta") == ["vta-z7020"]
    emulated = [name for name in overlays.names() if overlays.load(name).emulated]
    assert sorted([*overlays.names(ARRAY), *overlays.names("vta"), *emulated]) == overlays.names()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"architecture": "vta"', '"architecture": "vtb"', r"json:3:.*there is no 'vtb'"),
        ('"architecture": "vta",', "", r"json:14:3:.*unknown key"),  # then it is an array, which has other keys
        ('"uop": 8192', '"uop": 4096', "json:.*8192"),
        ('["DynamicFixed"]', '["Xilinx"]', "json:.*DynamicFixed"),
        ('"encoding": "old",\n    "memories"', '"encoding": "odd",\n    "memories"', "json:.*odd"),
        ('"queues":', '"cues":', "json:.*cues"),
        ('"coherent": true', '"coherent": "ACP"', 'json:15:15: coherent: expected a boolean, found "ACP"'),
        ('  "coherent": true,\n', "", "json:.*coherent"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert TEXT.count(old) == 1
    path = tmp_path / "overlay.json"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ParseError, match=why):
        overlays.load(path)
