"""What the parser's tests share: networks from text in memory, walks over messages, files on the wire."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import text_format

from chai.graph import Graph
from chai.parser.build import NetState, build
from chai.parser.caffemodel import Weights
from chai.parser.message import Message, read
from chai.parser.schema import fields, message_class
from chai.parser.text import SourceText, parse
from chai.parser.upgrade import upgrade
from chai.parser.wire import varint
from chai.plugins.registry import Registry

PATH = "net.prototxt"
DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }\n'


def message(text: str, type: str = "NetParameter") -> Message:
    """A text read as a message of the schema."""
    source = SourceText(text, PATH)
    return read(parse(source), type, source)


def graph(text: str, phase: str = "TEST", level: int = 0, stages: Sequence[str] = (), custom: Any = None) -> Graph:
    """The Graph of a text; ``custom`` maps types to functions."""
    net = message(text)
    return build(net, upgrade(net), NetState(phase, level, stages), Registry(custom))


def layer(name: str, type: str, bottoms: str = "", tops: str = "", more: str = "") -> str:
    """A V2 layer on one line; blobs are separated by blanks."""
    wires = [f'{what}: "{b}"' for what, names in (("bottom", bottoms), ("top", tops)) for b in names.split()]
    return f'layer {{ name: "{name}" type: "{type}" {" ".join(wires)} {more} }}\n'


def wiring(net: Graph) -> list[tuple[Any, ...]]:
    """All that two spellings of one network must have in common."""
    return [(v.name, v.type, v.bottoms, v.tops, v.params) for v in net.layers]


def protobuf_reads(text: str, type: str = "NetParameter") -> Any:
    """What protobuf's own reader makes of a text; raises text_format.ParseError."""
    return text_format.Parse(text, message_class(type)())


def differences(ours: Message, theirs: Any, at: str = "") -> Iterator[str]:
    """Where chai's tree and protobuf's message disagree, in either direction."""
    known = fields(ours.type)
    seen = {f.name: v for f, v in theirs.ListFields()}
    for name in sorted({*seen, *ours.values}):
        kind = known[name]
        values = ours.all(name)
        wanted = seen.get(name, [] if kind.repeated else getattr(theirs, name))
        wanted = list(wanted) if kind.repeated else [wanted]
        if len(values) != len(wanted):
            yield f"{at}{name}: {len(values)} values, protobuf has {len(wanted)}"
            continue
        for i, (a, b) in enumerate(zip(values, wanted)):
            place = f"{at}{name}[{i}]"
            if kind.kind == "int" and b < kind.low:  # a uint32, as protobuf's extension for 32-bit Debian gives it
                b += 1 << 32
            if kind.kind == "message":
                yield from differences(a, b, f"{place}.")
            elif not same(a, b, kind.kind, kind.enum):
                yield f"{place}: {a!r}, protobuf has {b!r}"


def same(ours: Any, theirs: Any, kind: str, enum: dict[str, int]) -> bool:
    """Whether one value means the same to both readers; protobuf keeps floats in 32 bits."""
    if kind == "enum":
        return enum[ours] == int(theirs)
    if kind == "float":
        return ours == theirs or (ours != ours and theirs != theirs) or as_float32(ours) == theirs
    if kind == "bytes":
        return ours.encode("latin-1", "replace") == theirs or ours.encode() == theirs
    return bool(ours == theirs) and isinstance(ours, bool) == isinstance(theirs, bool)


def as_float32(value: float) -> float:
    """A number after a stay in four bytes."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# -- the wire format, written by hand, so that files no library would write can be made


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def number(number: int, value: int) -> bytes:
    """A varint field; negative values take ten bytes, as in protobuf."""
    return varint(number << 3) + varint(value & (2**64 - 1))


def shape(*dims: int) -> bytes:
    """A blob's BlobShape."""
    return field(7, field(1, b"".join(varint(d & (2**64 - 1)) for d in dims)))


def floats(*values: float) -> bytes:
    """Packed float data of a blob."""
    return field(5, struct.pack(f"<{len(values)}f", *values))


def v2(name: str, *blobs: bytes, type: str = "Convolution") -> bytes:
    """A V2 layer of a caffemodel."""
    return field(100, field(1, name.encode()) + field(2, type.encode()) + b"".join(field(7, b) for b in blobs))


def load(weights: Weights, name: str) -> list[Any]:
    """The blobs of a layer of a caffemodel."""
    return [blob.load() for blob in weights.layers[name]]
