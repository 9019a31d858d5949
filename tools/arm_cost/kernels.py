"""python -m tools.arm_cost.kernels [FOLDER]: test the kernels of AArch64 and ARMv7 under qemu.

Packages are kept in the folder (default: build/arm). qemu's default processor has all extensions, so every variant runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .debian import FOLDER, MACHINES, ROOT, Guest, Unavailable

TESTS = (
    "native",
    "boxes",
    "floats",
    "tiles",
    "conversions",
    "device_blobs",
    "softmax",
    "elements",
    "weights",
    "running",
)


def main() -> int:
    """Run the tests on each machine, and return the first exit status that is not 0."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    tests = [f"{ROOT}/tests/kernels/test_{name}.py" for name in TESTS]
    for machine in MACHINES.values():
        try:
            guest = Guest(machine, folder)
        except Unavailable as error:
            print(error, file=sys.stderr)
            return 1
        chosen = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", "not control_c and not fork"]
        if status := guest.run(chosen).returncode:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
