"""Test which networks of a collection run: one float32 pass with random weights of every prototxt in a folder or tar.

    python tools/corpus.py FOLDER|FILE.tar.xz [--timeout 120]

Networks run at their own input size, batch 1; those without one (data layers without crop_size) get 1x3x224x224. Each
runs in a separate process. Prints a line per file, then the files that fail with their reasons, and the missing layer
types by the number of files that need them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

ONE = """
import sys, logging
import numpy as np
logging.disable(logging.CRITICAL)
import chai
try:
    net = chai.Net(sys.argv[1], device="float", batch=1)
    shapes = {b: net.shapes.get(b) or (1, 3, 224, 224) for b in net.inputs}
    if not net.shapes:
        net.reshape(**shapes)
    out = net.forward(**{b: np.random.default_rng(0).standard_normal(s).astype("f") for b, s in shapes.items()})
    print("runs", ", ".join(f"{k} {'x'.join(map(str, v.shape))}" for k, v in out.items()))
except chai.ChaiError as error:
    print("error", type(error).__name__, str(error.headline).replace(sys.argv[1], "").lstrip(":"))
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--timeout", type=float, default=120, metavar="S")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = args.collection
        if place.is_file():
            with tarfile.open(place) as tar:
                tar.extractall(folder, filter="data")
            place = Path(folder)
        counts: Counter[str] = Counter()
        refused: list[str] = []
        files = sorted(place.rglob("*.prototxt"))
        for file in files:
            try:
                done = subprocess.run(
                    [sys.executable, "-c", ONE, str(file)],
                    capture_output=True,
                    text=True,
                    timeout=args.timeout,
                    check=False,
                )
                said = done.stdout.strip() or f"crash {done.stderr.strip().splitlines()[-1:]}"
            except subprocess.TimeoutExpired:
                said = f"error timeout after {args.timeout:.0f} s"
            counts[" ".join(said.split()[:2]) if said.startswith("error") else said.split()[0]] += 1
            line = f"{file.name:24s} {said}"
            refused += [] if said.startswith("runs") else [line]
            print(line, flush=True)
    print("\nThese do not run:", *refused, sep="\n")
    missing = Counter(re.findall(r"type '(\w+)' has no definition", "\n".join(refused)))
    if missing:
        print("\nMissing types:", ", ".join(f"{name} ({n})" for name, n in missing.most_common()))
    reasons = ", ".join(f"{n} {what}" for what, n in counts.most_common() if what != "runs")
    print(f"\n{counts['runs']} of {len(files)} run; {reasons}")


if __name__ == "__main__":
    main()
