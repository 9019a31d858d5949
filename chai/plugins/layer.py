"""CustomLayer: a layer of a Graph computed by a registered function."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from .. import layers
from ..blob import Array, Shape, shape_of, show
from ..errors import PluginError
from ..fixed import Format
from ..graph import OutputKind
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.suggest import did_you_mean
from .definition import CustomType, Function, Implementation
from .fields import Called, CustomParams as CustomParams
from .frame import Formats, Frame, best, candidates
from .loading import lookup, places
from .registry import Registry
from .selection import reason

FRAMES = 8  # number of sets of input sizes whose frames are kept


class CustomLayer(Called):
    """A layer that a registered function computes on the host.

    ``top_dim`` is the shape of every top, unless the type has a shape function; its first number is replaced by the batch
    of the run. Errors have CHaiDNN's error numbers (EP071 ...) where it has one.
    """

    _frames: dict[Any, Frame]

    @property
    def without_unit(self) -> str:
        built_in = layers.find(self.type) is not None
        return f"a custom layer in place of the built-in {self.type}" if built_in else "a custom layer"

    @property
    def defined(self) -> str:
        return self.custom.place

    def opencl_source(self, *bottoms: Shape) -> str | None:
        source: str | None = getattr(self.frame(bottoms).python, "opencl_source", None)
        return source

    def output_kind(self, top: Shape) -> OutputKind | None:
        return self.custom.options.output or super().output_kind(top)

    def images_alone(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.custom.options.per_image and super().images_alone(bottoms)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return False  # sizes do not say what its function reads

    def renew(self) -> None:
        if self.custom.renew is not None:
            self.custom.renew(self._data)

    @property
    def needs_signed(self) -> bool:
        return any(i.dtype == "int8" and not i.zero_points for i in self.custom.implementations)

    # -- shapes

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        tops = self._shapes(bottoms)
        if self.elementwise and tops != bottoms:
            raise self.wrong(
                f"elementwise: its top is {show(tops[0])}, its bottom {show(bottoms[0])}; both have to be equal"
            )
        for bottom, top in zip(bottoms, tops):
            if self.custom.options.inplace and prod(bottom) != prod(top):
                raise self.wrong(
                    f"inplace: its bottom of {show(bottom)} cannot be copied into its top of {show(top)}",
                    hint="without inplace, tops may have any size",
                )
        batch = bottoms[0][0] if bottoms and bottoms[0] else 1
        whole = [top for top in tops if top[:1] != (batch,)]
        if self.custom.options.per_image and batch > 1 and whole:
            raise self.wrong(
                f"it is called once for each of {batch} images, but its top of {show(whole[0])} is not that of {batch}",
                hint="the first axis of its tops has to be the batch",
            )
        return tops

    def _shapes(self, bottoms: tuple[Shape, ...]) -> tuple[Shape, ...]:
        count = max(len(self.tops), 1)
        if self.strict and len(self.tops) > 1:
            raise self.wrong(f"EP075: {len(self.tops)} tops, CHaiDNN takes one", hint="leave strict out")
        if self.strict and self.in_place:
            raise self.wrong("EP073: it works in place, which CHaiDNN does not take", hint="leave strict out")
        dims = self.params.top_dim
        if self.custom.shape_rule is None:
            if not dims and self.custom.first_shape:
                return bottoms[:1] * count
            if not dims:
                raise self.wrong(
                    "EP071: top_dim is missing",
                    hint="xcustom_param { top_dim: 1 top_dim: 1000 }: the top's shape, batch first; or @f.shape",
                )
            batch = bottoms[0][0] if bottoms[0] else 1
            return ((batch, *dims[1:]),) * count
        tops = self._ruled(self.custom.shape_rule, bottoms, count)
        if dims and any(dims[1:] != top[1:] for top in tops):
            raise self.wrong(
                f"EP071: top_dim says {show(dims)}, its shape rule {show(tops[0])}", hint="leave top_dim out"
            )
        return tops

    def _ruled(self, rule: Function, bottoms: tuple[Shape, ...], count: int) -> tuple[Shape, ...]:
        shapes, x = self.asked(rule, bottoms)
        if not self.blobs:  # its first parameters
            self.blobs = [np.asarray(array, np.float32) for array in x.custom_float_params]
        try:
            tops = tuple(tuple(int(d) for d in shape) for shape in shapes)
        except (TypeError, ValueError, OverflowError):
            raise self.wrong(
                f"its shape rule returned {shapes!r}, expected one shape per top", hint="return [(n, c, h, w)]"
            ) from None
        if len(tops) != count:
            raise self.wrong(f"its shape rule returned {number_of(len(tops), 'shape')} for {number_of(count, 'top')}")
        return tops

    # -- running

    def prepare(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> None:
        """Set up, choose an implementation and compile it before the first image."""
        self.frame(bottoms)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return self.frame(tuple(map(shape_of, bottoms))).run(bottoms)

    def of_numbers(self, x: Array) -> Array:
        # a frame of its own: numbers of any shape, whatever top_dim says
        frame = self.turn.run(best, self, (x.shape,), (x.shape,), None)
        return self.clamped(frame.run((x,)), self.clamps)[0]

    def frame(self, bottoms: tuple[Shape, ...], formats: Formats | None = None) -> Frame:
        """Return the Frame for bottoms of these shapes; with ``formats`` of bottoms and tops, for calls on codes."""
        key = (bottoms, formats, self.slope)
        if (frame := self._frames.get(key)) is not None:
            return frame
        return self.turn.run(self._frame, key)

    def _frame(self, key: tuple[tuple[Shape, ...], Formats | None, float | None]) -> Frame:
        if key not in self._frames:
            if len(self._frames) == FRAMES:
                del self._frames[next(iter(self._frames))]
            bottoms, formats, _ = key
            self._frames[key] = best(self, bottoms, self.shapes(*bottoms), formats)
        return self._frames[key]

    def takes_codes(self, bottoms: tuple[Shape, ...]) -> bool:
        coded = any(i.dtype == "int8" for i in self.custom.implementations)
        if not coded or self.slope not in (None, 0.0) or self.ceiling is not None:
            return False
        fit, plain = (self._candidates(bottoms, codes) for codes in (True, False))
        return bool(fit) and fit[0].priority >= plain[0].priority

    def on_codes(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> Callable[..., tuple[Array, ...]]:
        bottoms, tops = (tuple(formats[b] for b in side) for side in (self.bottoms, self.tops))
        if self.needs_signed and any(f.unsigned for f in (*bottoms, *tops)):  # of a file compiled with another function
            raise PluginError(
                f"layer {self.name!r}: its blobs have unsigned codes, but custom type {self.type!r} has an int8 "
                "implementation without zero_points=True",
                layer=self.name,
                hint="load the function that the network was compiled with, or compile it again",
            )
        frame = self.frame(tuple(shapes[b] for b in self.bottoms), (bottoms, tops))
        return lambda *codes: frame.run(codes)

    def implementation(self, bottoms: tuple[Shape, ...]) -> str | None:
        if len(self.custom.implementations) == 1:
            return None
        return reason(self.custom, self._candidates(bottoms))

    def _candidates(self, bottoms: tuple[Shape, ...], codes: bool = False) -> list[Implementation]:
        return candidates(self, bottoms, self.shapes(*bottoms), codes)

    def enter(self, net: object, autotune: bool, jit: bool) -> None:
        self.autotune, self.jit = autotune, jit
        weakref.finalize(net, self._leave)

    def close(self) -> None:
        self._constants, self._data = None, {}
        self._leave()

    def _leave(self) -> None:
        """Let go of what a network needed, which is no more."""
        self._frames = {}  # each refers to this layer: a circle would stay until the garbage collector runs
        self.resources.close()

    def changed(self) -> None:
        self.turn.run(self._changed)

    def _changed(self) -> None:
        self._frames = {}  # not clear(): copies of this layer share the old dict
        self._constants = None


def make(
    registry: Registry,
    network: str,
    name: str,
    type: str,
    key: str,
    params: CustomParams,
    fields: Callable[[], Mapping[str, tuple[Any, ...]]],
    flagged: bool,
) -> CustomLayer | None:
    """Return the layer of a registered type; None for an unregistered type that was not flagged user_defined_layer.

    ``key``     name of its definition: its type, or module.class of a Python layer of Caffe
    ``fields``  returns the values in the layer's own ``*_param`` messages, by field name
    """
    custom = lookup(registry, key)
    if custom is not None:
        if not isinstance(custom, CustomType):
            what = f"layer {name!r}: type {type!r} is composed of layers ({custom.place}), expected a function's"
            raise PluginError(what, layer=name, hint="compile the network again")
        rule = registry.shape_rule(type)
        custom = custom if rule is None else custom.with_shape(rule)
        values = fields() if custom.args else {}
        layer = CustomLayer(custom, values, key, registry, name=name, type=type, params=params)
        layer.network = network
        return layer
    if flagged:
        near = did_you_mean(key, registry.known(), listed="registered" if registry.known() else None)
        module, _, cls = key.rpartition(".")
        what = f"type {type!r} is marked user_defined_layer, but no custom layer of that type is registered"
        if key != type:
            what = f"it needs class {cls!r} of the Python module {module!r}, which is in no place that was named"
        raise PluginError(
            f"layer {name!r}: {what}",
            layer=name,
            hint=f"{near or 'registered: none'}; looked in: {', '.join(map(str, places()))}; "
            "name your file with --custom or CHAI_CUSTOM",
        )
    return None
