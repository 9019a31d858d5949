"""chai compile: compile a network for an overlay into one file that a board can run."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from ..artifact.save import save
from ..errors import UsageError
from ..evaluate.compare import compare
from ..images import files as images
from ..images.pictures import in_floats
from ..offload.formats import has_formats
from ..text import number_of
from ..zoo.card import Card
from ..zoo.locate import locate
from . import inputs as jobs, options, output, worst
from .parsing import option, refuse, section

EPILOG = """examples:
  chai compile googlenet bvlc_googlenet.caffemodel --calibration photos/ -o googlenet.chai
  chai compile net_int8.prototxt net_int8.caffemodel --overlay ultra96 --batch 2 -o net.chai
  chai run googlenet.chai -i cat.jpg"""

MEASURED = 8  # images to find the worst layers with


def arguments(parser: argparse.ArgumentParser) -> None:
    options.network(parser, compiled=False)
    options.detector(parser)
    options.calibration(
        parser, "images to measure the result on; formats too are chosen on them if the prototxt has none"
    )
    options.batch(parser, 1)
    options.preprocessing(parser)
    options.execution(parser, device=False)
    group = section(parser, "output")
    option(group, "-o --output NET.chai", "file to write", type=output.file, required=True)
    option(group, "--labels FILE", "names of the classes to put into it, one per line; coco or voc", type=Path)


def execute(args: argparse.Namespace) -> int:
    """Plan, lower and pack the network; write the file and print a summary of it."""
    if args.output.suffix != ".chai":
        raise UsageError(
            f"-o {args.output}: expected a name that ends in .chai", hint=f"-o {args.output.with_suffix('.chai')}"
        )
    if not args.calibration:
        refuse(args, ("autotune", "jit"), "without --calibration: nothing runs")
    locate(args.net, args.weights)  # refuses a compiled network
    files = images.find([args.calibration]) if args.calibration else []
    args.device = "emulator" if files else "null"  # plans only
    job = jobs.prepare(args, files)
    options.check_formats(args, job.net.graph)
    if files:
        jobs.warn_of_defaults(job, files)
        jobs.calibrate(args, job)
        job.net.reshape(**{job.blob: (args.batch, *job.shape[1:])})  # calibration ran one image at a time
    elif has_formats(job.net.offload.graph):
        job.net.plan()
    save(job.net, args.output, Card(job.net.name, tuple(job.labels), job.preprocess))
    segments = job.net.schedule.segments
    overlay = job.net.overlay
    assert overlay is not None
    output.result(
        f"{args.output}   {args.output.stat().st_size / 1e6:.2f} MB   {job.net.name} for {overlay.name}, batch {job.net.batch}"
    )
    on_host = sum(engine.startswith("host:") for engine in job.net.schedule.engines())
    output.result(
        f"{number_of(sum(len(s.tasks) for s in segments), 'Task')} in {number_of(len(segments), 'segment')}, "
        f"{number_of(on_host, 'step')} on the host"
    )
    if files:
        inputs = islice(map(in_floats, jobs.singles(files[:MEASURED], job)), MEASURED)
        with options.load_network(args, device="float", keep="all", batch=1) as reference:
            report = compare(reference, job.net, inputs)
        output.result(worst.sentence(report))
        worst.warn(report)
    elif not args.quiet:
        output.say(
            "note: --calibration DIR measures how good its fixed point is; so does chai check of what was compiled"
        )
    if not args.quiet:
        output.say(f"next: chai run {args.output} -i IMAGE{options.simulator(overlay)}")
    return 0
