"""Open a network: a compiled one from its .chai file, any other from its prototxt or ONNX file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import devices
from ..env import env
from ..errors import UsageError
from ..util.interpreter import Uncollected
from ..zoo import is_compiled
from ..zoo.options import Options

if TYPE_CHECKING:
    from ..runtime.source import PrototxtSource
    from .source import CompiledSource


def opened(options: Options, lacking: str) -> CompiledSource | PrototxtSource:
    """Return the source of a network: a .chai file, an ONNX file, or a prototxt; ``lacking``: weights that may be missing."""
    with Uncollected():
        device = devices.open(options.device or env().device or devices.DEFAULT)
    if not isinstance(options.prototxt, bytes) and is_compiled(options.prototxt):
        changed = "a caffemodel" if options.caffemodel is not None else next(options.changed(), None)
        if changed:
            hint = "give it to chai compile, or load the prototxt"
            raise UsageError(f"{options.prototxt} is compiled: {changed} cannot be given any more", hint=hint)
        from .source import CompiledSource  # a prototxt needs none of it

        with Uncollected():
            return CompiledSource(options, device)
    from ..runtime.source import PrototxtSource  # a compiled network needs neither parser nor planner

    return PrototxtSource(options, device, lacking)
