"""Formats of an ONNX network as a file of their own, FILE.formats.json, bound to the model by its SHA-256.

One JSON: {"schema": "chai.formats/1", "model": {"file", "sha256"}, "note", "layers": [...]}. The SHA-256 is that of the model's
file followed by those with its external data. A layer has its name and the fields of precision_param that are set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..fixed import SCHEMES, SINGLE
from ..tasks.precision import Precision
from ..util.data import jsonfile
from ..util.data.dataclass_io import plain
from ..util.data.schema import validate
from ..util.files import complete, digest
from ..util.suggest import did_you_mean
from .network import Graph

NAME, VERSION = "chai.formats", 1
LARGE = 4  # times as large as a file that is written by hand: each output of a layer has a threshold


def _schema() -> dict[str, Any]:
    each: dict[str, Any] = {"name": {"type": "string", "description": "a layer's name"}}
    for field in fields(Precision):
        bounds = dict(zip(("minimum", "maximum"), field.metadata.get("within", ())))
        each[field.name] = {
            "str": {"enum": [*SCHEMES, SINGLE]},
            "bool": {"type": "boolean"},
            "int": {"type": "integer", **bounds} if bounds else {"enum": [8, 6]},  # or a width in bits
            "float": {"type": "number", **bounds},
            "tuple[float, ...]": {"type": "array", "items": {"type": "number", **bounds}},
        }[str(field.type).removesuffix(" | None")]
    layer = {"type": "object", "required": ["name"], "additionalProperties": False, "properties": each}
    hexadecimal = {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "64 hexadecimal digits"}
    model = {
        "type": "object",
        "required": ["sha256"],
        "properties": {"file": {"type": "string"}, "sha256": hexadecimal},
    }
    return {
        "type": "object",
        "required": ["schema", "model", "layers"],
        "additionalProperties": False,
        "properties": {
            "schema": {"const": f"{NAME}/{VERSION}"},
            "chai": {"type": "string"},
            "model": model,
            "note": {"type": "string"},
            "layers": {"type": "array", "items": layer},
        },
    }


def apply(path: Path, files: Sequence[str], graph: Graph) -> None:
    """Give the layers of a model, which consists of ``files``, the formats of a file, and those that it does not name none.

    Raises ParseError with the place of what is wrong, and for the formats of another model.
    """
    document = jsonfile.load(path, LARGE)
    validate(document, _schema())
    expected, actual, model = document.value["model"]["sha256"], digest(*files), files[0]
    if expected != actual:
        whole = f"{model} with its external data" if len(files) > 1 else model
        what = (
            f"these are the formats of another model: {whole} has SHA-256 {actual[:12]}..., expected {expected[:12]}..."
        )
        hint = f"chai quantize {model} --calibration DIR -o {path} makes its own"
        raise document.error(what, ("model", "sha256"), hint=hint)
    for layer in graph.layers:
        layer.precision = None
    for i, values in enumerate(document.value["layers"]):
        own = graph.by_name.get(values["name"])
        if own is None:
            what = f"there is no layer {values['name'][:80]!r} in {model}"
            raise document.error(what, ("layers", i, "name"), hint=did_you_mean(values["name"], graph.by_name))
        if own.precision is not None:
            raise document.error(f"layer {own.name!r} is here twice", ("layers", i, "name"))
        own.precision = _precision(values)


def _precision(values: Mapping[str, Any]) -> Precision:
    numbers: dict[str, Any] = {k: float(v) if k.startswith("th_layer") else v for k, v in values.items() if k != "name"}
    numbers["th_params"] = tuple(map(float, values.get("th_params", ())))
    return Precision(**numbers)


def write(path: Path, files: Sequence[str], formats: Mapping[str, Precision], note: str, version: str) -> None:
    """Write the formats of the layers of a model, which consists of ``files``."""
    model = {"file": Path(files[0]).name, "sha256": digest(*files)}
    head = {"schema": f"{NAME}/{VERSION}", "chai": version, "model": model}
    lines = [f'"{key}": {json.dumps(value)},' for key, value in {**head, "note": note}.items()]
    with complete(path) as part:
        text = ",\n".join(_rows(formats))
        part.write_text("{\n" + "\n".join(lines) + '\n"layers": [\n' + text + "\n]\n}\n", encoding="utf-8")


def _rows(formats: Mapping[str, Precision]) -> Iterator[str]:
    for name, precision in formats.items():
        values = {"name": name, "quant_type": precision.quant_type, **plain(precision)}
        yield json.dumps({key: _shortest(value) for key, value in values.items()})


def _shortest(value: Any) -> Any:
    """Return a float32 as the number of the fewest digits that is the same float32."""
    if isinstance(value, list):
        return [_shortest(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
