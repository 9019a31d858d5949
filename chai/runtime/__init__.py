"""Run networks: layer by layer on the host, or as a Schedule on host and device, with times.

What reads and plans a prototxt is loaded when it is first used: a compiled network needs neither parser nor planner. So is
what shows times, which most passes do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .perf import PerfInfo as PerfInfo
    from .source import PrototxtSource as PrototxtSource

__all__ = ["PerfInfo", "PrototxtSource"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'chai.runtime' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(".perf" if name == "PerfInfo" else ".source", __name__), name)
    return value
