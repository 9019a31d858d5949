"""Resets as a tree of registers, since one net to all registers would be slow: each part has a register of its own.

Only registers that keep something over a chain have a reset. Those of data do not, nor those that follow from others within
``DRAIN`` cycles: a reset lasts longer.
"""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Value
from amaranth.lib.wiring import Component

from .streams import later

LEVELS = 3  # registers from a reset of the accelerator to that of the smallest part, of the second engine
DRAIN = 64  # cycles that a reset lasts at least: more than the longest pipeline


def with_reset(m: Module, part: Component, name: str, reset: Value | None = None) -> DomainRenamer:
    """Return a part in a clock domain of its own, whose reset is a register: ``reset``, or the reset of all around it."""
    around = ResetSignal() if reset is None else ResetSignal() | reset
    m.domains += ClockDomain(name, local=True)
    m.d.comb += [ClockSignal(name).eq(ClockSignal()), ResetSignal(name).eq(later(m, around, f"{name}_reset"))]
    return DomainRenamer(name)(part)
