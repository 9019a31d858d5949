"""The rates that the processor's PLL can give the accelerator: the PLL's own, divided by a whole number."""

from __future__ import annotations

from ..errors import UsageError

# of the I/O PLL, from which the scripts take the clock: 1000 MHz is the boot files' usual value on a Zynq-7000, 1500 on
# an UltraScale+. The driver reads the PLL of the board, and never sets a clock above the one that was asked for.
PLL_MHZ = {"zynq7000": 1000, "zynqmp": 1500}
ROUNDED = 0.06  # MHz: 83.3 means 83.333
SLOWEST = 10


def rate(family: str, mhz: float) -> float:
    """Return the PLL's rate that a frequency means. Raises UsageError with its neighbours if there is none."""
    pll = PLL_MHZ[family]
    rates = [pll / divider for divider in range(2, pll // SLOWEST + 1)]
    nearest = min(rates, key=lambda each: abs(each - mhz))
    if abs(nearest - mhz) <= ROUNDED:
        return nearest
    faster = [each for each in rates if each > mhz][-1:]
    slower = [each for each in rates if each < mhz][:1]
    near = " or ".join(f"--clock {each:.1f}" for each in slower + faster)
    raise UsageError(f"the PLL has no {mhz:g} MHz: it divides {pll} MHz by a whole number", hint=near)
