"""Make the layers of custom types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import PluginError
from ..util.suggest import did_you_mean
from .layer import CustomLayer
from .loading import lookup, places
from .registry import Registry


def make(
    registry: Registry,
    name: str,
    type: str,
    params: Any,
    flagged: bool,
    fields: Callable[[], Mapping[str, tuple[Any, ...]]] = dict,
    network: str = "",
) -> CustomLayer | None:
    """Return the layer of a registered type; None for an unregistered type that was not flagged user_defined_layer.

    ``fields`` are values that the layer's own ``*_param`` messages have, by field name.
    """
    custom = lookup(registry, type)
    if custom is not None:
        values = fields() if custom.options.args else {}
        return CustomLayer(custom, values, network, registry.strict, name=name, type=type, params=params)
    if flagged:
        near = did_you_mean(type, registry.known(), listed="registered" if registry.known() else None)
        raise PluginError(
            f"layer {name!r}: type {type!r} is marked user_defined_layer, but no custom layer of that type is registered",
            layer=name,
            hint=f"{near or 'registered: none'}; looked in: {', '.join(map(str, places()))}; "
            "name your file with --custom or CHAI_CUSTOM",
        )
    return None
