"""rtlsim: the accelerator's RTL, simulated cycle by cycle on this machine.

The same descriptors, registers and memory as on a board; needs the extra ``rtl`` and a C++ compiler.
"""

from .program import device as device
