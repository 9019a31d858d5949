"""caffe.draw: pictures of networks, from a caffe_pb2.NetParameter.

SVG and DOT need nothing. Every other format (png, pdf, ...) needs Graphviz's program ``dot``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import which
from subprocess import run
from typing import Any

from ..errors import UsageError
from ..parser.upgrade import of_v1
from ..report.diagram import Node, dot, edges, svg
from ..text import visible
from ..util.files import complete, path_of

RANKDIRS = ("LR", "RL", "TB", "BT")
SECONDS = 120  # time limit of Graphviz
_STYLE = "<style>text{font:11px sans-serif}.box{fill:#fff;stroke:#888}.edge{fill:none;stroke:#888}</style>"


def draw_net_to_file(
    caffe_net: Any, filename: str | Path, rankdir: str = "LR", phase: int | None = None, display_lrm: bool = False
) -> None:
    """Draw a network into a file; its suffix is the format. The file appears complete or not at all."""
    picture = draw_net(caffe_net, rankdir, Path(path_of(filename)).suffix.lstrip(".") or "png", phase, display_lrm)
    with complete(filename) as part:
        part.write_bytes(picture)


def draw_net(
    caffe_net: Any, rankdir: str = "LR", ext: str = "png", phase: int | None = None, display_lrm: bool = False
) -> bytes:
    """Return a picture of a NetParameter.

    ``rankdir``      direction for Graphviz: LR, RL, TB or BT; an SVG always goes from top to bottom
    ``ext``          svg, dot (or raw), or a format that ``dot -T`` has
    ``phase``        layers of this phase only, caffe.TRAIN or caffe.TEST
    ``display_lrm``  show lr_mult of the weights

    Raises UsageError for another direction, for a format that ``dot`` refuses, and if there is no ``dot``.
    """
    if not hasattr(caffe_net, "layer"):
        raise UsageError(
            f"expected a caffe_pb2.NetParameter, found {type(caffe_net).__name__}",
            hint="text_format.Merge(open(prototxt).read(), caffe_pb2.NetParameter())",
        )
    ext = str(ext).lstrip(".").lower()
    if rankdir not in RANKDIRS:
        raise UsageError(f"rankdir {rankdir!r}: expected one of {', '.join(RANKDIRS)}")
    layers = [layer for layer in (*caffe_net.layer, *caffe_net.layers) if phase is None or _includes(layer, phase)]
    boxes = [Node(layer.name, " ".join(_kind(layer, display_lrm)), "", _tops(layer)) for layer in layers]
    links = edges((layer.bottom, layer.top) for layer in layers)
    if ext == "svg":
        picture = svg(boxes, links).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        return picture.replace(">", f">{_STYLE}", 1).encode()
    text = "\n".join(dot([(box.name, box.kind, box.note) for box in boxes], links, rankdir)) + "\n"
    return text.encode() if ext in ("dot", "gv", "raw") else _graphviz(text, ext)


def _graphviz(text: str, ext: str) -> bytes:
    program = which("dot")
    if program is None:
        raise UsageError(
            f"a picture as {ext} needs Graphviz's program dot", hint="draw it as svg or dot, or install graphviz"
        )
    if not ext.isalnum():
        raise UsageError(f"{ext!r} is no format of dot", hint="svg, png, pdf")
    done = run([program, f"-T{ext}"], input=text.encode(), capture_output=True, timeout=SECONDS, check=False)
    if done.returncode:
        reason = visible(done.stderr.decode("utf-8", "replace").strip().partition("\n")[0])
        raise UsageError(f"dot -T{ext} failed: {reason}", hint="svg and dot need no Graphviz")
    return done.stdout


def _includes(layer: Any, phase: int) -> bool:
    """Return whether the rules of a layer include it in a phase, as far as they are of phases."""
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase == phase for rule in layer.include)
    return not any(rule.HasField("phase") and rule.phase == phase for rule in layer.exclude)


def _tops(layer: Any) -> str:
    return "" if list(layer.top) == [layer.name] else ", ".join(layer.top)


def _kind(layer: Any, display_lrm: bool) -> list[str]:
    """Return type, sizes and number of outputs of a layer."""
    type = layer.type
    if not isinstance(type, str):  # of a V1 layer
        type = of_v1(layer.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[type].name)
    lines = [type]
    if type in ("Convolution", "Deconvolution"):
        lines += _window(layer.convolution_param)
    elif type == "Pooling":
        lines += [get_pooling_types_dict()[layer.pooling_param.pool], *_window(layer.pooling_param)]
    elif type == "InnerProduct":
        lines.append(f"{layer.inner_product_param.num_output} outputs")
    if display_lrm and layer.DESCRIPTOR.name == "LayerParameter" and layer.param:
        lines.append("lr_mult " + ", ".join(f"{p.lr_mult:g}" for p in layer.param))
    return lines


def _window(p: Any) -> list[str]:
    words = []
    for name, default in (("kernel", 0), ("stride", 1), ("pad", 0)):
        sizes = _sizes(p, name, default)
        if sizes != (default,) * len(sizes):
            words.append(("" if name == "kernel" else f"{name} ") + "x".join(map(str, sizes)))
    outputs = getattr(p, "num_output", 0)
    return [*words, f"{outputs} outputs"] if outputs else words


def _sizes(p: Any, name: str, default: int) -> tuple[int, ...]:
    whole = getattr(p, "kernel_size" if name == "kernel" else name)
    h, w = getattr(p, f"{name}_h"), getattr(p, f"{name}_w")
    if p.HasField(f"{name}_h") or p.HasField(f"{name}_w"):
        return h, w
    sizes = (whole,) if isinstance(whole, int) else tuple(whole)
    return sizes * 2 if len(sizes) == 1 else sizes or (default, default)


def get_edge_label(layer: Any) -> str:
    """Return what Caffe writes at the edges out of a layer: its outputs."""
    outputs = [part for part in _kind(layer, False) if part.endswith(" outputs")]
    return outputs[0].partition(" ")[0] if outputs else ""


def get_layer_label(layer: Any, rankdir: str = "LR", display_lrm: bool = False) -> str:
    """Return name, type and sizes of a layer; in a vertical drawing in one line."""
    return (" " if rankdir in ("TB", "BT") else "\n").join([layer.name, *_kind(layer, display_lrm)])


def get_pooling_types_dict() -> Mapping[int, str]:
    """Return the names of the pooling methods by number."""
    from .proto import caffe_pb2

    field = caffe_pb2.PoolingParameter.DESCRIPTOR.fields_by_name["pool"]
    return {number: value.name for number, value in field.enum_type.values_by_number.items()}
