"""Custom layers: the registry behind ``@chai.custom``, and where custom code is loaded from.

Loading a file runs it, so files come only from places the user named: chai's own ``custom/``, ``CHAI_CUSTOM``,
``--custom`` and ``Net(..., custom=...)``; never from the current folder or from beside a prototxt.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .env import env
from .errors import ChaiError, PluginError
from .graph import Layer, Shape
from .lazy import np
from .params import within
from .paths import resource
from .xchange import dims, read_only, xChangeLayer

if TYPE_CHECKING:
    from .graph import Array
    from .overlay import Overlay

log = logging.getLogger("chai.custom")
Function = Callable[[xChangeLayer], Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CustomType:
    """One registered layer type: its function, whether numba compiles it, and where it stands (path:line)."""

    type: str
    function: Function
    jit: bool
    place: str


@dataclass(frozen=True)
class CustomParams:
    """CHaiDNN's xcustom_param."""

    top_dim: tuple[int, ...] = within(1, 2**31 - 1, ())
    float_args: tuple[float, ...] = ()
    string_args: tuple[str, ...] = ()


class CustomLayer(Layer):
    """A layer that a registered function computes on the host, from float32 NCHW to float32 NCHW.

    ``top_dim`` gives the top's shape; its first number, the batch, is replaced by the batch of the run.
    """

    message = "xcustom_param"
    Params = CustomParams
    engine = "custom"
    free_weights = True
    bottoms_allowed = (1, None)

    def __init__(self, custom: CustomType, **given: Any) -> None:
        super().__init__(**given)
        self.custom = custom
        self._run: Function | None = None
        self._numba_types: dict[tuple[int, ...], Any] = {}

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        return "a custom layer"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        top = self.params.top_dim
        if not top:
            raise self.wrong(
                "top_dim is missing", hint="xcustom_param { top_dim: 1 top_dim: 1000 }: the top's shape, batch first"
            )
        return ((bottoms[0][0] if bottoms[0] else 1, *top[1:]),)

    def prepare(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> None:
        """Compile the function before the first image."""
        inputs = [np.zeros(shape, np.float32) for shape in bottoms]
        x = self._exchange(inputs, [np.zeros(shape, np.float32) for shape in tops])
        if self._compiled():
            from .kernels.xchange_numba import type_of

            kind = tuple(a.ndim for a in (*x.bottom, *x.top))
            if kind not in self._numba_types:
                self._numba_types[kind] = type_of(x)
                self._guarded(lambda: self._run.compile((self._numba_types[kind],)))  # type: ignore[union-attr]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        tops = [np.zeros(shape, np.float32) for shape in self.shapes(*(b.shape for b in bottoms))]
        x = self._exchange([np.ascontiguousarray(b) for b in bottoms], tops)
        if self._compiled():
            kind = tuple(a.ndim for a in (*x.bottom, *x.top))
            if kind not in self._numba_types:
                self.prepare(tuple(b.shape for b in bottoms), tuple(t.shape for t in tops))
            x.__dict__["_numba_type"] = self._numba_types[kind]
        function = self._run
        assert function is not None
        self._guarded(lambda: function(x))
        return tuple(tops)

    def _exchange(self, bottoms: list[Array], tops: list[Array]) -> xChangeLayer:
        p = self.params
        return xChangeLayer(
            bottom=tuple(read_only(b) for b in bottoms),
            top=tuple(tops),
            in_ptrs=tuple(read_only(b.reshape(-1)) for b in bottoms),
            out_ptrs=tuple(t.reshape(-1) for t in tops),
            input_dims=tuple(dims(b.shape) for b in bottoms),
            output_dims=tuple(dims(t.shape) for t in tops),
            float_args=np.array(p.float_args, np.float32),
            string_args=p.string_args,
            custom_float_params=tuple(read_only(b.reshape(-1)) for b in self.blobs),
            params_dims=tuple(dims(b.shape) for b in self.blobs),
            custom_layer_type=self.type,
            layername=self.name,
        )

    def _compiled(self) -> bool:
        """Choose what runs, once; whether it is a numba dispatcher."""
        if self._run is None:
            self._run = _jitted(self.custom) if self.custom.jit else self.custom.function
        return hasattr(self._run, "compile")

    def _guarded(self, call: Callable[[], Any]) -> None:
        """Run user code; whatever it raises comes out as PluginError with layer, type and line."""
        try:
            call()
        except ChaiError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> PluginError:
        place = self.custom.place
        loc = getattr(error, "loc", None)  # numba's place of a typing error
        if loc is not None:
            place = f"{loc.filename}:{loc.line}"
        else:
            file = place.rpartition(":")[0]
            own = [f for f in _frames(error) if f[0] == file]
            place = f"{own[-1][0]}:{own[-1][1]}" if own else place
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        lines = [
            line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("During:", "Failed in"))
        ]
        reason = next(
            (line for line in lines if "nknown attribute" in line or "No implementation" in line),
            lines[0] if lines else "",
        )
        hint = None
        found = re.search(r"[Uu]nknown attribute '(\w+)' of type xChangeLayer|has no attribute '(\w+)'", text)
        if found:
            name = found.group(1) or found.group(2)
            from .xchange import FIELDS

            near = get_close_matches(name, FIELDS, 1, 0.4)
            reason = f"xChangeLayer has no field {name!r}"
            hint = (f"did you mean {near[0]}? " if near else "") + "fields: " + ", ".join(FIELDS)
        elif not self.blobs and "index out of range" in text:
            hint = "this layer has no trained parameters: was the network loaded without its caffemodel?"
        elif hasattr(self._run, "compile"):
            hint = "to run it as plain Python: @chai.custom(..., jit=False)"
        return PluginError(
            f"layer {self.name!r} (custom type {self.type!r}) failed at {place}: {type(error).__name__}: {reason[:300]}",
            layer=self.name,
            hint=hint,
        )


def _frames(error: BaseException) -> list[tuple[str, int]]:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return frames


_warned = False


def _jitted(custom: CustomType) -> Function:
    """The function compiled by numba, or itself where there is no numba (one warning)."""
    global _warned
    try:
        import numba

        from .kernels import xchange_numba  # noqa: F401 - teaches numba the type
    except ImportError:
        if not _warned:
            _warned = True
            log.warning(
                "numba is not installed: custom layers run as plain Python, about a hundred times slower for loops"
            )
        return custom.function
    if hasattr(custom.function, "py_func"):
        return custom.function  # compiled by the user, with options of their own
    compiled: Function = numba.njit(
        nogil=True,
        error_model="numpy",  # as in C: 1 / 0 is inf
        fastmath={"reassoc", "contract", "arcp", "nsz"},  # lets sums use vector units; NaN and inf keep their meaning
    )(custom.function)
    return compiled


class Registry:
    """Custom types by name; a network may have its own that shadow the global ones."""

    def __init__(self, own: Mapping[str, Function] | None = None, parent: Registry | None = None) -> None:
        self.types: dict[str, CustomType] = {}
        self.parent = parent
        for type, function in (own or {}).items():
            self.register(type, function, jit=hasattr(function, "py_func"))

    def register(self, type: str, function: Function, jit: bool) -> None:
        """Add a type.

        A second definition is refused, unless it comes from the same file (a reload) or one of the two is an example
        that chai ships: then the user's wins.
        """
        if not isinstance(type, str) or not type:
            raise PluginError(f"@custom needs the layer's type as text, found {type!r}", hint='@chai.custom("gemm")')
        python = getattr(function, "py_func", function)
        if not callable(python):
            raise PluginError(f"custom type {type!r}: {function!r} is not a function")
        code = getattr(inspect.unwrap(python), "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
        before = self.types.get(type)
        if before is not None and before.place.rpartition(":")[0] != place.rpartition(":")[0]:
            if _shipped(place):
                return
            if not _shipped(before.place):
                raise PluginError(f"custom type {type!r} is defined twice: {before.place} and {place}")
        self.types[type] = CustomType(type, function, jit, place)

    def find(self, type: str) -> CustomType | None:
        """The definition of a type, the network's own first."""
        found = self.types.get(type)
        return found if found or self.parent is None else self.parent.find(type)

    def known(self) -> list[str]:
        """Every type that can be found."""
        return sorted({*self.types, *(self.parent.known() if self.parent else ())})

    def make(self, name: str, type: str, params: Any, flagged: bool) -> CustomLayer | None:
        """The layer of a registered type; None for an unregistered type that was not flagged user_defined_layer."""
        custom = self.find(type)
        if custom is not None:
            return CustomLayer(custom, name=name, type=type, params=params)
        if flagged:
            near = get_close_matches(type, self.known(), 1)
            raise PluginError(
                f"layer {name!r}: type {type!r} is marked user_defined_layer, but no custom layer of that type is registered",
                layer=name,
                hint=(f"did you mean {near[0]!r}? " if near else "")
                + f"registered: {', '.join(self.known()) or 'none'}; looked in: "
                f"{', '.join(map(str, places()))}; name your file with --custom or CHAI_CUSTOM",
            )
        return None


def _shipped(place: str) -> bool:
    return place.startswith(f"{resource('custom')}{os.sep}")


REGISTRY = Registry()


def custom(type: str, *, jit: bool = True) -> Callable[[F], F]:
    """Register the decorated function as the custom layer of a prototxt ``type``.

    The function takes one xChangeLayer, writes its tops into ``x.out_ptrs`` (or ``x.top``) and returns nothing. It is
    compiled by numba; ``jit=False`` runs it as it is, for numpy and anything else Python can call. A function that is a
    numba dispatcher already keeps its own options.
    """

    def register(function: F) -> F:
        REGISTRY.register(type, function, jit)
        return function

    return register


def places() -> list[Path]:
    """Where custom layers are loaded from, besides ``--custom``."""
    return [resource("custom"), *env().custom]


_loaded: dict[Path, int] = {}


def load_all() -> None:
    """Load every standing place, once per process."""
    for place in places():
        load(place)


def load(place: Path) -> None:
    """Run a file, or every .py file of a folder, that defines custom layers. A file that changed is loaded again."""
    import importlib.util

    place = place.resolve()
    if not place.exists():
        raise PluginError(f"custom layers: {place} does not exist")
    for file in sorted(place.glob("*.py")) if place.is_dir() else [place]:
        stamp = file.stat().st_mtime_ns
        if _loaded.get(file) == stamp:
            continue
        log.info("custom layers: running %s", file)
        name = f"chai_custom.{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise PluginError(f"custom layers: {file} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except ChaiError:
            raise
        except Exception as error:
            lines = [n for f, n in _frames(error) if f == str(file)]
            line = getattr(error, "lineno", None) or (lines[-1] if lines else 1)
            raise PluginError(f"custom layers: {file}:{line}: {type(error).__name__}: {error}") from error
        _loaded[file] = stamp
