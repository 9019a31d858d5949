"""Upgrade old forms of a network to the current one, as Caffe's own tools do.

V0: ``layers { layer { name type num_output ... } bottom top }``, all parameters flat, lower-case types, padding as a
separate layer. V1: ``layers { type: CONVOLUTION convolution_param {...} }``. V2: ``layer { type: "Convolution" }``.
Values keep their positions, so an error about an upgraded layer still points into the user's file.

V1 types that only forks have are read as chai's types of the same name; py-faster-rcnn's layer in Python becomes a Proposal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..layers import spelled
from ..text import number_of
from .assign import message_of
from .message import Message, Value
from .schema import fields

V0_TYPES = {
    "accuracy": "Accuracy", "bnll": "BNLL", "concat": "Concat", "conv": "Convolution", "data": "Data", "dropout": "Dropout",
    "euclidean_loss": "EuclideanLoss", "flatten": "Flatten", "hdf5_data": "HDF5Data", "hdf5_output": "HDF5Output",
    "im2col": "Im2col", "images": "ImageData", "infogain_loss": "InfogainLoss", "innerproduct": "InnerProduct", "lrn": "LRN",
    "multinomial_logistic_loss": "MultinomialLogisticLoss", "pool": "Pooling", "relu": "ReLU", "sigmoid": "Sigmoid",
    "softmax": "Softmax", "softmax_loss": "SoftmaxWithLoss", "split": "Split", "tanh": "TanH", "window_data": "WindowData",
    "padding": "padding",
}  # fmt: skip

# fields of V0 that have another name in the message of the layer's type, and those that are in transform_param
_V0_NAMES = {"biasterm": "bias_term", "kernelsize": "kernel_size", "batchsize": "batch_size"}
_V0_NAMES["shuffle_images"] = "shuffle"
_V0_NAMES |= {f"det_{n}": n for n in ("fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode")}
_V0_TRANSFORM = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}


def upgrade(net: Message) -> list[Message]:
    """Return every layer of a network as V2 LayerParameter, inputs first. Raises ParseError."""
    if net.has("layers") and net.has("layer"):
        start, what = net.values["layers"][0].start, "layers { } (old form) and layer { } (new form) in one file"
        raise net.source.error(what, start, start + len("layers"))
    old = net.values.get("layers", [])
    if any(v.value.has("layer") for v in old):
        layers = _fold_padding([_from_v0(v) for v in old])
    elif old:
        layers = [_from_v1(v) for v in old]
    else:
        layers = net.all("layer")
    for layer in layers:
        _move_transform(layer)
    return _input_layers(net) + layers


def of_python(code: Message) -> Message | None:
    """Return the message of chai's type that computes a Python layer of Caffe; None for a class that chai does not know."""
    if (code.get("module"), code.get("layer")) != ("rpn.proposal_layer", "ProposalLayer"):
        return None
    text = code.values.get("param_str", code.values["layer"])[-1]
    number = r"\d{1,9}(?:\.\d{0,9})?"
    numbers = rf"{number}|[\[(]\s*{number}(?:\s*,\s*{number})*\s*,?\s*[\])]"
    entry = rf"['\"]?\b(feat_stride|scales|ratios)['\"]?\s*:\s*(?:!!python/tuple\s*)?({numbers})"
    lists = {name: [float(n) for n in re.findall(number, value)] for name, value in re.findall(entry, text.value)}
    if re.sub(entry, "", text.value).strip("{}, \n\t\r") or len(lists.get("feat_stride", ())) != 1:
        what = "param_str of py-faster-rcnn: expected feat_stride, perhaps scales and ratios"
        hint = "param_str: \"{'feat_stride': 16, 'scales': [8, 16, 32], 'ratios': [0.5, 1, 2]}\""
        raise code.source.error(what, text.start, text.end, hint=hint)
    values: dict[str, Sequence[float]] = {"feat_stride": [int(lists["feat_stride"][0])], "chai_python": [True]}
    values |= {"ratio": lists.get("ratios", (0.5, 1, 2)), "scale": lists.get("scales", (8, 16, 32))}
    known = Message("Proposal", code.source, code.start, code.end)
    known.values = {name: [text._replace(value=value) for value in several] for name, several in values.items()}
    return known


def _sub(layer: Message, name: str) -> Message:
    """Return the message ``name`` of a layer; create it if it is missing."""
    if not layer.has(name):
        new = Message(fields("LayerParameter")[name].message, layer.source, layer.start, layer.end)
        layer.values[name] = [Value(new, layer.start, layer.end)]
    message: Message = layer.get(name)
    return message


def of_v1(type: str) -> str:
    """Return the current name of a V1 type; one that chai does not know stays."""
    return "SoftmaxWithLoss" if type == "SOFTMAX_LOSS" else spelled(type) or type


def _retype(layer: Message, form: str) -> str:
    """Give a layer of an old form, V0 or V1, its current type, and return that."""
    value = layer.values.get("type")
    if value is None:
        raise layer.source.error("this layer has no type", layer.start, layer.start + 1, layer=layer.get("name"))
    node = value[0].value
    if node == "NONE" or (form == "V0" and node not in V0_TYPES):
        raise layer.error(f"layer {layer.get('name', '')!r}: {node!r} is no {form} layer type", "type")
    if node == "CROP":  # unlike Crop, it takes its offset from the layers between its bottoms
        hint = 'layer { type: "Crop" crop_param { offset: N } }, the new form; chai.pycaffe.coord_map.crop computes N'
        what = f"layer {layer.get('name', '')!r}: a CROP, whose offset forks compute, has no definition here"
        raise layer.error(what, "type", hint=hint)
    type = V0_TYPES[node] if form == "V0" else of_v1(node)
    layer.values["type"] = [value[0]._replace(value=type)]
    return type


def _from_v1(value: Value) -> Message:
    known = fields("LayerParameter")
    old: Message = value.value
    new = Message("LayerParameter", old.source, value.start, old.end)
    for name in list(old.values):
        if name in known:
            old.move(name, new)
    new.unknown = old.unknown
    _retype(new, "V1")
    return new


def _from_v0(value: Value) -> Message:
    outer: Message = value.value
    inner: Message | None = outer.get("layer")
    new = Message("LayerParameter", outer.source, value.start, outer.end)
    if inner is None:
        what = "expected layer { ... } inside layers { ... }: forms V0 and V1 are mixed"
        raise outer.source.error(what, value.start, value.start + len("layers"))
    outer.move("bottom", new)
    outer.move("top", new)
    inner.move("name", new)
    inner.move("type", new)
    new.unknown = outer.unknown + inner.unknown
    type = _retype(new, "V0")
    if type == "padding":
        inner.move("pad", new)  # kept for _fold_padding
        return new
    message = message_of(type)
    known = fields(fields("LayerParameter")[message].message) if message else {}
    for name in list(inner.values):
        if name in _V0_TRANSFORM and type in ("Data", "ImageData", "WindowData", "HDF5Data"):
            inner.move(name, _sub(new, "transform_param"), _V0_TRANSFORM[name])
        elif message and (target := _V0_NAMES.get(name, name)) in known:
            inner.move(name, _sub(new, message), target)
    if inner.has("hdf5_output_param"):
        inner.move("hdf5_output_param", new)
    return new


def _fold_padding(layers: list[Message]) -> list[Message]:
    """Drop V0's padding layers and move their pad to the convolution or pooling that reads them."""
    pads = {layer.get("top"): layer for layer in layers if layer.get("type") == "padding"}
    kept = []
    for layer in layers:
        if layer.get("type") == "padding":
            continue
        for i, bottom in enumerate(layer.values.get("bottom", ())):
            padding = pads.get(bottom.value)
            if padding is None:
                continue
            bottoms = padding.values.get("bottom", ())
            if len(bottoms) != 1:
                start, name = padding.start, padding.get("name", "")
                what = f"padding layer {name!r} takes 1 bottom, found {len(bottoms)}"
                raise layer.source.error(what, start, start + len("layers"), layer=name)
            if layer.get("type") not in ("Convolution", "Pooling"):
                raise layer.error("a padding layer can be read by a convolution or pooling only", "bottom", i)
            target = _sub(layer, f"{layer.get('type').lower()}_param")
            target.values["pad"] = padding.values.get("pad", [Value(0, padding.start, padding.end)])
            layer.values["bottom"] = [bottoms[0] if b is bottom else b for b in layer.values["bottom"]]
        kept.append(layer)
    return kept


def _move_transform(layer: Message) -> None:
    """Move scale, mean_file, crop_size and mirror, once fields of the data layer's message, to transform_param."""
    for name in ("data_param", "image_data_param", "window_data_param"):
        old = layer.get(name)
        if old is not None and any(map(old.has, _V0_TRANSFORM.values())):
            target = _sub(layer, "transform_param")
            for field in _V0_TRANSFORM.values():
                if not target.has(field):
                    old.move(field, target)


def _input_layers(net: Message) -> list[Message]:
    """Return ``input`` and its ``input_shape`` or ``input_dim`` as one Input layer, which Caffe names "input"."""
    names = net.values.get("input", [])
    if not names:
        return []
    shapes, dims = net.values.get("input_shape", []), net.values.get("input_dim", [])
    if shapes and dims:
        raise net.source.error("input_shape and input_dim are both given", dims[0].start, dims[0].end)
    if shapes and len(shapes) not in (1, len(names)):
        what = f"{number_of(len(names), 'input')} but {len(shapes)} input_shape"
        raise net.source.error(what, shapes[0].start, shapes[0].end)
    if dims and len(dims) != 4 * len(names):
        what = f"{4 * len(names)} input_dim expected for {number_of(len(names), 'input')}, found {len(dims)}"
        raise net.source.error(what, dims[0].start, dims[0].end)
    taken = {v.value.get("name") for kind in ("layer", "layers") for v in net.values.get(kind, ())}
    own = "input" if "input" not in taken else "inputs"
    layer = Message("LayerParameter", net.source, names[0].start, names[-1].end)
    name, type = (names[0]._replace(value=text) for text in (own, "Input"))
    layer.values = {"name": [name], "type": [type], "top": names}
    if dims:
        shapes = []
        for i in range(0, len(dims), 4):
            shape = Message("BlobShape", net.source, dims[i].start, dims[i + 3].end)
            shape.values["dim"] = dims[i : i + 4]
            shapes.append(Value(shape, dims[i].start, dims[i + 3].end))
    if shapes:
        param = Message("InputParameter", net.source, shapes[0].start, shapes[-1].end)
        param.values["shape"] = shapes
        layer.values["input_param"] = [Value(param, shapes[0].start, shapes[-1].end)]
    return [layer]
