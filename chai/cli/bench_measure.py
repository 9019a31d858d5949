"""Measure a network for chai bench, in processes that are forked before numpy is loaded: BLAS reads its threads then."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from time import perf_counter, process_time
from typing import Any

from ..artifact.save import save
from ..blob import Array, Shape
from ..errors import UsageError
from ..evaluate.bench import rounds, start
from ..evaluate.bench.caffe import caffe, replaced
from ..evaluate.bench.engines import Peer, PeerEngine, Run, Subject, opened, sets
from ..kernels.native.library import library, lost
from ..net import Net
from ..runtime.perf import PerfInfo, spread
from ..text import number_of
from ..util.interpreter import THREAD_LIMITS
from ..util.lazy_numpy import np
from ..zoo import is_compiled, is_onnx
from . import guarded, options, output
from .parsing import refuse

# of passes, the inputs' shapes and chai's least milliseconds: figures and notes
After = Callable[[Sequence[PerfInfo], Mapping[str, Shape], float], tuple[dict[str, Any], list[str]]]
Further = Callable[[Net, int], After]  # of a network and the number of threads; called before the rounds

THREADS = (*THREAD_LIMITS, "CHAI_THREADS")


def apart(work: Callable[[], Any], threads: int, quiet: bool) -> tuple[int, Any]:
    """Return exit code and result of ``work`` in a forked process whose libraries use so many ``threads``.

    The process prints its own errors; if ``quiet``, it gives no warnings.
    """
    context = get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(work, threads, quiet, writing), daemon=True)
    process.start()
    writing.close()
    try:
        text = reading.recv_bytes()
    except EOFError:  # it has said why
        text = b""
    process.join()
    code = process.exitcode or 0
    if code < 0:
        output.say(f"error: the process that measures was ended by signal {-code}")
        code = 128 - code
    return code, None if code else json.loads(text)


def _measured(work: Callable[[], Any], threads: int, quiet: bool, writing: Connection) -> None:
    """Send what ``work`` returns, and exit with its code; end with the process that waits for it, however that one ends."""
    Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # engines print there, too
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    if quiet:
        logging.getLogger("chai").setLevel(logging.ERROR)

    def send() -> int:
        try:
            writing.send_bytes(json.dumps(work()).encode())
            return 0
        except KeyboardInterrupt:
            return 130  # the first process says it

    sys.exit(guarded(send))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@dataclass(frozen=True)
class Measurement:
    """Measurements with one number of threads; ``folder`` is for the files of the engines."""

    args: argparse.Namespace
    engines: Mapping[str, PeerEngine]
    threads: int
    folder: Path

    def run(self, batch: int | None, further: Further | None) -> dict[str, Any]:
        """Return what is known of the network, notes, and the figures of one batch."""
        args, threads, load = self.args, self.threads, os.getloadavg()[0]
        net, feeds = self._loaded(batch)
        shapes = {blob: feed.shape for blob, feed in feeds.items()}
        images = len(next(iter(feeds.values())))
        outputs = [*net.forward(**feeds).values()]
        peers, notes = self._opened(net, feeds)
        others = {peer.name: peer.run for peer in peers if not isinstance(peer.run, str)}
        notes += filter(None, [lost()])
        notes += [f"no {peer.name}: {peer.run}" for peer in peers if isinstance(peer.run, str)]
        finish = None if further is None else further(net, threads)
        passes: list[PerfInfo] = []
        clock = process_time if args.processor_time else perf_counter

        def once() -> None:
            net.forward(**feeds)
            if finish is not None:
                passes.append(net.perf)

        spin = rounds.Spin(threads) if threads > 1 else None
        programs: list[Callable[[], Any]] = [once, *others.values(), *([spin] if spin else [])]
        rounds.timed(programs, range(1), threads)  # warm-up
        passes.clear()
        what = f"rounds, {number_of(threads, 'thread')}, batch {images}"
        shown = output.progress(range(args.rounds), args.rounds, what, args.quiet)
        times = dict(zip(["chai", *others], rounds.timed(programs, shown, threads, clock)))
        figures = {
            "batch": images,
            "threads": threads,
            "spin": spin and spin.speedup,
            "measurable": spin is None or spin.reached,
            "load": load,
            "noise": max(map(rounds.noise, times.values())),
            "ms_per_image": {name: spread([ms / images for ms in each])._asdict() for name, each in times.items()},
            "ratio": {name: rounds.ratios(times[name], times["chai"]) for name in others},
            "difference": {name: _difference(outputs, other()) for name, other in others.items()},
        }
        if finish is not None:
            more, remarks = finish(passes, shapes, min(times["chai"]))
            figures, notes = figures | more, notes + remarks
        return {"network": self._described(net, shapes, others), "run": figures, "notes": notes}

    def _loaded(self, batch: int | None) -> tuple[Net, dict[str, Array]]:
        args = self.args
        compiled = is_compiled(args.net)
        device = args.device or (None if compiled else "float")
        net = options.load_network(args, device=device, batch=batch or (None if compiled else 1), overlay=args.overlay)
        if net.overlay is None:
            refuse(args, ("overlay",), f"on device {net.device.name}, which has no overlay", hint="--device emulator")
        if args.processor_time and net.device.fixed and not net.device.word:
            raise UsageError(f"--processor-time leaves out what device {net.device.name} does", hint="leave it out")
        return net, {b: np.random.default_rng(0).standard_normal(net.shapes[b]).astype(np.float32) for b in net.inputs}

    def _opened(self, net: Net, feeds: Mapping[str, Array]) -> tuple[list[Peer], list[str]]:
        """Return the peers and notes; the folder has the network's Caffe files afterwards."""
        args = self.args
        if not args.against:
            return [], []
        if is_compiled(args.net) or is_onnx(args.net):
            return [], ["no peer: they need a prototxt and a caffemodel"]
        files = caffe(net.graph, self.folder)
        graph, notes = net.graph, []
        if any(layer.engine == "custom" for layer in graph.layers):
            other = argparse.Namespace(**{**vars(args), "net": str(files[0]), "weights": str(files[1]), "custom": []})
            same = options.load_network(other, device="float", batch=len(next(iter(feeds.values()))))
            if names := replaced(graph, same.graph):
                notes = [f"peers compute {', '.join(names)} as a layer of Caffe's own"]
                graph = same.graph
        subject = Subject(graph, (str(files[0]), str(files[1])), feeds, self.threads)
        peers = opened(args.against, self.engines, subject, self.folder)
        return [*output.progress(peers, len(args.against), "peers opened", args.quiet)], notes

    def _described(self, net: Net, shapes: Mapping[str, Shape], others: Mapping[str, Run]) -> dict[str, Any]:
        """Return what does not depend on threads and batch."""
        used = library()
        instructions = {name: sets(self.engines[name].instructions(run)) for name, run in others.items()}
        return {
            "network": net.name,
            "inputs": {blob: [1, *shape[1:]] for blob, shape in shapes.items()},
            "random_weights": not is_compiled(self.args.net) and not net.trained,
            "device": net.device.name,
            "overlay": None if net.overlay is None else net.overlay.name,
            "kernels": "numpy" if used is None else used.name,
            "processor": _processor(),
            "versions": {
                name: str(getattr(sys.modules[self.engines[name].module], "__version__", "?"))
                for name in sorted(others)
            },
            "instructions": {"chai": sets([] if used is None else [used.name]), **instructions},
        }

    def programs(self) -> list[dict[str, Any]]:
        """Write the files of all for a batch of 1 to the folder, and return the programs for ``start``, for JSON."""
        args, threads = self.args, self.threads
        net, feeds = self._loaded(1)
        shapes = {blob: feed.shape for blob, feed in feeds.items()}
        custom = [os.path.abspath(place) for place in args.custom] or None
        options = {"device": net.device.name, "overlay": args.overlay, "custom": custom}

        def program(name: str, *files: str | Path, **more: Any) -> start.MeasuredProgram:
            words = [json.dumps({**options, **more}), *map(str, files)]
            return start.MeasuredProgram(f"chai, {name}", start.CHAI, words, shapes, threads)

        entries = []
        if is_compiled(args.net):
            entries.append(program(".chai", args.net))
        else:
            net.forward(**feeds)
            peers, _ = self._opened(net, feeds)
            if net.overlay is not None:
                if not net.calibrated:
                    net.calibrate(**feeds)
                save(net, self.folder / "net.chai")
                entries.append(program(".chai", self.folder / "net.chai"))
            if is_onnx(args.net):
                entries.append(program("ONNX file", os.path.abspath(args.net)))
            else:
                entries.append(
                    program("Caffe files", *caffe(net.graph, self.folder), phase=args.phase, stages=args.stages)
                )
            entries += [
                start.MeasuredProgram(
                    peer.name, start.source(self.engines[peer.name].open), peer.words, shapes, threads
                )
                for peer in peers
                if not isinstance(peer.run, str)
            ]
        return [entry._asdict() for entry in entries]


def _difference(outputs: Sequence[Array], others: Sequence[Array]) -> float:
    return max(float(np.abs(a - np.reshape(b, a.shape)).max()) for a, b in zip(outputs, others))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return names[0] if names else platform.machine()


def started(programs: list[dict[str, Any]], threads: int, times: int, folder: Path, quiet: bool) -> dict[str, Any]:
    """Return the figures of processes that run the programs; byte code is kept in ``folder``.

    A program that fails is named in a note. One that fails in its 100 passes only keeps the times of its start.
    """
    variables = start.environment(folder, threads, THREADS)
    usable = []
    for values in output.progress(programs, len(programs), "first processes", quiet):
        program = start.MeasuredProgram(**values)
        if reason := start.problem(program, variables):
            output.say(f"note: no start of {program.name}: {reason}")
        else:
            usable.append(program)
    with output.meter("rounds of processes", quiet) as tell:
        figures, reasons = start.starts(usable, times, variables, tell)
    output.say(*(f"note: no start of {name}: {reason}" for name, reason in reasons.items()))
    usable = [program for program in usable if program.name in figures]
    for program in output.progress(usable, len(usable), "processes of 100 images", quiet):
        figures[program.name] |= _memory(program, variables)
    return figures


def _memory(program: start.MeasuredProgram, variables: Mapping[str, str]) -> Mapping[str, float | None]:
    """Return the figures of 100 passes, None for each if they fail, which a note says."""
    try:
        return start.memory(program, variables)
    except UsageError as error:
        output.say(f"note: no peak memory of {program.name}: {error.message}")
        return dict.fromkeys(("mb", "cpu_ms", "slowest"))
