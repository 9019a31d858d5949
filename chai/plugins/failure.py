"""Turn failures of custom code into errors with network, layer, type, place, reason and hint; never a traceback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, NoReturn, TypeVar

from ..errors import NO_PARAMETERS, PluginError
from ..util.interpreter import from_signal_handler
from ..util.suggest import did_you_mean
from .definition import place_of
from .xchange import COMPILED, FIELDS

T = TypeVar("T")
PYTHON_2 = "this is code for Python 2: 2to3 converts most of it"
_PYTHON_2 = (
    "Missing parentheses in call to|multiple exception types must be parenthesized|leading zeros in decimal|"
    "name '(xrange|unicode|basestring|raw_input|long|reduce|unichr)' is not defined|"
    "'dict' object has no attribute '(has_key|iter(keys|values|items))'|"
    "No module named '(cPickle|ConfigParser|Queue|StringIO|cStringIO|urllib2|__builtin__|copy_reg)'"
)
_CHAI = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_CLASSES = os.path.join(_CHAI, "plugins", "python", "")  # what calls classes of other systems
PACKAGE = "chai_custom"  # of the modules that were run from files
_ENDS = r"\b(bottom|top|(in|out)_ptrs|(input|output)_dims)\["  # in a line of code
_FOLDER = re.compile(rf"\b{PACKAGE}\.at_[0-9a-f]+\.")  # the folder of a file
_PACKAGES = {"yaml": "pyyaml", "cv2": "opencv-python-headless", "skimage": "scikit-image", "PIL": "pillow"}


class ParallelError(Exception):
    """An unknown error inside a ``prange``; running the serial form raises the error itself."""


@dataclass(frozen=True)
class RunningLayer:
    """The layer whose code runs, as its error messages and hints need it.

    ``float_args`` and ``string_args`` are the numbers of its arguments; ``trained``: it has parameters; ``method``: its
    function takes self.
    """

    network: str
    layer: str
    type: str
    float_args: int
    string_args: int
    trained: bool
    method: bool


def run(where: RunningLayer, call: Callable[..., T], function: Any, compiled: bool = False, *arguments: Any) -> T:
    """Return what user code returns. Any error of its own is raised as PluginError with network, layer, type and line."""
    try:
        return call(*arguments)
    except (Exception, SystemExit) as error:
        explain(where, error, function, compiled)


def explain(where: RunningLayer, error: BaseException, function: Any, compiled: bool) -> NoReturn:
    """Raise what ``run`` raises for an error of user code, which is being handled."""
    if isinstance(error, (PluginError, ParallelError)) or from_signal_handler(error):
        raise error
    reason, hint = _reason(where, error)
    if hint is None and compiled:
        hint = "to run it as plain Python, under a debugger if you like: @chai.custom(..., jit=False)"
    place = place_inside(error, place_of(function))
    raise report(where, place, f"{type(error).__name__}: {reason}", hint) from error


def frames(error: BaseException) -> list[tuple[str, int]]:
    """Return (file, line) of every frame of an exception's traceback, outermost first."""
    from traceback import walk_tb  # of no use unless something fails

    return [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]


def report(where: RunningLayer, place: str, reason: str, hint: str | None) -> PluginError:
    """Return a PluginError that names network, layer, type and place, with the line of code as its excerpt."""
    import linecache

    file, _, line = place.rpartition(":")
    text = linecache.getline(file, int(line)).strip() if line.isdecimal() else ""
    if re.search("index .*out of (bounds|range)", reason):
        lists = {"float_args": where.float_args, "string_args": where.string_args}
        counts = [f"{count} in {name}" for name, count in lists.items() if f".{name}[" in text]
        hint = f"the layer's xcustom_param has {', '.join(counts)}" if counts else hint
    if hint == NO_PARAMETERS and re.search(_ENDS, text) and not re.search("param|wts|bias|blobs", text):
        hint = "does the layer have that many bottoms and tops in the prototxt?"
    network = f"network {where.network!r}: " if where.network else ""
    error = PluginError(
        f"{network}layer {where.layer!r} (custom type {where.type!r}) failed at {place}: {reason}",
        layer=where.layer,
        hint=hint,
    )
    error.excerpt = f"    {line} | {text}" if text else ""
    return error


def place_inside(error: BaseException, place: str) -> str:
    """Return file:line of an error inside the function at ``place``, as exactly as known."""
    if (loc := getattr(error, "loc", None)) is not None:  # position of a typing error in numba
        return f"{loc.filename}:{loc.line}"
    file, walked = place.rpartition(":")[0], frames(error)
    lines = [line for inside, line in walked if inside == file and not file.startswith(_CLASSES)]
    if lines:
        return f"{file}:{lines[-1]}"
    # the function may be one that a class inherits, and the error in another method, of another file
    calls = [inner for outer, inner in pairwise(walked) if outer[0].startswith(_CLASSES)]
    methods = [f"{inside}:{line}" for inside, line in calls if not inside.startswith(_CHAI)]
    return methods[-1] if methods else place


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in plain Python code of this block that runs longer than ``seconds``."""
    end = perf_counter() + seconds

    def watch(_frame: Any, _event: str, _argument: Any) -> Any:
        if perf_counter() > end:
            raise TimeoutError(f"it takes more than {seconds:g} s")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def _reason(where: RunningLayer, error: BaseException) -> tuple[str, str | None]:
    try:
        words = str(error)
    except Exception as fault:  # of the exception's own __str__
        return f"(its text ended in {type(fault).__name__})", None
    text = imported(re.sub(r"\x1b\[[0-9;]*m", "", words).strip())
    missing = re.search(r"[Uu]nknown attribute '(\w+)' of type xChangeLayer|xChangeLayer has no field '(\w+)'", text)
    if missing:
        name, fields = missing[1] or missing[2], COMPILED if missing[1] else FIELDS
        if name in FIELDS and name not in fields:
            return f"x.{name} is there in plain Python only", "@chai.custom(..., jit=False), or read it in @f.setup"
        hint = did_you_mean(name, fields, listed="fields", quoted=False, cutoff=0.4)
        return f"xChangeLayer has no field {name!r}", hint or ""
    if not where.trained and "index out of range" in text:
        return _first(text), NO_PARAMETERS
    if "scipy" in text and "linear algebra" in text:
        return (
            "compiled code has no np.dot without SciPy",
            "write the loop, or use numpy with @chai.custom(..., jit=False)",
        )
    if "of type none" in text and where.method:
        return "compiled methods have no self", "take values by name (args=), or: @chai.custom(..., jit=False)"
    if "No definition for lowering xChangeLayer" in text:
        return "it assigns to a field of x; compiled code can only read them", "write into x.out_ptrs or x.top"
    if "Cannot modify readonly array" in text:
        return "it writes into an input or a parameter; these are read-only", "write into x.out_ptrs or x.top"
    if re.search("(assignment destination|output array) is read-only", text):  # x[...] = y; x += y
        return _first(text), "inputs and parameters are read-only: write into the tops, or into a copy"
    if re.search(r"^it replaces x\.|'tuple' object does not support item assignment|setitem\((Uni)?Tuple\(", text):
        return _first(text), "write into the array: x.top[0][...] = values; or return them"
    return _first(text), dated(error)


def imported(text: str) -> str:
    """Return text with the names of modules as imports have them, not as those of the package that they are run in."""
    return _FOLDER.sub("", text)


def dated(error: BaseException) -> str | None:
    """Return a hint for code that expects another Python, an older library, or one that is not installed."""
    text = str(error)
    if re.search(_PYTHON_2, text):
        return PYTHON_2
    if isinstance(error, ModuleNotFoundError):
        if error.name in _PACKAGES:
            return f"pip install {_PACKAGES[error.name]}"
        return (
            "it is neither beside the file that imports it, nor in the folder that was named, nor installed; name the folder "
            "that would be on PYTHONPATH, --custom FOLDER. A module in C has to be compiled for this Python"
        )
    if "missing 1 required positional argument: 'Loader'" in text:
        return "yaml.safe_load(text), or yaml.load(text, yaml.FullLoader) for !!python/tuple: PyYAML 6 needs a Loader"
    alias = re.match("module 'numpy' has no attribute '(float|int|bool|object|str)'", text)
    return f"NumPy 1.24 removed np.{alias[1]}: write {alias[1]}" if alias else None


def _first(text: str) -> str:
    """Return the most informative line of a long message."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("During:", "Failed in"))
    ]
    telling = [line for line in lines if "nknown attribute" in line or "No implementation" in line]
    return (telling or lines or [""])[0][:300]
