"""Records of a manifest, such as descriptors, as layouts of Amaranth: the same table that the host encodes with."""

from amaranth.hdl import Shape, signed
from amaranth.lib import data

from chai.overlay import Overlay
from chai.overlay.sections import Record

PAD = "reserved"


def layout(record: Record) -> data.StructLayout:
    """Return the layout of a record's bytes, the first one lowest: each field by name, unused bits between them."""
    members: dict[str, Shape] = {}
    end = 0
    for field in sorted(record.fields, key=lambda field: field.position):
        if field.position > end:
            members[f"{PAD}_{end}"] = Shape(field.position - end)
        members[field.name] = Shape(field.width, field.signed)
        end = field.position + field.width
    if end < 8 * record.bytes:
        members[f"{PAD}_{end}"] = Shape(8 * record.bytes - end)
    return data.StructLayout(members)


def descriptor(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a descriptor."""
    return layout(overlay.descriptor)


def table_record(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a record of the table of requantisation: bias, multiplier, negative."""
    return layout(overlay.table)


def table_fields(overlay: Overlay, bits: int) -> data.StructLayout:
    """Return the layout of such a record without the bits that no field has, for sums of so many bits."""
    fields = {name: field.shape for name, field in table_record(overlay) if not name.startswith(PAD)}
    return data.StructLayout({**fields, "bias": signed(bits)})
