"""Definition of a custom layer type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from types import MethodType
from typing import Any, ClassVar

from ..errors import PluginError
from ..graph import OUTPUT_KINDS, OutputKind
from ..text import visible
from ..util.keywords import method_of
from ..util.sharing import Turn
from .arguments import check_declared

Function = Callable[..., Any]
LAYOUTS = ("NCHW", "NHWC")
DTYPES = ("float32", "float16", "int8")
# Allows vectorised sums; NaN and infinity keep their meaning.
SAFE_MATH = frozenset({"reassoc", "contract", "arcp", "nsz"})


@dataclass(frozen=True)
class Variant:
    """The arguments of ``@f.impl``, which describes them."""

    name: str
    _: KW_ONLY
    dtype: str = "float32"
    layout: str | None = None
    when: Callable[[Any], Any] | None = None
    priority: int = 10
    jit: bool = True
    zero_points: bool = False


@dataclass(frozen=True, kw_only=True)
class Implementation(Variant):
    """One implementation of a type. The decorated function is called "ref" and has priority 0."""

    function: Function
    layout: str


@dataclass(frozen=True, kw_only=True)
class CustomOptions:
    """The choices of a type's author, see ``custom``."""

    args: Mapping[str, Any] | None = None
    layout: str = "NCHW"
    dtype: str = "float32"
    inplace: bool = False
    fuse: tuple[str, ...] = ()
    override: bool | None = None
    parallel: bool = False
    fastmath: Any = None
    boundscheck: bool = True
    max_threads: int | None = None
    per_image: bool = False
    elementwise: bool = False
    scratch: Mapping[str, Any] | None = None
    ports: int = 1
    version: str = ""
    output: OutputKind | None = None

    @property
    def math(self) -> Any:
        """Return what compiled code may do with sums, as numba's ``fastmath``."""
        return SAFE_MATH if self.fastmath is None else self.fastmath


def type_name(type: Any, form: str = "custom") -> str:
    """Return the type that a decorator is for. Raises PluginError for what is no text: without parentheses the function."""
    if not isinstance(type, str) or not type:
        raise PluginError(f"@{form} needs the layer's type as text, found {type!r}", hint=f'@chai.{form}("gemm")')
    return type


@dataclass(frozen=True)
class Declaration(CustomOptions):
    """The arguments of ``@chai.custom``, which describes them."""

    type: str
    _: KW_ONLY
    jit: bool = True
    replace: bool = False

    def __post_init__(self) -> None:
        type_name(self.type)
        if isinstance(self.fuse, list):
            object.__setattr__(self, "fuse", tuple(self.fuse))


OPTION_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("inplace", "parallel", "boundscheck", "per_image", "elementwise"), (bool,)),
    "override": (bool, type(None)),
    "fastmath": (bool, set, frozenset),
    "max_threads": (int, type(None)),
    "ports": (int,),
    "version": (str,),
    "fuse": (tuple,),
    "scratch": (dict,),
}


def _copied(names: Any) -> Any:
    """Return a copy of a mapping that may be left out; what is no mapping as it is, to be refused with its place."""
    return dict(names) if isinstance(names, Mapping) else {} if names is None else names


class Definition:
    """A layer type in the registry: its name, the decorated function, and ``place``, path:line of that function.

    ``args``       its named arguments {name: default}
    ``composed``   whether its layers are replaced by others when a network is read
    """

    composed: ClassVar[bool] = False

    def __init__(self, type: str, function: Function, options: CustomOptions) -> None:
        self.type = type_name(type)
        self.function = function
        self.options, self.version = options, options.version
        self.args = _copied(options.args)
        self.place = place_of(function)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", type)
        problem = check_declared(self.args)
        if problem:
            raise self._bad(f"args: {problem}", 'args={"num_output": int, "slope": 0.5}')

    def __repr__(self) -> str:
        return visible(f"<custom layer type {self.type!r}, {self.place}>")

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def _bad(self, problem: str, hint: str | None = None) -> PluginError:
        return PluginError(f"{self.place}: custom type {self.type!r}: {problem}", hint=hint)


class CustomType(Definition):
    """A type that a function computes.

    In its module it can still be called as the function, and extended:

    ``@f.shape``         shapes of the tops, instead of top_dim
    ``@f.setup``         work done once per layer, in plain Python
    ``@f.impl(name)``    another implementation

    Of its layers:
    ``dynamic``        whether the sizes of tops depend on data: the function returns them
    ``renews``         whether it may return tops of other sizes than the shape rule says
    ``first_shape``    whether tops have the shape of the first bottom, unless top_dim or a shape rule says otherwise
    ``bottoms_allowed``, ``tops_allowed``   minimum and maximum number
    """

    dynamic = renews = first_shape = False
    bottoms_allowed: tuple[int, int | None] = (1, None)
    tops_allowed: tuple[int, int | None] = (1, None)

    def __init__(self, type: str, function: Function, jit: bool, options: CustomOptions) -> None:
        super().__init__(type, function, options)
        if options.elementwise:
            self.bottoms_allowed, self.tops_allowed, self.first_shape = (1, 1), (1, 1), True
        self.scratch = _copied(options.scratch)
        self.shape_rule: Function | None = None
        self.setup_rule: Function | None = None
        self.renew: Callable[[dict[str, Any]], None] | None = None  # has the shape rule determine sizes again
        self.turn: Turn | None = None  # in common with other types, of which one layer runs at a time
        self._owner: Callable[[], Any] | None = None
        self._check_options()
        ref = Implementation("ref", function=function, jit=jit, dtype=options.dtype, layout=options.layout, priority=0)
        self.implementations = [self._checked(ref)]

    # -- use in its module

    def __set_name__(self, owner: Callable[[], Any], _name: str) -> None:
        self._owner = owner

    def __get__(self, instance: Any, _owner: Any = None) -> Any:
        return self if instance is None else MethodType(self.function, instance)

    def shape(self, function: Function) -> Function:
        """Register ``f(x, **args)`` -> one shape per top.

        It is plain Python with access to shapes, arguments and parameters.
        """
        self.shape_rule = self.check(function, "shape", scratch=False)
        return function

    def with_shape(self, function: Function) -> CustomType:
        """Return the same type with this shape function."""
        extended = copy(self)
        extended.shape(function)
        return extended

    def setup(self, function: Function) -> Function:
        """Register ``f(x, **args)``: plain Python, run once per layer, and again after its parameters change.

        Entries of ``x.data`` (a dict) and the value of ``x.custom_float_params`` that it sets are available in every call.
        """
        self.setup_rule = self.check(function, "setup", scratch=False)
        return function

    @method_of(Variant)
    def impl(self, variant: Variant) -> Callable[[Function], Function]:
        """Register another implementation.

        Among implementations whose ``when(x)`` is true (x has shapes and arguments), the one of highest priority runs,
        or with ``autotune`` the fastest. ``dtype`` "int8" reads the overlay's codes if its inputs are on the overlay.
        All codes are signed then, unless ``zero_points`` says that the function reads ``x.zero_points`` and
        ``x.code_ranges``.
        """

        name, dtype = variant.name, variant.dtype
        if not isinstance(name, str) or not name:
            raise self._bad(f"@impl needs a name as text, found {name!r}", '@f.impl("fast")')

        def register(function: Function) -> Function:
            if any(known.name == name for known in self.implementations):
                raise PluginError(f"custom type {self.type!r} has two implementations called {name!r}")
            if variant.zero_points and dtype != "int8":
                raise self._bad(f"implementation {name!r}: zero_points belongs to dtype 'int8', this has {dtype!r}")
            options = {**vars(variant), "layout": variant.layout or self.options.layout}
            self.implementations.append(self._checked(Implementation(**options, function=function)))
            return function

        return register

    # -- use by the layer

    def call(self, function: Function, x: Any, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the positional arguments for a function of this type: self if it takes one, x, and named arguments."""
        first = (self._self,) if takes_self(function) else ()
        return (*first, x, *(values[name] for name in parameters(function)[len(first) + 1 :]))

    @cached_property
    def _self(self) -> Any:
        return None if self._owner is None else self._owner()

    # -- checks at decoration

    def _checked(self, one: Implementation) -> Implementation:
        """Return an implementation. Raises PluginError for one that cannot run."""
        name, function, jit, dtype, layout = one.name, one.function, one.jit, one.dtype, one.layout
        if not isinstance(jit, bool):
            raise self._bad(f"implementation {name!r}: jit {jit!r}: expected bool")
        if jit and isinstance(function, MethodType):
            raise self._bad(f"implementation {name!r}: a method of an object cannot be compiled", "jit=False")
        if dtype not in DTYPES or layout not in LAYOUTS:
            raise self._bad(
                f"implementation {name!r}: dtype {dtype!r}, layout {layout!r}; expected one of {', '.join(DTYPES)} "
                f"and {' or '.join(LAYOUTS)}"
            )
        if dtype == "float16" and jit:
            raise self._bad(f"implementation {name!r}: compiled code has no float16", "jit=False, with numpy")
        self.check(function, name)
        return one

    def check(self, function: Function, what: str, scratch: bool = True) -> Function:
        """Return a function that is called with x and named arguments. Raises PluginError for one that cannot be."""
        python = getattr(function, "py_func", function)
        if not callable(python):
            raise self._bad(f"{function!r} is not a function")
        names = parameters(function)
        own = names[1:] if takes_self(function) else names
        if not own:
            raise self._bad(f"{what} takes no argument, it is given one xChangeLayer", "def f(x): ...")
        known = {*self.args, *(self.scratch if scratch else ())}
        unknown = [n for n in own[1:] if n not in known]
        if unknown:
            raise self._bad(
                f"{what} asks for {unknown[0]!r}, which is neither in args nor in scratch",
                "known: " + (", ".join(known) or "none; write args={name: default}"),
            )
        return function

    def _check_options(self) -> None:
        o = self.options
        values = {**vars(o), "fastmath": o.math, "scratch": self.scratch}
        for name, types in OPTION_TYPES.items():
            value = values[name]
            if not isinstance(value, types):
                expected = " or ".join("None" if t is type(None) else t.__name__ for t in types)
                raise self._bad(f"{name} {value!r}: expected {expected}")
        if twice := set(self.args) & set(self.scratch):
            raise self._bad(f"{', '.join(twice)}: in args and in scratch")
        strange = [f for f in o.fuse if f != "ReLU"]
        if strange:
            raise self._bad(f"fuse: {strange[0]!r} cannot be fused, only 'ReLU'")
        if o.dtype == "int8":
            raise self._bad(
                "dtype 'int8': it has to take float32 or float16: inputs may come from the host",
                '@f.impl("codes", dtype="int8") takes codes of the overlay',
            )
        if o.ports not in (1, 2):
            raise self._bad(f"ports {o.ports}: expected 1, or 2 for CHaiDNN's numbering")
        if o.output not in (None, *OUTPUT_KINDS):
            raise self._bad(f"output {o.output!r}: expected one of {', '.join(OUTPUT_KINDS)}")
        if o.max_threads is not None and o.max_threads < 1:
            raise self._bad(f"max_threads {o.max_threads}: expected at least 1")


def plain_type(type: str, function: Function | Definition) -> Definition:
    """Return a type for an undecorated function; it is compiled only if it is a numba dispatcher."""
    if isinstance(function, Definition):
        return function
    return CustomType(type, function, hasattr(function, "py_func"), CustomOptions())


def type_of_class(
    type: str,
    owner: Any,
    methods: Sequence[str],
    function: Function,
    options: CustomOptions,
    shape: Function | None = None,
) -> CustomType:
    """Return a type whose ``function`` and ``shape`` function call the methods of a user's class.

    Errors name the place of the last of ``methods``. Raises PluginError if the class lacks one.
    """
    name = getattr(owner, "__name__", repr(owner))
    missing = [method for method in methods if not callable(getattr(owner, method, None))]
    if missing or not hasattr(owner, "__mro__"):
        what = f"class {name} has no method {missing[0]}" if missing else f"{name} is no class"
        raise PluginError(f"custom type {type!r}: {what}", hint=f"expected a class with {' and '.join(methods)}")
    place = place_of(getattr(owner, methods[-1]))
    function.__dict__["place"] = place
    function.__module__ = owner.__module__  # decides who gets the type: all networks, or the one that loads this module
    custom = CustomType(type, function, False, options)
    custom.__doc__, custom.__name__ = owner.__doc__, name
    if shape is not None:
        shape.__dict__["place"] = place
        custom.shape(shape)
    return custom


def parameters(function: Function) -> list[str]:
    """Return the names of the positional arguments that a call gives; x alone for a callable without a signature."""
    bound = isinstance(function, MethodType)  # its first parameter, often self, is given already
    python = getattr(function, "py_func", function)
    code = getattr(python, "__code__", None)
    if code is not None and not hasattr(python, "__wrapped__"):
        return list(code.co_varnames[bound : code.co_argcount])
    import inspect  # its import takes longer than everything else here

    try:
        signature = inspect.signature(python)
    except (TypeError, ValueError):
        return ["x"]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


def takes_self(function: Function) -> bool:
    """Return whether the first parameter of a function is self."""
    return parameters(function)[:1] == ["self"]


def place_of(function: Any) -> str:
    """Return path:line of a function; its attribute ``place`` for kernels, and for code that calls a class."""
    place: str | None = getattr(function, "place", None)
    if place is not None:
        return place
    python = getattr(function, "py_func", function)
    code = getattr(getattr(python, "__wrapped__", python), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
