"""Checks of a manifest: its schema, and what that cannot express, overlapping fields and contradictory numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from ..util.data import jsonfile
from ..util.data.jsonfile import Document, Pointer
from ..util.data.schema import validate
from ..util.paths import shipped
from ..util.suggest import did_you_mean
from . import host_model
from .sections import ARRAY, BEAT, HOST_MODEL

NO_ARCHITECTURES = ("overlay", HOST_MODEL)  # what else has a schema


class Problem(NamedTuple):
    """Something that is wrong with a manifest, and its place."""

    message: str
    place: Pointer
    hint: str | None = None


def checked(text: str, path: str) -> dict[str, Any]:
    """Return the manifest of a text. Raises ParseError, with the line."""
    document = Document(text, path)
    architecture = _architecture(document)
    validate(document, _schema("overlay" if architecture == ARRAY else architecture))
    host_model.of_document(document)
    manifest: dict[str, Any] = document.value
    checks = (_records, _fields, _layout, _registers, _ports, _array, _buffers) if architecture == ARRAY else ()
    for message, place, hint in chain.from_iterable(check(manifest) for check in checks):
        raise document.error(message, place, hint=hint)
    return manifest


def _architecture(document: Document) -> str:
    """Return the architecture of a manifest: one that has a schema. Raises ParseError for another."""
    value = document.value
    name = value.get("architecture", ARRAY) if isinstance(value, dict) else ARRAY
    files, ending = os.listdir(shipped("hw_overlays")), ".schema.json"
    schemas = sorted(file.removesuffix(ending) for file in files if file.endswith(ending))
    known = [ARRAY, *(name for name in schemas if name not in NO_ARCHITECTURES)]
    if name not in known:
        hint = did_you_mean(str(name), known, listed="architectures")
        raise document.error(f"architecture: there is no {name!r}", ("architecture",), hint=hint)
    return str(name)


@lru_cache(maxsize=4)
def _schema(name: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = jsonfile.load(shipped("hw_overlays", f"{name}.schema.json")).value
    return schema


# -- problems, one after the other: each check relies on those before it


def _dotted(text: str, *place: str) -> Problem:
    return Problem(f"{'.'.join(place)}: {text}", place)


def _records(value: Mapping[str, Any]) -> Iterator[Problem]:
    for section in ("descriptor", "table"):
        record = value[section]
        if record["bytes"] % 4:
            yield Problem(f"{section}: a record is made of 32-bit words", (section, "bytes"))
        yield from _twins(record["fields"], (section, "fields"))
        spans = []
        for i, field in enumerate(record["fields"]):
            place = (section, "fields", i)
            start, width = 32 * field["word"] + field["bit"], field["width"]
            if start + width > 8 * record["bytes"]:
                yield Problem(f"{section}: field {field['name']!r} lies beyond {record['bytes']} bytes", place)
            if field["bit"] and field["bit"] + width > 32:
                yield Problem(f"{section}: field {field['name']!r} runs over the end of its word", place)
            spans.append((start, width, field["name"], place))
        yield from _overlaps(section, spans)


def _fields(value: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what records lack of the fields of what the overlay can."""
    known, table = ({f["name"]: f for f in value[section]["fields"]} for section in ("descriptor", "table"))
    version, negative = known.get("version"), table.get("negative")
    if version is None or version["signed"] or version["width"] < 8 or version.get("multiple", 1) != 1:
        yield Problem("descriptor: there is no unsigned field 'version' of 8 bits or more", ("descriptor", "fields"))
    for name in ("input_zero", "second_zero", "output_zero"):
        if value.get("unsigned") and name not in known:
            yield _dotted(f"the descriptor has no field {name!r}", "unsigned")
    for kind, limits in value["tasks"].items():
        needed = {"lookup": "lookup", "vector": "vector", "factor_max": "spread", "pool_kernel_max": "pooled_width"}
        needed |= {"operations": "operation"} if limits.get("operations", ["SUM"]) != ["SUM"] else {}
        for limit, name in needed.items():
            if limits.get(limit) and name not in known:
                message = f"tasks.{kind}: {limit}: the descriptor has no field {name!r}"
                yield Problem(message, ("tasks", kind, limit))
        if limits.get("prelu") and not (negative and negative["signed"]):
            message = f"tasks.{kind}: prelu: the table has no signed field 'negative'"
            yield Problem(message, ("tasks", kind, "prelu"))
    if wide := value.get("wide_bits"):
        if wide <= (bits := value["accumulator_bits"]):
            yield _dotted(f"{wide}, expected more than accumulator_bits = {bits}", "wide_bits")
        if "wide" not in known:
            yield _dotted("the descriptor has no field 'wide'", "wide_bits")
        if "bias" not in table or table["bias"]["width"] < wide:
            yield _dotted(f"the table has no field 'bias' of {wide} bits", "wide_bits")


def _layout(value: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield words that are not the accelerator's, and what begins within one or where no address of a descriptor is."""
    word, alignment = value["layout"]["channels_per_word"], value["layout"]["alignment"]
    if word != BEAT and not value.get("emulated"):
        yield _dotted(f"{word}, expected the bytes of a beat, {BEAT}", "layout", "channels_per_word")
    for field in value["descriptor"]["fields"]:
        if alignment % (multiple := field.get("multiple", 1)):
            text = f"{alignment}, expected a multiple of {multiple}, as addresses in {field['name']!r} are"
            yield _dotted(text, "layout", "alignment")
    for kind, limits in value["tasks"].items():
        if (step := limits["channel_step"]) != word:
            problem = _dotted(f"{step}, expected the channels of a word, {word}", "tasks", kind, "channel_step")
            yield problem._replace(hint="as layout.channels_per_word")


def _registers(value: Mapping[str, Any]) -> Iterator[Problem]:
    registers, window = value["registers"]["list"], value["registers"]["window"]
    yield from _twins(registers, ("registers", "list"))
    spans = []
    for i, register in enumerate(registers):
        name, offset, place = register["name"], register["offset"], ("registers", "list", i)
        if offset % 4:
            yield Problem(f"register {name}: offset {offset} is not a multiple of 4", (*place, "offset"))
        if offset + 4 > window:
            message = f"register {name}: offset {offset} is outside the window of {window} bytes"
            yield Problem(message, (*place, "offset"))
        parts = register.get("bits", ())
        bits = [(b["bit"], b["width"], b["name"], (*place, "bits", j)) for j, b in enumerate(parts)]
        for bit, width, part, where in bits:
            if bit + width > 32:
                yield Problem(f"register {name}: {part!r} lies beyond 32 bits", where)
        yield from _twins(parts, (*place, "bits"))
        yield from _overlaps(f"register {name}", bits)
        spans.append((offset, 4, name, (*place, "offset")))
    yield from _overlaps("registers", spans)


def _ports(value: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield memory ports that the part or the array does not have, and a memory that is refreshed all the time."""
    ports, planes = value.get("ports", {}), value["requant"]["lanes"] // BEAT
    if ports.get("bytes", BEAT) > BEAT and value["family"] == "zynq7000":
        yield _dotted(f"memory ports of a Zynq-7000 have {BEAT}", "ports", "bytes")
    if (outputs := ports.get("outputs", 1)) > max(1, planes):
        yield _dotted(f"{outputs}, but requant.lanes gives the codes of one plane at a time", "ports", "outputs")
    if ports.get("constants", 2) > 2 and value["array"]["inputs"] <= BEAT:
        text = "the third one is that of odd planes, which an array of 8 inputs does not have"
        yield _dotted(text, "ports", "constants")
    port = value.get("memory_port")
    if port and (cycles := port["refresh_cycles"]) >= port["refresh_period"]:
        text = f"{cycles}, expected fewer than refresh_period, {port['refresh_period']}"
        yield _dotted(text, "memory_port", "refresh_cycles")


def _array(value: Mapping[str, Any]) -> Iterator[Problem]:
    array, dsp, each, has = value["array"], value["dsp"], value["macs_per_dsp"], value["resources"]["dsp"]
    macs, inputs, chain = array["inputs"] * array["outputs"] * array["lanes"], array["inputs"], array["chain"]
    logic = dsp.get("logic", 0)
    if macs != (dsp["array"] + logic) * each:
        but = f", of which {logic} are look-up tables" if logic else ""
        text = f"{macs} products a cycle take {macs / each:g} DSPs{but}, found {dsp['array']}"
        yield _dotted(text, "dsp", "array")
    if logic % chain:
        yield _dotted(f"{logic} are not whole chains of {chain}", "dsp", "logic")
    if dsp["array"] + dsp["requant"] > has:
        yield _dotted(f"{dsp['array']} + {dsp['requant']} DSPs, the part has {has}", "dsp")
    if inputs % chain:
        yield _dotted(f"{inputs} inputs are not whole chains of {chain}", "array", "chain")
    # the lower sum must not overflow into the upper: weights are within +-127, codes within -128..127
    if each == 2 and chain * 127 * 128 >= 1 << ((shift := array["pack_shift"]) - 1):
        yield _dotted(f"sums of {chain} products do not fit {shift} bits", "array", "chain")
    opcodes: dict[int, str] = {}
    for kind, limits in value["tasks"].items():
        if (first := opcodes.setdefault(limits["opcode"], kind)) != kind:
            message = f"tasks.{kind}: opcode {limits['opcode']} is that of {first}"
            yield Problem(message, ("tasks", kind, "opcode"))


def _buffers(value: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield memories whose words are not those of the array and of the window engine."""
    array, buffers, window = value["array"], value["buffers"], value["window"]
    one = 8 * array["outputs"]
    rows, rest = divmod(buffers["weights"]["word_bits"], one)
    if rest or rows not in (1, 2) or array["inputs"] % (rows * array["chain"]):
        text = f"expected {one}, the weights of an input, or {2 * one}, of two chains' inputs"
        yield _dotted(text, "buffers", "weights", "word_bits")
    bits = value.get("wide_bits", 0) * array["outputs"]
    if buffers["accumulators"]["word_bits"] < bits:
        text = f"{array['outputs']} sums of wide_bits have {bits} bits"
        yield _dotted(text, "buffers", "accumulators", "word_bits")
    reads, writes, pool = window["read_bytes"], window["write_bytes"], buffers["pool"]["word_bits"]
    if writes != reads:
        message = f"window: it writes {writes} bytes a cycle, expected as many as it reads, {reads}"
        yield Problem(message, ("window", "write_bytes"))
    if pool != 16 * reads:
        yield _dotted(f"{pool}, expected 16 for each of {reads} channels", "buffers", "pool", "word_bits")


def _twins(items: Sequence[Mapping[str, Any]], place: Pointer) -> Iterator[Problem]:
    names = set()
    for i, item in enumerate(items):
        if item["name"] in names:
            yield Problem(f"{place[0]}: the name {item['name']!r} is here twice", (*place, i, "name"))
        names.add(item["name"])


def _overlaps(what: str, spans: Iterable[tuple[int, int, str, Pointer]]) -> Iterator[Problem]:
    """Yield overlapping spans (start, length, name, pointer)."""
    end, last = 0, ""
    for start, length, name, place in sorted(spans, key=itemgetter(0)):
        if start < end:
            yield Problem(f"{what}: {name!r} overlaps {last!r}", place)
        end, last = start + length, name
