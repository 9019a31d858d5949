"""Layers of an artifact, created from its header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import layers as types
from ..blob import Shape, show
from ..errors import PluginError
from ..graph import Layer
from ..limits import limits
from .container import Artifact

if TYPE_CHECKING:
    from ..plugins.registry import Registry


class OnDevice(Layer):
    """A layer that runs on the device only: its Tasks compute it."""

    on_device = True


def layers(
    file: Artifact, shapes: Mapping[str, Shape], inputs: list[str], custom: Callable[[], Registry], whole: bool
) -> dict[str, Layer]:
    """Return the layers by name, in order. Only those that run on the host have weights and parameters.

    ``whole`` is ``Arithmetic.whole_windows``.
    """
    entries = file.get("layers", {str: {"type": str, "bottoms": [str], "tops": [str], "origin": [str]}})
    order = file.get("order", [str])
    if len(order) > limits().layers:
        raise file.error("too many layers: " + limits().exceeded("layers", len(order)))
    if sorted(order) != sorted(entries):
        raise file.error("header: order and layers do not name the same layers")
    layers: dict[str, Layer] = {}
    written = set(inputs)
    for name in order:
        entry = entries[name]
        if not entry["origin"]:
            raise file.error(f"layer {name!r}: origin names no layer")
        for blob in (*entry["bottoms"], *entry["tops"]):
            if blob not in shapes:
                raise file.error(f"layer {name!r}: the shape of blob {blob!r} is missing")
        if not written.issuperset(entry["bottoms"]) or not written.isdisjoint(entry["tops"]):
            raise file.error(f"layer {name!r} reads a blob that no layer has written, or writes one twice")
        written.update(entry["tops"])
        layer = layers[name] = _layer(file, name, entry, custom)
        if not layer.on_device:
            layer.whole_windows = whole
            _check_layer(layer, shapes)
        layer.origin = tuple(entry["origin"])
    if any(blob not in shapes for blob in inputs):
        raise file.error("header: the shape of an input is missing")
    return layers


def _layer(file: Artifact, name: str, entry: dict[str, Any], custom: Callable[[], Registry]) -> Layer:
    bottoms, tops = tuple(entry["bottoms"]), tuple(entry["tops"])
    layer: Layer
    if "reason" not in entry:
        return OnDevice(name, bottoms, tops, type=entry["type"])
    where = f"layer {name!r} ({entry['type']})"
    arrays = file.of(entry.get("blobs", []), [{"offset": int, "shape": [int]}], where)
    blobs = [file.array(array) for array in arrays]
    if "custom" in entry:
        layer = _custom(file, name, entry, custom)
        layer.bottoms, layer.tops = bottoms, tops
    else:
        cls = types.restored(entry["type"], len(bottoms))
        if cls is None:
            raise file.error(f"{where}: this chai does not know the type", hint="update chai")
        params: Any = file.restore(cls.Params, entry.get("params", {}), where)
        layer = cls(name, bottoms, tops, params, type=entry["type"])
    layer.blobs = blobs
    if "precision" in entry:
        from ..tasks.precision import Precision  # which few layers of the host have

        layer.precision = file.restore(Precision, entry["precision"], where)
    for relu in ("slope", "ceiling"):
        if relu in entry:
            setattr(layer, relu, file.restore(float, entry[relu], f"{where}: {relu}"))
    return layer


def _custom(file: Artifact, name: str, entry: dict[str, Any], custom: Callable[[], Registry]) -> Layer:
    from ..plugins.layer import CustomParams, make  # which few files need

    about = file.of(entry["custom"], {"type": str, "version": str, "values": dict}, name)
    params = file.restore(CustomParams, entry.get("params", {}), f"layer {name!r}")
    values = {k: tuple(v) if isinstance(v, list) else (v,) for k, v in about["values"].items()}
    key, network = about["type"], file.get("name", str)
    layer = make(custom(), network, name, entry["type"], key, params, lambda: values, True)
    assert layer is not None
    if layer.custom.version != about["version"]:
        there, here = (v or "(none)" for v in (about["version"], layer.custom.version))
        what = f"layer {name!r} was compiled with version {there} of custom type {layer.key!r}, here is {here}"
        hint = "load the layer's file of that version, or compile the network again"
        raise PluginError(f"{file.path}: {what}", layer=name, hint=hint)
    return layer


def _check_layer(layer: Layer, shapes: Mapping[str, Shape]) -> None:
    bottoms = tuple(shapes[b] for b in layer.bottoms)
    if wrong := layer.miscounted(len(bottoms), len(layer.tops)):
        raise layer.wrong(f"it {wrong[1]}")
    tops = layer.shapes(*bottoms)
    if tops != tuple(shapes[t] for t in layer.tops) and not layer.renews:  # that one's are compared in each pass
        raise layer.wrong(f"its tops would be {', '.join(map(show, tops))}")
    expected = layer.weight_shapes(*bottoms)
    if not layer.free_weights and tuple(b.shape for b in layer.blobs) != tuple(expected):
        raise layer.wrong("its weights have other shapes than it needs")
