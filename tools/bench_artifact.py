"""Compare a compiled network with its prototxt and caffemodel: time to the first result, and memory.

    python tools/bench_artifact.py MODEL [--rounds 15]

MODEL is GoogLeNet's folder: deploy.prototxt, weights.caffemodel, and images/ for calibration. Each run is a separate
process on the emulator with one BLAS thread. Time is wall and CPU milliseconds from ``chai.Net(...)`` to the first result,
without the imports; runs are interleaved, medians are printed. Memory is the peak resident size of the process minus that
of a process that only imports the same modules. The last line is the warm forward pass of both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SIZE = 3, 224, 224
GOALS = {"ratio": 0.5, "memory": 1.2}
RUN = """
import json, sys, time
import numpy as np
import chai
*files, image, passes = sys.argv[1:]
inputs = np.load(image)
begin, cpu = time.perf_counter(), time.process_time()
net = chai.Net(*files, device="emulator", **({"batch": 1} if len(files) > 1 else {}))
out = net.forward(inputs)
figures = {"ms": (time.perf_counter() - begin) * 1000, "cpu": (time.process_time() - cpu) * 1000}
figures["kb"] = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
figures["sum"] = [float(v.sum()) for v in out.values()]
times = []
for _ in range(int(passes)):
    begin = time.perf_counter()
    net.forward(inputs)
    times.append((time.perf_counter() - begin) * 1000)
print(json.dumps({**figures, "passes": times, "modules": [m for m in sys.modules if m != "__main__"]}))
"""
IDLE = """
import importlib, sys
for name in sys.argv[1].split():
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # a module that is an alias of another
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def python(folder: str, *command: Any) -> str:
    """Return the output of a fresh interpreter; bytecode is cached in ``folder``, so later rounds find it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CHAI_") and k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": folder}
    env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run([sys.executable, *map(str, command)], env=env, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def main() -> None:
    """Print the figures and their goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "net.prototxt"), Path(folder, "net.caffemodel")
        files = [args.model / name for name in ("deploy.prototxt", "weights.caffemodel")]
        options = ["--effort", "fast", "-q", "-o", source[0]]
        python(folder, "-m", "chai", "quantize", *files, "--calibration", args.model / "images", *options)
        if not source[1].exists():
            source = source[0], files[1]
        compiled = Path(folder, "net.chai")
        python(folder, "-m", "chai", "compile", *source, "-q", "-o", compiled)
        image = Path(folder, "image.npy")
        np.save(image, np.random.default_rng(0).standard_normal((1, *SIZE)).astype(np.float32) * 50)
        runs: dict[str, list[dict[str, Any]]] = {"compiled": [], "source": []}
        for round in range(args.rounds + 1):
            for name, network in (("compiled", [compiled]), ("source", source)):
                passes = 9 if round == args.rounds else 0
                runs[name].append(json.loads(python(folder, "-c", RUN, *network, image, passes)))
        assert len({str(run["sum"]) for times in runs.values() for run in times}) == 1  # the same numbers
        idle = int(python(folder, "-c", IDLE, " ".join(runs["compiled"][1]["modules"])))
        size = compiled.stat().st_size
    middle = {(name, key): median(run[key] for run in each[1:]) for name, each in runs.items() for key in ("ms", "cpu")}
    for key, words in (("ms", "wall"), ("cpu", "CPU")):
        ours, theirs = middle["compiled", key], middle["source", key]
        print(
            f"load to first result, {words:4s} compiled {ours:6.1f} ms   prototxt + caffemodel {theirs:6.1f} ms   "
            f"ratio {ours / theirs:.2f}   goal {GOALS['ratio']}"
        )
    peak = (median(run["kb"] for run in runs["compiled"][1:]) - idle) * 1024
    print(
        f"peak memory {peak / 1e6:.2f} MB above {idle * 1024 / 1e6:.1f} MB of imports, the file has {size / 1e6:.2f} MB   "
        f"ratio {peak / size:.2f}   goal {GOALS['memory']}"
    )
    warm = {name: median(each[-1]["passes"]) for name, each in runs.items()}
    print(f"forward, warm   compiled {warm['compiled']:.1f} ms   prototxt + caffemodel {warm['source']:.1f} ms")


if __name__ == "__main__":
    main()
