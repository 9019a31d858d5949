"""The fields of x: the data of a custom function besides its bottoms and tops, of its layer and computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..blob import Array, Shape
from ..errors import PluginError
from ..fixed import Format
from ..graph import Layer
from ..graph.params import within
from ..util.lazy_numpy import np
from ..util.sharing import Resources
from .arguments import is_size, resolve, size
from .definition import CustomType, Function, takes_self
from .failure import RunningLayer, run
from .registry import Registry
from .xchange import DEFAULTS, dims, qformat, read_only, xChangeLayer


@dataclass(frozen=True)
class CustomParams:
    """CHaiDNN's xcustom_param."""

    top_dim: tuple[int, ...] = within(1, 2**31 - 1, ())
    float_args: tuple[float, ...] = ()
    string_args: tuple[str, ...] = ()


class Called(Layer):
    """A layer that a registered function computes, as a call of the function needs it: its arguments, and fields of x.

    ``key`` is the name of its definition in the registry: its type, or module.class of a Python layer of Caffe. The layers of
    a network share the resources of their ``registry``.
    """

    message = "xcustom_param"
    Params = CustomParams
    engine = "custom"
    free_weights = True
    can_clamp = True

    def __init__(
        self,
        custom: CustomType,
        fields: Mapping[str, tuple[Any, ...]] | None = None,
        key: str | None = None,
        registry: Registry | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(**facts)
        self.custom = custom
        self.key = key or self.type
        self.turn = custom.turn or self.turn
        self.dynamic, self.renews = custom.dynamic, custom.renews
        self.elementwise = custom.options.elementwise
        self.bottoms_allowed, self.tops_allowed = custom.bottoms_allowed, custom.tops_allowed
        self.network = ""  # its name, for messages
        self.strict = registry is not None and registry.strict
        self.resources = Resources() if registry is None else registry.resources
        self.autotune = False  # True: prepare times all implementations and takes the fastest
        self.jit = True  # False: plain Python, even if the decorator has jit=True
        try:
            p = self.params
            self.values = resolve(custom.args, p.float_args, p.string_args, fields or {})
        except PluginError as error:
            what = f"layer {self.name!r} (custom type {self.key!r}): {error.message}"
            raise PluginError(what, layer=self.name, hint=error.hint) from error
        self._data: dict[str, Any] = {}  # x.data; copies of this layer share it
        self._frames: dict[Any, Any] = {}  # what runs it, by the sizes of its bottoms
        self._constants: dict[str, Any] | None = None

    @property
    def clamps(self) -> bool:  # type: ignore[override]
        """Return whether the function itself applies the ReLU that a pass put into this layer."""
        return self.slope == 0 and "ReLU" in self.custom.options.fuse

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Return the indices of bottom and top of each pair that is one blob in the prototxt."""
        pairs = []
        for j, top in enumerate(self.tops):
            at = max(top.rfind(f"@{layer}") for layer in (self.name, *self.origin))  # as in Graph.caffe_name
            if at > 0:
                name = top[:at]
                pairs += [(i, j) for i, b in enumerate(self.bottoms) if b == name or b.startswith(f"{name}@")]
        return tuple(pairs)

    def asked(self, rule: Function, bottoms: tuple[Shape, ...]) -> tuple[Any, xChangeLayer]:
        """Return what a shape or setup function returns, and its x."""
        x = xChangeLayer({**fixed_fields(self, bottoms, ()), **constants(self.blobs), "data": self._data})
        result = run(self.where, lambda: rule(*self.custom.call(rule, x, self.named(bottoms, ()))), rule)
        return result, x

    def constants(self) -> dict[str, Any]:
        """Return the fields of x that do not depend on sizes.

        They are the trained parameters and the results of setup, which runs once.
        """
        return self.turn.run(self._constants_of_x)

    def _constants_of_x(self) -> dict[str, Any]:
        if self._constants is None and self.custom.setup_rule is not None:
            _, x = self.asked(self.custom.setup_rule, ())
            self._constants = {**constants(x.custom_float_params, x.params_dims), "data": x.data}
        elif self._constants is None:
            self._constants = {**constants(self.blobs), "data": self._data}
        return self._constants

    def named(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> dict[str, Any]:
        """Return the values of named arguments; sizes are 0 if shapes are not known yet."""
        sizes = {n: default for n, default in self.custom.args.items() if is_size(default)}
        return {**self.values, **{n: size(source, inputs, outputs) for n, source in sizes.items()}}

    @property
    def where(self) -> RunningLayer:
        args, method = self.params, takes_self(self.custom.function)
        counts = len(args.float_args), len(args.string_args)
        return RunningLayer(self.network, self.name, self.key, *counts, bool(self.blobs), method)


def constants(blobs: Sequence[Array], shapes: Sequence[Any] | None = None) -> dict[str, Any]:
    """Return the fields of x for trained parameters. ``shapes``: dims of flat parameters, if they are known."""
    flat = tuple(np.ascontiguousarray(b, np.float32).reshape(-1) for b in blobs)
    if shapes is None or len(shapes) != len(flat) or any(prod(s) != f.size for s, f in zip(shapes, flat)):
        shapes = [b.shape for b in blobs]
    params = tuple(map(read_only, flat))
    return {
        "custom_float_params": params,
        "params_dims": tuple(dims(tuple(s)) for s in shapes),
        "n_params": len(params),
        "wts_ptrs": params[:-1],
        "bias_ptr": params[-1] if params else np.zeros(0, np.float32),
    }


def fixed_fields(layer: Called, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> dict[str, Any]:
    """Return the fields of x that depend on sizes, arguments and formats."""
    p, precision = layer.params, layer.precision
    mode = 1 if precision is not None and precision.quant_type == "DynamicFixed" else 0
    sides = ("layer_in", "layer_out", "params")
    formats = [getattr(precision, f"{what}_{side}", 0) or 0 for side in sides for what in ("bw", "fl")]
    return {
        **DEFAULTS,
        "input_dims": tuple(map(dims, inputs)),
        "output_dims": tuple(map(dims, outputs)),
        "output_dim": dims(outputs[0] if outputs else ()),
        "float_args": np.array(p.float_args, np.float32),
        "string_args": p.string_args,
        "custom_reluflag": int(layer.clamps),
        "custom_layer_type": layer.type,
        "layername": layer.name,
        "qf_format": qformat._make((*formats, 0, 0)),
        "float_params": np.array(
            [getattr(precision, f"th_layer_{s}", 0) or 0 for s in ("in", "out")] + [0, 0], np.float32
        ),
        "kernMode": mode,
        "prev_kernMode": mode,
        "input_sizebytes": np.array([4 * prod(s) for s in inputs], np.int64),
        "output_sizebytes": np.array([4 * prod(s) for s in outputs], np.int64),
        "output_size": prod(outputs[0][1:]) if outputs else 0,
        "params": np.zeros(128, np.int32),
        "mean": np.zeros(0, np.float32),
        "pitches": tuple(dims(tuple(prod(s[i + 1 :]) for i in range(len(s)))) for s in inputs),
        "offset": np.zeros(len(inputs), np.int64),
        "zero_points": np.zeros(len(inputs) + len(outputs), np.int64),
        "code_ranges": np.zeros((len(inputs) + len(outputs), 2), np.int64),
        "in_place": layer.in_place,
        "previous": layer.bottoms,
        "next": layer.tops,
    }


def code_fields(bottoms: tuple[Format, ...], tops: tuple[Format, ...]) -> Mapping[str, Any]:
    """Return the format fields of int8 implementations.

    They are those of the first bottom and top, then the steps of further bottoms; zero points and ranges of codes of all
    bottoms, then of all tops.
    """
    into, out = bottoms[0], tops[0]
    bits = [(f.bits, int(f.value) if f.scheme == "DynamicFixed" else 0) for f in (into, out)]
    thresholds = [f.value if f.scheme == "Xilinx" else 0.0 for f in (into, out)]
    steps = [into.step, out.step, *(f.step for f in bottoms[1:])]
    return {
        "qf_format": qformat(*(n for pair in (*bits, (0, 0), (0, 0)) for n in pair)),
        "float_params": np.array(thresholds + steps, np.float32),
        "kernMode": int(out.scheme == "DynamicFixed"),
        "prev_kernMode": int(into.scheme == "DynamicFixed"),
        "zero_points": np.array([f.zero for f in (*bottoms, *tops)], np.int64),
        "code_ranges": np.array([f.range for f in (*bottoms, *tops)], np.int64),
    }
