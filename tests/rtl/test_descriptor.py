"""Records as hardware sees them: the bits that the host packs."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Const

from chai import overlay as overlays
from chai.hw_overlays.rtl.descriptor import layout
from chai.overlay.manifest import ARRAY
from chai.overlay.records import pack


@pytest.mark.parametrize("name", overlays.names(ARRAY))
@pytest.mark.parametrize("kind", ["descriptor", "table"])
def test_fields_are_where_the_host_packs_them(name: str, kind: str) -> None:
    record = getattr(overlays.load(name), kind)
    chosen = random.Random(7)
    fields = [field for field in record.fields if field.name != "version"]
    values = {f.name: chosen.randint(f.range[0] // f.multiple, f.range[1] // f.multiple) * f.multiple for f in fields}
    structure = layout(record)
    assert structure.size == 8 * record.bytes
    view = structure.from_bits(int.from_bytes(pack(record, values), "little"))
    assert {name: Const.cast(view[name]).value for name in values} == {f.name: values[f.name] for f in fields}
