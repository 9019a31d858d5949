"""Write the OpenCL text that is compiled for one layer and its sizes: macros first, then the user's sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import PluginError
from ...util.lazy_numpy import np
from . import half
from .description import Define, Port, Stage, Tensor
from .formula import DIMS

TEXT = "<source>"  # the name of a source that is no file
Sizes = Mapping[str, int]  # B, F, Y and X
_HARMLESS = re.compile(r"[\w.,+\- ]*", re.ASCII)  # numbers and names: no calls, no statements, no further lines


def pitches(sizes: Sizes, format: str) -> list[int]:
    """Return the elements between neighbours along B, F, Y and X, of a dense tensor in this format."""
    pitch_of, step = {}, 1
    for dim in reversed(DIMS if format == "ANY" else format):
        pitch_of[dim] = step
        step *= sizes[dim]
    return [pitch_of[dim] for dim in DIMS]


def text(
    stage: Stage, sizes: Mapping[Port, Sizes], values: Mapping[str, Any], work: Sequence[int], local: Sequence[int]
) -> str:
    """Return the whole source of a kernel: what ``chai show --source`` prints and OpenCL compiles."""
    parts = []
    if stage.built_in_defines:
        tensors = dict.fromkeys(b for b in stage.bindings if isinstance(b, Tensor))
        inputs = {b.port for b in tensors if b.port.side == "input"}
        parts += ["// Built-in defines", f"#define NUM_INPUTS {len(inputs)}"]
        parts += _array("GLOBAL_WORKSIZE", work, "size_t") + _array("LOCAL_WORKSIZE", local, "size_t")
        for tensor in tensors:
            parts += _tensor(tensor, sizes[tensor.port])
    if stage.defines:
        parts += ["// Defines of the layer", *(_define(define, values) for define in stage.defines)]
    return "\n".join([*parts, plain(stage.texts)])


def plain(texts: Sequence[tuple[str, str]]) -> str:
    """Return the source that is compiled for files, (name, text) each, without macros of a layer."""
    parts = []
    if any(half.used(source) for _, source in texts):
        parts += ["// half is computed as float", half.macros().rstrip()]
    for name, source in texts:
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        parts += [f'#line 1 "{quoted}"', half.floats(source).rstrip("\n")]
    return "\n".join(parts) + "\n"


def _array(name: str, numbers: Sequence[int], type: str = "int") -> list[str]:
    items = "".join(f"{n}," for n in numbers)
    return [f"#define {name}_SIZE {len(numbers)}", f"#define {name} ({type} []){{ {items} }}"]


def _tensor(tensor: Tensor, sizes: Sizes) -> list[str]:
    name = f"{tensor.port.side.upper()}{tensor.port.number}"
    padding = [0] * len(DIMS)
    return [
        *_array(f"{name}_DIMS", [sizes[dim] for dim in DIMS]),
        f"#define {name}_TYPE float",
        f"#define {name}_FORMAT_{tensor.format}",
        *_array(f"{name}_LOWER_PADDING", padding),
        *_array(f"{name}_UPPER_PADDING", padding),
        *_array(f"{name}_PITCHES", pitches(sizes, tensor.format)),
        f"#define {name}_OFFSET 0",
    ]


def _define(define: Define, values: Mapping[str, Any]) -> str:
    value = values[define.param] if define.param else define.default or ""
    if isinstance(value, str) and value != (define.default or "") and not _HARMLESS.fullmatch(value):
        # a prototxt is not trusted, and this becomes code
        raise PluginError(f"argument {define.param!r}: expected a number or a name, found {value!r}")
    return f"#define {define.name} {literal(define, value)}".rstrip()


def literal(define: Define, value: Any) -> str:
    """Return a value as OpenCL text: a float has the f that keeps it a float."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    kind = define.kind.removesuffix("[]")
    if not kind:  # a number or truth value of the prototxt as OpenVINO would write it
        return {"true": "1", "false": "0"}.get(str(value).lower(), re.sub(r"^(-?\d+)\.0$", r"\1", str(value)))
    several = value if isinstance(value, (list, tuple)) else str(value).split(",")
    if not define.kind.endswith("[]"):
        return _number(define, value, kind)
    items = ", ".join(_number(define, item, kind) for item in several)
    return f"({kind} []){{ {items} }}"


def _number(define: Define, value: Any, kind: str) -> str:
    if isinstance(value, str):
        value = value.strip()
        try:
            value = float(value.removesuffix("f"))
        except ValueError:
            return str(value)  # the name of a constant
    number = float(value)
    if kind == "int":
        if number != number or abs(number) == float("inf") or number != int(number):
            raise PluginError(f"argument {define.param!r}: expected a whole number, found {value!r}")
        return str(int(number))
    if number != number:
        return "NAN"
    if abs(number) == float("inf"):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    shown = str(np.float32(number))
    return shown + "f" if number >= 0 else f"({shown}f)"
