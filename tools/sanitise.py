"""Run the kernels' tests with a sanitiser of gcc: ``python tools/sanitise.py address|thread [PYTEST'S ARGUMENTS]``.

``fuzz`` runs tools/fuzz.py with that of addresses: ``python tools/sanitise.py fuzz [ITS ARGUMENTS]``.
``address``: every blob, weight and table is on its own. Blobs share no bytes, and the bytes between them are poisoned, so that
a kernel that reads or writes one byte too many ends the run. The host's arrays and the mapped weights are copies of their own.
``thread``: two threads that use the same bytes without an order are an error.

The library is compiled into a folder of its own, with the variants that this processor can run.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

from chai.kernels.native import build, chain, library, order, program, table
from chai.kernels.native.library import Library, RunArguments, address, state
from chai.kernels.native.table import Table
from chai.util.lazy_numpy import np

ROOT = Path(__file__).resolve().parent.parent
# tests that the thread sanitiser fails: a forked process may start no thread, and most of a small stack is the sanitiser's own
NOT_IN_THREADS = "fork", "pinned_caller", "computes_elsewhere", "begins_to_compute", "small_stack"
TESTS = {
    "address": [
        "tests/kernels/test_native.py",
        "tests/kernels/test_amx.py",
        "tests/kernels/test_conversions.py",
        "tests/kernels/test_device_blobs.py",
        "tests/kernels/test_floats.py",
        "tests/kernels/test_tiles.py",
        "tests/kernels/test_elements.py",
        "tests/kernels/test_pixels.py",
        "tests/kernels/test_softmax.py",
        "tests/kernels/test_weights.py",
        "tests/kernels/test_running.py",
        "tests/tasks/test_define.py",
        "tests/runtime/test_together.py",
    ],
    "thread": [
        "tests/kernels/test_threads.py",
        "tests/kernels/test_elsewhere.py",
        "tests/kernels/test_running.py",
        "tests/kernels/test_conversions.py::test_conversions_in_pieces_have_the_codes_of_whole_ones",
        "tests/kernels/test_floats.py::test_lrn_has_the_bits_of_single_operations",
        "tests/kernels/test_elements.py",
        "tests/kernels/test_pixels.py::test_pieces_in_several_threads",
        "tests/runtime/test_together.py",
        *("-k", f"not {' and not '.join(NOT_IN_THREADS)}"),
    ],
}
GAP = 256  # poisoned bytes between two blobs or tables
LARGE = 4096  # bytes more for each array: numpy gives smaller ones out again, poisoned
ASAN = "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=64"  # memory that a file costs is measured
# each access is a call: gcc takes a minute for a variant with checks in loops that are unrolled, ten with -O3, and 9 s so
CALLS = {"address": ["--param", "asan-instrumentation-with-call-threshold=0"], "thread": []}
LIBRARY, KIND = "CHAI_SANITISED", "CHAI_SANITISER"


def main() -> int:
    """Compile, and run pytest with this file as a plugin, or tools/fuzz.py, which imports it."""
    what, *arguments = sys.argv[1:] or ["address"]
    kind = "thread" if what == "thread" else "address"
    flags = [f"-fsanitize={kind}", "-fno-omit-frame-pointer", "-O1", *CALLS[kind]]
    runnable = [variant.name for variant in state().variants]
    runtime = {"address": "libasan.so", "thread": "libtsan.so"}[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chai.so")
        sys.stdout.write(f"{', '.join(build.build(path, extra=flags, only=runnable))}\n")
        loaded = subprocess.run(["cc", f"-print-file-name={runtime}"], capture_output=True, text=True, check=True)
        options = f"log_path={folder}/report"
        env = {**os.environ, LIBRARY: str(path), KIND: kind, "LD_PRELOAD": loaded.stdout.strip()}
        env |= {"ASAN_OPTIONS": f"{ASAN}:{options}", "TSAN_OPTIONS": f"exitcode=66:{options}"}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
        named = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
        tests = arguments if named else [*TESTS[kind], *arguments]  # options alone are for these tests
        command = [sys.executable, "-m", "pytest", "-q", "-p", "sanitise", *tests]
        if what == "fuzz":
            command = [sys.executable, "tools/fuzz.py", *(arguments or ["--kind", "compiled"])]
        code = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
        for report in Path(folder).glob("report*"):
            sys.stdout.write(report.read_text())
        return code


def apart(lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return offsets of blobs that share no bytes, and the total size; does what ``overlay.layout.share`` does."""
    offsets, end = {}, GAP
    for blob in lives:
        offsets[blob] = end
        end += sizes[blob] + GAP
    return offsets, end


def poison(memory: np.ndarray, used: list[tuple[int, int]]) -> None:
    """Poison the bytes of ``memory`` outside the runs (first, end)."""
    asan = ctypes.CDLL(None)
    end = 0
    for first, last in [*sorted(used), (len(memory), 0)] if used else []:
        if first > end:
            asan.__asan_poison_memory_region(ctypes.c_void_p(memory.ctypes.data + end), ctypes.c_size_t(first - end))
        end = last


def replaced(where: object, name: str, by: Callable[..., object]) -> None:
    """Put ``by`` in the place of a function, until the process ends."""
    mock.patch.object(where, name, by).start()


def sanitised() -> None:
    """Use the sanitised library."""
    path = Path(os.environ[LIBRARY])
    replaced(build, "library", lambda *_: path)
    state.cache_clear()
    if os.environ[KIND] == "address":
        lonely()


def lonely() -> None:
    """Give every blob and table memory of its own, between poisoned bytes."""
    replaced(order, "share", apart)
    aligned, reserve = library.aligned, table.Constants.reserve

    def reserved(self: table.Constants, size: int) -> int:
        offset = reserve(self, size)
        self.size += GAP
        vars(self).setdefault("used", []).append((offset, offset + size))
        return offset

    def large(size: int) -> np.ndarray:
        memory = aligned(size + LARGE)[:size]
        poisoned_outside.add(memory.ctypes.data)
        return memory

    lent = threading.local()  # the host's arrays of a thread's next run, by their addresses
    poisoned_outside: set[int] = set()  # addresses of memories whose gaps are poisoned
    run, run_table, run_one = program.NativeProgram.run, Library.run, Library.run_one

    def seen(array: np.ndarray) -> int:
        kept = {} if vars(lent).pop("ran", False) else vars(lent).get("arrays", {})
        lent.arrays = {**kept, address(array): array}
        return address(array)

    def with_copies(self: Library, table: Table, frame: RunArguments, *more: int) -> Sequence[float]:
        arrays, lent.ran = vars(lent).get("arrays", {}), True  # a chain runs for one image after the other
        bases = [
            max(a for a in arrays if a <= at) if b is None else at for b, at in zip(frame.buffers, frame.addresses)
        ]
        buffers = [arrays[base] if b is None else b for b, base in zip(frame.buffers, bases)]
        copies = [b if b.ctypes.data in poisoned_outside else b.copy() for b in buffers]
        begins = [
            copy.reshape(-1).view(np.uint8)[at - base :] for copy, at, base in zip(copies, frame.addresses, bases)
        ]
        times = run_table(self, table, RunArguments(table, len(frame.ms), begins), *more)
        for buffer, copied in zip(buffers, copies):
            if buffer.flags.writeable and copied is not buffer:
                buffer[...] = copied
        return times

    def one_with_copies(self: Library, operation: table.Operation, threads: int, *buffers: np.ndarray) -> None:
        own = [buffer.copy() for buffer in buffers]
        run_one(self, operation, threads, *own)
        for buffer, copied in zip(buffers, own):
            if buffer.flags.writeable:
                buffer[...] = copied

    def poisoned(self: program.NativeProgram, blobs: dict[str, np.ndarray]) -> Sequence[float]:
        if not self._frames:
            self._memory = self._packed() if self._memory is None else self._memory
            poison(self._memory, vars(self._constants).get("used", []))
            frame = self._frame(self._memory)
            memory = frame.buffers[0]
            assert memory is not None
            inside, beyond = [], table.RUN_STEP - 4 if self._library.name.startswith("amx") else 3
            for blob in self._blobs.values():
                (rows, columns), (_, offset, image, _, row, pixel) = blob.border, blob.place
                begin = offset - rows * row - columns * pixel
                inside.append((begin, begin + blob.shape[0] * image + beyond))
            poison(memory, inside)
            self._frames.append(frame)
        return run(self, blobs)

    replaced(program, "aligned", large)
    replaced(table.Constants, "reserve", reserved)
    replaced(program.NativeProgram, "run", poisoned)
    replaced(program, "address", seen)
    replaced(chain, "address", seen)
    replaced(Library, "run", with_copies)
    replaced(Library, "run_one", one_with_copies)


if LIBRARY in os.environ:
    sanitised()
elif __name__ == "__main__":
    sys.exit(main())
