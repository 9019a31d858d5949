"""Checks of a manifest: its schema, and what that cannot express, overlapping fields and contradictory numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ..util.data import jsonfile
from ..util.data.jsonfile import Document, Pointer
from ..util.data.schema import validate
from ..util.paths import shipped
from ..util.suggest import did_you_mean
from . import host_model
from .sections import ARRAY, BEAT, HOST_MODEL

NO_ARCHITECTURES = ("overlay", HOST_MODEL)  # what else has a schema


def checked(text: str, path: str) -> dict[str, Any]:
    """Return the manifest of a text. Raises ParseError, with the line."""
    document = Document(text, path)
    architecture = _architecture(document)
    validate(document, _schema("overlay" if architecture == ARRAY else architecture))
    host_model.of_document(document)
    if architecture == ARRAY:
        for section in ("descriptor", "table"):
            _check_record(document, section)
        _check_fields(document)
        _check_layout(document)
        _check_registers(document)
        _check_array(document)
        _check_buffers(document)
        _check_memory_port(document)
    manifest: dict[str, Any] = document.value
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


def _check_record(document: Document, section: str) -> None:
    record = document.value[section]
    if record["bytes"] % 4:
        raise document.error(f"{section}: a record is made of 32-bit words", (section, "bytes"))
    _check_names(document, (section, "fields"))
    spans = []
    for i, field in enumerate(record["fields"]):
        place = (section, "fields", i)
        start, width = 32 * field["word"] + field["bit"], field["width"]
        if start + width > 8 * record["bytes"]:
            raise document.error(f"{section}: field {field['name']!r} lies beyond {record['bytes']} bytes", place)
        if field["bit"] and field["bit"] + width > 32:
            raise document.error(f"{section}: field {field['name']!r} runs over the end of its word", place)
        spans.append((start, width, field["name"], place))
    _check_overlap(document, section, spans)


def _check_fields(document: Document) -> None:
    """Refuse records without the fields of what the overlay can."""
    value = document.value
    known, table = ({f["name"]: f for f in value[section]["fields"]} for section in ("descriptor", "table"))
    version, negative = known.get("version"), table.get("negative")
    if version is None or version["signed"] or version["width"] < 8 or version.get("multiple", 1) != 1:
        message = "descriptor: there is no unsigned field 'version' of 8 bits or more"
        raise document.error(message, ("descriptor", "fields"))
    for name in ("input_zero", "second_zero", "output_zero"):
        if value.get("unsigned") and name not in known:
            raise document.error(f"unsigned: the descriptor has no field {name!r}", ("unsigned",))
    for kind, limits in value["tasks"].items():
        needed = {"lookup": "lookup", "vector": "vector", "factor_max": "spread", "pool_kernel_max": "pooled_width"}
        needed |= {"operations": "operation"} if limits.get("operations", ["SUM"]) != ["SUM"] else {}
        for limit, name in needed.items():
            if limits.get(limit) and name not in known:
                message = f"tasks.{kind}: {limit}: the descriptor has no field {name!r}"
                raise document.error(message, ("tasks", kind, limit))
        if limits.get("prelu") and not (negative and negative["signed"]):
            message = f"tasks.{kind}: prelu: the table has no signed field 'negative'"
            raise document.error(message, ("tasks", kind, "prelu"))
    if wide := value.get("wide_bits"):
        reason = ""
        if wide <= value["accumulator_bits"]:
            reason = f"{wide}, expected more than accumulator_bits = {value['accumulator_bits']}"
        elif "wide" not in known:
            reason = "the descriptor has no field 'wide'"
        elif "bias" not in table or table["bias"]["width"] < wide:
            reason = f"the table has no field 'bias' of {wide} bits"
        if reason:
            raise document.error(f"wide_bits: {reason}", ("wide_bits",))


def _check_layout(document: Document) -> None:
    """Refuse words that are not the accelerator's, and what begins within one or where no address of a descriptor is."""
    layout, tasks = document.value["layout"], document.value["tasks"]
    word, alignment = layout["channels_per_word"], layout["alignment"]
    if word != BEAT and not document.value.get("emulated"):
        message = f"layout.channels_per_word: {word}, expected the bytes of a beat, {BEAT}"
        raise document.error(message, ("layout", "channels_per_word"))
    for field in document.value["descriptor"]["fields"]:
        if alignment % (multiple := field.get("multiple", 1)):
            message = f"layout.alignment: {alignment}, expected a multiple of {multiple}, as addresses in {field['name']!r} are"
            raise document.error(message, ("layout", "alignment"))
    for kind, limits in tasks.items():
        if (step := limits["channel_step"]) != word:
            message = f"tasks.{kind}.channel_step: {step}, expected the channels of a word, {word}"
            raise document.error(message, ("tasks", kind, "channel_step"), hint="as layout.channels_per_word")


def _check_registers(document: Document) -> None:
    registers = document.value["registers"]
    place: Pointer = ("registers", "list")
    _check_names(document, place)
    for i, register in enumerate(registers["list"]):
        name, offset = register["name"], register["offset"]
        if offset % 4:
            raise document.error(f"register {name}: offset {offset} is not a multiple of 4", (*place, i, "offset"))
        if offset + 4 > registers["window"]:
            message = f"register {name}: offset {offset} is outside the window of {registers['window']} bytes"
            raise document.error(message, (*place, i, "offset"))
        bits = [
            (b["bit"], b["width"], b["name"], (*place, i, "bits", j)) for j, b in enumerate(register.get("bits", ()))
        ]
        for bit, width, part, where in bits:
            if bit + width > 32:
                raise document.error(f"register {name}: {part!r} lies beyond 32 bits", where)
        if bits:
            _check_names(document, (*place, i, "bits"))
        _check_overlap(document, f"register {name}", bits)
    spans = [(r["offset"], 4, r["name"], (*place, i, "offset")) for i, r in enumerate(registers["list"])]
    _check_overlap(document, "registers", spans)


def _check_array(document: Document) -> None:
    value = document.value
    if value.get("ports", {}).get("bytes", BEAT) > BEAT and value["family"] == "zynq7000":
        raise document.error(f"ports.bytes: memory ports of a Zynq-7000 have {BEAT}", ("ports", "bytes"))
    outputs, planes = value.get("ports", {}).get("outputs", 1), value["requant"]["lanes"] // BEAT
    if outputs > max(1, planes):
        message = f"ports.outputs: {outputs}, but requant.lanes gives the codes of one plane at a time"
        raise document.error(message, ("ports", "outputs"))
    if value.get("ports", {}).get("constants", 2) > 2 and value["array"]["inputs"] <= BEAT:
        message = "ports.constants: the third one is that of odd planes, which an array of 8 inputs does not have"
        raise document.error(message, ("ports", "constants"))
    array, dsp, has = value["array"], value["dsp"], value["resources"]
    macs = array["inputs"] * array["outputs"] * array["lanes"]
    logic = dsp.get("logic", 0)
    if macs != (dsp["array"] + logic) * value["macs_per_dsp"]:
        but = f", of which {logic} are look-up tables" if logic else ""
        message = (
            f"dsp.array: {macs} products a cycle take {macs / value['macs_per_dsp']:g} DSPs{but}, found {dsp['array']}"
        )
        raise document.error(message, ("dsp", "array"))
    if logic % array["chain"]:
        raise document.error(f"dsp.logic: {logic} are not whole chains of {array['chain']}", ("dsp", "logic"))
    if dsp["array"] + dsp["requant"] > has["dsp"]:
        raise document.error(f"dsp: {dsp['array']} + {dsp['requant']} DSPs, the part has {has['dsp']}", ("dsp",))
    if array["inputs"] % array["chain"]:
        message = f"array.chain: {array['inputs']} inputs are not whole chains of {array['chain']}"
        raise document.error(message, ("array", "chain"))
    # the lower sum must not overflow into the upper: weights are within +-127, codes within -128..127
    if value["macs_per_dsp"] == 2 and array["chain"] * 127 * 128 >= 1 << (array["pack_shift"] - 1):
        message = f"array.chain: sums of {array['chain']} products do not fit {array['pack_shift']} bits"
        raise document.error(message, ("array", "chain"))
    opcodes: dict[int, str] = {}
    for kind, limits in value["tasks"].items():
        if limits["opcode"] in opcodes:
            message = f"tasks.{kind}: opcode {limits['opcode']} is that of {opcodes[limits['opcode']]}"
            raise document.error(message, ("tasks", kind, "opcode"))
        opcodes[limits["opcode"]] = kind


def _check_buffers(document: Document) -> None:
    """Refuse memories whose words are not those of the array and of the window engine."""
    value, array = document.value, document.value["array"]
    rows, rest = divmod(value["buffers"]["weights"]["word_bits"], 8 * array["outputs"])
    if rest or rows not in (1, 2) or array["inputs"] % (rows * array["chain"]):
        one = 8 * array["outputs"]
        message = (
            f"buffers.weights.word_bits: expected {one}, the weights of an input, or {2 * one}, of two chains' inputs"
        )
        raise document.error(message, ("buffers", "weights", "word_bits"))
    bits = value.get("wide_bits", 0) * array["outputs"]
    if value["buffers"]["accumulators"]["word_bits"] < bits:
        message = f"buffers.accumulators.word_bits: {array['outputs']} sums of wide_bits have {bits} bits"
        raise document.error(message, ("buffers", "accumulators", "word_bits"))
    window, pool = value["window"], value["buffers"]["pool"]["word_bits"]
    if window["write_bytes"] != window["read_bytes"]:
        message = f"window: it writes {window['write_bytes']} bytes a cycle, expected as many as it reads, {window['read_bytes']}"
        raise document.error(message, ("window", "write_bytes"))
    if pool != 16 * window["read_bytes"]:
        message = f"buffers.pool.word_bits: {pool}, expected 16 for each of {window['read_bytes']} channels"
        raise document.error(message, ("buffers", "pool", "word_bits"))


def _check_memory_port(document: Document) -> None:
    """Refuse a memory that is refreshed all the time."""
    port = document.value.get("memory_port")
    if port and port["refresh_cycles"] >= port["refresh_period"]:
        cycles, period = port["refresh_cycles"], port["refresh_period"]
        message = f"memory_port.refresh_cycles: {cycles}, expected fewer than refresh_period, {period}"
        raise document.error(message, ("memory_port", "refresh_cycles"))


def _check_names(document: Document, place: Pointer) -> None:
    items: Any = document.value
    for key in place:
        items = items[key]
    seen = set()
    for i, item in enumerate(items):
        if item["name"] in seen:
            raise document.error(f"{place[0]}: the name {item['name']!r} is here twice", (*place, i, "name"))
        seen.add(item["name"])


def _check_overlap(document: Document, what: str, spans: Iterable[tuple[int, int, str, Pointer]]) -> None:
    """Refuse overlapping spans (start, length, name, pointer). Raises ParseError."""
    end, last = 0, ""
    for start, length, name, place in sorted(spans, key=lambda s: s[0]):
        if start < end:
            raise document.error(f"{what}: {name!r} overlaps {last!r}", place)
        end, last = start + length, name
