"""Compare the codes and compiled files of networks with those of another commit, byte by byte.

    python tools/same_codes.py --against CHECKOUT --models FOLDER [NAME ...]

CHECKOUT is another commit's working tree with its kernels compiled. FOLDER has a folder for each NAME, with deploy.prototxt and
weights.caffemodel. Every blob of a pass of two seeded images counts, on the emulator, in both schemes and widths.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("googlenet", "squeezenet_v1.1", "cifar_resnet20", "mtcnn_det1", "mtcnn_det2", "mtcnn_det3")
DIGESTS = """
import hashlib, itertools, json, sys, tempfile
from pathlib import Path
import numpy, chai
from chai.artifact.save import save
digests = {}
for scheme, bits in itertools.product(("Xilinx", "DynamicFixed"), (8, 6)):
    net = chai.Net(*sys.argv[1:], device="emulator", scheme=scheme, bits=bits, keep="all")
    shape = 2, *net.graph.inputs[net.inputs[0]][1:]
    net.forward(numpy.random.default_rng(1).normal(0, 40, shape).astype("f"))
    blobs = hashlib.sha256(b"".join(name.encode() + net.blobs[name].tobytes() for name in sorted(net.blobs)))
    with tempfile.TemporaryDirectory() as folder:
        save(net, Path(folder) / "net.chai")
        compiled = hashlib.sha256((Path(folder) / "net.chai").read_bytes())
    digests[f"{bits}-bit {scheme}"] = blobs.hexdigest(), compiled.hexdigest()
print(json.dumps(digests))
"""


def digests(tree: Path, folder: Path) -> dict[str, list[str]]:
    """Return the digests of a network's blobs and of its compiled file by a tree, for each scheme and width."""
    command = [sys.executable, "-c", DIGESTS, str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel")]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Print a line per network, scheme and width; the exit code is 1 if some differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    args = parser.parse_args()
    alike = True
    for name in args.names:
        ours, others = (digests(tree, args.models.resolve() / name) for tree in (ROOT, args.against.resolve()))
        for what, pair in ours.items():
            words = ["the same" if a == b else "others" for a, b in zip(pair, others[what], strict=True)]
            alike = alike and pair == others[what]
            print(f"{name:16s} {what:20s} codes {words[0]}, compiled file {words[1]}", flush=True)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
