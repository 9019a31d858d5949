"""Read and check the XML description of OpenCL layers, of OpenVINO's kinds SimpleGPU and MVCL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from os.path import isfile
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ...errors import ParseError
from ...limits import limits
from ...text import number_of
from ...util.files import content, decoded
from ...util.suggest import did_you_mean
from . import document
from .description import Binding, Buffer, Define, Description, Given, Port, Size, Stage, Tensor, Trained
from .document import Element
from .formula import Formula, FormulaError
from .parameters import KernelParameter, kernels, uncommented

T = TypeVar("T")
FORMATS = ("BFYX", "BYXF", "YXFB", "FYXB", "ANY")
KINDS = ("SimpleGPU", "MVCL")
_SIZE = re.compile(r"([IO])(\d*)\.([BFYX])")
_DIM = re.compile(r"(output|input)(?:[ ,]+(\d+))?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r"^[ \t]*(#)[ \t]*include[ \t]*[\"<]([^\">\n]*)", re.MULTILINE)
_BLOB = re.compile(r"(weights)|(bias(?:es)?)|blob(\d{1,4})")


@dataclass(frozen=True)
class Rule:
    """Names of an element's attributes, and how often each child may be there (least, most)."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    children: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)


_LAYER: Mapping[str, tuple[int, int | None]] = {
    "Kernel": (1, 1), "CompilerOptions": (0, None), "WorkSizes": (0, 1)
}  # fmt: skip
_COMMON = {
    "Kernel": Rule(("entry",), (), {"Source": (1, None), "Define": (0, None)}),
    "Source": Rule(("filename",)),
    "Define": Rule(("name",), ("param", "type", "default")),
    "CompilerOptions": Rule(("options",)),
    "WorkSizes": Rule((), ("global", "local", "dim")),
}
_HEAD = ("name", "type", "version")
RULES = {
    "SimpleGPU": {
        **_COMMON,
        "CustomLayer": Rule(_HEAD, (), {**_LAYER, "Buffers": (1, 1)}),
        "Buffers": Rule((), (), {"Data": (0, None), "Tensor": (1, None)}),
        "Data": Rule(("name", "arg-index")),
        "Tensor": Rule(("arg-index", "type", "port-index"), ("format",)),
    },
    "MVCL": {
        **_COMMON,
        "CustomLayer": Rule(_HEAD, ("max-shaves", "stage"), {**_LAYER, "Parameters": (1, 1)}),
        "Parameters": Rule((), (), {"Tensor": (1, None), "Scalar": (0, None)}),
        "Tensor": Rule(("arg-name", "type"), ("port-index", "format", "source", "dim", "size")),
        "Scalar": Rule(("arg-name", "type", "source"), ("port-index",)),
    },
}


def read(path: Path) -> list[Description]:
    """Return the layer types of an XML file, in its order. Raises ParseError with line and column."""
    layers = [layer for top in document.read(path) for layer in _layers(top)]
    if not layers:
        raise ParseError("no CustomLayer in this file", path=str(path), hint='<CustomLayer name="..." ...>')
    stages: dict[str, dict[int, tuple[Element, Stage]]] = {}
    files: dict[str, list[Path]] = {}
    for layer in layers:
        type, number = _type(layer), _whole(layer, "stage", 15)
        others = stages.setdefault(type, {})
        if number in others:
            line = others[number][1].place.rpartition(":")[2]
            raise layer.error(f"layer type {type!r} is described twice, before in line {line}", "name")
        others[number] = layer, _stage(layer, files.setdefault(type, [path]))
    for stage in stages.values():
        for number, expected in zip(sorted(stage), range(len(stage))):
            if number != expected:
                raise stage[number][0].error(f"stage {number}: there is no stage {expected}", "stage")
    return [
        _ranked(Description(type, tuple(stage[n][1] for n in sorted(stage)), (*files[type],)), stage[0][0])
        for type, stage in stages.items()
    ]


def _layers(top: Element) -> Iterator[Element]:
    """Yield the CustomLayers: the outermost element, or the children of one of another name."""
    if top.name == "CustomLayer":
        yield top
    elif top.children and all(child.name == "CustomLayer" for child in top.children):
        yield from top.children
    else:
        raise top.error(f"<{top.name}> is not expected here", hint='<CustomLayer name="..." type="SimpleGPU" ...>')


def _ranked(description: Description, first: Element) -> Description:
    """Return the description with outputs numbered from 0: OpenVINO may count them after the inputs.

    A size or work size without a number is of the first output.
    """
    bindings = [binding for stage in description.stages for binding in stage.bindings]
    numbers = sorted({b.port.number for b in bindings if isinstance(b, Tensor) and b.port.side == "output"})
    if not numbers:
        raise first.error('no Tensor of type="output": the layer would have no result')

    def ranked(item: T) -> T:
        port: Port | None = getattr(item, "port", None)
        if port is None or port.side == "input":
            return item
        if port.number and port.number not in numbers:
            raise first.error(f'no Tensor of type="output" has port-index {port.number}')
        rank = numbers.index(port.number) if port.number in numbers else 0
        return replace(item, port=Port("output", rank))  # type: ignore[type-var]

    stages = (ranked(replace(s, bindings=tuple(map(ranked, s.bindings)))) for s in description.stages)
    return replace(description, stages=tuple(stages))


def _type(layer: Element) -> str:
    """Check the elements of a CustomLayer against RULES, and return the layer type."""
    kind = layer.get("type")
    if kind not in KINDS:
        what = f"type={kind!r}" if kind else "<CustomLayer> without type"
        raise layer.error(f"{what}: expected {' or '.join(KINDS)}", "type", did_you_mean(kind, KINDS) or None)
    _check(layer, RULES[kind])
    if layer.get("version") != "1":
        raise layer.error(f"version={layer.get('version')!r}: expected 1", "version")
    if not layer.get("name") or len(layer.get("name")) > limits().name_length:
        raise layer.error("name: expected the layer type of the prototxt", "name")
    return layer.get("name")


def _check(element: Element, rules: Mapping[str, Rule]) -> None:
    rule = rules[element.name]
    for name in rule.required:
        if name not in element.attributes:
            raise element.error(f"<{element.name}> without {name}", hint=f'<{element.name} {name}="..."')
    known = (*rule.required, *rule.optional)
    for name in element.attributes:
        if name not in known:
            near = did_you_mean(name, known, listed="attributes" if known else None)
            raise element.error(f"<{element.name}> has no attribute {name!r}", name, near)
    for child in element.children:
        if child.name not in rule.children:
            near = did_you_mean(child.name, rule.children, listed="elements" if rule.children else None)
            raise child.error(f"<{child.name}> is not expected in <{element.name}>", hint=near)
        _check(child, rules)
    for name, (least, most) in rule.children.items():
        elements = element.all(name)
        if len(elements) < least:
            raise element.error(f"<{element.name}> without <{name}>")
        if most is not None and len(elements) > most:
            raise elements[most].error(f"a second <{name}> in <{element.name}>, expected one")


def _stage(layer: Element, files: list[Path]) -> Stage:
    (kernel,) = layer.all("Kernel")
    simple = layer.get("type") == "SimpleGPU"
    texts = tuple(_source(source, files) for source in kernel.all("Source"))
    if sum(len(text) for _, text in texts) > limits().kernel_bytes:
        raise kernel.error("sources: " + limits().exceeded("kernel_bytes", sum(len(t) for _, t in texts)))
    entry, known = kernel.get("entry"), kernels("\n".join(text for _, text in texts))
    if entry not in known:
        near = did_you_mean(entry, known, listed="kernels" if known else None)
        raise kernel.error(f"there is no kernel {entry!r} in the source; {near or 'it has none'}", "entry")
    shaves = _whole(layer, "max-shaves", 1024)
    return Stage(
        entry,
        texts,
        tuple(map(_define, kernel.all("Define"))),
        (_by_index if simple else _by_name)(layer, known[entry]),
        " ".join(map(_options, layer.all("CompilerOptions"))),
        *_work(layer),
        shaves or None,
        simple,
        layer.place,
    )


def _source(element: Element, files: list[Path]) -> tuple[str, str]:
    """Return name and text of a source file, which has to be in the folder of the XML."""
    name = element.get("filename")
    folder = _folder(element)
    path = _inside(folder, re.sub(r"\.bin$", ".cl", name))  # a .bin is of the compiler for SHAVE processors
    if path is None:
        raise element.error(
            f"source {name!r} is not in the folder of this file", "filename", "put the .cl beside the XML, or below it"
        )
    if not isfile(path):  # nor is one of a name that the file system refuses, for which path.is_file() raises
        hint = "a .bin is for SHAVE processors: give the .cl of the same name beside it" if ".bin" in name else None
        raise element.error(f"source {path.name!r} is not there: {path}", "filename", hint)
    text = decoded(content(path, "kernel_bytes"), path)
    code = uncommented(text)
    for include in _INCLUDE.finditer(text):
        header = PurePosixPath(include[2])
        if code[include.start(1)] == "#" and (header.is_absolute() or ".." in header.parts):
            line = text.count("\n", 0, include.start()) + 1
            what = f"source {path.name!r}, line {line}: {include[2]!r} is not in the folder of this file"
            raise element.error(what, "filename", "put headers beside the XML, or below it: -I FOLDER")
    files.append(path)
    return str(path.relative_to(folder)), text


def _folder(element: Element) -> Path:
    return Path(element.source.path).resolve().parent


def _inside(folder: Path, name: str) -> Path | None:
    """Return the path that a file or folder of this name has in a folder; None if it is not there."""
    if not name or "\0" in name:
        return None
    path = (folder / name.replace("\\", "/")).resolve()
    return path if path.is_relative_to(folder) else None


def _options(element: Element) -> str:
    """Return the options of the compiler, with absolute paths of folders of headers: these are in the XML's folder."""
    text, options = element.get("options"), []
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise element.error(f"options: {error}", "options") from None
    for word in words:
        if re.search(r"(^|\s)-I", word):
            name = word.removeprefix("-I") or next(words, "")
            path = _inside(_folder(element), name) if word.startswith("-I") else None
            if path is None or re.search(r"\s", name):  # PoCL splits words at blanks, whatever quotes them
                what = f"options: the folder of headers {name!r} is not in the folder of this file"
                raise element.error(what, "options", "put headers beside the XML, or below it")
            options.append(f"-I{path}")
        else:
            options.append(word)
    return shlex.join(options) if "-I" in text else text


def _define(element: Element) -> Define:
    name, kind = element.get("name"), element.get("type")
    if not _NAME.match(name) or "\n" in name:
        raise element.error(f"name={name!r}: expected the name of a macro", "name")
    if kind not in ("", "int", "float", "int[]", "float[]"):
        raise element.error(f"type={kind!r}: expected int, float, int[] or float[]", "type")
    param = element.get("param")
    if param and not _NAME.fullmatch(param):
        raise element.error(f"param={param!r}: expected the name of a parameter", "param")
    default = element.get("default") if "default" in element.attributes else None
    if default is not None:
        if "\n" in default or "\\" in default:
            raise element.error("default: expected a value in one line", "default")
        for value in default.split(",") if kind.endswith("[]") else [default]:
            if kind and not _fits(value.strip(), kind):
                wanted = "whole numbers" if kind.startswith("int") else "numbers"
                raise element.error(f"default={default!r} of type {kind}: expected {wanted}", "default")
    return Define(name, kind, param, default)


def _fits(value: str, kind: str) -> bool:
    """Return whether text is a number of this kind, or the name of a constant."""
    if _NAME.fullmatch(value):
        return True
    number = _NUMBER.fullmatch(value.removesuffix("f") if kind.startswith("float") else value)
    return number is not None and (kind.startswith("float") or float(number[0]).is_integer())


def _by_index(layer: Element, signature: tuple[KernelParameter, ...]) -> tuple[Binding, ...]:
    """Return the bindings of SimpleGPU's Buffers by arg-index."""
    (buffers,) = layer.all("Buffers")
    bindings: dict[int, Binding] = {}
    for element in buffers.children:
        index = _whole(element, "arg-index", limits().ports)
        if index in bindings:
            raise element.error(f"arg-index {index} is bound twice", "arg-index")
        if index >= len(signature):
            raise element.error(
                f"arg-index {index}: the kernel has {number_of(len(signature), 'parameter')}", "arg-index"
            )
        bindings[index] = _trained(element, "name") if element.name == "Data" else _tensor(element)
        _agree(element, "arg-index", signature[index], bindings[index])
    for index, parameter in enumerate(signature):
        if index not in bindings:
            raise buffers.error(f"parameter {parameter.name!r} of the kernel, arg-index {index}, is not bound")
    return tuple(bindings[i] for i in range(len(signature)))


def _by_name(layer: Element, signature: tuple[KernelParameter, ...]) -> tuple[Binding, ...]:
    """Return the bindings of MVCL's Parameters by arg-name."""
    (parameters,) = layer.all("Parameters")
    known = {p.name: p for p in signature}
    bindings: dict[str, Binding] = {}
    for element in parameters.children:
        name = element.get("arg-name")
        if name not in known:
            near = did_you_mean(name, known, listed="parameters")
            raise element.error(f"arg-name={name!r}: the kernel has no such parameter", "arg-name", near)
        if name in bindings:
            raise element.error(f"arg-name {name!r} is bound twice", "arg-name")
        bindings[name] = _scalar(element) if element.name == "Scalar" else _memory(element)
        _agree(element, "arg-name", known[name], bindings[name])
    for name in known:
        if name not in bindings:
            raise parameters.error(f"parameter {name!r} of the kernel is not bound", hint=f'arg-name="{name}"')
    return tuple(bindings[name] for name in known)


def _agree(element: Element, attribute: str, parameter: KernelParameter, binding: Binding) -> None:
    """Check that memory is bound to a pointer, and a number to a number."""
    memory = not isinstance(binding, (Size, Given))
    if parameter.pointer != memory or parameter.image:
        kind_of_parameter = "an image" if parameter.image else "a pointer" if parameter.pointer else "no pointer"
        raise element.error(f"parameter {parameter.name!r} of the kernel is {kind_of_parameter}", attribute)


def _memory(element: Element) -> Binding:
    kind = element.get("type")
    if kind == "data":
        return _trained(element, "source")
    if kind in ("input_buffer", "output_buffer"):
        if "size" not in element.attributes:
            raise element.error(f"<Tensor> of type {kind} without size", hint='size="Y*F*4", in bytes')
        return Buffer(
            _whole(element, "port-index", limits().ports),
            _formula(element, "size", 0, element.get("size")),
            _port(element),
        )
    for name in ("source", "dim", "size"):
        if name in element.attributes:
            raise element.error(f"{name}: for a Tensor of type data or a buffer only", name)
    return _tensor(element)


def _tensor(element: Element) -> Tensor:
    side, format = element.get("type"), element.get("format", "BFYX")
    if side not in ("input", "output"):
        near = did_you_mean(side, ("input", "output"))
        raise element.error(f"type={side!r}: expected input or output", "type", near or None)
    if format.upper() not in FORMATS or format not in (format.upper(), format.lower()):
        raise element.error(f"format={format!r}: expected one of {', '.join(FORMATS)}", "format")
    return Tensor(Port(side, _whole(element, "port-index", limits().ports)), format.upper())


def _trained(element: Element, attribute: str) -> Trained:
    name = element.get(attribute)
    match = _BLOB.fullmatch(name)
    if match is None:
        hint = "Caffe's trained parameters have no names: weights is the first, biases the second, blobN any"
        raise element.error(f"{attribute}={name!r}: expected weights, biases or blobN", attribute, hint)
    return Trained(0 if match[1] else 1 if match[2] else int(match[3]), name)


def _scalar(element: Element) -> Size | Given:
    kind, source = element.get("type"), element.get("source")
    if kind not in ("int", "float"):
        raise element.error(f"type={kind!r}: expected int or float", "type")
    size = _SIZE.fullmatch(source)
    if size:
        port = int(size[2]) if size[2] else _whole(element, "port-index", limits().ports)
        return Size(Port("input" if size[1] == "I" else "output", port), size[3])
    if not _NAME.fullmatch(source):
        raise element.error(f"source={source!r}: expected a size like I.X or O.F, or the name of a parameter", "source")
    return Given(source, kind)


def _work(layer: Element) -> tuple[tuple[Formula, ...], tuple[Formula, ...], Port]:
    """Return the global and local work sizes, and what their dims are of."""
    element = next(iter(layer.all("WorkSizes")), None)
    if element is None:
        return (Formula("B*F*Y*X"),), (), Port("output", 0)
    sizes = _formulas(element, "global", "B*F*Y*X")
    local = _formulas(element, "local", "")
    if local and len(local) != len(sizes):
        raise element.error(f"{len(local)} local sizes for {len(sizes)} global ones", "local")
    return sizes, local, _port(element)


def _port(element: Element) -> Port:
    text = element.get("dim", "output")
    match = _DIM.fullmatch(text.strip())
    if match is None or len(match[2] or "") > 4:
        raise element.error(f'dim={text!r}: expected output or "input,N"', "dim")
    return Port(match[1], int(match[2] or 0))


def _formulas(element: Element, attribute: str, default: str) -> tuple[Formula, ...]:
    text = element.get(attribute, default)
    if not text.strip():
        return ()
    parts = text.split(",")
    if len(parts) > 3:
        raise element.error(f"{attribute}: {number_of(len(parts), 'size')}, expected at most 3", attribute)
    starts = [sum(len(p) + 1 for p in parts[:i]) for i in range(len(parts))]
    return tuple(_formula(element, attribute, start, part) for start, part in zip(starts, parts))


def _formula(element: Element, attribute: str, start: int, text: str) -> Formula:
    try:
        return Formula(text)
    except FormulaError as error:
        raise element.error(f"{attribute}: {error}", attribute, shift=start + error.start) from None


def _whole(element: Element, attribute: str, most: int) -> int:
    text = element.get(attribute, "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= most):
        raise element.error(f"{attribute}={text!r}: expected a whole number from 0 to {most}", attribute)
    return int(text)
