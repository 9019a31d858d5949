"""Write the quantised network: the user's prototxt with a precision_param in every layer, and a caffemodel.

Only precision_params are inserted or replaced, and composed layers replaced by their parts; every other character of the
text is preserved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import chai

from ..blob import Array
from ..chaidnn_v2.arithmetic import table_fraction
from ..graph import Composed, Graph, Layer, formats_file
from ..parser.caffemodel import write_caffemodel
from ..parser.text import STAMP, Block, layers_of, parse, read_source, stamp
from ..passes.fold_pairs import centred_pair
from ..tasks.precision import Precision
from ..util.data.dataclass_io import plain
from ..util.files import complete, digest
from ..util.lazy_numpy import np
from ..util.source import SourceText, edited

_FIELDS = ("precision_param", "quantization_param")  # CHaiDNN's name, and Ristretto's name for the same
_WIDTH = 100
_WRITTEN = (  # after the type, in this order
    "bw_layer_in", "bw_layer_out", "bw_params", "fl_layer_in", "fl_layer_out", "fl_params", "scale_gamma_by_std_fl",
    "scale_beta_fl", "th_layer_in", "th_layer_out", "chai_unsigned_in", "chai_unsigned_out", "th_params",
)  # fmt: skip


def save(path: Path, original: Graph, quantised: Graph, note: str, chaidnn: bool = False) -> Path:
    """Write ``path`` and its caffemodel in the same folder, and return the latter's path; ``note`` goes into the first line.

    ``original`` is the graph of the prototxt with its weights, ``quantised`` the rewritten one. For ``chaidnn`` a BatchNorm
    and a Scale that are part of another layer have formats of their own, too, since CHaiDNN takes its output's from the last.
    """
    formats = _formats(quantised)
    if chaidnn:
        formats |= _of_parts(original, quantised)
    weights = path.with_suffix(".caffemodel")
    blobs = unfolded(original, quantised)
    layers = [x for x in original.layers if x.blobs] or original.layers  # a file without layers is no caffemodel
    write_caffemodel(weights, original.name, [(x.name, x.type, blobs.get(x.name, x.blobs)) for x in layers])
    write_prototxt(path, original, formats, weights, note)
    return weights


def save_formats(path: Path, files: Sequence[str], quantised: Graph, note: str) -> None:
    """Write the formats of an ONNX model, which consists of ``files``."""
    # rows of boxes have no codes, and a detector's head is not in the model
    rows = {name for layer in quantised.layers if layer.dynamic for name in layer.origin}
    formats = {name: precision for name, precision in _formats(quantised).items() if name not in rows}
    formats_file.write(path, files, formats, note, chai.__version__)


def _formats(quantised: Graph) -> dict[str, Precision]:
    """Return the formats of the rewritten graph by layers of the file."""
    return {layer.origin[0]: layer.precision for layer in quantised.layers if layer.precision is not None}


def _of_parts(original: Graph, quantised: Graph) -> dict[str, Precision]:
    """Return formats for each BatchNorm and Scale that is not the first of its layer: they read and write its output."""
    formats = {}
    for layer in quantised.layers:
        p, parts = layer.precision, [original.layer(name) for name in layer.origin]
        for i, part in enumerate(parts[1:]):
            if p is None or not part.per_channel:
                continue
            written = p.bw_layer_out, p.bw_layer_out, None, p.fl_layer_out, p.fl_layer_out
            own = Precision(p.quant_type, *written, th_layer_in=p.th_layer_out, th_layer_out=p.th_layer_out)
            pair = centred_pair(parts[0], part) if i == 0 and p.quant_type == "DynamicFixed" else None
            if pair is not None:
                own = replace(
                    own, scale_gamma_by_std_fl=table_fraction(pair.factor), scale_beta_fl=table_fraction(pair.addend)
                )
            formats[part.name] = own
    return formats


def write_prototxt(path: Path, original: Graph, formats: Mapping[str, Precision], weights: Path, note: str) -> None:
    """Write the prototxt of ``original`` with these formats, and a stamp that names the weights they belong to."""
    source = read_source(original.path)
    text = annotated(source, original, formats)
    end = "\r\n" if "\r\n" in source.text[:4096] else "\n"
    with complete(path) as part:
        part.write_bytes((stamp(weights.name, digest(weights), note) + end + text).encode(source.encoding))


def annotated(source: SourceText, graph: Graph, formats: Mapping[str, Precision]) -> str:
    """Return the text with a precision_param for each layer in ``formats``; all former ones of ``graph`` are removed."""
    places = {layer.name: layer.place for layer in graph.layers}
    places.update((name, composed.place) for name, composed in graph.composed.items())
    edits: list[tuple[int, int, str]] = []
    for name, start, layer in layers_of(source, parse(source), places):
        if name in graph.composed:
            parts = _parts(graph.composed[name], formats)
            ending = "\r\n" if "\r\n" in source.text else "\n"
            edits.append((start, layer.end, parts.replace("\n", ending)))
        else:
            edits += _edits(source.text, layer, formats.get(name))
    return STAMP.sub("", edited(source.text, edits), count=1)


def _parts(composed: Composed, formats: Mapping[str, Precision]) -> str:
    """Return the parts of a composed layer as plain layers with their formats."""
    source = SourceText(composed.text, composed.type)
    layers = layers_of(source, parse(source))
    edits = [edit for name, _, layer in layers for edit in _edits(source.text, layer, formats.get(name))]
    return edited(source.text, edits).rstrip()


def check_form(path: str | Path) -> None:
    """Raise ParseError for a network in Caffe's oldest form (V0), which has no field for formats."""
    source = read_source(path)
    for field in parse(source).fields:
        inner = field.value.fields if field.name == "layers" and isinstance(field.value, Block) else ()
        if any(f.name == "layer" for f in inner):
            raise source.error(
                "this network is in Caffe's oldest form (layers { layer { } }), whose layers have no precision_param",
                field.start,
                field.start + len("layers"),
                hint="Caffe's upgrade_net_proto_text writes the new form (layer { })",
            )


def _edits(text: str, layer: Block, new: Precision | None) -> list[tuple[int, int, str]]:
    """Return edits (start, end, replacement) that remove old formats and insert the new one before the closing brace."""
    edits = []
    for field in layer.fields:
        if field.name in _FIELDS:
            start, end = field.start, field.value.end
            line = text.rfind("\n", 0, start) + 1
            rest = text.find("\n", end) + 1
            alone = not text[line:start].strip() and rest and not text[end:rest].strip()
            space = end + 1 if text[end : end + 1] == " " else end
            edits.append((line, rest, "") if alone else (start, space, ""))
    if new is not None:
        brace = layer.end - 1
        line = text.rfind("\n", 0, brace) + 1
        if text[line:brace].strip():  # fields share the closing brace's line
            before = "" if text[brace - 1].isspace() else " "
            edits.append((brace, brace, f"{before}precision_param {{ {' '.join(fields(new))} }} "))
        else:
            ending = "\r\n" if text[:line].endswith("\r\n") else "\n"
            indent = _indent(text, layer) or text[line:brace] + "  "
            inner = [f"{indent}  {part}" for f in fields(new) for part in wrap(f, _WIDTH, subsequent_indent="  ")]
            shown = [f"{indent}precision_param {{", *inner, f"{indent}}}"]
            edits.append((line, line, "".join(x + ending for x in shown)))
    return edits


def _indent(text: str, layer: Block) -> str:
    """Return the indentation of the layer's last field that begins a line."""
    for field in reversed(layer.fields):
        before = text[text.rfind("\n", 0, field.start) + 1 : field.start]
        if not before.strip():
            return before
    return ""


def fields(p: Precision) -> list[str]:
    """Return a precision_param's fields as text, thresholds as the shortest decimal of the same float32."""
    values = plain(p)
    return [f'quant_type: "{p.quant_type}"', *(f"{name}: {_text(values[name])}" for name in _WRITTEN if name in values)]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, int):
        return f"{value}".lower()  # also of a bool
    number = np.float32(value)
    return np.format_float_positional(number, trim="-") if 1e-4 <= value < 1e7 else f"{number:.9g}"


def unfolded(original: Graph, quantised: Graph) -> dict[str, list[Array]]:
    """Return by layer the blobs of the prototxt's layers that reproduce the rewritten graph's weights when folded."""
    restored: dict[str, list[Array]] = {}
    for layer in quantised.layers:
        first = original.layer(layer.origin[0])
        affine = folded_in(original, layer)
        if not affine:
            if layer.blobs and layer.name == first.name:
                restored[first.name] = list(layer.blobs)
            continue
        factor, addend = np.ones(1), np.zeros(1)
        for part in affine:
            own = part.affine()
            assert own is not None
            factor, addend = factor * own[0], addend * own[0] + own[1]
        usable = np.where(factor != 0, factor, 1)
        restored[first.name] = [(layer.blobs[0] / usable[:, None, None, None]).astype(np.float32), *first.blobs[1:]]
        before = first.blobs[1].astype(np.float64) if first.params.bias_term else 0.0
        moved = layer.blobs[1].astype(np.float64) - (before * factor + addend)
        owner = bias_owner(original, layer)
        if owner is not None and owner.bias_blob is not None:
            blobs, at = list(restored.get(owner.name, owner.blobs)), owner.bias_blob
            moved = moved / usable if owner is first else moved  # all affine layers come after the convolution
            blobs[at] = (blobs[at] + owner.bias_change(moved)).astype(np.float32)
            restored[owner.name] = blobs
    return restored


def folded_in(original: Graph, layer: Layer) -> list[Layer]:
    """Return the BatchNorm and Scale layers that a pass has folded into a convolution."""
    parts = [original.layer(name) for name in layer.origin]
    return [p for p in parts[1:] if p.per_channel] if parts[0].convolution else []


def bias_owner(original: Graph, layer: Layer) -> Layer | None:
    """Return the prototxt's layer whose bias can absorb a change of a rewritten convolution's bias, or None."""
    first, affine = original.layer(layer.origin[0]), folded_in(original, layer)
    if affine and affine[-1].bias_blob is not None:
        return affine[-1]
    return first if first.weighted and first.bias_blob is not None else None
