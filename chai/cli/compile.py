"""chai compile: a network for an overlay, as one file that a board can run."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..images import preprocess as images
from ..offload.schedule import DeviceStep
from ..zoo.locate import locate
from . import inputs as jobs, options, output, worst

if TYPE_CHECKING:
    from ..evaluate.compare import Report

EPILOG = """examples:
  chai compile googlenet bvlc_googlenet.caffemodel --calibration photos/ -o googlenet.chai
  chai compile net_quantised.prototxt net.caffemodel --overlay ultra96 --batch 2 -o net.chai
  chai run googlenet.chai -i cat.jpg"""

MEASURED = 8  # images that show the worst layers


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.network(parser)
    parser.add_argument("-o", "--output", type=output.file, required=True, metavar="NET.chai", help="the file to write")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="images per pass (default: 1)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="one label per line, to be carried along")
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="DIR",
        help="images that the result is measured on, and that formats are taken from where the network brings none",
    )
    options.execution(parser, device=False)
    options.preprocessing(parser)
    parser.set_defaults(random_weights=False)


def execute(args: argparse.Namespace) -> int:
    """Plan, lower and pack; write the file; say what is in it."""
    from ..artifact.save import save
    from ..offload.formats import given

    if args.batch < 1:
        raise UsageError("--batch must be at least 1")
    if args.output.suffix != ".chai":
        raise UsageError(f"-o {args.output}: expected a name that ends in .chai")
    _, weights = locate(args.net, args.weights)
    if weights is None:
        raise jobs.no_weights("compile", args.net)
    files = images.find([args.calibration]) if args.calibration else []
    args.device = "emulator" if files else "null"  # which only plans
    job = jobs.prepare(args, files)
    options.check_formats(args, job.net.graph)
    if files:
        jobs.warn_of_defaults(job, files)
        jobs.calibrate(args, job)
        job.net.reshape(**{job.blob: job.shape})  # the images were one batch
    elif given(job.net.offload.graph):
        job.net.plan()
    card = images.Card(job.net.name, tuple(job.labels), job.preprocess)
    save(job.net, args.output, card)
    segments = [step for step in job.net.schedule.steps if isinstance(step, DeviceStep)]
    overlay = job.net.overlay
    assert overlay is not None
    output.result(
        f"{args.output}   {args.output.stat().st_size / 1e6:.2f} MB   {job.net.name} for {overlay.name}, batch {args.batch}"
    )
    output.result(
        f"{sum(len(s.tasks) for s in segments)} Tasks in {len(segments)} segment{'s' * (len(segments) != 1)}, "
        f"{sum(e.startswith('host:') for e in job.net.schedule.engines())} steps on the host"
    )
    if files:
        report = _measured(args, job, files[:MEASURED])
        output.result(worst.sentence(report))
        worst.warn(report)
    elif not args.quiet:
        output.say("note: --calibration DIR measures how good its fixed point is; so does chai check on its prototxt")
    if not args.quiet:
        output.say(f"next: chai run {args.output} -i IMAGE")
    return 0


def _measured(args: argparse.Namespace, job: jobs.Job, files: list[Path]) -> Report:
    """Compare what was compiled with float on a few images, one at a time."""
    from ..evaluate.compare import compare

    inputs = ({job.blob: item[None]} for _, item in jobs.items(files, job, []))
    with options.load_network(args, device="float", keep="all", batch=1) as reference:
        return compare(reference, job.net, islice(inputs, MEASURED))
