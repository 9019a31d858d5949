"""Compare the peak memory of commands with their bounds.

    python tools/bench_memory.py MODEL PHOTOS [--vgg16] [--passes 100]

MODEL is a folder with deploy.prototxt, weights.caffemodel and images/; PHOTOS a folder of 64 photos. Each line is of processes
of its own, in MB (2^20 bytes): the most that each had in memory at once, mapped files included.

calibration  with all photos, minus with 4 of them; quantize with --effort fast
passes       of the compiled network, to those of OpenCV 4 on the Caffe files; needs the extra [bench]
CPU time     of the longest of these passes, to that of the median one, without the first two
batch        of 8 in float: what the arrays of a warm pass take, to the blobs that exist at once
VGG16        compiled, with random weights: one pass, minus the file; takes some GB of disk and memory for a minute
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEW = 4
PEAK = 'print("peak", open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)\n'
COMMAND = "import sys\nfrom chai.cli import main\nmain(sys.argv[1:])\n" + PEAK
ARRAYS = """
import sys, numpy as np, chai
net, rng = chai.Net(*sys.argv[1:3], device="emulator", batch=1), np.random.default_rng(0)
size = net.shapes[net.inputs[0]]
net.calibrate(rng.standard_normal(size, np.float32) * 50 for _ in range(int(sys.argv[3])))
"""
CHAI = """
import sys, numpy as np, chai
net, x = chai.Net(sys.argv[1]), np.zeros((1, 3, *map(int, sys.argv[3:])), np.float32)
for _ in range(int(sys.argv[2])): net.forward(x)
"""
STEADY = """
import sys, numpy as np, chai
from statistics import median
from time import process_time
net, x, times = chai.Net(sys.argv[1]), np.zeros((1, 3, *map(int, sys.argv[3:])), np.float32), []
for _ in range(int(sys.argv[2]) + 2):
    begin = process_time()
    net.forward(x)
    times.append(process_time() - begin)
print("steady", median(times[2:]) * 1000, max(times[2:]) * 1000, file=sys.stderr)
"""
OPENCV = """
import sys, numpy as np, cv2
net, x = cv2.dnn.readNetFromCaffe(*sys.argv[1:3]), np.zeros((1, 3, *map(int, sys.argv[4:])), np.float32)
for _ in range(int(sys.argv[3])): net.setInput(x); net.forward()
"""
BATCH = """
import sys, tracemalloc, numpy as np, chai
net = chai.Net(*sys.argv[1:3], device="float", batch=8)
x = np.ones(net.shapes[net.inputs[0]], np.float32)
net.forward(x)
tracemalloc.start()
net.forward(x)
most = tracemalloc.get_traced_memory()[1] + x.nbytes
print("ratio", most / net.perf.peak_bytes, net.perf.peak_bytes / 2**20, file=sys.stderr)
"""
RANDOM = """
import sys, numpy as np, chai
from chai.artifact.save import save
net = chai.Net("vgg16", device="emulator")
net.calibrate(np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32) * 50)
save(net, sys.argv[1])
"""


def errors(code: str, *arguments: str | Path) -> list[str]:
    """Return the words of the last line that a fresh interpreter wrote to stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stderr.splitlines()[-1].split()


def peak(code: str, *arguments: str | Path) -> float:
    """Return the peak memory of a process in MB."""
    return int(errors(code, *arguments)[-1]) / 1024


def calibrations(files: list[Path], image: Path, photos: Path, folder: Path) -> None:
    """Print what each command that calibrates needs with few photos and with all."""
    some = folder / "some"
    some.mkdir()
    listed = sorted(photos.iterdir())
    for photo in listed[:: len(listed) // FEW][:FEW]:
        shutil.copy(photo, some)
    options = {
        "compile": ["-o", folder / "net.chai"],
        "run": ["-i", image, "--device", "emulator"],
        "check": ["-i", image],
        "quantize": ["--effort", "fast", "-o", folder / "q.prototxt"],
    }
    for name, more in options.items():
        few, all_ = (
            peak(COMMAND, name, *files, "--calibration", where, "-q", *map(str, more)) for where in (some, photos)
        )
        line(f"calibration: {name}", f"{few:.0f} with {FEW}, {all_:.0f} with {len(listed)}", all_ - few, 50)
    few, all_ = (peak(ARRAYS + PEAK, *files, str(count)) for count in (FEW, len(listed)))
    line("calibration: Net.calibrate", f"{few:.0f} with {FEW}, {all_:.0f} with {len(listed)}", all_ - few, 50)


def line(name: str, figures: str, figure: float, bound: float) -> None:
    """Print a figure and its bound."""
    print(
        f"{name:28s} {figures:36s} {figure:7.2f}   at most {bound:g}: {'met' if figure <= bound else 'NOT MET'}",
        flush=True,
    )


def main() -> None:
    """Print a line per bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--passes", type=int, default=100)
    parser.add_argument("--vgg16", action="store_true")
    parser.add_argument("--size", type=int, nargs=2, default=(224, 224), metavar=("H", "W"), help="of the input")
    args = parser.parse_args()
    files = [args.model / "deploy.prototxt", args.model / "weights.caffemodel"]
    image = min((args.model / "images").iterdir())
    with tempfile.TemporaryDirectory(prefix="chai-bench-memory-") as name:
        folder = Path(name)
        calibrations(files, image, args.photos, folder)
        size = [str(n) for n in args.size]
        ours = peak(CHAI + PEAK, folder / "net.chai", str(args.passes), *size)
        theirs = peak(OPENCV + PEAK, *files, str(args.passes), *size)
        line(f"{args.passes} passes, to OpenCV 4", f"{ours:.0f} to {theirs:.0f}", ours / theirs, 0.5)
        middle, most = map(float, errors(STEADY, folder / "net.chai", str(args.passes), *size)[1:])
        line(f"{args.passes} passes, CPU time", f"longest {most:.1f} ms, median {middle:.1f}", most / middle, 2)
        _, ratio, blobs = errors(BATCH, *files)
        line("float, batch of 8", f"blobs {float(blobs):.0f}", float(ratio), 1.3)
        if args.vgg16:
            target = folder / "vgg16.chai"
            peak(RANDOM + PEAK, target)
            stored, most = target.stat().st_size / 2**20, peak(CHAI + PEAK, target, "3", "224", "224")
            line("VGG16, beyond the file", f"file {stored:.0f}, peak {most:.0f}", most - stored, 60)


if __name__ == "__main__":
    main()
