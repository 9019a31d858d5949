"""Delays in ns of the 7-series, speed grade -1, slow corner.

Cells: the timing files of prjxray-db (f4pga/prjxray-db): zynq7/timings/slicel.sdf, slicem.sdf, DSP_L.sdf and
spartan7/timings/BRAM_R.sdf, whose block RAM is the same; the clock enable and the reset of a flip-flop as DS187 has them.
Nets: a guess by fan-out, since nothing is placed. Chai scales it by .5, .7 and 1.
"""

from __future__ import annotations

import math

LUT = 0.124
FLIP_FLOP = 0.456  # clock to Q
FLIP_FLOP_SETUP = {"D": -0.05, "CE": 0.205, "R": 0.43, "S": 0.43, "CLR": 0.43, "PRE": 0.43}
MUX7 = {"I0": 0.217, "I1": 0.223, "S": 0.296}
MUX8 = {"I0": 0.104, "I1": 0.094, "S": 0.273}

# CARRY4, into CO and into O; a row for each input bit, None where there is no way
CARRY_IN = (0.271, 0.157, 0.228, 0.114), (0.222, 0.334, 0.239, 0.313)
CARRY_BEGIN = (0.536, 0.494, 0.592, 0.580), (0.482, 0.598, 0.584, 0.642)
CARRY_S = (
    ((0.340, 0.433, 0.512, 0.508), (None, 0.469, 0.548, 0.528), (None, None, 0.292, 0.376), (None, None, None, 0.380)),
    ((0.223, 0.400, 0.523, 0.582), (None, 0.205, 0.558, 0.618), (None, None, 0.226, 0.330), (None, None, None, 0.227)),
)
CARRY_DI = (
    ((0.379, 0.465, 0.540, 0.526), (None, 0.445, 0.520, 0.507), (None, None, 0.356, 0.398), (None, None, None, 0.385)),
    ((None, 0.407, 0.556, 0.615), (None, None, 0.537, 0.596), (None, None, None, 0.438), (None, None, None, None)),
)

LUT_RAM_READ = 0.15  # from address to output
LUT_RAM_CLOCK = 1.48  # from the clock to what was just written
LUT_RAM_SETUP = {"DI": 0.633, "WE": 0.654, "ADDR": 0.362}
SHIFT_CLOCK = 1.48
SHIFT_SETUP = {"D": 0.17, "CE": 0.638}

BLOCK_RAM = 2.454  # clock to output, without the output register
BLOCK_RAM_REGISTER = 0.882  # with it
BLOCK_RAM_SETUP = {"ADDR": 0.566, "DI": 0.737, "WE": 0.532, "EN": 0.443, "REGCE": 0.36, "RST": 0.359}

DSP_P = 0.434  # clock to P or PCOUT, with PREG
DSP_M = 2.0  # with MREG alone
DSP_A = 5.368  # with AREG alone
DSP_THROUGH = 5.201  # from A to P without registers
# setup by the first register on the way: of the input itself, of the adder before the multiplier, M, P
DSP_SETUP = {
    "A": (0.362, 1.756, 3.288, 5.081),
    "D": (0.350, 1.626, 3.158, 4.951),
    "B": (0.400, None, 1.600, 3.536),
    "C": (0.300, None, None, 1.700),
}
DSP_A_DIRECT = 1.928, 3.722  # of A to M and to P without that adder
DSP_CASCADE = 1.33  # of PCIN to P
DSP_CONTROL = 0.5
DSP_MODE = 1.978  # of OPMODE and ALUMODE without their registers, to P

CLOCK = 0.1  # skew and jitter


def net(fan_out: int, column: bool) -> float:
    """Return the delay of a net; ``column`` if it goes to or from a column of block RAMs or DSPs."""
    log = math.log2(max(1, fan_out))
    return (0.50 + 0.17 * log if log < 6 else 1.52 + 0.25 * (log - 6)) + (0.35 if column else 0.0)
